"""Envs whose observations have texts and sequences."""

import gymnasium
import numpy as np
from gymnasium import spaces

WIDE = "aβ漢🙂 "


class Note(gymnasium.Env):
    """Shows a text alone, for a few steps."""

    def __init__(self):
        self.observation_space = spaces.Text(6, min_length=0, charset=WIDE)
        self.action_space = spaces.Discrete(3)

    def _drawn(self, charset, most):
        return "".join(self.np_random.choice(list(charset), self.np_random.integers(0, most + 1)))

    def _shown(self):
        return self._drawn(WIDE, 6)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 9))
        return self._shown(), {}

    def step(self, action):
        self.left -= 1
        return self._shown(), float(action), self.left == 0, False, {}


class Trail(Note):
    """Shows a sequence alone."""

    metadata = {"max_lengths": {"": 4}}

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32), stack=True)

    def _shown(self):
        return self.np_random.uniform(-1, 1, (self.np_random.integers(0, 5), 2)).astype(np.float32)


class Squads(Note):
    """Shows sequences of small dicts and tuples; action 2 shows those of `wrong`."""

    metadata = {"max_lengths": {"seen": 3, "units": 4}}

    def __init__(self, **wrong):
        super().__init__()
        self.wrong = wrong
        unit = spaces.Dict({"at": spaces.Box(-1, 1, (2,), np.float16), "of": spaces.Dict({"hp": spaces.Discrete(9)})})
        self.observation_space = spaces.Dict({
            "seen": spaces.Sequence(spaces.Tuple((spaces.Discrete(3, start=2), spaces.MultiBinary(2)))),
            "units": spaces.Sequence(unit, stack=True),
        })

    def _shown(self):
        draw = self.np_random
        seen, units = draw.integers(0, 4), draw.integers(0, 5)
        return {
            "seen": tuple((draw.integers(2, 5), draw.integers(0, 2, 2, np.int8)) for _ in range(seen)),
            "units": {"at": draw.uniform(-1, 1, (units, 2)).astype(np.float16), "of": {"hp": draw.integers(0, 9, units)}},
        }

    def step(self, action):
        shown, *rest = super().step(action)
        return (shown | self.wrong if action == 2 else shown), *rest


class Story(Note):
    """Shows texts and sequences of all kinds among other things; action 2 shows the texts and sequences `wrong`."""

    metadata = {"max_lengths": {"log/0": 3, "log/1": 5, "bits": 2, "steps": 7}}

    def __init__(self, **wrong):
        super().__init__()
        self.wrong = wrong
        log = (spaces.Sequence(spaces.Box(-1, 1, (2, 2), np.float32)), spaces.Sequence(spaces.Discrete(5, start=3), stack=True))
        self.observation_space = spaces.Dict({
            "says": spaces.Text(6, min_length=0, charset="ab \0"),
            "where": spaces.Box(-1, 1, (3,), np.float64),
            "log": spaces.Tuple(log),
            "bits": spaces.Sequence(spaces.MultiBinary(3)),
            "steps": spaces.Sequence(spaces.Discrete(9)),
        })

    def _shown(self):
        draw = self.np_random
        some = lambda most: int(draw.integers(0, most + 1))
        log = (
            tuple(draw.uniform(-1, 1, (2, 2)).astype(np.float32) for _ in range(some(3))),
            draw.integers(3, 8, some(5)),
        )
        return {
            "bits": tuple(draw.integers(0, 2, 3, np.int8) for _ in range(some(2))),
            "log": log,
            "says": self._drawn("ab \0", 6),
            "steps": tuple(draw.integers(0, 9) for _ in range(some(7))),
            "where": draw.uniform(-1, 1, 3),
        }

    def step(self, action):
        shown, *rest = super().step(action)
        return (shown | self.wrong if action == 2 else shown), *rest


class Long(Note):
    """Says more than a row has."""

    def __init__(self, most):
        super().__init__()
        self.observation_space = spaces.Text(most)
