"""Texts and sequences of envs in Rust are Gymnasium's in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Dict, Discrete, Sequence, Text

import rollhouse
from rollhouse import replays
from rollhouse.errors import InvalidActionError

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


def test_lanes_of_a_cluster_take_them_too(cluster_url: str) -> None:
    with rollhouse.connect(cluster_url) as cluster, cluster.make_vec("test/Orders-v0", 2) as envs:
        ordered(envs)
