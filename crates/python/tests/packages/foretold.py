"""An env whose rows are foretold by the suite of lanes: test/Foretold-v0 of ``tests/tests/lanes/foretold.rs``."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Foretold(gymnasium.Env):
    """Shows the mark of its episode, its steps and its last action."""

    metadata = {
        "deterministic": True,
        "options": {"hang_at": -1, "panic_at": -1, "scale": 1.0},
    }
    observation_space = spaces.Dict(
        {"count": spaces.Box(0, 1000, (2,), np.int64), "mark": spaces.Box(0, 1, (1,), np.float64)}
    )
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.options = options or {}
        if self.options.get("scale", 1.0) < 0:
            raise ValueError("scale must be 0 or more")
        self.mark, self.steps = float(self.np_random.random()), 0
        return self._show(0), {}

    def step(self, action: np.int64) -> Any:
        self.steps += 1
        shown = self._show(int(action))
        reward = self.options.get("scale", 1.0) * (self.mark + int(action))
        over = self.steps >= 3 + int(self.mark * 9)
        return shown, reward, over, False, {"echo": self.mark * self.steps}

    def _show(self, action: int) -> dict[str, np.ndarray]:
        if self.options.get("panic_at", -1) == self.steps:
            raise RuntimeError("told to fail")
        while self.options.get("hang_at", -1) == self.steps:
            time.sleep(1)
        return {"count": np.array([self.steps, action]), "mark": np.array([self.mark])}
