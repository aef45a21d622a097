"""What a worker says of its env's spaces, and the columns to which it writes observations.

A Text and a Sequence are two columns each: their items, with zeros behind the last one, and ``count``, their number. A Text
says how long it may get, as ``max_length``; of a Sequence the env says it, by its path in the observation or the action:
``metadata["max_lengths"] = {"map/seen": 16}``, ``metadata["max_action_lengths"] = {"route": 8}``. The native half makes texts
and sequences of these columns (``obs_shape.rs``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import iterate

from rollhouse.action_parts import ActionParts
from rollhouse.carried import kept, own_dtype
from rollhouse.counted import Counted, TextColumns, check_length, length_of
from rollhouse.dict_keys import name_of
from rollhouse.hosted.columns import Columns, Fixed, write_array

DTYPES = ("bool", "uint8", "int32", "int64", "float32", "float64")
"""Element types of a Box that columns can have. Others are kept as the next that has all their values, if there is one, and told
as ``own`` beside it."""

OBSERVED, TAKEN = "max_lengths", "max_action_lengths"
"""The entries of an env's ``metadata`` that have the maxima of Sequences in observations and in actions."""


class UnhostedSpace(Exception):
    """A space that columns cannot have, by its path."""


@dataclass(frozen=True)
class Maxima:
    """What an env declares of its Sequences: the entry of its ``metadata``, and the maxima by their paths in it; the whole
    observation or action has the path ``""``.
    """

    entry: str
    by_path: Mapping[str, int]

    @classmethod
    def of(cls, metadata: Mapping[str, Any] | None, entry: str) -> Maxima:
        """Reads an entry, which need not be there.

        Raises:
            UnhostedSpace: They are none.
        """
        declared = (metadata or {}).get(entry) or {}
        if not isinstance(declared, Mapping):
            raise UnhostedSpace(f'metadata["{entry}"] is {declared!r}, must be a dict from path to number')
        for path, maximum in declared.items():
            if not isinstance(path, str) or isinstance(maximum, bool) or not isinstance(maximum, int) or maximum < 1:
                raise UnhostedSpace(f'metadata["{entry}"] has {maximum!r} for {path!r}, must be a number of at least 1')
        return cls(entry, dict(declared))


def space_of(space: Any, path: str, maxima: Maxima) -> dict[str, Any]:
    """Describes a space.

    Raises:
        UnhostedSpace: Columns cannot have it.
    """
    if isinstance(space, spaces.Box) and (dtype := kept(space).name) in DTYPES:
        low, high = bounds(space.low), bounds(space.high)
        return {"kind": "box", "low": low, "high": high, "shape": list(space.shape), "dtype": dtype} | _own(space)
    if isinstance(space, spaces.Discrete) and kept(space) == np.int64:
        return {"kind": "discrete", "n": int(space.n), "starts": [int(space.start)]} | _own(space)
    if isinstance(space, spaces.MultiDiscrete) and kept(space) == np.int64:
        nvec, starts = [int(n) for n in space.nvec.ravel()], [int(n) for n in space.start.ravel()]
        return {"kind": "multi_discrete", "nvec": nvec, "starts": starts, "shape": list(space.shape)} | _own(space)
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        parts = [space_of(part, f"{path}/{key}", maxima) for key, part in space.spaces.items()]
        return {"kind": "dict", "names": [_name(key, path) for key in space.spaces], "spaces": parts}
    if isinstance(space, spaces.Tuple):
        parts = [space_of(part, f"{path}/{at}", maxima) for at, part in enumerate(space.spaces)]
        return {"kind": "tuple", "spaces": parts}
    if isinstance(space, spaces.Text):
        return _text(space, path)
    if isinstance(space, spaces.Sequence):
        return _sequence(space, path, maxima)
    dtype = getattr(space, "dtype", None)
    of_dtype = f" of {dtype}" if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete)) else ""
    raise UnhostedSpace(f"{path}: {type(space).__name__}{of_dtype} cannot be hosted")


def _name(key: Any, path: str) -> str:
    name = name_of(key)
    if name is None:
        raise UnhostedSpace(f"{path}: the key {key!r} of a Dict is neither a text nor a number, and cannot be hosted")
    return name


def _own(space: Any) -> dict[str, str]:
    own = own_dtype(space, kept(space).name)
    return {} if own is None else {"own": own}


def _text(space: spaces.Text, path: str) -> dict[str, Any]:
    # Sorted, because the order of a set differs from process to process.
    characters = "".join(sorted(space.character_set))
    if len(characters) != len(space.character_set) or any("\ud800" <= character <= "\udfff" for character in characters):
        raise UnhostedSpace(f"{path}: a Text with characters that are no Unicode cannot be hosted")
    lengths = {"min_length": int(space.min_length), "maximum": int(space.max_length)}
    return {"kind": "text", **lengths, "characters": characters}


def _sequence(space: spaces.Sequence, path: str, maxima: Maxima) -> dict[str, Any]:
    own = path.partition("/")[2]
    if own not in maxima.by_path:
        raise UnhostedSpace(f'{path}: {space} has no maximum; the env declares it as metadata["{maxima.entry}"][{own!r}]')
    feature: Any = space.feature_space
    if has_unfixed(feature):
        raise UnhostedSpace(f"{path}: a Sequence of {type(feature).__name__} cannot be hosted")
    item = space_of(feature, path, maxima)
    if not isinstance(feature, Fixed) and not ActionParts(feature).can_be():
        raise UnhostedSpace(f"{path}: a Sequence of items that one column does not carry exactly cannot be hosted")
    return {"kind": "sequence", "maximum": maxima.by_path[own], "stack": bool(space.stack), "spaces": [item]}


def has_unfixed(space: gymnasium.Space) -> bool:
    """Returns whether a space has a part that is no column of a fixed shape."""
    parts = getattr(space, "spaces", None) if isinstance(space, (spaces.Dict, spaces.Tuple)) else None
    if parts is None:
        return not isinstance(space, Fixed)
    return any(map(has_unfixed, parts.values() if isinstance(parts, Mapping) else parts))


def bounds(values: np.ndarray) -> list[Any]:
    """Returns bounds as numbers, those that JSON does not have as words; a single one where all are the same."""
    numbers = values.ravel()
    if numbers.size and (numbers == numbers[0]).all():
        numbers = numbers[:1]
    return [float(v) if math.isfinite(v) else str(float(v)) for v in numbers]


class WorkerColumns(Columns):
    """The columns of an observation as a worker writes them, which are those that ``space_of`` describes.

    Attributes:
        stored: The dtype with which each column is kept.
    """

    def __init__(self, space: gymnasium.Space, max_lengths: Mapping[str, int]):
        self.stored: list[np.dtype] = []
        self._max_lengths = max_lengths
        super().__init__(space, 1)

    def _plant(self, space: gymnasium.Space, path: str = "") -> tuple[str, Any]:
        if not isinstance(space, Counted):
            planted = super()._plant(space, path)
            if planted[0] == "column":
                self.stored.append(kept(space))
            return planted
        writer: TextColumns | SequenceWriter
        if isinstance(space, spaces.Text):
            writer = TextColumns(space, path or "the observation")
        else:
            writer = SequenceWriter(space, self._max_lengths[path], path)
        first = len(self.shapes)
        for dtype, shape in ((writer.dtype, writer.shape), (np.dtype(np.int64), ())):
            self.dtypes.append(dtype)
            self.stored.append(dtype)
            self.shapes.append(shape)
        return "counted", (first, writer)

    def _write(self, node: tuple[str, Any], row: Sequence[np.ndarray], others: list[Any], value: Any) -> None:
        if node[0] == "counted":
            first, writer = node[1]
            writer.write(row[first], row[first + 1], value)
        else:
            super()._write(node, row, others, value)


class SequenceWriter:
    """Writes sequences. Items of several columns are rows that carry these, as those of an action.

    Attributes:
        dtype: The dtype of the column of items.
        shape: The shape of one of its rows.
    """

    def __init__(self, space: spaces.Sequence, maximum: int, path: str):
        item: Any = space.feature_space
        self._parts = None if isinstance(item, Fixed) else ActionParts(item)
        self._columns = Columns(item, 1)
        self.dtype = kept(item) if self._parts is None else self._parts.dtype
        self.shape: tuple[int, ...] = (maximum, *((item.shape or ()) if self._parts is None else (self._parts.elements,)))
        self._stack = space.stack
        self._batch: Any = getattr(space, "stacked_feature_space", None)
        self._path = path or "the observation"

    def write(self, items: np.ndarray, count: np.ndarray, value: Any) -> None:
        """Writes a sequence.

        Raises:
            TypeError: The value is none, or an item has a dtype that does not become the column's.
            ValueError: It is too long, or an item has another shape.
        """
        length = length_of(value) if self._stack else len(value)
        check_length(f"{self._path}: a sequence", length, len(items))
        if self._parts is not None:
            for at, item in enumerate(iterate(self._batch, value) if self._stack else value):
                self._carry(items[at], item)
        elif self._stack and length:
            write_array(items[:length], value)
        else:
            for at, item in enumerate(value):
                write_array(items[at, ...], item)
        items[length:] = 0
        count[...] = length

    def _carry(self, row: np.ndarray, item: Any) -> None:
        arrays = [np.empty(shape, dtype) for shape, dtype in zip(self._columns.shapes, self._columns.dtypes, strict=True)]
        self._columns.write(arrays, [], item)
        row[...] = np.concatenate([array.reshape(-1) for array in arrays])
