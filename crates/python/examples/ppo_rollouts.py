"""PPO whose actions are chosen where the lanes are: 64 lanes of CartPole-v1, here or on a cluster, to a mean return of 475.

    python examples/ppo_rollouts.py --seed 1
    rollhouse up &
    python examples/ppo_rollouts.py --connect rollhouse://...

The learner never chooses an action. It takes batches with log-probabilities and the versions of the weights that chose, and sends new weights
back; while it learns from one batch the next is played, by weights that are one update older. It prints mean return, steps per second and
the greatest lag in updates as it learns, and the time to the goal. The exit code is 0 only if that was reached.
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
    parser.add_argument("--staleness", type=int, default=1, help="batches that are played while one is learned from")
    parser.add_argument("--steps", type=int, default=1_000_000, help="give up after so many")
    return parser.parse_args()


class Agent(nn.Module):
    """Policy and value of an observation, in networks of their own, by the names that nodes know."""

    def __init__(self, observations: int, actions: int):
        super().__init__()
        self.policy = mlp(observations, actions, 0.01)
        self.value = mlp(observations, 1, 1.0)


def mlp(inputs: int, outputs: int, last_gain: float) -> nn.Sequential:
    def layer(inputs: int, outputs: int, gain: float) -> nn.Linear:
        linear = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(linear.weight, gain)
        nn.init.zeros_(linear.bias)
        return linear

    gain = 2**0.5
    return nn.Sequential(
        layer(inputs, 64, gain), nn.Tanh(), layer(64, 64, gain), nn.Tanh(), layer(64, outputs, last_gain)
    )


@torch.no_grad()
def advantages_of(agent: Agent, batch: rollhouse.Batch, gamma: float = 0.98, decay: float = 0.8) -> torch.Tensor:
    """Generalised advantage estimates, [T, N]. An episode that a time limit cut is bootstrapped from its last observation."""
    values = agent.value(torch.from_numpy(batch.observations.copy())).squeeze(-1)
    following = values[1:].clone()
    if len(batch.final_steps):
        last = agent.value(torch.from_numpy(batch.final_observations)).squeeze(-1)
        following[batch.final_steps, batch.final_lanes] = last
    terminated = torch.from_numpy(batch.terminations.copy()).float()
    over = torch.from_numpy(batch.terminations | batch.truncations).float()
    errors = torch.from_numpy(batch.rewards.copy()).float() + gamma * (1 - terminated) * following - values[:-1]
    advantages, ahead = torch.zeros_like(errors), torch.zeros(errors.shape[1])
    for t in reversed(range(len(errors))):
        ahead = errors[t] + gamma * decay * (1 - over[t]) * ahead
        advantages[t] = ahead
    return advantages


def update(agent: Agent, optimizer: torch.optim.Optimizer, batch: rollhouse.Batch, clip: float) -> None:
    """Ten passes over the batch's steps in minibatches."""
    tensors, valid = batch.torch(), torch.from_numpy(batch.valid)
    observations, actions = tensors["observations"][:-1][valid], tensors["actions"][valid]
    advantages = advantages_of(agent, batch)[valid]
    with torch.no_grad():
        returns = advantages + agent.value(observations).squeeze(-1)
    log_probs = tensors["log_probs"][valid]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(10):
        for rows in torch.randperm(len(actions)).split(256):
            distribution = Categorical(logits=agent.policy(observations[rows]), validate_args=False)
            ratio = (distribution.log_prob(actions[rows]) - log_probs[rows]).exp()
            gain = advantages[rows]
            policy_loss = -torch.min(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()
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
    agent = Agent(4, 2)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    returns: collections.deque[float] = collections.deque(maxlen=100)
    updates = args.steps // (args.lanes * args.fragment)
    with contextlib.ExitStack() as stack:
        begin = stack.enter_context(rollhouse.connect(args.connect)).rollouts if args.connect else rollhouse.rollouts
        played = {"fragment": args.fragment, "staleness": args.staleness, "seed": args.seed}
        rollouts = stack.enter_context(begin("CartPole-v1", args.lanes, policy=agent, **played))
        began, steps, lag = time.perf_counter(), 0, 0
        for number in range(1, updates + 1):
            left = 1 - (number - 1) / updates
            optimizer.param_groups[0]["lr"] = 1e-3 * left
            batch = next(rollouts)
            steps += int(batch.valid.sum())
            lag = max(lag, rollouts.version - int(batch.versions.min()))
            returns.extend(episode.total for episode in batch.episodes)
            update(agent, optimizer, batch, clip=0.2 * left)
            rollouts.update(agent)
            mean = sum(returns) / max(len(returns), 1)
            reached = len(returns) == returns.maxlen and mean >= GOAL
            if number % 10 == 0 or reached:
                rate = steps / (time.perf_counter() - began)
                print(f"{steps:>9,} steps  mean return {mean:6.1f}  {rate:>8,.0f} steps/s  lag {lag}", flush=True)
            if reached:
                print(f"reached {GOAL:.0f} in {time.perf_counter() - began:.1f} s")
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
