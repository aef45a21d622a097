"""Envs that are declared deterministic, and some that are not."""

import random
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """A walk from a random place, with noise of its own generator, until it is far away."""

    metadata = {"deterministic": True}
    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, far=20):
        self.far, self.age = far, 0

    def _shown(self):
        return np.concatenate([[self.place], self.np_random.uniform(-1, 1, 3)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.age = int(self.np_random.integers(-3, 4, dtype=np.int32)), 0
        return self._shown(), {}

    def step(self, action):
        self.age += 1
        self.place += 2 * int(action) - 1 + int(self.np_random.integers(-1, 2, dtype=np.int32))
        reward = self.np_random.normal() + self.lie()
        return self._shown(), float(reward), abs(self.place) >= self.far, False, {}

    def lie(self):
        return 0.0


class Chance(Walk):
    def lie(self):
        return random.random() if self.age == 5 else 0.0


class Clock(Walk):
    def _shown(self):
        return super()._shown() + time.monotonic()


class Grudge(Walk):
    """Begins otherwise after an episode that it has played."""

    played = 0

    def reset(self, *, seed=None, options=None):
        shown, infos = super().reset(seed=seed)
        self.played += 1
        return shown * (2 if seed is None and self.played == 3 else 1), infos


class Shared(Walk):
    """Has a generator that all envs of a process share."""

    def reset(self, *, seed=None, options=None):
        shown = super().reset(seed=seed)
        random.seed(int(self.np_random.integers(2**31)))
        return shown

    def lie(self):
        return random.random()


class Reseeding(Walk):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed if seed is None else seed + 1)


class Later(Walk):
    """Lies at steps that no try-out comes to."""

    def lie(self):
        return time.monotonic() if self.age == 80 else 0.0
