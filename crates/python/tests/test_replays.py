"""Recordings read from Python are the episodes that were played."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import rollhouse
from rollhouse import replays
from rollhouse.errors import (
    DamagedRecordingError,
    EpisodeNotFoundError,
    OptionsError,
    RecordingsNotFoundError,
    ReplayError,
)


class Played:
    """An episode as the caller of the vector env saw it."""

    def __init__(self, first: np.ndarray):
        self.observations = [first]
        self.actions: list = []
        self.rewards: list[float] = []
        self.end = (False, False)


def play(data: Path, env: str = "CartPole-v1", lanes: int = 5, steps: int = 120, seed: int = 7, **arguments):
    """Plays and records; gives every episode by (lane, number)."""
    envs = rollhouse.make_vec(env, lanes, record=arguments.pop("record", True), data=data, **arguments)
    envs.action_space.seed(seed)
    observations, _ = envs.reset(seed=seed)
    played = {(lane, 0): Played(observations[lane]) for lane in range(lanes)}
    number = [0] * lanes
    for _ in range(steps):
        actions = envs.action_space.sample()
        observations, rewards, terminations, truncations, infos = envs.step(actions)
        for lane in range(lanes):
            episode = played[lane, number[lane]]
            if "valid" in infos and not infos["valid"][lane]:
                # NEXT_STEP: this row began the next episode.
                number[lane] += 1
                played[lane, number[lane]] = Played(observations[lane])
                continue
            over = terminations[lane] or truncations[lane]
            has_final = over and "final_obs" in infos
            episode.actions.append(actions[lane])
            episode.rewards.append(rewards[lane])
            episode.observations.append(infos["final_obs"][lane] if has_final else observations[lane])
            episode.end = (bool(terminations[lane]), bool(truncations[lane]))
            if has_final:
                number[lane] += 1
                played[lane, number[lane]] = Played(observations[lane])
    envs.close()
    return {key: episode for key, episode in played.items() if episode.rewards}


@pytest.fixture(scope="module")
def cartpoles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with some 60 CartPole episodes."""
    data = tmp_path_factory.mktemp("cartpoles")
    play(data, lanes=8, steps=200)
    return data


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("record", [True, "trace"])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
def test_what_is_read_is_bit_for_bit_what_was_played(tmp_path: Path, env: str, mode: str, record) -> None:
    played = play(tmp_path, env, steps=260, autoreset_mode=mode, record=record)
    recorded = replays.open(tmp_path)
    infos = {(info.lane, info.number): info for info in recorded}
    assert infos.keys() == played.keys()
    for key, episode in played.items():
        read = recorded.read(infos[key])
        assert read.info.recorded == ("trace" if record == "trace" else "action_log")
        assert read.observations.dtype == np.float32
        np.testing.assert_array_equal(read.observations, np.array(episode.observations))
        np.testing.assert_array_equal(read.actions, np.array(episode.actions))
        np.testing.assert_array_equal(read.rewards, np.array(episode.rewards))
        assert read.rewards.dtype == np.float64
        assert len(read) == read.info.length == len(episode.rewards)
        assert (bool(read.terminations[-1]), bool(read.truncations[-1])) == episode.end
        assert not read.terminations[:-1].any() and not read.truncations[:-1].any()


def test_an_episode_under_way_at_the_close_is_cancelled_and_not_finished(tmp_path: Path) -> None:
    play(tmp_path, lanes=3, steps=4)
    infos = replays.open(tmp_path).list()
    assert [info.outcome for info in infos] == ["cancelled"] * 3
    assert not any(info.finished or info.terminated or info.truncated for info in infos)
    episode = replays.open(tmp_path).read(infos[0])
    assert not episode.terminations.any() and not episode.truncations.any()


def test_a_listing_has_the_fields_of_the_command_line(cartpoles: Path) -> None:
    info = replays.open(cartpoles).list(sort="-return", limit=1)[0]
    assert info.id.endswith(f"-{info.lane}-{info.number}")
    assert (info.env, info.policy, info.policy_version) == ("CartPole-v1", "external", 0)
    assert info.length == info.return_
    assert info.started.tzinfo is not None
    assert int(info.dynamics, 16) == rollhouse.env_spec("CartPole-v1")["dynamics_hash"]
    assert info.bytes > 0
    assert info.options == {"high": 0.05, "low": -0.05, "sutton_barto_reward": False}
    assert info.max_episode_steps == 500
    assert info.parent is None
    assert info.observation_space == rollhouse.make_vec("CartPole-v1", 1).single_observation_space
    assert info.id in repr(info)


def test_episodes_are_read_with_the_options_that_each_has_drawn(tmp_path: Path) -> None:
    drawn = {"g": {"uniform": [2, 15]}}
    envs = rollhouse.make_vec(
        "Pendulum-v1", 3, options=drawn, record=True, data=tmp_path, seed=5, max_episode_steps=10
    )
    envs.reset()
    shown = [list(envs.get_attr("g"))]
    for _ in range(40):
        *_, infos = envs.step(np.zeros((3, 1), dtype=np.float32))
        shown.append(list(envs.get_attr("g")))
    envs.close()
    recorded = replays.open(tmp_path)
    finished = [info for info in recorded.list() if info.outcome == "truncated"]
    assert len(finished) == 9
    for info in finished:
        value = info.options["g"]
        assert 2 <= value < 15
        assert value == shown[11 * info.number + 1][info.lane]
    assert len({info.options["g"] for info in finished}) == 9


def test_a_range_that_is_none_is_refused_by_name() -> None:
    for wrong in ({"uniform": [15, 2]}, {"uniform": [2]}, {"gauss": [2, 15]}, {"uniform": [2, "x"]}, {"choice": []}):
        with pytest.raises(OptionsError, match="g"):
            rollhouse.make_vec("Pendulum-v1", 3, options={"g": wrong})


def test_a_seed_in_a_listing_gives_the_episode_again(cartpoles: Path) -> None:
    recorded = replays.open(cartpoles)
    seeded = [info for info in recorded if info.seed is not None]
    assert len(seeded) == 8, "the first episode of every lane"
    for info in seeded:
        envs = rollhouse.make_vec("CartPole-v1", 1)
        observations, _ = envs.reset(seed=info.seed)
        episode = recorded.read(info)
        np.testing.assert_array_equal(episode.observations[0], observations[0])
        for action, expected in zip(episode.actions, episode.observations[1:], strict=True):
            np.testing.assert_array_equal(envs.step([action])[0][0], expected)


def test_queries_are_those_of_a_sorted_and_filtered_list(cartpoles: Path) -> None:
    recorded = replays.open(cartpoles)
    everything = recorded.list()
    assert len(recorded) == len(everything) > 40
    assert recorded.list(sort="-length", all_outcomes=True) == sorted(everything, key=lambda info: -info.length)
    # An order of merit has no episodes that were cut off, unless they are asked for.
    finished = [info for info in everything if info.finished]
    cut = [info for info in everything if not info.finished]
    assert cut and recorded.list(sort="-length") == sorted(finished, key=lambda info: -info.length)
    assert recorded.list(sort="length", outcome="cancelled") == sorted(cut, key=lambda info: info.length)
    assert recorded.filter(outcome="cancelled").filter(env="CartPole-v1").list(sort="length", limit=99) == sorted(
        cut, key=lambda info: info.length
    )
    good = [info for info in everything if info.return_ >= 20]
    assert recorded.list(min_return=20) == good
    assert recorded.filter(min_return=20).list(limit=3) == good[:3]
    assert len(recorded.filter(min_return=20)) == len(good)
    even = recorded.filter(lambda info: info.number % 2 == 0).filter(min_return=20)
    assert even.list() == [info for info in good if info.number % 2 == 0]
    assert even.list(sort="-return", limit=2) == sorted(even.list(), key=lambda info: -info.return_)[:2]
    assert recorded.list(outcome="truncated") == []
    assert recorded.list(env="Acrobot-v1") == []
    assert recorded.list(limit=0) == []


def test_episodes_are_listed_by_the_result_that_their_env_gave_them(tmp_path: Path) -> None:
    # It is won on the right.
    envs = rollhouse.make_vec("test/Faulty-v0", 3, seed=0, record=True, data=tmp_path)
    envs.reset()
    for _ in range(50):
        envs.step(np.ones(3, dtype=np.int64))
    envs.close()
    recorded = replays.open(tmp_path)
    won = [info for info in recorded if info.finished]
    cut = [info for info in recorded if not info.finished]
    assert won and all(info.result == "win" and info.score > 5 for info in won)
    assert cut and all(info.result is None and info.score is None for info in cut)
    assert recorded.list(result="win") == won
    assert recorded.filter(result="win").filter(min_return=1).list(limit=2) == won[:2]
    assert recorded.list(result="draw") == []


def test_an_episode_is_found_by_its_name(cartpoles: Path) -> None:
    recorded = replays.open(cartpoles)
    info = recorded.list()[5]
    assert recorded.find(info.id) == info
    assert info.id in recorded and info in recorded
    np.testing.assert_array_equal(recorded[info.id].observations, recorded.read(info).observations)
    left_out = recorded.filter(lambda other: other.id != info.id)
    assert info.id not in left_out
    with pytest.raises(EpisodeNotFoundError, match="filters"):
        left_out.read(info.id)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda r: r.read("00000000-9-9"), EpisodeNotFoundError, "00000000-9-9"),
        (lambda r: r.read("00000000-9-9"), KeyError, "00000000-9-9"),
        (lambda r: r.read("best"), ValueError, "best"),
        (lambda r: r.list(sort="luck"), ValueError, "luck"),
        (lambda r: r.list(outcome="won"), ValueError, "won"),
        (lambda r: r.filter(min_return=1).list(outcome="won"), ValueError, "won"),
        (lambda r: r.list(result="won"), ValueError, "unknown result `won`; known are win, lose, draw"),
        (lambda r: r.filter(min_return=1).list(result="none"), ValueError, "none"),
        (lambda r: r.list(limit=-1), ValueError, "-1"),
        (lambda r: r.batches(0), ValueError, "batch_size=0"),
        (lambda r: r.batches(4, sequence_length=0), ValueError, "sequence_length=0"),
        (lambda r: r.batches(4, env="Acrobot-v1"), ValueError, "no such episode"),
    ],
)
def test_bad_questions_are_refused_by_name(cartpoles: Path, ask, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        ask(replays.open(cartpoles))
    assert not str(caught.value).startswith(("'", '"'))


def test_a_folder_that_is_not_there_is_a_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(RecordingsNotFoundError, match="nowhere") as caught:
        replays.open(tmp_path / "nowhere")
    assert isinstance(caught.value, FileNotFoundError) and isinstance(caught.value, ReplayError)


def test_an_empty_folder_holds_no_episodes(tmp_path: Path) -> None:
    assert replays.open(tmp_path).list() == []
    assert len(replays.open(tmp_path)) == 0


def test_the_default_folder_is_that_of_the_environment(
    cartpoles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLHOUSE_DATA", str(cartpoles))
    assert len(replays.open()) == len(replays.open(cartpoles))


def test_folders_of_several_processes_are_one(tmp_path: Path) -> None:
    script = """
import sys, rollhouse
envs = rollhouse.make_vec("CartPole-v1", 2, record=True, data=sys.argv[1])
envs.reset(seed=int(sys.argv[2]))
for _ in range(50):
    envs.step([0, 1])
envs.close()
"""
    for seed in ("1", "2"):
        subprocess.run([sys.executable, "-c", script, str(tmp_path), seed], check=True)
    recorded = replays.open(tmp_path)
    runs = {info.run for info in recorded}
    assert len(runs) == 2
    assert len({info.folder for info in recorded}) == 2
    assert recorded.verify().ok
    best = recorded.list(sort="-return")
    assert [info.return_ for info in best] == sorted((info.return_ for info in best), reverse=True)
    assert len(recorded.list(limit=5)) == 5


def test_a_copied_folder_adds_no_episode(tmp_path: Path) -> None:
    import shutil

    play(tmp_path, lanes=1, steps=40)
    before = [info.id for info in replays.open(tmp_path)]
    folder = replays.open(tmp_path).list()[0].folder
    shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("writer.lock"))
    recorded = replays.open(tmp_path)
    assert [info.id for info in recorded] == before
    for info in recorded:
        assert len(recorded.read(info.id)) == len(recorded.read(info)) == info.length


def test_recordings_are_readable_while_they_are_written(tmp_path: Path) -> None:
    envs = rollhouse.make_vec("CartPole-v1", 16, record=True, data=tmp_path)
    envs.reset(seed=1)
    actions = np.zeros(16, np.int64)
    recorded = replays.open(tmp_path)
    # Chunks are written when they are large enough; how many steps that takes is not said here.
    while len(recorded) == 0:
        for _ in range(500):
            envs.step(actions)
        recorded = recorded.refresh()
    assert recorded.is_writing
    before = {info.id: recorded.read(info).observations for info in recorded.list(limit=20)}
    envs.close()
    after = recorded.refresh()
    assert not after.is_writing
    assert len(after) > len(before)
    for name, observations in before.items():
        np.testing.assert_array_equal(after.read(name).observations, observations)


def segments(data: Path) -> list[Path]:
    return sorted(data.glob("**/segments/*.seg"))


def test_damage_is_an_error_of_the_episode_and_a_finding_of_verify(tmp_path: Path) -> None:
    play(tmp_path, lanes=4, steps=200)
    recorded = replays.open(tmp_path)
    info = recorded.list()[0]
    assert recorded.verify().ok
    (segment,) = segments(tmp_path)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    with pytest.raises(DamagedRecordingError, match=info.id):
        recorded.read(info)
    report = recorded.verify()
    assert not report.ok
    assert report.damage and str(segment) in report.damage[0]


def test_verifying_counts_what_it_checked(cartpoles: Path) -> None:
    recorded = replays.open(cartpoles)
    infos = recorded.list()
    report = recorded.verify()
    assert report.ok and not report.noted
    assert (report.episodes, report.steps) == (len(infos), sum(info.length for info in infos))
    some = recorded.verify([infos[0], infos[1].id])
    assert some.ok and some.episodes == 2
    long = recorded.filter(min_return=20)
    assert long.verify().episodes == len(long)


def test_what_cannot_be_recomputed_is_read_from_the_file_and_said(tmp_path: Path) -> None:
    play(tmp_path, "test/Noise-v0", lanes=2, steps=60)
    recorded = replays.open(tmp_path)
    episode = recorded.read(recorded.list()[0])
    assert episode.info.recorded == "full"
    assert episode.infos["noise"].shape == (len(episode),)
    report = recorded.verify()
    assert report.ok
    assert len(report.noted) == len(recorded)
    assert all("not deterministic" in one.note for one in report.noted)


def test_replays_travel_to_other_processes(cartpoles: Path) -> None:
    recorded = replays.open(cartpoles).filter(min_return=20)
    again = pickle.loads(pickle.dumps(recorded))
    assert again.list() == recorded.list()


def test_reading_many_gives_each_as_reading_it_alone(tmp_path: Path) -> None:
    play(tmp_path, lanes=40, steps=200)
    play(tmp_path, "Pendulum-v1", lanes=3, steps=450)
    play(tmp_path, "test/Noise-v0", lanes=3, steps=100)
    recorded = replays.open(tmp_path)
    infos = recorded.list(sort="-return", all_outcomes=True)
    assert len(infos) > 300
    for info, episode in zip(infos, recorded.read_many([info.id for info in infos]), strict=True):
        alone = recorded.read(info)
        assert episode.info == info
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(episode, name), getattr(alone, name))
        assert episode.infos.keys() == alone.infos.keys()
        for name, column in alone.infos.items():
            np.testing.assert_array_equal(episode.infos[name], column)
    assert sum(1 for _ in recorded.read_many()) == len(infos)


def test_reading_many_gives_those_before_a_damaged_one(tmp_path: Path) -> None:
    envs = rollhouse.make_vec("CartPole-v1", 64, record=True, data=tmp_path)
    envs.reset(seed=1)
    for step in range(3000):
        envs.step(np.full(64, step % 2))
    envs.close()
    recorded = replays.open(tmp_path)
    infos = recorded.list(sort="started")
    (segment,) = segments(tmp_path)
    content = bytearray(segment.read_bytes())
    content[len(content) * 3 // 4] ^= 0xFF
    segment.write_bytes(content)

    def readable(info) -> bool:
        try:
            recorded.read(info)
        except DamagedRecordingError:
            return False
        return True

    # A listing from before the damage: some of what it lists can be read, some cannot.
    sample = infos[::20]
    expected = [info for info in sample if readable(info)]
    assert 0 < len(expected) < len(sample)
    first_bad = next(index for index, info in enumerate(sample) if info not in expected)
    given = []
    with pytest.raises(DamagedRecordingError):
        for episode in recorded.read_many(sample):
            given.append(episode.info)
    assert given == sample[:first_bad]


def test_threads_may_read_side_by_side(cartpoles: Path) -> None:
    recorded = replays.open(cartpoles)
    infos = recorded.list()
    expected = [recorded.read(info).rewards.sum() for info in infos]
    found: dict[int, list[float]] = {}

    def read(index: int) -> None:
        found[index] = [episode.rewards.sum() for episode in recorded.read_many(infos)]

    threads = [threading.Thread(target=read, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {index: expected for index in range(4)}
