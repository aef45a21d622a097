"""Makes the infos of hosted lanes from what each env returned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np

Column = tuple[str, np.ndarray]
"""A key, and a number of each lane that said something."""


class Said(dict[int, tuple[Any, dict[str, Any]]]):
    """What some lanes said of their last rows. By lane: its terminal observation and info if its episode ended and the next
    began, and its info.

    Attributes:
        lanes: Instead of that, the lanes that gave numbers alone, all under the same keys.
        columns: Those numbers.
        unpainted: Why an env gave no picture that was to be recorded, of the first that did not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lanes: list[int] = []
        self.columns: list[Column] = []
        self.unpainted: str | None = None


def batch_infos(envs: gymnasium.vector.VectorEnv, lanes: list[int], said: Said) -> dict[str, Any]:
    """Makes the infos of some lanes, a row each, in the layout of the installed Gymnasium."""
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
                infos = adder._add_info(infos, {"final_obs": final[0], "final_info": final[1]}, row)
            if info:
                infos = adder._add_info(infos, info, row)
    return infos


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
