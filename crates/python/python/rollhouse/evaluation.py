"""Evaluation: how well policies play, each on the same episodes."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse import _native
from rollhouse.fragments import Rollouts, rollouts
from rollhouse.policies import Policy, is_of_cluster, policy_of
from rollhouse.results_file import ResultsFile, key_of

if TYPE_CHECKING:
    from rollhouse.cluster import Cluster


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
    """

    policy: Policy
    returns: np.ndarray
    lengths: np.ndarray
    init: Mapping[str, Any] | None = None

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


def evaluate(
    env: str,
    policies: Iterable[Any],
    *,
    episodes: int = 8,
    seed: int = 0,
    inits: Iterable[Mapping[str, Any]] | None = None,
    results: str | os.PathLike[str] | None = None,
    cluster: Cluster | None = None,
    progress: Callable[[Score], object] | None = None,
    **options: Any,
) -> list[Score]:
    """Has each policy play the same episodes, and returns how well, in the order in which they were given.

    Every policy plays episodes from the seeds ``seed``, ``seed + 1``, ... one of each lane, each to its end, however long it takes: short
    episodes count no more than long ones. An episode whose lane is lost counts for nothing and is named so. What is random about a policy
    depends on ``seed`` too.

    Args:
        env: The env.
        policies: What ``rollhouse.policies.policy_of`` takes, each, or with ``cluster`` the name of one of its policies.
        episodes: Number of episodes of each.
        seed: The seed of the first episode.
        inits: Options of the env from which episodes begin: each policy plays as many episodes from each of them, and has a score for
            each, one behind the other.
        results: A file that has the scores so far. What stands in it is not played again, and each score is added as soon as it is
            there: called again after its process has ended, an evaluation goes on where it stood. One process at a time writes it.
        cluster: The cluster whose nodes play; None for this process.
        progress: Called with each score as soon as it is there. Where it returns True, nothing more is played, and the scores so far are
            returned.
        **options: Further arguments of ``make_vec``, the same for all.

    Raises:
        PolicyError: One cannot play in the env; the scores before it were given to ``progress``.
    """
    if episodes < 1:
        raise ValueError(f"episodes={episodes!r} is below 1")
    begin = rollouts if cluster is None else cluster.rollouts
    # In NEXT_STEP mode a lane shows the end of its episode and nothing of the next one in the same row.
    options = {"autoreset_mode": AutoresetMode.NEXT_STEP, **options}
    known = ResultsFile(results) if results is not None else None
    starts = [None] if inits is None else list(inits)
    scores: list[Score] = []
    for given, init in itertools.product(policies, starts):
        policy = cluster.policy(given) if cluster is not None and is_of_cluster(given) else policy_of(given)
        lanes = options if init is None else {**options, "options": {**options.get("options", {}), **init}}
        key = key_of(policy, {"env": env, "episodes": episodes, "seed": seed, **lanes})
        found = known.get(key) if known is not None else None
        if found is None:
            with begin(env, episodes, policy=policy, fragment=FRAGMENT, staleness=0, seed=seed, **lanes) as played:
                found = _played(played, episodes)
            if known is not None:
                known.put(key, policy, *found)
        scores.append(Score(policy, *found, init))
        if progress is not None and progress(scores[-1]) is True:
            break
    return scores


def _played(played: Rollouts, episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns return and length of each lane's first episode."""
    returns, lengths = np.zeros(episodes), np.zeros(episodes, dtype=np.int64)
    running = np.ones(episodes, dtype=bool)
    while running.any():
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
