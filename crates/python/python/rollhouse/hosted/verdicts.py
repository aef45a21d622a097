"""Results and scores that Python envs give their episodes, for the engine to record."""

from __future__ import annotations

import math
import mmap
import numbers
from typing import Any

import numpy as np

RESULTS = {"win": 1, "lose": 2, "draw": 3}
"""Numbers of the results that ``info["result"]`` may have."""

HAS_SCORE = 4


class Verdicts:
    """What the lanes of a worker say of their episodes, in their records in its memory.

    An env says it with ``info["result"]`` and ``info["score"]`` of the episode's last step. It may say it with each: limits
    that are not the env's own end episodes too.
    """

    def __init__(self, memory: mmap.mmap, first: int, stride: int, count: int):
        """``first`` is the place of the first lane's; that of each other lies ``stride`` bytes behind the one before."""
        self.results = np.ndarray((count,), np.uint64, memory, first, (stride,))
        self.scores = np.ndarray((count,), np.float64, memory, first + 8, (stride,))
        self.results[...] = 0
        self.told: set[int] = set()
        """Lanes whose records say something. Nothing needs to be told of others whose info is empty."""

    def tell(self, lane: int, info: Any) -> None:
        """Writes what the info of a lane's step says, be it nothing."""
        said = info.get if isinstance(info, dict) else {}.get
        result, score = said("result"), said("score")
        word = RESULTS.get(result, 0) if isinstance(result, str) else 0
        if score is not None and (number := finite(score)) is not None:
            self.scores[lane] = number
            word |= HAS_SCORE
        if word:
            self.told.add(lane)
        elif lane in self.told:
            self.told.remove(lane)
        else:
            return
        self.results[lane] = word


def finite(score: Any) -> float | None:
    """Returns a score as a number; None if it is none, or has no bounds."""
    if not isinstance(score, numbers.Real) or isinstance(score, bool):
        return None
    try:
        number = float(score)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
