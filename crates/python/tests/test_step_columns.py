"""Whoever chooses the actions notes something of each step, and recordings have it beside the action."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from local_cluster import rollhouse_program

import rollhouse
from rollhouse import replays
from rollhouse.errors import OutstandingError, ResetNeededError

LANES = 3
COLUMNS = {"log_prob": "float32", "pair": (np.int64, (2,)), "explored": bool, "epoch": "uint8", "unsaid": "float64"}


def note_of(actions: np.ndarray, lanes: np.ndarray) -> dict[str, np.ndarray]:
    """What is noted of lanes that take these actions."""
    actions = np.asarray(actions, np.int64)
    return {
        "log_prob": actions * 0.5 - 7,
        "pair": np.stack([actions, lanes], axis=1),
        "explored": (actions + lanes) % 2 == 0,
        "epoch": np.full(len(lanes), 200),
    }


def play(envs: rollhouse.VectorEnv, steps: int = 60) -> None:
    envs.reset(seed=1)
    envs.action_space.seed(1)
    for _ in range(steps):
        actions = envs.action_space.sample()
        envs.note(**note_of(actions, np.arange(LANES)))
        envs.step(actions)


def read_all(path: Path) -> list[replays.Episode]:
    recorded = replays.open(path)
    return [recorded.read(info) for info in recorded]


def check(episodes: list[replays.Episode]) -> None:
    assert {episode.info.lane for episode in episodes} == set(range(LANES))
    assert sum(map(len, episodes)) > 100
    for episode in episodes:
        wanted = note_of(episode.actions, np.full(len(episode), episode.info.lane))
        assert list(episode.step_columns) == list(COLUMNS)
        for name, column in wanted.items():
            np.testing.assert_array_equal(episode.step_columns[name], column, err_msg=name)
        assert np.isnan(episode.step_columns["unsaid"]).all()
        types = [column.dtype.name for column in episode.step_columns.values()]
        assert types == ["float32", "int64", "bool", "uint8", "float64"]
        assert episode.step_columns["pair"].shape == (len(episode), 2)
        again = episode.info.step_columns()
        np.testing.assert_array_equal(again["pair"], episode.step_columns["pair"])


@pytest.mark.parametrize("id", ["CartPole-v1", "gymnasium:CartPole-v1"], ids=["embedded", "hosted"])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_each_step_has_what_was_noted_of_it(id: str, mode: str, tmp_path: Path) -> None:
    envs = rollhouse.make_vec(id, LANES, record=True, data=tmp_path, step_columns=COLUMNS, autoreset_mode=mode)
    play(envs)
    envs.close()
    check(read_all(tmp_path))


@pytest.mark.parametrize("id", ["CartPole-v1", "gymnasium:CartPole-v1"], ids=["embedded", "hosted"])
def test_lanes_that_are_sent_one_by_one_have_it_too(id: str, tmp_path: Path) -> None:
    envs = rollhouse.make_vec(id, LANES, record=True, data=tmp_path, step_columns=COLUMNS)
    envs.reset(seed=1)
    rng = np.random.default_rng(3)
    free = np.arange(LANES)
    for _ in range(150):
        lanes = free[:2]
        actions = rng.integers(0, 2, len(lanes))
        envs.note(lanes, **note_of(actions, lanes))
        envs.send(actions, lanes)
        with pytest.raises(OutstandingError):
            envs.note(lanes[:1], epoch=200)
        free = np.concatenate([free[2:], envs.recv(1)[4]["env_id"]])
    if len(free) < LANES:
        envs.recv(LANES - len(free))
    envs.close()
    check(read_all(tmp_path))


@pytest.mark.parametrize("transport", ["quic", "shm"])
def test_lanes_of_a_cluster_have_it_too(cluster_url: str, transport: str) -> None:
    cluster = rollhouse.connect(cluster_url, transport=transport)
    envs = cluster.make_vec("CartPole-v1", LANES, step_columns=COLUMNS)
    with pytest.raises(ResetNeededError):
        envs.note(epoch=1)
    play(envs)
    run = envs.run
    envs.close()
    # What a node ships comes in parts: all is there when every lane has its rows, those of its resets among them.
    infos: list[replays.EpisodeInfo] = []
    while [rows_of(lane, infos) for lane in range(LANES)] != [60] * LANES:
        infos = [info for info in replays.open(cluster).list(env="CartPole-v1") if info.run == run]
    recorded = replays.open(cluster)
    check([recorded.read(info) for info in infos])


def rows_of(lane: int, infos: list[replays.EpisodeInfo]) -> int:
    """Counts the rows of a lane's episodes, and those between them in which it was reset."""
    lengths = [info.length for info in infos if info.lane == lane]
    return sum(lengths) + len(lengths) - 1


def test_what_is_noted_stays_and_one_value_is_that_of_all_lanes(tmp_path: Path) -> None:
    envs = rollhouse.make_vec("CartPole-v1", LANES, record=True, data=tmp_path, step_columns={"epoch": "int32"})
    envs.reset(seed=1)
    for step in range(8):
        if step in (2, 5):
            envs.note(epoch=step)
        envs.step(np.zeros(LANES, np.int64))
    envs.close()
    for episode in read_all(tmp_path):
        if episode.info.number == 0:
            assert episode.step_columns["epoch"].tolist() == [0, 0, 2, 2, 2, 5, 5, 5][: len(episode)]


def test_a_recording_shows_them_and_exports_have_them(tmp_path: Path) -> None:
    def run(*arguments: object) -> bytes:
        command = [str(rollhouse_program()), "replay", *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True).stdout

    envs = rollhouse.make_vec("CartPole-v1", LANES, record=True, data=tmp_path, step_columns=COLUMNS)
    play(envs)
    envs.close()
    episode = max(read_all(tmp_path), key=len)
    shown = run("show", episode.id, "--data", tmp_path).decode()
    assert "noted" in shown and "log_prob (float32), pair (int64 2)" in shown
    facts = json.loads(run("show", episode.id, "--json", "--data", tmp_path))
    assert [column["name"] for column in facts["step_columns"]] == list(COLUMNS)
    lines = run("export", episode.id, "--format", "jsonl", "--data", tmp_path).splitlines()
    assert "step_columns" not in json.loads(lines[0])
    rows = [json.loads(line)["step_columns"] for line in lines[1:]]
    assert [row["pair"] for row in rows] == episode.step_columns["pair"].tolist()
    assert [row["log_prob"] for row in rows] == episode.step_columns["log_prob"].tolist()
    assert {row["unsaid"] for row in rows} == {None}
    arrays = np.load(io.BytesIO(run("export", episode.id, "--format", "npz", "--data", tmp_path)))
    for name, column in episode.step_columns.items():
        np.testing.assert_array_equal(arrays[f"step/{name}"], column)
    verified = replays.open(tmp_path).verify()
    assert verified.ok


def test_what_cannot_be_declared_or_noted_is_refused_by_name() -> None:
    for columns, why in [
        ({"1st": "float32"}, "a name is a letter"),
        ({"a": "float16"}, "must have one of bool"),
        ({"a": ("float32", (0,))}, "has the shape"),
        ({"a": ("float64", (8193,))}, "65544 bytes"),
        ({f"c{index}": "uint8" for index in range(17)}, "17 step columns"),
    ]:
        with pytest.raises(ValueError, match=why):
            rollhouse.make_vec("CartPole-v1", LANES, step_columns=columns)
    envs = rollhouse.make_vec("CartPole-v1", LANES, step_columns=COLUMNS)
    for error, why, noted in [
        (ValueError, "was not declared", {"value": 1.0}),
        (ValueError, "has the shape", {"log_prob": [1.0, 2.0]}),
        (ValueError, "cannot have 0 to 256", {"epoch": [0, 1, 256]}),
        (TypeError, "must be of uint8", {"epoch": 1.5}),
        (TypeError, "must be of bool", {"explored": [0, 1, 0]}),
    ]:
        with pytest.raises(error, match=why):
            envs.note(**noted)
    with pytest.raises(IndexError, match="lane 3 of a batch of 3"):
        envs.note([3], epoch=1)
    # Nothing is recorded, and what is well is taken.
    envs.note(epoch=3, log_prob=np.zeros(LANES))
    envs.close()
