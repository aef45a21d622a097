"""Texts and sequences as columns: their items, with zeros behind the last one, and ``count``, their number.

The native half has the same two columns (``counted.rs`` of crate core).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rollhouse.carried import lacking

Counted = (spaces.Text, spaces.Sequence)

Choices = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class BoundedSequence(spaces.Sequence):
    """A Sequence of at most ``maximum`` items. It equals Gymnasium's own, and none of its samples is longer."""

    def __init__(self, item: gymnasium.Space, maximum: int, stack: bool):
        super().__init__(item, stack=stack)
        self.maximum = maximum

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        sample = super().sample(*args, **kwargs)
        return cut(sample, self.maximum) if self.stack else sample[: self.maximum]


class TextColumns:
    """The columns of a text, ``codes`` and ``count``.

    Attributes:
        items: The name of the column of code points.
        dtype: Its dtype.
        shape: The shape of one of its rows.
        ends: The least and the greatest number in it.
    """

    items = "codes"

    def __init__(self, space: spaces.Text, name: str):
        """``name`` is what errors call the text."""
        self._name = name
        self._characters = space.character_set
        self._codes = {ord(character) for character in space.character_set}
        # All of the former are single bytes in Latin-1.
        narrow = all(code <= 0xFF for code in self._codes)
        self._codec = "latin-1" if narrow else "utf-32-le"
        self.dtype = np.dtype(np.uint8 if narrow else np.int32)
        self.shape: tuple[int, ...] = (int(space.max_length),)
        self.ends = [0, max(self._codes, default=0)]

    def write(self, codes: np.ndarray, count: np.ndarray, value: Any) -> None:
        """Writes a text.

        Raises:
            TypeError: The value is none.
            ValueError: It is too long, or has other characters than the space.
        """
        if not isinstance(value, str):
            raise TypeError(f"{self._name}: a {type(value).__name__} is no text")
        check_length(f"{self._name}: a text", len(value), len(codes))
        others = set(value) - self._characters
        if others:
            raise ValueError(f"{self._name}: a text with {min(others)!r}, which its space does not have")
        codes[: len(value)] = np.frombuffer(value.encode(self._codec), self.dtype)
        codes[len(value) :] = 0
        count[...] = len(value)

    def read(self, codes: np.ndarray, count: Any) -> str:
        """Returns the text of such columns, whatever they have: what is no character is U+FFFD."""
        there = codes[: nearest(count, len(codes))].astype(self.dtype)
        return there.astype(there.dtype.newbyteorder("<")).tobytes().decode(self._codec, "replace")

    def check(self, codes: np.ndarray, count: Any) -> None:
        """Raises ``ValueError`` unless a text of the space's characters was written."""
        others = set(codes[: checked(self._name, count, len(codes))].tolist()) - self._codes
        if others:
            raise ValueError(f"{self._name}: a text with code point {min(others)!r}, which its space does not have")


class SequenceColumns:
    """The columns of a sequence, ``items`` and ``count``, in an action. Items of several columns are rows that carry these.

    Attributes:
        items: The name of the column of items.
        dtype: Its dtype.
        shape: The shape of one of its rows.
        ends: The least and the greatest number in it, if they are integers.
    """

    items = "items"

    def __init__(self, space: spaces.Sequence, maximum: int, name: str, parts: Any = None):
        """``name`` is what errors call the sequence, ``parts`` the ``ActionParts`` of items of several columns."""
        self._name, self._item, self._stack, self._parts = name, space.feature_space, space.stack, parts
        self.dtype = np.dtype(self._item.dtype if parts is None else parts.dtype)
        self.shape: tuple[int, ...] = (maximum, *((self._item.shape or ()) if parts is None else (parts.elements,)))
        least, greatest = ends(self._item) if parts is None else parts.ends()
        self.ends = [min(0, least), max(0, greatest)]

    def write(self, items: np.ndarray, count: np.ndarray, value: Any, convert: Callable[[Any, int], np.ndarray]) -> None:
        """Writes a sequence. ``convert`` makes an array of a batch of so many items.

        Raises:
            TypeError: The value is none, or an item has another type than the space's.
            ValueError: It is too long, or an item is none.
        """
        length = length_of(value) if self._stack else len(value)
        check_length(f"{self._name}: a sequence", length, len(items))
        if length:
            try:
                there = convert(value if self._stack else batch_of(self._item, value), length)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{self._name}: {error}") from error
            items[:length] = self._in_space(there)
        items[length:] = 0
        count[...] = length

    def read(self, items: np.ndarray, count: Any) -> Any:
        """Returns the sequence of such columns, whatever they have, as its space has it."""
        there = self._whole(items[: nearest(count, len(items))]).astype(self.dtype)
        if self._parts is not None:
            return self._parts.batch(there) if self._stack else tuple(self._parts.action(row) for row in there)
        if self._stack:
            return there
        # Integers are scalars, and all else is arrays, as in samples.
        return tuple(there if isinstance(self._item, spaces.Discrete) else (there[at, ...] for at in range(len(there))))

    def check(self, items: np.ndarray, count: Any) -> None:
        """Raises ``ValueError`` unless a sequence of items of the space was written."""
        there = items[: checked(self._name, count, len(items))]
        if self._parts is not None:
            return self._parts.check_carried(there)
        self._in_space(there)
        bad = lacking(self.dtype, there)
        if bad.any():
            raise ValueError(f"{self._name}: a sequence with {there[bad][0]!r}, which its space does not have")

    def _whole(self, items: np.ndarray) -> np.ndarray:
        return np.rint(items) if self.dtype.kind != "f" else items

    def _in_space(self, items: np.ndarray) -> np.ndarray:
        if self._parts is not None:
            # What converted them has looked at each.
            return items
        bad = outside(self._item, items)
        if bad.any():
            item = items[int(np.argwhere(bad)[0][0])]
            raise ValueError(f"{self._name}: a sequence with {item!r}, which is not in {self._item}")
        return items


def ends(space: Any) -> list[int]:
    """Returns the least and the greatest integer of a column."""
    if isinstance(space, spaces.Discrete):
        return [int(space.start), int(space.start) + int(space.n) - 1]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(space.start.min(initial=0)), int((space.start + space.nvec - 1).max(initial=0))]
    if isinstance(space, spaces.Box) and space.dtype.kind != "f":
        return [int(space.low.min(initial=0)), int(space.high.max(initial=0))]
    return [0, 1]


def outside(space: Any, values: np.ndarray) -> np.ndarray:
    """Returns which numbers of rows of a column are none that its space of choices has."""
    low: Any
    high: Any
    if isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start) + int(space.n) - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        low, high = 0, 1
    else:
        return np.zeros(len(values), np.bool_)
    return (values < low) | (values > high)


def batch_of(space: gymnasium.Space, items: Any) -> Any:
    """Returns items as a batch in the structure of their space.

    Raises:
        TypeError: An item has another structure.
    """
    if isinstance(space, spaces.Dict):
        if any(not isinstance(item, Mapping) or item.keys() != space.keys() for item in items):
            raise TypeError(f"an item is no dict of {', '.join(map(str, space))}")
        return {key: batch_of(part, [item[key] for item in items]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if any(not isinstance(item, tuple) or len(item) != len(space.spaces) for item in items):
            raise TypeError(f"an item is no tuple of {len(space.spaces)}")
        return tuple(batch_of(part, [item[at] for item in items]) for at, part in enumerate(space.spaces))
    return items


def cut(stacked: Any, length: int) -> Any:
    """Returns the first items of stacked ones, in whatever structure of arrays."""
    if isinstance(stacked, Mapping):
        return {key: cut(part, length) for key, part in stacked.items()}
    return tuple(cut(part, length) for part in stacked) if isinstance(stacked, tuple) else stacked[:length]


def length_of(stacked: Any) -> int:
    """Returns the number of stacked items, in whatever structure of arrays."""
    while isinstance(stacked, (Mapping, tuple)):
        stacked = next(iter(stacked.values() if isinstance(stacked, Mapping) else stacked), ())
    return len(stacked)


def check_length(what: str, length: int, maximum: int) -> None:
    """Raises ``ValueError`` if a text or a sequence is too long."""
    if length > maximum:
        raise ValueError(f"{what} of {length}, which may have {maximum} at most")


def checked(name: str, count: Any, maximum: int) -> int:
    """Returns a number of items.

    Raises:
        ValueError: It is none.
    """
    if not 0 <= count <= maximum or count != int(count):
        raise ValueError(f"{name}: {count} items, which may have 0 to {maximum}")
    return int(count)


def nearest(count: Any, maximum: int) -> int:
    """Returns the number of items that is nearest to a number."""
    return int(np.clip(np.nan_to_num(count), 0, maximum))
