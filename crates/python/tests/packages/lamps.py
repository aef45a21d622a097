"""Envs with methods, for tests."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Lamp(gymnasium.Env):
    """A lamp whose brightness its actions turn up and down; methods set it, tell it, and fail."""

    metadata = {
        "methods": {
            "dim": {
                "summary": "sets the brightness",
                "params": {"type": "number", "minimum": 0},
                "max_per_second": 50,
            },
            "flicker": {"summary": "draws the brightness"},
            "tell": {"summary": "tells the brightness", "changes": False},
            "break_it": {"summary": "fails"},
            "mumble": {"summary": "answers with what JSON cannot say", "changes": False},
        }
    }
    observation_space = gymnasium.spaces.Box(-1e3, 1e3, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    burns_out_at = 20.0

    def __init__(self) -> None:
        self.brightness = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.brightness = float(self.np_random.uniform())
        return self.seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.brightness += 1 if action else -1
        return self.seen(), self.brightness, abs(self.brightness) > self.burns_out_at, False, {}

    def seen(self) -> np.ndarray:
        return np.array([self.brightness])

    def dim(self, to: float) -> float:
        if to < 0:
            raise ValueError(f"{to} is less than nothing")
        before, self.brightness = self.brightness, float(to)
        return before

    def flicker(self) -> float:
        self.brightness = float(self.np_random.uniform(0, 5))
        return self.brightness

    def tell(self) -> dict[str, float]:
        return {"brightness": self.brightness}

    def break_it(self) -> None:
        self.brightness = 7.0
        raise RuntimeError("the bulb is broken")

    def mumble(self) -> object:
        return object()


class SteadyLamp(Lamp):
    """Has the same numbers again whenever it is begun and called in the same way."""

    metadata = Lamp.metadata | {"deterministic": True}


class WeakLamp(SteadyLamp):
    """The same, of which episodes end soon."""

    burns_out_at = 6.0


class SteadySeeded(SteadyLamp):
    """The same, under a name by which the driver of a worker knows that it tells its generator."""


class Odd(Lamp):
    """Lists a method that it does not have."""

    metadata = {"methods": {"fly": {}}}


class Chatterer(Lamp):
    """A lamp with as many methods as an env may have; the last one answers with that many letters."""

    metadata = {"methods": {f"say_{number}": {"changes": False} for number in range(127)} | {"recite": {"changes": False}}}

    def recite(self, letters: int) -> str:
        return "x" * letters


for number in range(127):
    setattr(Chatterer, f"say_{number}", lambda self, number=number: number)
