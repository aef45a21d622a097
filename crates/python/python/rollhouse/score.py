"""Scores: how well a policy has played."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse import _native
from rollhouse.policies import Policy

if TYPE_CHECKING:
    from rollhouse.fragments import Rollouts


@dataclass(frozen=True)
class Difference:
    """What one policy has beyond another on the same episodes.

    Attributes:
        mean: The mean of the differences of their returns.
        low, high: The ends of the interval in which the mean of all such episodes lies with 95 %.
        pairs: Number of episodes that came to their end under both.
    """

    mean: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class Score:
    """How well a policy has played.

    Attributes:
        policy: The policy.
        returns: float64 [episodes]: the return of each episode, by its seed; NaN of one whose lane was lost.
        lengths: int64 [episodes]: number of steps of each; 0 of one whose lane was lost.
        init: The options from which its episodes began; None for those that all had.
        best: Name of the recorded episode with the greatest return, of an evaluation beside rollouts that are recorded; else None.
    """

    policy: Policy
    returns: np.ndarray
    lengths: np.ndarray
    init: Mapping[str, Any] | None = None
    best: str | None = None

    @property
    def lost(self) -> int:
        """Number of episodes whose lane was lost: they count for nothing."""
        return int(np.isnan(self.returns).sum())

    @property
    def mean(self) -> float:
        """The mean return of the episodes that ended; NaN if none has."""
        ended = self.returns[~np.isnan(self.returns)]
        return float(ended.mean()) if len(ended) else math.nan

    def over(self, other: Score) -> Difference:
        """Returns what this policy has beyond another one that played the same episodes, as ``rollhouse policy compare`` does.

        Raises:
            ValueError: They played other numbers of episodes, or fewer than two came to their end under both.
        """
        if len(self.returns) != len(other.returns):
            raise ValueError(f"{len(self.returns)} and {len(other.returns)} episodes, which are not the same")
        difference = _native.difference(self.returns.tolist(), other.returns.tolist())
        if difference is None:
            raise ValueError("fewer than two episodes came to their end under both policies")
        return Difference(*difference)

    @property
    def spread(self) -> float:
        """The standard deviation of their returns, of a sample; NaN of fewer than two."""
        ended = self.returns[~np.isnan(self.returns)]
        return float(ended.std(ddof=1)) if len(ended) > 1 else math.nan


def first_episodes(
    played: Rollouts, episodes: int, look: Callable[[], None] = lambda: None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns return and length of each lane's first episode. ``look`` is called before each batch, and may raise."""
    returns, lengths = np.zeros(episodes), np.zeros(episodes, dtype=np.int64)
    running = np.ones(episodes, dtype=bool)
    while running.any():
        look()
        batch = played.next()
        for rewards, valid, terminated, truncated in zip(
            batch.rewards, batch.valid, batch.terminations, batch.truncations, strict=True
        ):
            steps = running & valid
            returns[steps] += rewards[steps]
            lengths[steps] += 1
            ended = running & (terminated | truncated)
            # The row of a lane that is lost is truncated and no step.
            gone = ended & ~valid
            returns[gone], lengths[gone] = np.nan, 0
            running &= ~ended
    return returns, lengths


FRAGMENT = 64
"""Steps that are played at a time."""

# In NEXT_STEP mode a lane shows the end of its episode and nothing of the next one in the same row.
ONE_EPISODE = {"autoreset_mode": AutoresetMode.NEXT_STEP}
