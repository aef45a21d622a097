"""An actor and a critic with V-trace (IMPALA), two updates behind: 64 lanes of CartPole-v1, here or on a cluster, to a mean return of 475.

    python examples/vtrace_rollouts.py --seed 1
    rollhouse up &
    python examples/vtrace_rollouts.py --connect rollhouse://...

Two batches are under way while one is learned from, so that the actions of a batch were chosen by weights that are two updates older. Their
log-probabilities came with them: V-trace (Espeholt et al., 2018) weighs each step by how likely its action is now. It prints mean return, steps
per second and the greatest lag in updates as it learns, and the time to the goal. The exit code is 0 only if that was reached.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import sys
import time

import torch
from torch import nn
from torch.distributions import Categorical

import rollhouse

GOAL = 475.0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connect", metavar="URL", help="play on this cluster's nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--fragment", type=int, default=32, help="steps of every lane in a batch")
    parser.add_argument("--staleness", type=int, default=2, help="batches that are played while one is learned from")
    parser.add_argument("--batches", type=int, default=1_500, help="give up after so many")
    return parser.parse_args()


class Agent(nn.Module):
    """Policy and value of an observation, in networks of their own, by the names that nodes know."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.value = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


@torch.no_grad()
def corrected(
    agent: Agent, batch: rollhouse.Batch, ratios: torch.Tensor, gamma: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The targets of the values, and the advantages of the actions: [T, N] each. Ratios are cut at 1."""
    values = agent.value(torch.from_numpy(batch.observations.copy())).squeeze(-1)
    following = values[1:].clone()
    if len(batch.final_steps):
        last = agent.value(torch.from_numpy(batch.final_observations)).squeeze(-1)
        following[batch.final_steps, batch.final_lanes] = last
    terminated = torch.from_numpy(batch.terminations.copy()).float()
    over = torch.from_numpy(batch.terminations | batch.truncations).float()
    rewards = torch.from_numpy(batch.rewards.copy()).float()
    weights = ratios.clamp(max=1)
    errors = weights * (rewards + gamma * (1 - terminated) * following - values[:-1])
    beyond, ahead = torch.zeros_like(errors), torch.zeros(errors.shape[1])
    for t in reversed(range(len(errors))):
        ahead = errors[t] + gamma * (1 - over[t]) * weights[t] * ahead
        beyond[t] = ahead
    targets = values[:-1] + beyond
    # The target of what follows, where an episode goes on; else what it was bootstrapped from.
    next_targets = torch.where(over.bool(), following, torch.cat([targets[1:], following[-1:]]))
    advantages = weights * (rewards + gamma * (1 - terminated) * next_targets - values[:-1])
    return targets, advantages


def update(agent: Agent, optimizer: torch.optim.Optimizer, batch: rollhouse.Batch) -> None:
    """One step on the whole batch."""
    tensors, valid = batch.torch(), torch.from_numpy(batch.valid)
    observations = tensors["observations"][:-1]
    distribution = Categorical(logits=agent.policy(observations), validate_args=False)
    log_probs = distribution.log_prob(tensors["actions"])
    ratios = (log_probs.detach() - tensors["log_probs"]).exp()
    targets, advantages = corrected(agent, batch, ratios, gamma=0.99)
    advantages = (advantages - advantages[valid].mean()) / (advantages[valid].std() + 1e-8)
    policy_loss = -(log_probs * advantages)[valid].mean()
    value_loss = (agent.value(observations).squeeze(-1) - targets)[valid].pow(2).mean()
    optimizer.zero_grad()
    (policy_loss + 0.5 * value_loss - 0.003 * distribution.entropy()[valid].mean()).backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()


def main() -> int:
    args = parse_args()
    torch.manual_seed(args.seed)
    # The networks are small: threads would spend their time waiting for each other.
    torch.set_num_threads(1)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
    returns: collections.deque[float] = collections.deque(maxlen=100)
    with contextlib.ExitStack() as stack:
        begin = stack.enter_context(rollhouse.connect(args.connect)).rollouts if args.connect else rollhouse.rollouts
        played = {"fragment": args.fragment, "staleness": args.staleness, "seed": args.seed}
        rollouts = stack.enter_context(begin("CartPole-v1", args.lanes, policy=agent, **played))
        began, steps, lag = time.perf_counter(), 0, 0
        for number in range(1, args.batches + 1):
            optimizer.param_groups[0]["lr"] = 3e-3 * (1 - (number - 1) / args.batches)
            batch = next(rollouts)
            steps += int(batch.valid.sum())
            lag = max(lag, rollouts.version - int(batch.versions.min()))
            returns.extend(episode.total for episode in batch.episodes)
            update(agent, optimizer, batch)
            rollouts.update(agent, timeout=None)
            mean = sum(returns) / max(len(returns), 1)
            reached = len(returns) == returns.maxlen and mean >= GOAL
            if number % 50 == 0 or reached:
                rate = steps / (time.perf_counter() - began)
                print(f"{steps:>9,} steps  mean return {mean:6.1f}  {rate:>8,.0f} steps/s  lag {lag}", flush=True)
            if reached:
                print(f"reached {GOAL:.0f} in {time.perf_counter() - began:.1f} s")
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
