"""Infos of all lanes of a vector env, as bytes that the lanes' records carry in pieces."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rollhouse.hosted.infos import Said
from rollhouse.hosted.words import MAX_LAYOUTS, unpickled
from rollhouse.said import pickled_info

BLOCK = bytes([2])
"""The first byte of a lane's words that are a piece of those of all lanes."""

ARRAYS, PICKLED = b"\0", b"\1"
"""The first byte of all pieces together."""

Leaf = tuple[tuple[str, ...], np.ndarray]

_ALIGNED = 8


class BlockPacker:
    """Turns infos into bytes. Arrays under the same names are packed in the same way each time."""

    def __init__(self) -> None:
        self._heads: dict[Any, bytes] = {}

    def pack(self, infos: dict[str, Any], dump: Callable[[Any], bytes]) -> bytes:
        """Returns the bytes of infos, empty for none."""
        if not infos:
            return b""
        try:
            found = list(leaves(infos))
        except TypeError:
            return PICKLED + pickled_info(infos, dump)
        key = tuple((path, array.dtype, array.shape) for path, array in found)
        head = self._heads.get(key)
        if head is None:
            told = json.dumps([(path, array.dtype.str, array.shape) for path, array in found]).encode()
            told += b" " * (-(len(told) + 5) % _ALIGNED)
            head = ARRAYS + len(told).to_bytes(4, "little") + told
            if len(self._heads) < MAX_LAYOUTS:
                self._heads[key] = head
        parts = [head]
        for _, array in found:
            parts.append(array.tobytes())
            parts.append(bytes(-array.nbytes % _ALIGNED))
        return b"".join(parts)


class Packing(NamedTuple):
    """How arrays of infos are packed.

    Attributes:
        arrays: Of each its names, dtype, shape, number of elements and first byte.
        rows: The number of rows that all have; None if they differ.
        unmasked: Names of arrays and dicts beside which there is no mask.
    """

    arrays: list[tuple[list[str], np.dtype, tuple[int, ...], int, int]]
    rows: int | None
    unmasked: list[list[str]]


class BlockReader:
    """Turns the words of lanes into infos, of workers that have ranges of lanes."""

    def __init__(self, ranges: Sequence[tuple[int, int]]):
        self._ranges = ranges
        self._heads: dict[bytes, Packing] = {}

    def read(self, told: list[tuple[int, bytes | None, bytes | None]]) -> Said:
        """Reads what lanes said, in ascending order: for each its number, the words about a step, and those about an
        episode's beginning, of which one is there.
        """
        said = Said()
        pieces: dict[int, list[bytes]] = {}
        at = 0
        for lane, stepped, begun in told:
            while lane >= self._ranges[at][1]:
                at += 1
            words = begun if stepped is None else stepped
            if words is not None and words[:1] == BLOCK:
                pieces.setdefault(at, []).append(words[1:])
        said.masked = len(self._ranges) == 1
        for worker, parts in pieces.items():
            first, end = self._ranges[worker]
            infos, masked = self._infos(bytearray().join(parts), end - first)
            said.masked &= masked
            if infos:
                said.blocks.append((first, end, infos))
        return said

    def _infos(self, words: bytearray, count: int) -> tuple[dict[str, Any], bool]:
        """Returns infos of ``count`` lanes, and whether each of their arrays has its mask."""
        if not words:
            return {}, False
        if words[:1] == PICKLED:
            return unpickled(bytes(words[1:])), False
        end = 5 + int.from_bytes(words[1:5], "little")
        head = bytes(words[5:end])
        packing = self._heads.get(head)
        if packing is None:
            packing = _packing(json.loads(head), end)
            if len(self._heads) < MAX_LAYOUTS:
                self._heads[head] = packing
        infos: dict[str, Any] = {}
        for path, dtype, shape, size, at in packing.arrays:
            array = np.frombuffer(words, dtype, size, at)
            if len(shape) != 1:
                array = array.reshape(shape)
            _put(infos, path, array)
        if packing.rows != count:
            return infos, False
        for path in packing.unmasked:
            _put(infos, path, np.ones(count, np.bool_))
        return infos, True


def _packing(described: list[tuple[list[str], str, list[int]]], at: int) -> Packing:
    arrays: list[tuple[list[str], np.dtype, tuple[int, ...], int, int]] = []
    names: set[tuple[str, ...]] = set()
    for path, name, shape in described:
        dtype, size = np.dtype(name), math.prod(shape)
        arrays.append((path, dtype, tuple(shape), size, at))
        at += -(-size * dtype.itemsize // _ALIGNED) * _ALIGNED
        names.update(tuple(path[:depth]) for depth in range(1, len(path) + 1))
    rows = {shape[0] if shape else None for _, _, shape in described}

    def is_masked(name: tuple[str, ...]) -> bool:
        is_mask = name[-1].startswith("_") and (*name[:-1], name[-1][1:]) in names
        return is_mask or (*name[:-1], f"_{name[-1]}") in names

    unmasked = [[*name[:-1], f"_{name[-1]}"] for name in sorted(names) if not is_masked(name)]
    return Packing(arrays, rows.pop() if len(rows) == 1 else None, unmasked)


def _put(infos: dict[str, Any], path: list[str], value: np.ndarray) -> None:
    for name in path[:-1]:
        infos = infos.setdefault(name, {})
    infos[path[-1]] = value


def leaves(infos: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Iterates over the arrays of infos, with the names that lead to each.

    Raises:
        TypeError: Something in them is no array of numbers.
    """
    for name, value in infos.items():
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is no text")
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, name))
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            yield (*path, name), value
        else:
            raise TypeError(f"{name!r} is no array of numbers")
