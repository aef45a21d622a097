"""An env that says numbers of every kind beside its observations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Tally(gymnasium.Env):
    """Counts its steps, loses one of three lives with action 2, and ends without any."""

    metadata = {"render_modes": ["rgb_array"]}
    observation_space = spaces.Box(-1e3, 1e3, (2,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.frames = render_mode, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.lives, self.steps = 3, 0
        return self._seen(), self._said() | {"first": np.array([self.np_random.uniform()] * 2)}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.lives -= int(action == 2)
        info = self._said() | {
            "speed": np.float32(self.np_random.uniform()),
            "forces": self.np_random.normal(size=3).astype(np.float32),
            "goal": {"distance": self.np_random.uniform(), "near": self.steps % 2 == 0},
            "rate/s": 0.5 * self.steps,
            "_own": 3,
        }
        if self.steps % 3 == 1:
            info["bonus"] = self.steps
        if self.steps % 4 == 3:
            # It is said in most steps.
            del info["speed"]
        if not self.lives:
            info["won"] = 1.0
        return self._seen(), float(self.np_random.uniform()), not self.lives, False, info

    def render(self) -> np.ndarray:
        return np.full((8, 12, 3), 10 * self.lives + self.steps % 10, np.uint8)

    def _seen(self) -> np.ndarray:
        return np.array([self.steps, self.np_random.uniform()])

    def _said(self) -> dict[str, Any]:
        self.frames += 1
        return {"lives": self.lives, "frame": self.frames, "name": f"tally {self.lives}"}


class Wide(gymnasium.Env):
    """Shows pictures of Atari's size, which change with each step."""

    shape: tuple[int, ...] = (210, 160, 3)
    observation_space = spaces.Box(0, 255, shape, np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._seen(), 1.0, False, False, {}

    def _seen(self) -> np.ndarray:
        return np.full(self.shape, self.steps % 256, np.uint8)


class Wider(Wide):
    """Shows pictures of a camera, of 1.4 MB."""

    shape = (600, 800, 3)
    observation_space = spaces.Box(0, 255, shape, np.uint8)


class Late(gymnasium.Env):
    """Says more from its 50th step on, the last of which is that it is over: step 60, with action 1."""

    observation_space = spaces.Box(-1e3, 1e3, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, more: int = 0) -> None:
        self.more, self.episodes = more, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return np.zeros(1), {"again": self.episodes} if self.episodes > 1 else {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        info: dict[str, Any] = {"steps": self.steps}
        if self.steps >= 50:
            info |= {"bonus": float(self.steps), "deep": {"near": True, "at": self.steps}}
            info |= {f"more{at}": at for at in range(self.more)}
        if self.steps % 7 == 6:
            info["forces"] = np.full((2, 3), self.steps, np.float32)
        return np.full(1, self.steps), 1.0, action == 1 and self.steps >= 60, False, info


class SteadyTally(Tally):
    """The same, declared deterministic: what it says of its frames is not, and is no part of what it does."""

    metadata = Tally.metadata | {"deterministic": True}


class Abrupt(Tally):
    """Ends its process in the first step, as one whose simulator crashes does."""

    def step(self, action: int) -> Any:
        import os

        if self.steps == 0:
            os._exit(3)
        return super().step(action)


class Wrists(gymnasium.Env):
    """Has two parts of an observation, and two of an action, whose joined names are the same; shows what it was given."""

    PART = spaces.Box(-1, 1, (2,), np.float32)
    observation_space = spaces.Dict({"arm/wrist": PART, "arm": spaces.Dict({"wrist": PART})})
    action_space = spaces.Dict({"arm/wrist": PART, "arm": spaces.Dict({"wrist": PART})})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        outer, inner = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        return {"arm/wrist": outer, "arm": {"wrist": inner}}, {}

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        return action, float(action["arm/wrist"][0]), False, False, {}
