"""Packs infos of lanes for their way from a worker: as columns of numbers, one array per key instead of one object per
value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

Entry = tuple[int, Any, dict[str, Any]]
"""A lane, its terminal observation and info if its episode ended and the next began, and its info."""

Column = tuple[str, str, bytes | None, bytes]
"""Key, name of the type, lanes as int32 (None for all of them, in order) and their values."""

NUMBERS = frozenset([int, float, bool, *(kind for kind in np.sctypeDict.values() if issubclass(kind, np.number))])
"""Types of which Gymnasium makes arrays of their own dtype."""


def pack(entries: list[Entry], count: int) -> tuple[list[Column], list[Entry], list[str]]:
    """Takes numbers out of infos.

    Args:
        entries: The infos of lanes, in their order.
        count: Number of lanes.

    Returns:
        A column for each key under which there are only numbers of one type, what else was said, and, unless that is nothing, all keys
        in their order.
    """
    found: dict[str, tuple[type, list[int], list[Any]]] = {}
    others = set()
    final_said = False
    for lane, final, info in entries:
        final_said = final_said or final is not None
        for key, value in info.items():
            kind = type(value)
            if kind not in NUMBERS:
                others.add(key)
            elif key in found:
                column = found[key]
                if column[0] is not kind:
                    others.add(key)
                column[1].append(lane)
                column[2].append(value)
            else:
                found[key] = (kind, [lane], [value])
    columns: list[Column] = []
    for key, (kind, lanes, values) in found.items():
        if key in others:
            continue
        try:
            array = np.array(values, dtype=kind)
        except OverflowError:
            # Gymnasium's own words for it are those of the parent.
            others.add(key)
            continue
        which = None if len(lanes) == count else np.array(lanes, dtype=np.int32).tobytes()
        columns.append((key, kind.__name__, which, array.tobytes()))
    if not others and not final_said:
        return columns, [], []
    rest: list[Entry] = []
    keys: dict[str, None] = {}
    for lane, final, info in entries:
        if final is not None:
            keys["final_obs"] = keys["final_info"] = None
        keys.update(dict.fromkeys(info))
        left = {key: value for key, value in info.items() if key in others}
        if left or final is not None:
            rest.append((lane, final, left))
    return columns, rest, list(keys)


def add_columns(
    infos: dict[str, Any], columns: Iterable[Column], first: int, count: int, rows: np.ndarray | None, total: int
) -> None:
    """Adds the columns of a worker to infos of ``total`` rows, as Gymnasium lays them out.

    Args:
        infos: Added to.
        columns: The columns that ``pack`` returned.
        first, count: The worker's first lane, and how many it has.
        rows: The row of each lane of the batch; None if each has its own.
        total: Rows.
    """
    for key, dtype, lanes, values in columns:
        if lanes is None:
            at: Any = slice(first, first + count) if rows is None else rows[first : first + count]
        else:
            which = np.frombuffer(lanes, dtype=np.int32)
            at = which + first if rows is None else rows[which + first]
        if key not in infos:
            infos[key], infos["_" + key] = np.zeros(total, dtype=dtype), np.zeros(total, dtype=np.bool_)
        infos[key][at] = np.frombuffer(values, dtype=dtype)
        infos["_" + key][at] = True


def unpack(columns: Iterable[Column], count: int) -> dict[int, dict[str, Any]]:
    """Returns the numbers that ``pack`` took out, by lane of the worker."""
    infos: dict[int, dict[str, Any]] = {}
    for key, dtype, lanes, values in columns:
        which = range(count) if lanes is None else np.frombuffer(lanes, dtype=np.int32).tolist()
        numbers = np.frombuffer(values, dtype=dtype)
        # An int is not NumPy's, and goes into arrays of objects as what it was.
        for lane, value in zip(which, numbers.tolist() if dtype in ("int", "float", "bool") else numbers, strict=True):
            infos.setdefault(lane, {})[key] = value
    return infos
