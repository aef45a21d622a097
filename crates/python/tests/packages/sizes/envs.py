"""Envs whose values have dtypes that columns have not."""

import gymnasium
import numpy as np
from gymnasium import spaces

KINDS = ("int8", "int16", "uint16", "uint32", "float16")


def ends(kind):
    """The least and the greatest number of a dtype."""
    range_of = np.finfo(kind) if kind == "float16" else np.iinfo(kind)
    return range_of.min, range_of.max


class Alone(gymnasium.Env):
    """Shows a Box of one dtype over its whole range, and takes another."""

    def __init__(self, kind, shape=(2,)):
        self.observation_space = self.action_space = spaces.Box(*ends(kind), tuple(shape), kind)

    def _drawn(self, space):
        if space.dtype.kind == "f":
            return self.np_random.uniform(-60000, 60000, space.shape).astype(space.dtype)[()]
        drawn = self.np_random.integers(*ends(space.dtype.name), space.shape, space.dtype, endpoint=True)
        return space.dtype.type(drawn) if space.shape == () else drawn

    def _shown(self):
        return self._drawn(self.observation_space)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 9))
        return self._shown(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.left -= 1
        return self._shown(), self._felt(action), self.left == 0, False, {}

    def _felt(self, action):
        return float(np.asarray(action, np.float64).sum())


class Odd(Alone):
    """Shows a Box of a dtype that no column has."""

    def __init__(self, kind):
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(0, 1, (2,), np.uint64)
        self.observation_space.dtype = np.dtype(kind)


class Choice(Alone):
    """Shows and takes choices of a dtype."""

    def __init__(self, kind):
        self.observation_space = spaces.MultiDiscrete([100, 27], dtype=kind, start=[0, 100])
        self.action_space = spaces.Discrete(27, start=100, dtype=kind)

    def _shown(self):
        return (self.np_random.integers(0, [100, 27]) + [0, 100]).astype(self.observation_space.dtype)


class Bits(Alone):
    """Shows and takes bits, which Gymnasium has as int8."""

    def __init__(self):
        self.observation_space = self.action_space = spaces.MultiBinary(3)

    def _shown(self):
        return self.np_random.integers(0, 2, 3, np.int8)


class Nested(Alone):
    """Shows and takes all dtypes in Dict and Tuple, and sequences of some."""

    metadata = {"max_lengths": {"seen/0": 4, "seen/1": 3}}

    def __init__(self):
        boxes = {kind: spaces.Box(*ends(kind), (2, 3), kind) for kind in KINDS}
        scalars = spaces.Tuple([spaces.Box(*ends(kind), (), kind) for kind in KINDS])
        few = spaces.Discrete(5, start=-7, dtype=np.int8)
        seen = (spaces.Sequence(spaces.Box(-9, 9, (2,), np.int16), stack=True), spaces.Sequence(few))
        self.observation_space = spaces.Dict({
            "boxes": spaces.Dict(boxes), "scalars": scalars, "few": few, "seen": spaces.Tuple(seen),
            "plain": spaces.Box(0, 1, (2,), np.float32), "bits": spaces.MultiBinary(3),
        })
        self.action_space = spaces.Tuple([spaces.Dict(boxes), few, spaces.MultiDiscrete([9, 3], dtype=np.uint8)])

    def _shown(self):
        draw = self.np_random
        return {
            "bits": draw.integers(0, 2, 3, np.int8),
            "boxes": {kind: self._drawn(box) for kind, box in self.observation_space["boxes"].items()},
            "few": np.int8(draw.integers(-7, -2)),
            "plain": draw.uniform(0, 1, 2).astype(np.float32),
            "scalars": tuple(self._drawn(box) for box in self.observation_space["scalars"]),
            "seen": (
                draw.integers(-9, 9, (draw.integers(0, 5), 2), np.int16),
                tuple(np.int8(draw.integers(-7, -2)) for _ in range(draw.integers(0, 4))),
            ),
        }

    def _felt(self, action):
        boxes, few, many = action
        assert [box.dtype.name for box in boxes.values()] == sorted(KINDS)
        return float(sum(box.astype(np.float64).sum() for box in boxes.values()) + few + many.sum())
