"""Deep Q-learning whose actions are chosen where the lanes are: CartPole-v1, here or on a cluster, to a mean return of 475.

    python examples/dqn_rollouts.py --seed 1
    rollhouse up &
    python examples/dqn_rollouts.py --connect rollhouse://...

Nodes take the action of the greatest value, or with probability epsilon any. What they played goes into a buffer, from which the values are
learned; the net that nodes play by is a few updates older. It prints mean return, steps per second and the greatest lag in updates as it
learns, and the time to the goal, which the greedy policy has to reach. The exit code is 0 only if that was reached.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import sys
import time

import numpy as np
import torch
from torch import nn

import rollhouse
from rollhouse.policies import Policy, policy_of

GOAL = 475.0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connect", metavar="URL", help="play on this cluster's nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--fragment", type=int, default=16, help="steps of every lane in a batch")
    parser.add_argument("--batches", type=int, default=3_000, help="give up after so many")
    return parser.parse_args()


def policy(net: nn.Module, epsilon: float) -> Policy:
    """The net by the names of Stable-Baselines3's, by which nodes know that its outputs are values of actions."""
    weights = {f"q_net.q_net.{key}": value for key, value in net.state_dict().items()}
    return policy_of(weights, name="dqn", deterministic=True, epsilon=epsilon)


class Steps:
    """The newest steps: what was seen, done and got, what was seen then, and whether the env ended there."""

    def __init__(self, room: int):
        self._room, self.size, self._at = room, 0, 0
        self._columns = [np.zeros((room, 4), np.float32), np.zeros(room, np.int64), np.zeros(room, np.float32)]
        self._columns += [np.zeros((room, 4), np.float32), np.zeros(room, np.float32)]

    def add(self, batch: rollhouse.Batch) -> None:
        following = batch.observations[1:].copy()
        following[batch.final_steps, batch.final_lanes] = batch.final_observations
        columns = batch.observations[:-1], batch.actions, batch.rewards, following, batch.terminations
        rows = (self._at + np.arange(int(batch.valid.sum()))) % self._room
        for kept, column in zip(self._columns, columns, strict=True):
            kept[rows] = column[batch.valid]
        self._at = (self._at + len(rows)) % self._room
        self.size = min(self.size + len(rows), self._room)

    def drawn(self, rng: np.random.Generator, count: int) -> list[torch.Tensor]:
        rows = rng.integers(self.size, size=count)
        return [torch.from_numpy(column[rows]) for column in self._columns]


def learn(net: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, steps: list[torch.Tensor]) -> None:
    """One step on rows of the buffer, with the target of double Q-learning."""
    seen, actions, rewards, following, ended = steps
    with torch.no_grad():
        best = net(following).argmax(1, keepdim=True)
        wanted = rewards + 0.99 * (1 - ended) * target(following).gather(1, best).squeeze(1)
    found = net(seen).gather(1, actions.unsqueeze(1)).squeeze(1)
    optimizer.zero_grad()
    nn.functional.smooth_l1_loss(found, wanted).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 10)
    optimizer.step()


def main() -> int:
    args = parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    # The network is small: threads would spend their time waiting for each other.
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
    target, optimizer = copy.deepcopy(net), torch.optim.Adam(net.parameters(), lr=5e-4)
    buffer, returns = Steps(50_000), collections.deque[float](maxlen=50)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(rollhouse.connect(args.connect)) if args.connect else None
        begin = rollhouse.rollouts if cluster is None else cluster.rollouts
        played = {"fragment": args.fragment, "seed": args.seed, "policy": policy(net, 1.0)}
        rollouts = stack.enter_context(begin("CartPole-v1", args.lanes, **played))
        began, steps, lag = time.perf_counter(), 0, 0
        for number in range(1, args.batches + 1):
            batch = next(rollouts)
            buffer.add(batch)
            steps += int(batch.valid.sum())
            lag = max(lag, rollouts.version - int(batch.versions.min()))
            returns.extend(episode.total for episode in batch.episodes)
            for _ in range(16):
                learn(net, target, optimizer, buffer.drawn(rng, 128))
            if number % 8 == 0:
                target.load_state_dict(net.state_dict())
            rollouts.update(policy(net, max(0.02, 1 - number / 200)))
            if number % 50 == 0:
                mean, rate = float(np.mean(returns)), steps / (time.perf_counter() - began)
                print(f"{steps:>9,} steps  mean return {mean:6.1f}  {rate:>8,.0f} steps/s  lag {lag}", flush=True)
                if mean > 200:
                    (score,) = rollhouse.evaluate("CartPole-v1", [policy(net, 0.0)], episodes=50, seed=10_000, cluster=cluster)
                    print(f"           greedy mean {score.mean:6.1f}", flush=True)
                    if score.mean >= GOAL:
                        print(f"reached {GOAL:.0f} in {time.perf_counter() - began:.1f} s")
                        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
