"""The infos of hosted lanes, from what each env said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np

Said = dict[int, tuple[tuple[Any, Any] | None, dict[str, Any]]]
"""By lane: its terminal observation and info if its episode ended and the next began, and its info. Lanes without
either are not in it."""


def batch_infos(envs: gymnasium.vector.VectorEnv, lanes: list[int], said: Said) -> dict[str, Any]:
    """Infos of some lanes, a row each, in the layout of the installed Gymnasium."""
    infos: dict[str, Any] = {}
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


def add_valid(infos: dict[str, Any], valid: np.ndarray) -> None:
    """Adds which rows are transitions: ``valid``, bool [k]."""
    infos["valid"], infos["_valid"] = valid, np.ones(len(valid), dtype=np.bool_)


def add_lost(infos: dict[str, Any], rows: Iterable[int], outcomes: Iterable[str], count: int) -> None:
    """Adds the outcomes of lost lanes at their rows of ``count``."""
    told, mask = np.full(count, None, dtype=object), np.zeros(count, dtype=np.bool_)
    for row, outcome in zip(rows, outcomes, strict=True):
        told[row], mask[row] = outcome, True
    infos["lost"], infos["_lost"] = told, mask
