"""Evaluation: how well policies play, each on the same episodes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rollhouse.fragments import rollouts
from rollhouse.policies import is_of_cluster, policy_of
from rollhouse.results_file import ResultsFile, key_of
from rollhouse.score import FRAGMENT, ONE_EPISODE, Score, first_episodes

if TYPE_CHECKING:
    from rollhouse.cluster import Cluster


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
    options = {**ONE_EPISODE, **options}
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
                found = first_episodes(played, episodes)
            if known is not None:
                known.put(key, policy, *found)
        scores.append(Score(policy, *found, init))
        if progress is not None and progress(scores[-1]) is True:
            break
    return scores
