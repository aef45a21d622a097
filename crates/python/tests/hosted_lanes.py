"""Envs that the tests of workers host by their names."""

from __future__ import annotations

import itertools
import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Columns(gymnasium.Env):
    """Shows its action and one of each kind of space."""

    observation_space = spaces.Tuple(
        (
            spaces.Box(-np.inf, np.inf, (2,), np.float64),
            spaces.Discrete(5, start=-1),
            spaces.MultiDiscrete([3, 4]),
            spaces.MultiBinary(3),
        )
    )
    action_space = spaces.Box(-2, 2, (2,), np.float32)

    def _observation(self, action: np.ndarray) -> Any:
        return action.astype(np.float64), np.int64(3), np.array([1, 2]), np.array([1, 0, 1], np.int8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._observation(np.zeros(2)), {}

    def step(self, action: np.ndarray) -> Any:
        return self._observation(action), 1.0, False, True, {"unheard": object()}


class Failing(gymnasium.Env):
    """Shows its seed and its steps; at step ``at`` action 1 raises and action 2 shows another shape."""

    observation_space = spaces.Box(0, 100, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, at: int):
        self.at, self.steps = at, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seed, self.steps = seed, 0
        return np.array([seed or 0, 0], np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        self.steps += 1
        if self.steps == self.at and action == 1:
            raise ValueError("enough")
        shape = (3,) if self.steps == self.at and action == 2 else (2,)
        return np.ones(shape, np.float32), 0.0, False, False, {}


class Given(Failing):
    """Declares options, and shows those that it is given."""

    metadata = {"options": {"size": {"default": 1.5, "summary": "in m"}, "at": (0, 1)}}

    def __init__(self) -> None:
        super().__init__(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if options["size"] < 0:
            raise ValueError("too small")
        return np.array([options["size"], options["at"].pop()], np.float32), {}


class Telling(gymnasium.Env):
    """Shows a text and a sequence, right ones for actions 0 and 1."""

    metadata = {"max_lengths": {"1": 3}}
    observation_space = spaces.Tuple((spaces.Text(4, charset="abc"), spaces.Sequence(spaces.Box(-9, 9, (2,), np.float32))))
    action_space = spaces.Discrete(8)

    item = np.array([1.5, -2], np.float32)
    shown = (
        ("ab", ()),
        ("abca", [item, item + 1, item + 2]),
        ("abcab", ()),
        ("ax", ()),
        (b"ab", ()),
        ("a", (item,) * 4),
        ("a", (np.zeros(3, np.float32),)),
        ("a", (item.astype("U"),)),
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.shown[0], {}

    def step(self, action: int) -> Any:
        return self.shown[action], 0.0, False, False, {}


class Listing(Failing):
    """Has a Text or a Sequence that columns cannot have, as an observation or as an action."""

    did = spaces.Sequence(spaces.Discrete(3))
    known = {
        "did": spaces.Dict({"did": did}),
        "root": did,
        "nested": spaces.Sequence(spaces.Dict({"a": spaces.Text(3)})),
        "wide": spaces.Sequence(spaces.Discrete(3, dtype=np.uint64)),
        "half": spaces.Text(3, charset="a\ud800"),
    }

    def __init__(self, shown: str = "", taken: str = "", maxima: Any = None, taken_maxima: Any = None) -> None:
        super().__init__(0)
        self.metadata = {"max_lengths": maxima, "max_action_lengths": taken_maxima}
        self.observation_space = self.known.get(shown, self.observation_space)
        self.action_space = self.known.get(taken, self.action_space)


class Unstable(Failing):
    """Every one has another space than the one before."""

    sizes = itertools.count(1)

    def __init__(self) -> None:
        super().__init__(0)
        self.observation_space = spaces.Box(0, 1, (next(self.sizes),), np.float32)


class Seeded(gymnasium.Env):
    """Shows what its generator draws; its class says that it is deterministic."""

    metadata = {"render_modes": [], "deterministic": True}
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.normal(size=2), {}

    def step(self, action: np.ndarray) -> Any:
        # Half of a word stays over.
        drawn = self.np_random.integers(0, 9, dtype=np.int32)
        return np.array([action, drawn], np.float64), float(self.np_random.uniform()), False, False, {}


class OtherGenerator(Seeded):
    """Has a generator that is none of Gymnasium's."""

    @property
    def np_random(self) -> np.random.Generator:
        return self.__dict__.setdefault("other", np.random.Generator(np.random.MT19937(1)))


class Broken(gymnasium.Env):
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("never made")


class Curious(gymnasium.Env):
    """Tells which variables reach it that should not."""

    def __init__(self) -> None:
        # The mark by which what it starts is found is no secret.
        names = os.environ.keys() - {"ROLLHOUSE_WORKER"}
        told = [name for name in names if name.startswith("ROLLHOUSE") or "KEY" in name]
        raise RuntimeError(f"these reach an env: {told}")
