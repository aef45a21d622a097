"""Envs that start processes of their own, that take long, and whose spaces have numbers for keys."""

import os
import subprocess
import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces

GAME = """
import os, socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1] + ".new", "w") as mark:
    mark.write(f"{os.getpid()} {listener.getsockname()[1]}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(100000)
"""

ORPHANED = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"


class Game(gymnasium.Env):
    """Starts a game with a session and a port of its own, whose id and port stand in a file; waits for ever with action 1.

    ``how`` is ``plain``, ``bare`` (the game has no environment), or ``orphan`` (its parent has ended).
    """

    observation_space = spaces.Box(0.0, 1.0, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, mark, how="plain"):
        if os.path.exists(mark):
            os.remove(mark)
        game = [sys.executable, "-c", GAME, mark]
        if how == "orphan":
            subprocess.run([sys.executable, "-c", ORPHANED, *game], check=True)
        else:
            subprocess.Popen(game, start_new_session=True, env={} if how == "bare" else None)
        while not os.path.exists(mark):
            time.sleep(0.01)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        while action == 1:
            time.sleep(1)
        return np.zeros(1, np.float32), 1.0, False, False, {}


class Long(gymnasium.Env):
    """Takes so many seconds for its second reset and later ones, and for a step with action 1."""

    observation_space = spaces.Box(0.0, 1.0, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, seconds):
        self.seconds, self.resets = seconds, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        time.sleep(self.seconds if self.resets else 0)
        self.resets += 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(self.seconds if action == 1 else 0)
        return np.ones(1, np.float32), 1.0, False, False, {}


class Asked(Long):
    """Has a method that takes as long as it is called for."""

    metadata = {"methods": {"wait": {}}}

    def __init__(self):
        super().__init__(0)

    def wait(self, seconds):
        time.sleep(seconds)
        return seconds


class Great(gymnasium.Env):
    """Has choices that floats do not have, and shows which of them was taken last."""

    metadata = {"deterministic": True}
    observation_space = spaces.Discrete(2**60, start=2**61)
    action_space = spaces.Discrete(2**62 + 1, start=-(2**63))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.int64(2**61 + self.np_random.integers(2**60)), {}

    def step(self, action):
        if action not in self.action_space:
            raise ValueError(f"{action} is none of the actions")
        self.steps += 1
        return np.int64(2**61 + (int(action) + 2**63) // 8), float(action % 7), self.steps == 9, False, {}


class Numbered(gymnasium.Env):
    """Has numbers, and texts that look like numbers, as the keys of what it shows and is given, and shows what it was given."""

    observation_space = spaces.Dict([(3, spaces.Discrete(9)), ("3", spaces.Discrete(9)), (0.5, spaces.Dict({-1: spaces.Discrete(9)})), ("[3]", spaces.Discrete(9))])
    action_space = spaces.Dict({2: spaces.Discrete(9), 1: spaces.Discrete(9)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shown(1, 2), {}

    def step(self, action):
        return self.shown(action[1], action[2]), 0.0, False, False, {}

    def shown(self, one, two):
        return {3: np.int64(one), "3": np.int64(two), 0.5: {-1: np.int64(one)}, "[3]": np.int64(two)}


class Paired(Numbered):
    """Has a pair as a key, which no column has for a name."""

    observation_space = spaces.Dict({(0, 1): spaces.Discrete(9)})
