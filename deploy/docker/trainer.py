"""Learns CartPole-v1 on a cluster, with NumPy alone: the cross-entropy method over linear policies.

Each lane plays one episode with weights of its own; the best eighth says where the next weights are drawn. The exit code
is 0 when the mean over all lanes reaches 475 of 500.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import numpy as np

import rollhouse

GOAL = 475.0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=60, help="give up after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--label", action="append", default=[], help="NAME=VALUE that nodes have to have")
    return parser.parse_args()


def play(envs: rollhouse.VectorEnv, weights: np.ndarray, seed: int) -> np.ndarray:
    """The return of each lane's first episode, played by its own row of weights."""
    observations, _ = envs.reset(seed=seed)
    returns, playing = np.zeros(len(weights)), np.ones(len(weights), dtype=bool)
    while playing.any():
        actions = (np.einsum("ij,ij->i", observations, weights) > 0).astype(np.int64)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        returns += np.where(playing, rewards, 0.0)
        playing &= ~(terminated | truncated)
    return returns


def main() -> int:
    args = parse_args()
    random = np.random.default_rng(args.seed)
    cluster = rollhouse.connect(os.environ["ROLLHOUSE_CONNECT"])
    labels = dict(label.split("=") for label in args.label)
    envs = cluster.make_vec("CartPole-v1", args.lanes, labels=labels)
    # Over a network, or through the memory of a node on this machine.
    envs.reset()
    print(f"steps by {envs.transport} on {', '.join(sorted({place.node for place in envs.placements}))}", flush=True)
    mean, spread = np.zeros(4), np.ones(4)
    for round_ in range(args.rounds):
        began = time.monotonic()
        weights = mean + spread * random.standard_normal((args.lanes, 4))
        returns = play(envs, weights, seed=args.seed + round_ * args.lanes)
        best = weights[np.argsort(returns)[-max(args.lanes // 8, 2) :]]
        # Less and less noise is added, or the spread collapses before the direction is found.
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.2 / (round_ + 1)
        print(f"round {round_}: mean return {returns.mean():.1f} in {time.monotonic() - began:.1f} s", flush=True)
        if returns.mean() >= GOAL:
            print("learned")
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
