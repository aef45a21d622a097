"""A package that registers its env when it is imported."""

import gymnasium
import numpy as np


class Sign(gymnasium.Env):
    """Shows how often it was stepped, and ends after four."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=4, render_mode=None):
        self.length, self.render_mode = length, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(1, self.steps, np.float32), float(action), self.steps == self.length, False, {}

    def render(self):
        return np.full((8, 8, 3), self.steps, np.uint8)


if "signs/Sign-v1" not in gymnasium.registry:
    gymnasium.register("signs/Sign-v0", entry_point="signs:Sign", kwargs={"length": 2})
    gymnasium.register("signs/Sign-v1", entry_point="signs:Sign")
