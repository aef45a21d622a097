"""An env that waits in a step until it is let go."""

import os

import gymnasium
import numpy as np
from gymnasium import spaces


class Gate(gymnasium.Env):
    """A walk with noise of its own generator; with action 2 it says in `begun` which process it is, and waits for `go`."""

    observation_space = spaces.Box(-99, 99, (3,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, begun=None, go=None):
        self.begun, self.go = begun, go

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(2, 7))
        return self._shown(), {}

    def step(self, action):
        if action == 2 and self.go:
            with open(self.begun, "w") as begun:
                begun.write(str(os.getpid()))
            with open(self.go) as go:
                go.read()
        self.place += 1 if action else -1
        return self._shown(), float(self.np_random.normal()), self.place in (0, 9), False, {}

    def _shown(self):
        return np.array([self.place, *self.np_random.uniform(-1, 1, 2)])
