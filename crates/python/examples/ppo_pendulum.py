"""PPO of quantities: a Gaussian policy swings Pendulum-v1 up, on 64 lanes here or on a cluster, until its means have a mean return of -200.

    python examples/ppo_pendulum.py --seed 1
    rollhouse up &
    python examples/ppo_pendulum.py --connect rollhouse://...

Nodes draw each torque from the net's mean and its `log_std`, note the density of what they drew, and cut it to the env's bounds; the learner
takes what was drawn from `batch.notes["drawn_action"]`. While it learns the next batch is played, by weights that are one update older.
It prints mean return, steps per second and the greatest lag in updates, how the
means alone do in 100 episodes of other seeds, and the time to the goal. The exit code is 0 only if that was reached.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import sys
import time

import torch
from torch import nn
from torch.distributions import Normal

import rollhouse
from rollhouse.policies import policy_of

GOAL = -200.0
GAMMA, DECAY, CLIP = 0.98, 0.9, 0.2
SCALE = 0.1
"""Rewards are multiplied by it, so that values are small numbers."""
EVALUATED = 10
"""Updates from one evaluation to the next."""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connect", metavar="URL", help="play on this cluster's nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--fragment", type=int, default=50, help="steps of every lane in a batch")
    parser.add_argument("--staleness", type=int, default=1, help="batches that are played while one is learned from")
    parser.add_argument("--steps", type=int, default=1_000_000, help="give up after so many")
    return parser.parse_args()


class Agent(nn.Module):
    """Means of torques, the logarithm of their deviation, and the value, by the names that nodes know."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = mlp(0.01)
        self.value = mlp(1.0)
        self.log_std = nn.Parameter(torch.zeros(1))

    def distribution(self, observations: torch.Tensor) -> Normal:
        return Normal(self.policy(observations), self.log_std.exp(), validate_args=False)


def mlp(last_gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs, gain in ((3, 64, 2**0.5), (64, 64, 2**0.5), (64, 1, last_gain)):
        linear = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(linear.weight, gain)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


@torch.no_grad()
def advantages_of(agent: Agent, batch: rollhouse.Batch) -> torch.Tensor:
    """Generalised advantage estimates, [T, N]. Pendulum's episodes end by their time limit, and are bootstrapped from their last observation."""
    values = agent.value(torch.from_numpy(batch.observations.copy())).squeeze(-1)
    following = values[1:].clone()
    if len(batch.final_steps):
        last = agent.value(torch.from_numpy(batch.final_observations.copy())).squeeze(-1)
        following[batch.final_steps, batch.final_lanes] = last
    over = torch.from_numpy(batch.terminations | batch.truncations).float()
    errors = SCALE * torch.from_numpy(batch.rewards.copy()).float() + GAMMA * following - values[:-1]
    advantages, ahead = torch.zeros_like(errors), torch.zeros(errors.shape[1])
    for t in reversed(range(len(errors))):
        ahead = errors[t] + GAMMA * DECAY * (1 - over[t]) * ahead
        advantages[t] = ahead
    return advantages


def update(agent: Agent, optimizer: torch.optim.Optimizer, batch: rollhouse.Batch) -> None:
    """Ten passes over the batch's steps in minibatches."""
    tensors, valid = batch.torch(), torch.from_numpy(batch.valid)
    observations, drawn = tensors["observations"][:-1][valid], tensors["notes"]["drawn_action"][valid]
    advantages = advantages_of(agent, batch)[valid]
    with torch.no_grad():
        returns = advantages + agent.value(observations).squeeze(-1)
    log_probs = tensors["log_probs"][valid]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(10):
        for rows in torch.randperm(len(drawn)).split(200):
            distribution = agent.distribution(observations[rows])
            ratio = (distribution.log_prob(drawn[rows]).sum(-1) - log_probs[rows]).exp()
            gain = advantages[rows]
            policy_loss = -torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
            value_loss = (agent.value(observations[rows]).squeeze(-1) - returns[rows]).pow(2).mean()
            optimizer.zero_grad()
            (policy_loss + 0.5 * value_loss).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main() -> int:
    args = parse_args()
    torch.manual_seed(args.seed)
    # The networks are small: threads would spend their time waiting for each other.
    torch.set_num_threads(1)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    returns: collections.deque[float] = collections.deque(maxlen=100)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(rollhouse.connect(args.connect)) if args.connect else None
        begin = cluster.rollouts if cluster else rollhouse.rollouts
        played = {"fragment": args.fragment, "staleness": args.staleness, "seed": args.seed}
        rollouts = stack.enter_context(begin("Pendulum-v1", args.lanes, policy=agent, **played))
        began, steps, lag, number = time.perf_counter(), 0, 0, 0
        while steps < args.steps:
            number += 1
            optimizer.param_groups[0]["lr"] = 1e-3 * max(1 - steps / 500_000, 0.1)
            batch = next(rollouts)
            steps += int(batch.valid.sum())
            lag = max(lag, rollouts.version - int(batch.versions.min()))
            returns.extend(episode.total for episode in batch.episodes)
            update(agent, optimizer, batch)
            rollouts.update(agent)
            if number % EVALUATED == 0:
                mean, rate = sum(returns) / max(len(returns), 1), steps / (time.perf_counter() - began)
                means = policy_of(agent, deterministic=True)
                (score,) = rollhouse.evaluate("Pendulum-v1", [means], episodes=100, seed=1 << 20, cluster=cluster)
                print(
                    f"{steps:>9,} steps  mean return {mean:7.1f}  {rate:>8,.0f} steps/s  lag {lag}  means {score.mean:7.1f}",
                    flush=True,
                )
                if score.mean >= GOAL:
                    print(f"reached {GOAL:.0f} in {time.perf_counter() - began:.1f} s")
                    return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
