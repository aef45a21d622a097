"""Actions of several columns, which lanes of the native half have as one column of numbers.

The elements of all columns stand one after the other in the space's own order: as int64 where all are integers, as float32
where all are, and else as float64. The native half lays them out in the same way (``BoxSpace::of_parts`` of crate core).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rollhouse.errors import ActionTypeError, InvalidActionError

Convert = Callable[[Any, int], np.ndarray]

MAX_DEPTH = 7
"""Most Dicts and Tuples around a part."""

EXACT = 2**53
"""The number up to which float64 has every integer."""


class ActionParts:
    """The place of each column of an action in the one that carries them.

    Attributes:
        space: The space, a Dict or a Tuple.
        dtype: The dtype of the carrying column.
        elements: The number of elements of one of its rows.
    """

    def __init__(self, space: gymnasium.Space):
        self.space = space
        self._leaves: list[tuple[tuple[Any, ...], Any]] = list(_leaves(space, ()))
        self.dtype: np.dtype[Any] = np.dtype(np.int64)
        if any(leaf.dtype.kind == "f" for _, leaf in self._leaves):
            # Half precision counts as the single that it is widened to.
            single = all(leaf.dtype.kind == "f" and leaf.dtype.itemsize <= 4 for _, leaf in self._leaves)
            self.dtype = np.dtype(np.float32 if single else np.float64)
        ends = np.cumsum([0] + [int(np.prod(leaf.shape or (), dtype=np.int64)) for _, leaf in self._leaves]).tolist()
        self._places = [slice(start, end) for start, end in zip(ends, ends[1:], strict=False)]
        self.elements: int = ends[-1]

    @staticmethod
    def has(space: gymnasium.Space) -> bool:
        """Returns whether actions of a space have parts."""
        return isinstance(space, (spaces.Dict, spaces.Tuple))

    def can_be(self) -> bool:
        """Returns whether one column can carry them: it has every value of the space exactly, and that is not too deep."""
        if any(len(path) > MAX_DEPTH for path, _ in self._leaves):
            return False
        whole = (leaf for _, leaf in self._leaves if leaf.dtype.kind != "f")
        return self.dtype == np.int64 or all(abs(end) <= EXACT for leaf in whole for end in _ends(leaf))

    def zeros(self, count: int) -> np.ndarray:
        """Returns rows of zeros."""
        return np.zeros((count, self.elements), self.dtype)

    def join(self, rows: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
        """Writes arrays [N, ...] of the columns to the rows that carry them."""
        for place, array in zip(self._places, arrays, strict=True):
            rows[:, place] = array.reshape(len(rows), -1)

    def split(self, rows: np.ndarray) -> list[np.ndarray]:
        """Returns the columns that rows carry, [N, ...] each, of their own dtypes."""
        placed = zip(self._leaves, self._places, strict=True)
        return [np.asarray(self._column(leaf, rows[:, place], len(rows))) for (_, leaf), place in placed]

    def loose(self, items: Sequence[Any]) -> np.ndarray:
        """Returns rows that carry actions, one each, that are of other types than the space's; zeros where that cannot be."""
        rows = self.zeros(len(items))
        for row, item in zip(rows, items, strict=True):
            for (path, _), place in zip(self._leaves, self._places, strict=True):
                try:
                    value = item
                    for key in path:
                        value = value[key]
                    row[place] = np.asarray(value).reshape(-1)
                except (ValueError, TypeError, KeyError, IndexError, OverflowError):
                    # The env sees what it is given.
                    pass
        return rows

    def action(self, row: np.ndarray) -> Any:
        """Returns the action that a row carries, as ``gymnasium.vector.utils.iterate`` gives it to an env."""
        return self._action(self.space, row, iter(self._places))

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the columns that rows [T, elements] carry: by path arrays [T, ...] of their own dtypes."""
        paths = ("/".join(map(str, path)) for path, _ in self._leaves)
        return dict(zip(paths, self.split(rows), strict=True))

    def rows(self, actions: Any, count: int, converter: Callable[[gymnasium.Space], Convert]) -> np.ndarray:
        """Returns rows that carry a batch of actions. Rows themselves, of the carrying dtype, are taken as they are.

        Args:
            actions: In the space's structure, batches of ``count`` rows.
            count: The number of rows.
            converter: Makes what converts the batch of a column of that space.

        Raises:
            InvalidActionError: A wrong number of actions, or one that is out of range.
            ActionTypeError: Another structure, or a wrong type.
        """
        if isinstance(actions, np.ndarray) and actions.dtype == self.dtype:
            if actions.shape == (count, self.elements):
                return np.require(actions, self.dtype, ["C_CONTIGUOUS", "ALIGNED"])
        rows = np.empty((count, self.elements), self.dtype)
        _check_names(self.space, actions, "actions")
        for (path, leaf), place in zip(self._leaves, self._places, strict=True):
            name = "/".join(map(str, path))
            batch = actions
            for key in path:
                batch = batch[key]
            try:
                values = converter(leaf)(batch, count)
            except (ActionTypeError, InvalidActionError) as error:
                raise type(error)(f"{name}: {error}") from error
            _check_range(name, leaf, values)
            rows[:, place] = values.reshape(count, -1)
        return rows

    def _action(self, space: gymnasium.Space, row: np.ndarray, places: Iterator[slice]) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._action(part, row, places) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._action(part, row, places) for part in space.spaces)
        return self._column(space, row[next(places)])

    def _column(self, leaf: Any, values: np.ndarray, *rows: int) -> Any:
        """Returns elements as a column has them: of its dtype and shape, a scalar for a single value without axes."""
        dtype, shape = leaf.dtype, leaf.shape or ()
        if dtype.kind != "f" and values.dtype.kind == "f":
            values = np.rint(values)
        return values.astype(dtype).reshape((*rows, *shape))[()]


def recorded_actions(space: gymnasium.Space, rows: np.ndarray) -> np.ndarray | dict[str, np.ndarray]:
    """Returns recorded actions as they were taken: of a Dict or Tuple a dict of arrays by path."""
    return ActionParts(space).columns(rows) if ActionParts.has(space) else rows


def _leaves(space: gymnasium.Space, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Iterates over paths and spaces of the columns, in their order."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for place, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, place))
    else:
        yield path, space


def _ends(space: Any) -> list[int]:
    """Returns the least and the greatest integer of a column."""
    if isinstance(space, spaces.Discrete):
        return [int(space.start), int(space.start) + int(space.n) - 1]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(space.start.min(initial=0)), int((space.start + space.nvec - 1).max(initial=0))]
    if isinstance(space, spaces.Box):
        return [int(space.low.min(initial=0)), int(space.high.max(initial=0))]
    return [0, 1]


def _check_names(space: gymnasium.Space, actions: Any, name: str) -> None:
    """Raises ``ActionTypeError`` unless actions have the structure of a space."""
    if isinstance(space, spaces.Dict):
        if not isinstance(actions, dict):
            raise ActionTypeError(f"{name}: {type(actions).__name__} given, must be a dict from name to batch")
        for what, keys in (("none for", space.keys() - actions.keys()), ("nothing is called", actions.keys() - space.keys())):
            if keys:
                raise ActionTypeError(f"{name}: {what} {', '.join(sorted(map(str, keys)))}")
        parts: Any = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        if not isinstance(actions, (tuple, list)) or len(actions) != len(space.spaces):
            raise ActionTypeError(f"{name}: must be a tuple of {len(space.spaces)} batches")
        parts = enumerate(space.spaces)
    else:
        return
    for key, part in parts:
        _check_names(part, actions[key], f"{name}[{key!r}]")


def _check_range(name: str, space: gymnasium.Space, values: np.ndarray) -> None:
    """Raises ``InvalidActionError`` if an integer is none that a space of choices has."""
    low: Any
    if isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start) + int(space.n) - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        low, high = 0, 1
    else:
        return
    bad = (values < low) | (values > high)
    if bad.any():
        lane = int(np.argwhere(bad)[0][0])
        raise InvalidActionError(f"actions of {name}: lane {lane} is given {values[lane]!r}, which is not in {space}")
