"""A vector env whose lanes step together, in any autoreset mode, for the tests of vector envs of other packages."""

from __future__ import annotations

import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space


class SwarmVector(gymnasium.vector.VectorEnv):
    """Lanes that count their steps. Lane i's episodes have ``length`` + i % 3 steps; the action says what else happens."""

    FINE, RAISE, EXIT, HANG = 0, 5, 6, 7

    def __init__(
        self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP, length: int = 4, parts: bool = False, actions: int = 8
    ):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": autoreset_mode}
        self.single_observation_space: Any = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        if parts:
            half = {"near": spaces.Box(-1, 1, (2,), np.float16), "seen": spaces.MultiBinary(2)}
            self.single_observation_space = spaces.Dict({"place": self.single_observation_space, **half})
        self.single_action_space = spaces.Discrete(actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.lengths = length + np.arange(num_envs) % 3
        self.base = np.random.default_rng().random(num_envs)
        self.over = np.zeros(num_envs, np.bool_)
        self.resets = 0

    def reset(self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None):
        mask = np.ones(self.num_envs, np.bool_)
        if options is not None:
            mask = options.get("reset_mask", mask)
        if seed is not None:
            seeds = [seed + lane for lane in range(self.num_envs)] if isinstance(seed, int) else seed
            self.base = np.array([np.random.default_rng(one).random() for one in seeds])
            self.begun, self.counts, self.actions = (np.zeros(self.num_envs, np.int64) for _ in range(3))
        elif not hasattr(self, "begun"):
            self.begun, self.counts, self.actions = (np.zeros(self.num_envs, np.int64) for _ in range(3))
        self.resets += 1
        self._begin(mask)
        return self._seen(), self._told(mask)

    def step(self, actions: np.ndarray):
        assert self.action_space.contains(actions), actions
        if (actions == self.RAISE).any():
            raise ZeroDivisionError("told to raise")
        if (actions == self.EXIT).any():
            sys.exit(5)
        if (actions == self.HANG).any():
            time.sleep(3600)
        mode = self.metadata["autoreset_mode"]
        began = self.over if mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, np.bool_)
        self._begin(began)
        self.counts[~began] += 1
        self.actions = np.where(began, 0, actions)
        rewards = np.where(began, 0, self.counts * 0.5 + self.actions).astype(np.float32)
        ended = self.counts >= self.lengths
        even = np.arange(self.num_envs) % 2 == 0
        terminations, truncations = ended & even & ~began, ended & ~even & ~began
        self.over = terminations | truncations
        infos = self._told(~began)
        if mode is AutoresetMode.SAME_STEP and self.over.any():
            last, told = self._seen(), {"count": self.counts.copy(), "_count": self.over.copy()}
            self._begin(self.over)
            infos = {**self._told(~began), "final_obs": last, "_final_obs": self.over.copy(), "final_info": told, "_final_info": self.over.copy()}
        return self._seen(), rewards, terminations, truncations, infos

    def _begin(self, lanes: np.ndarray) -> None:
        self.begun[lanes] += 1
        self.counts[lanes] = 0
        self.actions = np.where(lanes, 0, self.actions)
        self.over = self.over & ~lanes

    def _seen(self) -> Any:
        place = np.stack([self.base + self.begun, self.counts, self.actions], axis=1).astype(np.float32)
        if not isinstance(self.single_observation_space, spaces.Dict):
            return place
        near = (place[:, :2] / 37).astype(np.float16)
        return {"near": near, "place": place, "seen": (np.stack([self.counts, self.begun], axis=1) % 2).astype(np.int8)}

    def _told(self, lanes: np.ndarray) -> dict[str, Any]:
        return {
            "count": np.where(lanes, self.counts, 0),
            "_count": lanes.copy(),
            "nested": {"half": self.counts / 2, "_half": np.ones(self.num_envs, np.bool_)},
            "_nested": np.ones(self.num_envs, np.bool_),
        }


class Unmarked(SwarmVector):
    """One that tells no autoreset mode."""

    def __init__(self, num_envs: int):
        super().__init__(num_envs)
        self.metadata = {}
