"""Envs that say which actions they take next."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Shop(gymnasium.Env):
    '''Its masks come from a method, as SB3-contrib wants them; with a bad number it breaks off after three steps.'''

    def __init__(self, bad=None, length=4):
        self.observation_space = spaces.Box(0, 100, (1,), np.float64)
        self.action_space = spaces.MultiDiscrete([2, 3])
        self.bad, self.length = bad, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1), {}

    def step(self, action):
        self.steps += 1
        assert self.bad is not None or self.action_masks_before[action[0]] and self.action_masks_before[2 + action[1]]
        return np.full(1, float(self.steps)), 1.0, False, False, {}

    def action_masks(self):
        mask = [self.steps % 2, 1, 1, 0, 1]
        if self.bad is not None and self.steps == 3:
            mask = mask[: self.length] + [self.bad]
        self.action_masks_before = mask
        return np.array(mask)


class Small(Shop):
    def action_masks(self):
        return np.ones(3)
