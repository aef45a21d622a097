"""Envs that choose their actions themselves now and then, and report what they did."""

import random

import gymnasium
import numpy as np
from gymnasium import spaces
from walks import Walk


class Driver(Walk):
    """A walk that takes action 0 if none came in time, which happens by chance; a lane that repeats waits for its action."""

    metadata = {
        "deterministic": True,
        "reports_actions": True,
        "step_columns": {"margin": "float32", "at": ("int64", (2,)), "late": "bool"},
    }
    repeats = False

    def __init__(self, far=20, wrong=None):
        super().__init__(far)
        self.wrong, self.taken = wrong, 0

    def step(self, action):
        late = not self.repeats and random.random() < 0.3
        taken = 0 if late else int(action)
        shown, reward, terminated, truncated, _ = super().step(taken)
        self.taken += 1
        info = {
            "action_taken": taken,
            "policy_version": 100 + self.taken,
            "margin": reward,
            "at": [self.taken, taken],
            "late": late,
        }
        if self.wrong and self.taken == 9 and not self.repeats:
            info |= self.wrong
        return shown, reward, terminated, truncated, info


class Silent(Walk):
    """Reports no step: it took what it was given."""

    metadata = {"reports_actions": True, "step_columns": {"margin": "float32"}}


class Pair(gymnasium.Env):
    """Takes two numbers, the second of which it sets to 1 where it is given 2."""

    metadata = {"reports_actions": True}
    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        taken = {**action, "b": min(action["b"], np.int64(1))}
        return taken["a"], 0.0, False, False, {"action_taken": taken}


class Words(Pair):
    action_space = spaces.Text(4)


class Crooked(Walk):
    metadata = {"step_columns": {"no name": "float32"}}
