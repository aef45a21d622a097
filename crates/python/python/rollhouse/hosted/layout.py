"""The columns in which the engine has the values of a space."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rollhouse.action_parts import ActionParts
from rollhouse.carried import WIDER, own_dtype
from rollhouse.dict_keys import name_of
from rollhouse.hosted.columns import Columns, write_array
from rollhouse.said import at_path

KEPT = ("bool", "uint8", "int32", "int64", "float32", "float64")
"""The dtypes that the engine has."""

MAX_INFOS = 64
"""Most infos that are recorded."""

MAX_COLUMNS = 64
"""Most columns of an observation."""


class Layout:
    """Columns of values of a space, as lanes and recordings have them.

    A space whose columns the engine does not have (too many of them, none, a dtype that has no wider one) is *raw*: one column
    of bytes, in which each of the space's own begins at a multiple of eight. Where the engine has one column, as for actions,
    one of numbers carries several.

    Attributes:
        columns: The space's own columns, of no rows.
        parts: Where a column of the engine's carries each of them; None if none does.
        raw: Whether it is raw.
        stored: The dtype with which each of its columns is kept.
        offsets: The byte at which each of a raw space's columns begins.
    """

    def __init__(self, space: gymnasium.Space, most: int = MAX_COLUMNS):
        self.space = space
        self.columns = columns = Columns(space, 0)
        names = [_stored(leaf) for leaf in leaves(space)]
        unknown = not 1 <= len(names) <= MAX_COLUMNS or None in names or bool(columns.others)
        own = columns.dtypes
        self.parts: ActionParts | None = None
        if most == 1 and ActionParts.has(space) and not unknown and np.dtype(np.uint64) not in own:
            parts = ActionParts(space)
            self.parts = parts if parts.can_be() else None
        self.raw = self.parts is None and (unknown or len(names) > most)
        if self.raw:
            self.stored = own
        else:
            # Those of the same size are other names for the same bytes.
            kept = [np.dtype(name) for name in names]
            self.stored = [was if was.itemsize == dtype.itemsize else dtype for was, dtype in zip(own, kept, strict=True)]
        self._kept = [np.dtype(name) for name in names if name is not None]
        sizes = [dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in zip(own, columns.shapes, strict=True)]
        self.offsets = [sum(-(-size // 8) * 8 for size in sizes[:index]) for index in range(len(sizes))]
        self._bytes = sum(-(-size // 8) * 8 for size in sizes)

    def described(self) -> tuple[Any, ...]:
        """Describes the space as the native half takes it."""
        if self.raw:
            return "box", "uint8", [self._bytes], [0.0], [255.0], None
        return _described(self.space)

    def refusal(self) -> str | None:
        """Returns why values of the space cannot be recorded as what they are; None if they can."""
        if self.columns.others:
            return f"{self.space} is not made of columns, so it cannot be recorded"
        if self.raw or np.dtype(np.uint64) in self.columns.dtypes:
            return f"{self.space} has columns that recordings do not have"
        return None

    def read(self, kept: Sequence[np.ndarray], copy: bool) -> list[np.ndarray]:
        """Returns the space's own columns, [k, ...] each, of those of the engine. Without ``copy`` they may be views."""
        if self.raw:
            return self._split(kept[0], copy)
        arrays = []
        for array, dtype, stored in zip(kept, self.columns.dtypes, self.stored, strict=True):
            if stored != dtype:
                arrays.append(array.astype(dtype))
            else:
                array = array.copy() if copy else array
                arrays.append(array if array.dtype == dtype else array.view(dtype))
        return arrays

    def _split(self, row_bytes: np.ndarray, copy: bool) -> list[np.ndarray]:
        rows, stride = row_bytes.shape
        arrays = []
        for offset, dtype, shape in zip(self.offsets, self.columns.dtypes, self.columns.shapes, strict=True):
            array = strided(row_bytes, offset, stride, rows, dtype, shape)
            arrays.append(array.copy() if copy else array)
        return arrays

    def rows(self, arrays: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Returns rows of the engine's one column, of arrays [k, ...] of the space's own columns."""
        if self.raw or self.parts is not None:
            rows = np.zeros((count, self._bytes), np.uint8) if self.parts is None else self.parts.zeros(count)
            self.put(rows, arrays)
            return rows
        return np.ascontiguousarray(arrays[0]).astype(self.stored[0], copy=False).view(self._kept[0])

    def put(self, column: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
        """Writes arrays [N, ...] of the space's own columns to the engine's one column."""
        if self.parts is not None:
            self.parts.join(column, arrays)
            return
        if not self.raw:
            column = column if column.dtype == self.stored[0] else column.view(self.stored[0])
            np.copyto(column, arrays[0])
            return
        rows, stride = column.shape
        for array, offset, dtype, shape in zip(
            arrays, self.offsets, self.columns.dtypes, self.columns.shapes, strict=True
        ):
            np.copyto(strided(column, offset, stride, rows, dtype, shape), array)

    def loose(self, items: Sequence[Any]) -> np.ndarray:
        """Returns rows of the engine's one column for actions that are no arrays: as they would be recorded, where that can
        be."""
        if self.raw:
            return np.zeros((len(items), self._bytes), np.uint8)
        if self.parts is not None:
            return self.parts.loose(items)
        shape = (len(items), *self.columns.shapes[0])
        start = self.space.start if isinstance(self.space, (spaces.Discrete, spaces.MultiDiscrete)) else 0
        rows = np.full(shape, start, self.stored[0])
        try:
            rows[...] = np.asarray(items)
        except (ValueError, TypeError, OverflowError):
            # The env sees what it is given.
            pass
        return rows.view(self._kept[0])

    def records(self, memory: mmap.mmap, places: Sequence[int], stride: int, count: int) -> list[np.ndarray]:
        """Returns the columns of lanes' records, [count, ...] each, or the one that carries them; ``places`` are those of the
        engine's columns.
        """
        if self.parts is not None:
            return [strided(memory, places[0], stride, count, self.parts.dtype, (self.parts.elements,))]
        if self.raw:
            places = [places[0] + offset for offset in self.offsets]
        return [
            strided(memory, at, stride, count, dtype, shape)
            for at, dtype, shape in zip(places, self.stored, self.columns.shapes, strict=True)
        ]


def info_channels(examples: Mapping[str, Any]) -> list[tuple[str, str, list[int]]]:
    """Returns (name, dtype, shape) of infos that are to be recorded, of which each has an example.

    Raises:
        TypeError: A name is no text, or a value is no number or array of numbers that recordings have.
        ValueError: There are too many.
    """
    if len(examples) > MAX_INFOS:
        raise ValueError(f"record_infos: {len(examples)} infos; at most {MAX_INFOS} are possible")
    channels = []
    for name, example in examples.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"record_infos: {name!r} is not the name of an info")
        array = np.asarray(example)
        dtype = WIDER.get(array.dtype.name, array.dtype.name)
        if dtype not in KEPT:
            raise TypeError(f"record_infos: {name!r} has values of dtype {array.dtype}, which recordings do not have")
        channels.append((name, dtype, list(array.shape)))
    return channels


def check_frames(every: Any) -> None:
    """Checks of every how many-th step a picture is to be recorded.

    Raises:
        ValueError: It is no integer of at least 1, nor None.
    """
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise ValueError(f"record_frames={every!r} must be an integer of at least 1, or None")


class InfoRows:
    """Writes infos that are recorded to lanes' records."""

    def __init__(
        self, memory: mmap.mmap, record: dict[str, Any], channels: Sequence[tuple[str, str, list[int]]], count: int
    ):
        stride = record["stride"]
        self._channels: list[tuple[str, np.ndarray, float]] = []
        for at, (name, dtype, shape) in zip(record["infos"], channels, strict=True):
            rows = strided(memory, at, stride, count, np.dtype(dtype), tuple(shape))
            self._channels.append((name, rows, np.nan if rows.dtype.kind == "f" else 0))

    def write_all(self, infos: dict[str, Any]) -> None:
        """Writes what a step of all lanes said, as ``write`` does for one: an array of a row for each lane, and where not all
        lanes say something a mask beside it.

        Raises:
            ValueError: As ``write``.
        """
        for name, rows, missing in self._channels:
            there, values = at_path(infos, name)
            if not there:
                rows.fill(missing)
                continue
            try:
                write_array(rows, values)
            except (ValueError, TypeError) as error:
                raise ValueError(f"info {name!r} does not fit record_infos: {error}") from error
            before, slash, last = name.rpartition("/")
            masked, mask = at_path(infos, f"{before}{slash}_{last}")
            if masked:
                rows[~np.asarray(mask, np.bool_)] = missing

    def write(self, lane: int, info: dict[str, Any]) -> None:
        """Writes what a step said: NaN, or 0, for what it did not.

        Raises:
            ValueError: A value has another shape, or a dtype that does not become the one it was said to have.
        """
        for name, rows, missing in self._channels:
            row = rows[lane : lane + 1].reshape(rows.shape[1:])
            there, value = at_path(info, name)
            if not there:
                row.fill(missing)
                continue
            try:
                write_array(row, value)
            except (ValueError, TypeError) as error:
                raise ValueError(f"info {name!r} does not fit record_infos: {error}") from error


def strided(
    buffer: Any, offset: int, stride: int, rows: int, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    """Returns an array [rows, ...] over a buffer, whose rows begin ``stride`` bytes apart."""
    if not np.prod(shape, dtype=np.int64):
        return np.zeros((rows, *shape), dtype)
    within = np.zeros(shape, dtype).strides
    return np.ndarray((rows, *shape), dtype, buffer, offset, (stride, *within))


def leaves(space: gymnasium.Space) -> list[gymnasium.Space]:
    """Returns the spaces of the columns, in their order."""
    if isinstance(space, spaces.Dict):
        return [leaf for child in space.spaces.values() for leaf in leaves(child)]
    if isinstance(space, spaces.Tuple):
        return [leaf for child in space.spaces for leaf in leaves(child)]
    return [space] if Columns(space, 0).single else []


def _stored(space: gymnasium.Space) -> str | None:
    """Returns the dtype that the engine has for a column; None if it has none."""
    if isinstance(space, spaces.MultiBinary):
        # Gymnasium's zeros and ones are int8.
        return "uint8"
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return "int64"
    name = np.dtype(space.dtype).name
    # The same bytes; such columns are not recorded.
    name = "int64" if name == "uint64" else WIDER.get(name, name)
    return name if name in KEPT else None


def _described(space: gymnasium.Space) -> tuple[Any, ...]:
    if isinstance(space, spaces.Dict):
        return "dict", [(name_of(key) or str(key), _described(child)) for key, child in space.spaces.items()]
    if isinstance(space, spaces.Tuple):
        return "tuple", [_described(child) for child in space.spaces]
    name = _stored(space)
    if isinstance(space, spaces.Discrete):
        return "discrete", int(space.start), int(space.n), own_dtype(space, "int64")
    if isinstance(space, spaces.MultiBinary):
        return "choices", name, list(space.shape), [0.0], [1.0], None
    own = None if name is None else own_dtype(space, name)
    if isinstance(space, spaces.MultiDiscrete):
        low = space.start.astype(np.float64)
        return "choices", name, list(space.shape), low.ravel().tolist(), (low + space.nvec - 1).ravel().tolist(), own
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)  # type: ignore[attr-defined]
    return "box", name, list(space.shape or ()), low.ravel().tolist(), high.ravel().tolist(), own
