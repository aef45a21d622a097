"""Texts and sequences of envs in Rust are Gymnasium's in Python."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Sequence, Text
from local_cluster import rollhouse_program
from python_nodes import same

import rollhouse
from rollhouse import replays
from rollhouse.errors import ActionTypeError, InvalidActionError

ORDERS = Dict({"moves": Sequence(Discrete(4), stack=True), "word": Text(5, min_length=0, charset="aß☃")})


def ordered(envs: rollhouse.VectorEnv) -> None:
    """Gives orders to two lanes, which show them turned round."""
    assert envs.single_action_space == envs.single_observation_space == ORDERS
    envs.reset(seed=3)
    orders = {"moves": (np.array([1, 2]), np.array([], np.int64)), "word": ["aß☃", ""]}
    for _ in range(3):
        observations, rewards, *_ = envs.step(orders)
        assert list(observations["word"]) == ["☃ßa", ""]
        assert [moves.tolist() for moves in observations["moves"]] == [[2, 1], []]
        assert rewards.tolist() == [6.0, 0.0]
    with pytest.raises(InvalidActionError, match="lane 1: word"):
        envs.step({**orders, "word": ["a", "b"]})


def test_an_env_in_rust_takes_texts_and_sequences_and_shows_them(tmp_path: Path) -> None:
    with rollhouse.make_vec("test/Orders-v0", 2, record=True, data=tmp_path) as envs:
        ordered(envs)
    recorded = replays.open(tmp_path)
    assert recorded.verify().ok
    episode = next(episode for episode in recorded.list() if episode.lane == 0)
    read = recorded.read(episode)
    assert [read.action(step)["word"] for step in range(3)] == ["aß☃"] * 3


UNIT = Dict({"at": Box(-1, 1, (2,), np.float32), "bits": MultiBinary(2), "kind": Discrete(3)})


def unit(kind: int) -> dict[str, Any]:
    return {"at": np.array([0.5, -kind / 4], np.float32), "bits": np.array([kind % 2, 1], np.int8), "kind": np.int64(kind)}


def commanded(envs: rollhouse.VectorEnv) -> None:
    """Gives two lanes squads, which they show in the other order."""
    assert envs.single_action_space == envs.single_observation_space == Sequence(UNIT)
    assert all(lane in Sequence(UNIT) for lane in envs.reset(seed=3)[0])
    for _ in range(3):
        observations, rewards, *_ = envs.step(((unit(1), unit(2)), ()))
        same(observations, ((unit(2), unit(1)), ()))
        assert rewards.tolist() == [3.0, 0.0]
    assert envs.action_space.sample() in envs.action_space
    with pytest.raises(InvalidActionError, match="lane 1: .*kind"):
        envs.step(((), (unit(3),)))
    with pytest.raises(ActionTypeError, match="lane 0"):
        envs.step((({"kind": 1},), ()))


def test_an_env_in_rust_takes_sequences_of_dicts_and_shows_them(tmp_path: Path) -> None:
    with rollhouse.make_vec("test/Squads-v0", 2, record=True, data=tmp_path) as envs:
        commanded(envs)
    recorded = replays.open(tmp_path)
    assert recorded.verify().ok
    episode = next(episode for episode in recorded.list() if episode.lane == 0)
    same(recorded.read(episode).action(1), (unit(1), unit(2)))
    line = [rollhouse_program(), "replay", "export", "--data", tmp_path, "--format", "jsonl", "--into", tmp_path / "out"]
    subprocess.run(line, check=True, capture_output=True)
    exported = "".join(file.read_text() for file in (tmp_path / "out").iterdir())
    assert '"items"' in exported


def test_lanes_of_a_cluster_take_sequences_of_dicts_too(cluster_url: str) -> None:
    with rollhouse.connect(cluster_url) as cluster, cluster.make_vec("test/Squads-v0", 2) as envs:
        commanded(envs)


def test_lanes_of_a_cluster_take_them_too(cluster_url: str) -> None:
    with rollhouse.connect(cluster_url) as cluster, cluster.make_vec("test/Orders-v0", 2) as envs:
        ordered(envs)
