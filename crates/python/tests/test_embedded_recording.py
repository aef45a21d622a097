"""record=True: the same replays as the command line's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rollhouse
from rollhouse import errors, replays


def play(envs: rollhouse.VectorEnv, steps: int) -> tuple[list[int], list[float]]:
    """Plays at random; lengths and returns of the episodes that ended, as its caller sees them."""
    lengths, returns = np.zeros(envs.num_envs, dtype=int), np.zeros(envs.num_envs)
    ended: tuple[list[int], list[float]] = ([], [])
    envs.action_space.seed(0)
    for _ in range(steps):
        _, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
        lengths += infos.get("valid", 1)
        returns += rewards
        for lane in np.flatnonzero(terminations | truncations):
            ended[0].append(int(lengths[lane]))
            ended[1].append(float(returns[lane]))
            lengths[lane] = returns[lane] = 0
    return ended


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "test/Noise-v0"])
def test_what_was_played_is_recorded(id: str, mode: str, tmp_path: Path) -> None:
    envs = rollhouse.make_vec(id, 5, seed=1, record=True, data=tmp_path, autoreset_mode=mode)
    envs.reset()
    where = envs.recording
    assert where.path.parent == tmp_path
    assert where.figures["lost_episodes"] == 0 and where.failure is None
    lengths, returns = play(envs, 700)
    envs.close()
    assert envs.recording.figures["episodes"] >= len(lengths) > 0
    assert envs.recording.figures["lost_episodes"] == 0
    recorded = [info for info in replays.open(where.path)]
    finished = [info for info in recorded if info.finished]
    assert sorted(info.length for info in finished) == sorted(lengths)
    assert np.allclose(sorted(info.return_ for info in finished), sorted(returns))
    assert {info.outcome for info in recorded if not info.finished} <= {"cancelled"}
    assert {info.policy for info in recorded} == {"external"}


@pytest.mark.parametrize("kind", ["embedded", "worker processes"])
def test_a_sample_of_episodes_is_recorded_whole(kind: str, tmp_path: Path) -> None:
    id = "CartPole-v1" if kind == "embedded" else "gymnasium:CartPole-v1"
    envs = rollhouse.make_vec(id, 8, seed=1, record="sample:0.3", data=tmp_path)
    envs.reset()
    lengths, _ = play(envs, 400)
    envs.close()
    found = replays.open(tmp_path)
    recorded = [info for info in found if info.finished]
    assert 0.1 * len(lengths) < len(recorded) < 0.6 * len(lengths)
    assert all(len(episode) == episode.info.length for episode in found.read_many(recorded))


@pytest.mark.parametrize("record", ["sample:1.5", "sample:", "sample:nan", "some", "all"])
def test_a_rule_that_is_none_is_refused(record: str, tmp_path: Path) -> None:
    for id in ("CartPole-v1", "gymnasium:CartPole-v1"):
        with pytest.raises(ValueError, match=f"record='{record}' must be False, True"):
            rollhouse.make_vec(id, 1, record=record, data=tmp_path)


def test_the_data_folder_itself_can_be_read(tmp_path: Path) -> None:
    envs = rollhouse.make_vec("CartPole-v1", 2, record=True, data=tmp_path)
    envs.reset(seed=0)
    lengths, _ = play(envs, 100)
    envs.close()
    assert sum(info.finished for info in replays.open(tmp_path)) == len(lengths)


def test_envs_of_one_process_share_its_folder(tmp_path: Path) -> None:
    a, b = (rollhouse.make_vec("CartPole-v1", 2, record=True, data=tmp_path) for _ in range(2))
    for envs in (a, b):
        envs.reset(seed=0)
        play(envs, 50)
    assert a.recording.path == b.recording.path
    assert a.recording.run != b.recording.run
    a.close()
    b.close()
    assert len({info.run for info in replays.open(a.recording.path)}) == 2


def test_first_done_steps_are_recorded(tmp_path: Path) -> None:
    envs = rollhouse.make_vec("CartPole-v1", 4, record=True, data=tmp_path)
    envs.reset(seed=0)
    ends = 0
    for step in range(100):
        envs.send([step % 2, 1], [step % 4, (step + 1) % 4])
        ends += int((envs.recv()[2]).sum())
    envs.close()
    assert sum(info.finished for info in replays.open(envs.recording.path)) == ends > 0


@pytest.mark.parametrize("ending", ["", "raise SystemExit(1)", "envs = None; import gc; gc.collect()"])
def test_envs_that_were_not_closed_leave_complete_replays(ending: str, tmp_path: Path) -> None:
    program = f"""
import numpy as np
import rollhouse
envs = rollhouse.make_vec("CartPole-v1", 3, record=True, data={str(tmp_path)!r})
envs.reset(seed=0)
for _ in range(5):
    envs.step(np.ones(3, dtype=np.int64))
{ending}
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    recorded = list(replays.open(tmp_path))
    assert [(info.outcome, info.length) for info in recorded] == [("cancelled", 5)] * 3


def test_the_data_folder_can_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLHOUSE_DATA", str(tmp_path / "there"))
    envs = rollhouse.make_vec("CartPole-v1", 1, record=True)
    assert envs.recording.path.parent == tmp_path / "there"
    envs.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(errors.RecordingError, match=f"data={file}"):
        rollhouse.make_vec("CartPole-v1", 1, record=True, data=file)
    with pytest.raises(OSError):
        rollhouse.make_vec("CartPole-v1", 1, record=True, data=file)


def test_without_recording_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    envs = rollhouse.make_vec("CartPole-v1", 1)
    envs.reset()
    envs.close()
    assert envs.recording is None
    assert not list(tmp_path.iterdir())
