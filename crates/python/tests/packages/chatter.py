"""Envs that say more beside their observations, and say it otherwise, than most."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Chatter(gymnasium.Env):
    """Says, at each reset and step, what ``words`` of its class has under a name."""

    action_space = spaces.MultiDiscrete([2, 3])
    observation_space = spaces.Box(0, 100, (1,), np.float64)
    metadata = None

    WORDS = {
        "tuple": {"action_mask": (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))},
        "board": {"action_mask": np.array([[1, 0, 0, 1, 1]])},
        "other": {"action_mask": np.zeros((8, 8))},
        "none": None,
        "list": [1, 2],
        "numbers": {0: 1.5, (1, 2): "pair"},
        "generator": {"generator": (i for i in range(3)), "fine": 1.0},
        "own": {"valid": False, "lost": "keys", "fine": 1.0},
        "nested": {"arm": {"force": 2.5, "name": "left"}},
    }

    def __init__(self, says="none", reward=1.0, length=5):
        self.says, self.reward, self.length = says, reward, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1), self.WORDS[self.says]

    def step(self, action):
        self.steps += 1
        return np.full(1, float(self.steps)), self.reward, self.steps == self.length, False, self.WORDS[self.says]


class Timed(gymnasium.wrappers.TimeAwareObservation):
    """Shows the time that is left beside the observation."""

    def __init__(self, env):
        super().__init__(env, flatten=False)


class Mission(spaces.Space):
    """A space of one's own."""

    def __init__(self):
        super().__init__(dtype=str)

    def sample(self, mask=None, probability=None):
        return "go there"

    def contains(self, x):
        return isinstance(x, str)


class Errand(gymnasium.Env):
    """Has a mission beside what can be carried."""

    observation_space = spaces.Dict(
        {"at": spaces.Box(0, 9, (2,), np.float32), "told": spaces.Dict({"mission": Mission(), "how": spaces.Discrete(3)})}
    )
    action_space = spaces.Discrete(2)

    def look(self):
        return {"at": np.ones(2, np.float32), "told": {"mission": "go there", "how": 2}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def step(self, action):
        return self.look(), 1.0, False, False, {}


if "chatter/Timed-v0" not in gymnasium.registry:
    gymnasium.register(
        "chatter/Timed-v0",
        entry_point="gymnasium.envs.classic_control:CartPoleEnv",
        max_episode_steps=7,
        additional_wrappers=(gymnasium.envs.registration.WrapperSpec("Timed", "chatter:Timed", {}),),
    )
