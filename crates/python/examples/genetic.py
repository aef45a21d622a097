"""A genetic algorithm without gradients: nets for CartPole-v1, here or on a cluster, to a mean return of 475.

    python examples/genetic.py --seed 1
    python examples/genetic.py --results scores.jsonl     # and again, after it was killed: nothing is played twice
    rollhouse up &
    python examples/genetic.py --connect rollhouse://...

Each generation plays the same episodes, which no other does; the best quarter are the parents of the next. It prints the scores of the best and
of the middle, steps per second, and the time to the goal. The exit code is 0 only if that was reached.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

import numpy as np

import rollhouse
from rollhouse.policies import Policy, policy_of

GOAL = 475.0
SHAPES = {"policy.0.weight": (16, 4), "policy.0.bias": (16,), "policy.1.weight": (2, 16), "policy.1.bias": (2,)}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connect", metavar="URL", help="play on this cluster's nodes")
    parser.add_argument("--results", metavar="FILE", help="keep scores here, and go on from those that it has")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--population", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--generations", type=int, default=30, help="give up after so many")
    return parser.parse_args()


def candidate(genes: np.ndarray, name: str) -> Policy:
    """The net of these weights, which takes the likeliest action."""
    net, at = {}, 0
    for key, shape in SHAPES.items():
        size = int(np.prod(shape))
        net[key], at = genes[at : at + size].reshape(shape).astype(np.float32), at + size
    return policy_of(net, name=name, deterministic=True)


def children(parents: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Each has genes of two parents, and small changes of its own."""
    one, other = (parents[rng.integers(len(parents), size=count)] for _ in range(2))
    mixed = np.where(rng.random(one.shape) < 0.5, one, other)
    return mixed + rng.normal(0, 0.1, mixed.shape)


def main() -> int:
    args = parse_args()
    rng = np.random.default_rng(args.seed)
    size = sum(int(np.prod(shape)) for shape in SHAPES.values())
    population = rng.normal(0, 1, (args.population, size))
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(rollhouse.connect(args.connect)) if args.connect else None
        began, steps = time.perf_counter(), 0
        for generation in range(args.generations):
            candidates = [candidate(genes, f"{generation}-{number}") for number, genes in enumerate(population)]
            first = args.seed * 1_000_000 + generation * args.episodes
            played = {"episodes": args.episodes, "seed": first, "cluster": cluster, "results": args.results}
            scores = rollhouse.evaluate("CartPole-v1", candidates, **played)
            steps += sum(int(score.lengths.sum()) for score in scores)
            means = np.nan_to_num([score.mean for score in scores], nan=-np.inf)
            order = np.argsort(-means)
            best, rate = means[order[0]], steps / (time.perf_counter() - began)
            print(f"generation {generation:>2}  best {best:6.1f}  middle {np.median(means):6.1f}  {rate:>8,.0f} steps/s", flush=True)
            if best >= GOAL:
                print(f"reached {GOAL:.0f} in {time.perf_counter() - began:.1f} s")
                return 0
            parents = population[order[: args.population // 4]]
            population = np.concatenate([parents[:1], children(parents, args.population - 1, rng)])
    return 1


if __name__ == "__main__":
    sys.exit(main())
