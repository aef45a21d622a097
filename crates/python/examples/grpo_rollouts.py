"""Groups in place of a critic, as GRPO has them: 64 lanes of CartPole-v1, here or on a cluster, to a mean return of 475.

    python examples/grpo_rollouts.py --seed 1
    rollhouse up &
    python examples/grpo_rollouts.py --connect rollhouse://...

Each batch has one whole episode of each lane, and the lanes of a group begin from the same start. How good an episode was is how much its
return is above those of its group; there is no value to learn. It prints mean return, steps per second and the greatest lag in updates as
it learns, and the time to the goal. The exit code is 0 only if that was reached.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import rollhouse

GOAL = 475.0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connect", metavar="URL", help="play on this cluster's nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group", type=int, default=8, help="lanes that begin alike")
    parser.add_argument("--batches", type=int, default=150, help="give up after so many")
    return parser.parse_args()


def gains_of(batch: rollhouse.Batch, group: int) -> np.ndarray:
    """How far the return of each lane's episode is above its group's, in their standard deviations: [N]."""
    returns = np.where(batch.valid, batch.rewards, 0).sum(0).reshape(-1, group)
    spread = returns.std(1, keepdims=True)
    return ((returns - returns.mean(1, keepdims=True)) / (spread + 1e-6)).reshape(-1).astype(np.float32)


def update(policy: nn.Module, optimizer: torch.optim.Optimizer, batch: rollhouse.Batch, group: int) -> None:
    """Some passes over the batch's steps, each of which has the gain of its episode."""
    tensors, valid = batch.torch(), torch.from_numpy(batch.valid)
    gains = torch.from_numpy(gains_of(batch, group)).expand(valid.shape)[valid]
    observations, actions = tensors["observations"][:-1][valid], tensors["actions"][valid]
    log_probs = tensors["log_probs"][valid]
    for _ in range(4):
        for rows in torch.randperm(len(actions)).split(1024):
            distribution = Categorical(logits=policy(observations[rows]), validate_args=False)
            ratio = (distribution.log_prob(actions[rows]) - log_probs[rows]).exp()
            loss = -torch.min(ratio * gains[rows], ratio.clamp(0.8, 1.2) * gains[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


def main() -> int:
    args = parse_args()
    torch.manual_seed(args.seed)
    # The network is small: threads would spend their time waiting for each other.
    torch.set_num_threads(1)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    with contextlib.ExitStack() as stack:
        begin = stack.enter_context(rollhouse.connect(args.connect)).rollouts if args.connect else rollhouse.rollouts
        played = {"seed": args.seed, "group": args.group, "complete_episodes": True}
        rollouts = stack.enter_context(begin("CartPole-v1", args.groups * args.group, policy=policy, **played))
        began, steps, lag = time.perf_counter(), 0, 0
        for number in range(1, args.batches + 1):
            batch = next(rollouts)
            steps += int(batch.valid.sum())
            lag = max(lag, rollouts.version - int(batch.versions.min()))
            mean = float(np.mean([episode.total for episode in batch.episodes]))
            if number % 5 == 0 or mean >= GOAL:
                rate = steps / (time.perf_counter() - began)
                print(f"{steps:>9,} steps  mean return {mean:6.1f}  {rate:>8,.0f} steps/s  lag {lag}", flush=True)
            if mean >= GOAL:
                print(f"reached {GOAL:.0f} in {time.perf_counter() - began:.1f} s")
                return 0
            update(policy, optimizer, batch, args.group)
            rollouts.update(policy)
    return 1


if __name__ == "__main__":
    sys.exit(main())
