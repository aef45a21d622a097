"""Weights by CMA-ES, without gradients: a linear policy for CartPole-v1, here or on a cluster, to a mean return of 475.

    pip install cma
    python examples/cma_es.py --seed 1
    rollhouse up &
    python examples/cma_es.py --connect rollhouse://...

The library (pycma) draws candidates and gets their scores; all candidates of a generation play the same episodes. It prints the scores of
the best and of the middle, steps per second, and the time to the goal. The exit code is 0 only if that was reached.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

import cma
import numpy as np

import rollhouse
from rollhouse.policies import Policy, policy_of

GOAL = 475.0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connect", metavar="URL", help="play on this cluster's nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--generations", type=int, default=60, help="give up after so many")
    return parser.parse_args()


def candidate(genes: np.ndarray, name: str) -> Policy:
    """A layer from the four numbers of an observation to the two actions, which takes the likeliest."""
    net = {"policy.0.weight": genes[:8].reshape(2, 4), "policy.0.bias": genes[8:]}
    return policy_of({key: value.astype(np.float32) for key, value in net.items()}, name=name, deterministic=True)


def main() -> int:
    args = parse_args()
    strategy = cma.CMAEvolutionStrategy(np.zeros(10), 0.5, {"seed": args.seed, "verbose": -9})
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(rollhouse.connect(args.connect)) if args.connect else None
        began, steps = time.perf_counter(), 0
        for generation in range(args.generations):
            drawn = strategy.ask()
            candidates = [candidate(genes, f"{generation}-{number}") for number, genes in enumerate(drawn)]
            first = args.seed * 1_000_000 + generation * args.episodes
            scores = rollhouse.evaluate("CartPole-v1", candidates, episodes=args.episodes, seed=first, cluster=cluster)
            # It minimises; a candidate of which nothing is known is no good.
            strategy.tell(drawn, [-score.mean if score.lost < args.episodes else 0.0 for score in scores])
            steps += sum(int(score.lengths.sum()) for score in scores)
            means = np.nan_to_num([score.mean for score in scores])
            best, rate = means.max(), steps / (time.perf_counter() - began)
            print(f"generation {generation:>2}  best {best:6.1f}  middle {np.median(means):6.1f}  {rate:>8,.0f} steps/s", flush=True)
            if best >= GOAL:
                print(f"reached {GOAL:.0f} in {time.perf_counter() - began:.1f} s")
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
