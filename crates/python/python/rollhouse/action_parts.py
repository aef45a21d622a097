"""Actions of several columns, which lanes of the native half have as one column of numbers.

The elements of all columns stand one after the other in the space's own order: as int64 where all are integers, as float32
where all are, and else as float64. A Text and a Sequence are two columns. The native half lays them out in the same way
(``BoxSpace::of_parts`` of crate core).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rollhouse.carried import lacking
from rollhouse.counted import Choices, Counted, SequenceColumns, TextColumns, ends, outside
from rollhouse.dict_keys import name_of
from rollhouse.errors import ActionTypeError, InvalidActionError

Convert = Callable[[Any, int], np.ndarray]

MAX_DEPTH = 7
"""Most Dicts and Tuples around a part."""

EXACT = 2**53
"""The number up to which float64 has every integer."""


@dataclass(frozen=True)
class _Column:
    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    ends: list[int]
    place: slice


@dataclass(frozen=True)
class _Part:
    """A part of an action that has no parts."""

    path: tuple[Any, ...]
    space: Any
    counted: TextColumns | SequenceColumns | None
    columns: list[_Column]

    @property
    def name(self) -> str:
        return _name(self.path)


class ActionParts:
    """The place of each column of an action in the one that carries them.

    Attributes:
        space: The space: a Dict, a Tuple, a Text or a Sequence.
        dtype: The dtype of the carrying column.
        elements: The number of elements of one of its rows.
    """

    def __init__(self, space: gymnasium.Space, max_lengths: Mapping[str, int] | None = None):
        """``max_lengths`` are the maxima of Sequences by their paths, if they are not ``BoundedSequence``."""
        self.space = space
        self.elements: int = 0
        self._parts = [self._part(*leaf, max_lengths) for leaf in _leaves(space, (), ())]
        self._columns = [column for part in self._parts for column in part.columns]
        self._counted = [part for part in self._parts if part.counted is not None]
        self.dtype: np.dtype[Any] = np.dtype(np.int64)
        if any(column.dtype.kind == "f" for column in self._columns):
            # Half precision counts as the single that it is widened to.
            single = all(column.dtype.kind == "f" and column.dtype.itemsize <= 4 for column in self._columns)
            self.dtype = np.dtype(np.float32 if single else np.float64)
        # Each number that a row may have is one of the other parts'.
        fixed = [(part, part.columns[0]) for part in self._parts if part.counted is None]
        self._checked = [one for one in fixed if isinstance(one[0].space, Choices) or one[1].dtype != self.dtype]

    def _part(
        self, path: tuple[Any, ...], names: tuple[str, ...], leaf: Any, max_lengths: Mapping[str, int] | None
    ) -> _Part:
        counted: TextColumns | SequenceColumns | None = None
        name = _name(path)
        told = name or "the action"
        if isinstance(leaf, spaces.Text):
            counted = TextColumns(leaf, told)
        elif isinstance(leaf, spaces.Sequence):
            maximum = leaf.maximum if max_lengths is None else max_lengths[name]  # type: ignore[attr-defined]
            item = leaf.feature_space
            counted = SequenceColumns(leaf, maximum, told, ActionParts(item) if ActionParts.has(item) else None)
        if counted is None:
            return _Part(path, leaf, None, [self._column(_name(names), leaf.dtype, leaf.shape or (), ends(leaf))])
        items = self._column(_name((*names, counted.items)), counted.dtype, counted.shape, counted.ends)
        count = self._column(_name((*names, "count")), np.dtype(np.int64), (), [0, counted.shape[0]])
        return _Part(path, leaf, counted, [items, count])

    def _column(self, path: str, dtype: Any, shape: tuple[int, ...], ends: list[int]) -> _Column:
        first = self.elements
        self.elements += int(np.prod(shape, dtype=np.int64))
        return _Column(path, np.dtype(dtype), shape, ends, slice(first, self.elements))

    @staticmethod
    def has(space: gymnasium.Space) -> bool:
        """Returns whether actions of a space have parts."""
        return isinstance(space, (spaces.Dict, spaces.Tuple, *Counted))

    def can_be(self) -> bool:
        """Returns whether one column can carry them: it has every value of the space exactly, and that is not too deep."""
        if any(len(part.path) > MAX_DEPTH for part in self._parts):
            return False
        whole = (column for column in self._columns if column.dtype.kind != "f")
        return self.dtype == np.int64 or all(abs(end) <= EXACT for column in whole for end in column.ends)

    def ends(self) -> list[int]:
        """Returns the least and the greatest integer of any column."""
        each = [end for column in self._columns for end in column.ends]
        return [min(each, default=0), max(each, default=0)]

    def zeros(self, count: int) -> np.ndarray:
        """Returns rows of zeros."""
        return np.zeros((count, self.elements), self.dtype)

    def join(self, rows: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
        """Writes arrays [N, ...] of the columns to the rows that carry them."""
        for column, array in zip(self._columns, arrays, strict=True):
            rows[:, column.place] = array.reshape(len(rows), -1)

    def split(self, rows: np.ndarray) -> list[np.ndarray]:
        """Returns the columns that rows carry, [N, ...] each, of their own dtypes."""
        return [np.asarray(_values(column, rows[:, column.place], len(rows))) for column in self._columns]

    def loose(self, items: Sequence[Any]) -> np.ndarray:
        """Returns rows that carry actions, one each, that are of other types than the space's; zeros where that cannot be."""
        rows = self.zeros(len(items))
        for row, item in zip(rows, items, strict=True):
            for part in self._parts:
                try:
                    value = item
                    for key in part.path:
                        value = value[key]
                    row[part.columns[0].place] = np.asarray(value).reshape(-1)
                except (ValueError, TypeError, KeyError, IndexError, OverflowError):
                    # The env sees what it is given.
                    pass
        return rows

    def action(self, row: np.ndarray) -> Any:
        """Returns the action that a row carries, as ``gymnasium.vector.utils.iterate`` gives it to an env."""
        return self._action(self.space, row, iter(self._parts))

    def batch(self, rows: np.ndarray) -> Any:
        """Returns the batch that rows carry, in the space's structure."""
        arrays = iter(self.split(rows))

        def of(space: gymnasium.Space) -> Any:
            if isinstance(space, spaces.Dict):
                return {key: of(part) for key, part in space.spaces.items()}
            return tuple(map(of, space.spaces)) if isinstance(space, spaces.Tuple) else next(arrays)

        return of(self.space)

    def check(self, row: np.ndarray) -> None:
        """Raises ``ValueError`` unless what a row carries of texts and sequences is some."""
        for part in self._counted:
            assert part.counted is not None
            part.counted.check(*(_carried(column, row[column.place]) for column in part.columns))

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the columns that rows [T, elements] carry: by path arrays [T, ...] of their own dtypes."""
        return dict(zip((column.path for column in self._columns), self.split(rows), strict=True))

    def of_columns(self, columns: Mapping[str, np.ndarray], row: int) -> Any:
        """Returns the action in a row of what ``columns`` gives."""
        parts = [np.asarray(columns[column.path][row]).reshape(-1) for column in self._columns]
        return self.action(np.concatenate(parts).astype(self.dtype))

    def rows(self, actions: Any, count: int, converter: Callable[[gymnasium.Space], Convert]) -> np.ndarray:
        """Returns rows that carry a batch of actions. Rows themselves, of the carrying dtype, are taken as they are, if each
        part has its numbers; the worker looks at those of texts and sequences.

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
                self.check_carried(actions)
                return np.require(actions, self.dtype, ["C_CONTIGUOUS", "ALIGNED"])
        rows = np.empty((count, self.elements), self.dtype)
        _check_names(self.space, actions, "actions")
        for part in self._parts:
            batch = actions
            for key in part.path:
                batch = batch[key]
            arrays = _counted_rows if part.counted is not None else _fixed_rows
            for column, values in zip(part.columns, arrays(part, batch, count, converter), strict=True):
                rows[:, column.place] = values.reshape(count, -1)
        return rows

    def check_carried(self, rows: np.ndarray) -> None:
        """Raises ``InvalidActionError`` if rows carry a number that its part does not have."""
        for part, column in self._checked:
            values = rows[:, column.place].reshape(len(rows), *column.shape)
            _check_range(part.name, part.space, values)
            _refuse(part.name, part.space, values, lacking(column.dtype, values))

    def _action(self, space: gymnasium.Space, row: np.ndarray, parts: Iterator[_Part]) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._action(child, row, parts) for key, child in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._action(child, row, parts) for child in space.spaces)
        part = next(parts)
        if part.counted is not None:
            return part.counted.read(*(_carried(column, row[column.place]) for column in part.columns))
        return _values(part.columns[0], row[part.columns[0].place])


def _name(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path))


def _values(column: _Column, values: np.ndarray, *rows: int) -> Any:
    """Returns elements as a column has them: of its dtype and shape, a scalar for a single value without axes."""
    if column.dtype.kind != "f" and values.dtype.kind == "f":
        values = np.rint(values)
    return values.astype(column.dtype).reshape((*rows, *column.shape))[()]


def _carried(column: _Column, values: np.ndarray) -> Any:
    """Returns elements in the shape of a column, and as they are carried."""
    return values.reshape(column.shape)[()]


def _fixed_rows(
    part: _Part, batch: Any, count: int, converter: Callable[[gymnasium.Space], Convert]
) -> tuple[np.ndarray]:
    try:
        values = converter(part.space)(batch, count)
    except (ActionTypeError, InvalidActionError) as error:
        raise type(error)(f"{part.name}: {error}") from error
    _check_range(part.name, part.space, values)
    return (values,)


def _counted_rows(
    part: _Part, batch: Any, count: int, converter: Callable[[gymnasium.Space], Convert]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the two columns of a batch of texts or sequences."""
    try:
        values = list(batch)
    except TypeError as error:
        raise ActionTypeError(f"{part.name or 'actions'}: {batch!r} must be one value per lane ({count})") from error
    if len(values) != count:
        raise InvalidActionError(f"{part.name or 'actions'}: {len(values)} were given for {count} lanes")
    of_items, _ = part.columns
    counted = part.counted
    assert counted is not None
    write: Callable[[np.ndarray, np.ndarray, Any], None]
    if isinstance(counted, SequenceColumns):
        write = functools.partial(counted.write, convert=_item_converter(part.space.feature_space, converter))
    else:
        write = counted.write
    items, counts = np.zeros((count, *of_items.shape), of_items.dtype), np.zeros(count, np.int64)
    for lane, value in enumerate(values):
        try:
            write(items[lane], counts[lane, ...], value)
        except TypeError as error:
            raise ActionTypeError(f"actions: lane {lane}: {error}") from error
        except ValueError as error:
            raise InvalidActionError(f"actions: lane {lane}: {error}") from error
    return items, counts


def _item_converter(space: gymnasium.Space, converter: Callable[[gymnasium.Space], Convert]) -> Convert:
    """Returns what converts a batch of the items of a sequence."""
    if not ActionParts.has(space):
        return converter(space)
    parts = ActionParts(space)
    return lambda items, count: parts.rows(items, count, converter)


def recorded_actions(space: gymnasium.Space, rows: np.ndarray) -> np.ndarray | dict[str, np.ndarray]:
    """Returns recorded actions as they were taken: a dict of arrays by path where they have parts."""
    return ActionParts(space).columns(rows) if ActionParts.has(space) else rows


def _leaves(
    space: gymnasium.Space, path: tuple[Any, ...], names: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], tuple[str, ...], Any]]:
    """Iterates over paths of the columns, the names that columns have for these, and spaces, in their order."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key), (*names, name_of(key) or str(key)))
    elif isinstance(space, spaces.Tuple):
        for place, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, place), (*names, str(place)))
    else:
        yield path, names, space


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
    _refuse(name, space, values, outside(space, values))


def _refuse(name: str, space: gymnasium.Space, values: np.ndarray, bad: np.ndarray) -> None:
    if bad.any():
        lane = int(np.argwhere(bad)[0][0])
        raise InvalidActionError(f"actions of {name}: lane {lane} is given {values[lane]!r}, which is not in {space}")
