"""Makes the infos of hosted lanes from what each env returned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np

from rollhouse.info_layout import lane_info

OURS = ("valid", "lost")
"""Names of infos that are this package's."""

Column = tuple[str, np.ndarray]
"""A key, and a number of each lane that said something."""


class Said(dict[int, tuple[Any, dict[str, Any]]]):
    """What some lanes said of their last rows. By lane: its terminal observation and info if its episode ended and the next
    began, and its info.

    Attributes:
        lanes: Instead of that, the lanes that gave numbers alone, all under the same keys.
        columns: Those numbers.
        unpainted: Why an env gave no picture that was to be recorded, of the first that did not.
        blocks: Instead of all that, what vector envs said of their lanes: the first of these, the one after the last, and
            infos of a row for each.
        masked: Whether each array of them has its mask.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lanes: list[int] = []
        self.columns: list[Column] = []
        self.unpainted: str | None = None
        self.blocks: list[tuple[int, int, dict[str, Any]]] = []
        self.masked = False


def batch_infos(envs: gymnasium.vector.VectorEnv, lanes: list[int], said: Said) -> dict[str, Any]:
    """Makes the infos of some lanes, a row each, in the layout of the installed Gymnasium."""
    if said.blocks:
        if said.masked and said.blocks[0][:2] == (0, len(lanes)):
            return said.blocks[0][2]
        return joined(said.blocks, len(lanes))
    infos: dict[str, Any] = {}
    if said.columns:
        mask = np.zeros(len(lanes), dtype=np.bool_)
        at: Any = slice(None)
        if len(said.lanes) != len(lanes):
            at = np.searchsorted(lanes, said.lanes)
        mask[at] = True
        for key, numbers in said.columns:
            infos[key], infos["_" + key] = np.zeros(len(lanes), dtype=numbers.dtype), mask.copy()
            infos[key][at] = numbers
    if said:
        # Its own `_add_info`, for as many rows as there are.
        adder = envs
        if len(lanes) != envs.num_envs:
            adder = gymnasium.vector.VectorEnv()
            adder.num_envs = len(lanes)
        for row, lane in enumerate(lanes):
            final, info = said.get(lane, (None, None))
            if final is not None:
                infos = added(adder, infos, {"final_obs": final[0], "final_info": final[1]}, row)
            if info:
                infos = added(adder, infos, info, row)
    return infos


def added(adder: gymnasium.vector.VectorEnv, infos: dict[str, Any], info: dict[str, Any], row: int) -> dict[str, Any]:
    """Adds the info of a row. Values that arrays of the rows before do not take become objects, each as its env gave it."""
    def was_dict(key: Any, value: Any) -> bool:
        return isinstance(infos.get(key), dict) and not isinstance(value, dict)

    if not any(was_dict(key, value) for key, value in info.items()):
        try:
            return adder._add_info(infos, info, row)
        except Exception:
            # One of them; which one, the loop finds.
            pass
    for key, value in info.items():
        try:
            if was_dict(key, value):
                raise TypeError("a dict in rows before")
            infos = adder._add_info(infos, {key: value}, row)
        except Exception:
            mask = infos.get(f"_{key}", np.zeros(adder.num_envs, dtype=np.bool_))
            mask[row] = False
            before: Any = infos.get(key)
            objects = np.full(adder.num_envs, None, dtype=object)
            for at in np.flatnonzero(mask).tolist():
                objects[at] = lane_info(before, at) if isinstance(before, dict) else before[at]
            objects[row], mask[row] = value, True
            infos[key], infos[f"_{key}"] = objects, mask
    return infos


def joined(blocks: list[tuple[int, int, dict[str, Any]]], count: int) -> dict[str, Any]:
    """Returns the infos of ``count`` lanes, of those that vector envs gave for their own, with a mask beside each array that
    came without."""
    infos: dict[str, Any] = {}
    for first, end, given in blocks:
        for key, value in given.items():
            if isinstance(value, dict):
                infos[key] = joined([(f, e, g[key]) for f, e, g in blocks if isinstance(g.get(key), dict)], count)
            elif not isinstance(value, np.ndarray) or value.shape[:1] != (end - first,):
                # What is said of all lanes at once.
                infos.setdefault(key, value)
                continue
            elif end - first == count:
                infos[key] = value
            else:
                whole = infos.setdefault(key, _empty(value, count))
                if whole.shape[1:] != value.shape[1:] or not np.can_cast(value.dtype, whole.dtype, "same_kind"):
                    infos[key] = whole = whole.astype(object) if whole.ndim == 1 else np.full(count, None, dtype=object)
                whole[first:end] = value if whole.ndim == value.ndim else list(value)
            if f"_{key}" not in given and not _is_mask_of(key, given):
                infos.setdefault(f"_{key}", np.zeros(count, dtype=np.bool_))[first:end] = True
    return infos


def _empty(like: np.ndarray, count: int) -> np.ndarray:
    shape = (count, *like.shape[1:])
    return np.full(shape, None, dtype=object) if like.dtype == object else np.zeros(shape, like.dtype)


def _is_mask_of(key: Any, infos: dict[str, Any]) -> bool:
    return isinstance(key, str) and key.startswith("_") and key[1:] in infos


def drop_own(infos: dict[str, Any]) -> list[str]:
    """Takes out what envs say under names of ours. Returns those names."""
    taken = [key for key in OURS if key in infos]
    for key in taken:
        del infos[key]
        infos.pop("_" + key, None)
    return taken


def say_valid(infos: dict[str, Any], valid: np.ndarray, show: str, *, are_lost: bool = False) -> None:
    """Adds ``valid``, bool [k], which tells the rows that are transitions, where it is wanted.

    Args:
        infos: Added to.
        valid: Whether each row is a transition.
        show: The result of ``rollhouse.vector.show_valid``.
        are_lost: Whether lanes are.
    """
    if are_lost or show == "always" or (show == "needed" and not valid.all()):
        infos["valid"], infos["_valid"] = valid, np.ones(len(valid), dtype=np.bool_)


def add_lost(infos: dict[str, Any], rows: Iterable[int], outcomes: Iterable[str], count: int) -> None:
    """Adds the outcomes of lost lanes at their rows of ``count``."""
    told, mask = np.full(count, None, dtype=object), np.zeros(count, dtype=np.bool_)
    for row, outcome in zip(rows, outcomes, strict=True):
        told[row], mask[row] = outcome, True
    infos["lost"], infos["_lost"] = told, mask
