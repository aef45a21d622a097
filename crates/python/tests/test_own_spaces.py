"""Spaces that are recorded in worker lanes stay themselves."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hosted_envs import ZooEnv

import rollhouse
from rollhouse import replays

KEPT: dict[str, spaces.Space] = {
    "multi": spaces.MultiDiscrete([3, 4]),
    "shifted": spaces.MultiDiscrete([[3, 4], [5, 6]], start=[[1, -2], [0, 7]]),
    "small": spaces.MultiDiscrete([3, 4], dtype=np.int16),
    "binary": spaces.MultiBinary([2, 3]),
    "row": spaces.MultiBinary(4),
    "discrete": spaces.Discrete(5, start=-2),
    "great": spaces.Discrete(2**60, start=2**61),
    "lowest": spaces.Discrete(2**62 + 1, start=-(2**63)),
    "inside": spaces.Dict({"a": spaces.MultiBinary(3), "b": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Discrete(2**55)))}),
}


@pytest.mark.parametrize("role", ["observation", "action"])
@pytest.mark.parametrize("name", KEPT)
def test_recorded_spaces_are_those_of_the_env(name: str, role: str, tmp_path: Path) -> None:
    """Symptom: a MultiDiscrete was recorded as a Box, and a Discrete beyond 2^53 refused its own actions."""
    space, other = KEPT[name], gymnasium.spaces.Discrete(2)
    fn = partial(ZooEnv, space, 9, False, other) if role == "observation" else partial(ZooEnv, other, 9, False, space)
    with rollhouse.vectorize([fn] * 2, workers=1, record=True, data=tmp_path) as envs:
        envs.reset(seed=1)
        envs.action_space.seed(1)
        done = []
        for _ in range(20):
            done.append(envs.action_space.sample())
            envs.step(done[-1])
    recorded = replays.open(tmp_path)
    episode = next(recorded.read(info) for info in recorded if info.lane == 0 and info.number == 0)
    assert getattr(episode.info, f"{role}_space") == space
    if role == "action" and not isinstance(space, spaces.Dict):
        np.testing.assert_array_equal(episode.actions, np.array([actions[0] for actions in done[: len(episode)]]))
