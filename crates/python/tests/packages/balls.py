"""Envs that declare options."""

import copy

import gymnasium
import numpy as np
from gymnasium import spaces


class Ball(gymnasium.Env):
    """Shows what it is given; an episode has as many steps as the ball bounces."""

    metadata = {
        "options": {
            "gravity": {"default": 9.8, "summary": "in m/s^2"},
            "bounces": 3,
            "name": "plain",
            "wind": (0.0, 1),
            "tough": np.bool_(False),
        }
    }
    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float64)
    action_space = spaces.Discrete(2)

    def _shown(self):
        told = self.told
        return np.array(
            [told["gravity"], told["bounces"], len(told["name"]), told["wind"][1], told["tough"],
             self.np_random.uniform()]
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        assert set(options) == set(self.metadata["options"]), options
        kinds = {name: type(value).__name__ for name, value in options.items()}
        assert kinds == {"gravity": "float", "bounces": "int", "name": "str", "wind": "list", "tough": "bool"}, kinds
        if options["gravity"] <= 0:
            raise ValueError("a ball has to fall down")
        self.told, self.age = copy.deepcopy(options), 0
        # What it does with its own does not reach the next episode.
        options["wind"].clear()
        return self._shown(), {}

    def step(self, action):
        self.age += 1
        return self._shown(), float(self.np_random.normal()), self.age >= self.told["bounces"], False, {}


class Sure(Ball):
    metadata = {**Ball.metadata, "deterministic": True}


class Still(Sure):
    """Draws nothing of its own."""

    def _shown(self):
        told = self.told
        return np.array([told["gravity"], told["bounces"], len(told["name"]), told["wind"][1], told["tough"], 0.0])

    def step(self, action):
        self.age += 1
        return self._shown(), 1.0, self.age >= self.told["bounces"], False, {}


class Odd(Ball):
    metadata = {"options": {"shape": {"kind": "round"}}}


class Many(Ball):
    metadata = {"options": {f"o{at}": at for at in range(65)}}
