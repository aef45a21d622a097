"""What a worker says of a lane beside its row, as bytes: numbers packed, anything else pickled."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from rollhouse.hosted.infos import Said
from rollhouse.said import pickled_info

NUMBERS, PICKLED = 0, 1
"""The first byte of words."""

UNREAD = "info_unread"
"""The key of an info that was sent and cannot be read."""

FORMATS: dict[type, str] = {
    int: "q",
    float: "d",
    bool: "?",
    np.int8: "b",
    np.uint8: "B",
    np.int16: "h",
    np.uint16: "H",
    np.int32: "i",
    np.uint32: "I",
    np.int64: "q",
    np.uint64: "Q",
    np.float16: "e",
    np.float32: "f",
    np.float64: "d",
}
"""Types of which Gymnasium makes arrays of their own dtype, and how they are packed."""

TYPES = {kind.__name__: kind for kind in FORMATS}

MAX_LAYOUTS = 1024
"""Most sets of keys and types whose packing is remembered."""

Layout = tuple[bytes, Callable[..., bytes]]


class Packer:
    """Turns infos into words. Numbers under the same keys are packed in the same way each time."""

    def __init__(self) -> None:
        self._layouts: dict[Any, Layout | None] = {}

    def numbers(self, info: dict[str, Any]) -> bytes | None:
        """Returns the words for an info of numbers alone; None for any other."""
        key = (*info, *map(type, info.values()))
        try:
            layout = self._layouts[key]
        except KeyError:
            layout = self._learn(key, info)
        if layout is None:
            return None
        head, pack = layout
        try:
            return head + pack(*info.values())
        except (struct.error, OverflowError):
            # Too great a number: Gymnasium's own words for it are those of the parent.
            return None

    def _learn(self, key: Any, info: dict[str, Any]) -> Layout | None:
        kinds = [type(value) for value in info.values()]
        layout = None
        if all(isinstance(name, str) for name in info) and all(kind in FORMATS for kind in kinds):
            head = json.dumps([[name, kind.__name__] for name, kind in zip(info, kinds, strict=True)]).encode()
            if len(head) < 1 << 16:
                packing = struct.Struct("<" + "".join(FORMATS[kind] for kind in kinds))
                layout = (bytes([NUMBERS]) + len(head).to_bytes(2, "little") + head, packing.pack)
        if len(self._layouts) < MAX_LAYOUTS:
            self._layouts[key] = layout
        return layout


class Reader:
    """Turns words into infos."""

    def __init__(self) -> None:
        self._heads: dict[bytes, tuple[list[tuple[str, type]], struct.Struct]] = {}

    def read(
        self, told: list[tuple[int, bytes | None, bytes | None]], others: list[list[Any]]
    ) -> Said:
        """Reads what lanes said: for each its number, the words about a step, and those about an episode's beginning.

        Lanes are told in ascending order. The parts of observations that are no columns are written to ``others``, by
        lane.
        """
        said = Said()
        if self._read_numbers(told, said):
            return said
        for lane, stepped, begun in told:
            final = None
            info: dict[str, Any] = {}
            for words in (stepped, begun):
                if words is None:
                    continue
                last, info, rest, unpainted = self._of(words)
                final = (last, info) if last is not None else final
                if rest is not None:
                    others[lane] = rest
                said.unpainted = said.unpainted or unpainted
            if begun is None and final is not None:
                info = {}
            if final is not None:
                final = (final[0][0], final[1])
            if final is not None or info:
                said[lane] = (final, info)
        return said

    def _read_numbers(self, told: list[tuple[int, bytes | None, bytes | None]], said: Said) -> bool:
        """Takes numbers that all lanes gave under the same keys, together. Returns False, and takes nothing, if they did
        not.
        """
        head = b""
        parts = []
        for _, stepped, begun in told:
            words = begun if stepped is None else stepped
            if words is None or (stepped is not None and begun is not None) or words[0] != NUMBERS:
                return False
            if not head:
                head = words[: 3 + int.from_bytes(words[1:3], "little")]
            if not words.startswith(head):
                return False
            parts.append(words[len(head) :])
        if parts:
            keys, _ = self._head(head)
            numbers = np.frombuffer(b"".join(parts), [(f"f{at}", kind) for at, (_, kind) in enumerate(keys)])
            said.lanes = [lane for lane, *_ in told]
            said.columns = [(name, numbers[f"f{at}"]) for at, (name, _) in enumerate(keys)]
        return True

    def _of(self, words: bytes) -> tuple[Any, dict[str, Any], list[Any] | None, str | None]:
        if words[0] == PICKLED:
            final, packed, others, unpainted = pickle.loads(words[1:])
            return final, unpickled(packed), others, unpainted
        head = words[: 3 + int.from_bytes(words[1:3], "little")]
        keys, packing = self._head(head)
        values = packing.unpack(words[len(head) :])
        pairs = zip(keys, values, strict=True)
        return None, {name: kind(value) for (name, kind), value in pairs}, None, None

    def _head(self, head: bytes) -> tuple[list[tuple[str, type]], struct.Struct]:
        known = self._heads.get(head)
        if known is None:
            keys = [(name, TYPES[kind]) for name, kind in json.loads(head[3:])]
            known = keys, struct.Struct("<" + "".join(FORMATS[kind] for _, kind in keys))
            if len(self._heads) < MAX_LAYOUTS:
                self._heads[head] = known
        return known


def pickled(
    final: tuple[Any] | None, info: dict[str, Any], others: list[Any] | None, unpainted: str | None, dump: Callable[[Any], bytes]
) -> bytes:
    """Returns words of any kind: the last observation of an episode (in a tuple) if the next one begins in the same step,
    the info, the parts of the observation that are no columns, and why a picture is missing. An info is pickled apart, for it may
    be of what only the worker can make.
    """
    return bytes([PICKLED]) + dump((final, pickled_info(info, dump) if info else b"", others, unpainted))


def unpickled(packed: bytes) -> dict[str, Any]:
    """Returns an info; one that cannot be made here says why, as ``UNREAD``."""
    try:
        return pickle.loads(packed) if packed else {}
    except Exception as error:
        return {UNREAD: f"it cannot be read here: {type(error).__name__}: {error}"}
