"""A trainer says which version of its policy acts, and recordings have it with each step, wherever lanes run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rollhouse
from rollhouse import replays

LANES = 3


def play(envs: rollhouse.VectorEnv) -> list[int]:
    """Steps under versions 0, 4, 4, 9 and so on; returns the version of each row."""
    envs.reset(seed=1)
    envs.action_space.seed(1)
    said = []
    for row in range(60):
        if row in (1, 7, 30):
            envs.set_policy_version({1: 4, 7: 9, 30: 2**63 + 1}[row])
        said.append(0 if row < 1 else 4 if row < 7 else 9 if row < 30 else 2**63 + 1)
        envs.step(envs.action_space.sample())
    return said


def check(episodes: list[replays.EpisodeInfo], said: list[int]) -> None:
    """Every lane's episodes, one after another, have the versions of the rows in which the lane stepped."""
    assert {episode.lane for episode in episodes} == set(range(LANES))
    for lane in range(LANES):
        row = 0
        for episode in sorted((e for e in episodes if e.lane == lane), key=lambda episode: episode.number):
            versions = episode.policy_versions()
            assert versions.dtype == np.uint64
            assert versions.tolist() == said[row : row + episode.length]
            # The row after an end begins the next episode.
            row += episode.length + 1


@pytest.mark.parametrize("id", ["CartPole-v1", "gymnasium:CartPole-v1"], ids=["embedded", "hosted"])
def test_steps_have_the_version_that_was_said_last(id: str, tmp_path: Path) -> None:
    envs = rollhouse.make_vec(id, LANES, record=True, data=tmp_path)
    said = play(envs)
    envs.close()
    check(list(replays.open(tmp_path).list()), said)


@pytest.mark.parametrize("transport", ["quic", "shm"])
def test_lanes_of_a_cluster_have_it_too(cluster_url: str, transport: str) -> None:
    cluster = rollhouse.connect(cluster_url, transport=transport)
    envs = cluster.make_vec("CartPole-v1", LANES)
    said = play(envs)
    run = envs.run
    envs.close()
    episodes: list[replays.EpisodeInfo] = []
    # What a node ships comes in parts: all is there when every lane's rows are, those of its resets among them.
    while [rows_of(lane, episodes) for lane in range(LANES)] != [len(said)] * LANES:
        episodes = [info for info in replays.open(cluster).list(env="CartPole-v1") if info.run == run]
    check(episodes, said)


def rows_of(lane: int, episodes: list[replays.EpisodeInfo]) -> int:
    """Counts the rows of a lane's episodes, and those between them in which it was reset."""
    lengths = [episode.length for episode in episodes if episode.lane == lane]
    return sum(lengths) + len(lengths) - 1


def test_what_is_no_version_is_refused() -> None:
    envs = rollhouse.make_vec("CartPole-v1", LANES)
    for version in (-1, 2**64, True):
        with pytest.raises(ValueError, match="must be an integer from 0"):
            envs.set_policy_version(version)
    with pytest.raises(TypeError, match="float"):
        envs.set_policy_version(7.5)  # type: ignore[arg-type]
    envs.close()
