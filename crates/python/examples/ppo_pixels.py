"""PPO from pixels: a net of convolutions plays GridBreakout-v0, 64 lanes of it here or on a cluster, to a mean return far above random's.

    python examples/ppo_pixels.py --seed 1
    rollhouse up &
    python examples/ppo_pixels.py --connect rollhouse://...

Nodes take the net as a file of ONNX, whose weights are replaced with each update, and give it the pictures as they are: bytes, [10, 10, 4].
While the learner learns the next batch is played, by weights that are one update older. It prints mean return, steps per second and the
greatest lag in updates as it learns, what random actions come to, and the time to the goal. The exit code is 0 only if that was reached.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import sys
import time

import torch
from onnx_net import OnnxNet
from torch import nn
from torch.distributions import Categorical

import rollhouse

GOAL = 10.0
"""The mean return; random actions come to 0.2."""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connect", metavar="URL", help="play on this cluster's nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--fragment", type=int, default=32, help="steps of every lane in a batch")
    parser.add_argument("--staleness", type=int, default=1, help="batches that are played while one is learned from")
    parser.add_argument("--steps", type=int, default=3_000_000, help="give up after so many")
    return parser.parse_args()


class Agent(nn.Module):
    """Logits of actions, and the value, of pictures [rows, 10, 10, 4] of numbers from 0 to 255."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Sequential(nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 8 * 8, 128), nn.ReLU())
        self.policy, self.critic = nn.Linear(128, 3), nn.Linear(128, 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.zeros_(self.policy.bias)

    def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.seen(pictures.permute(0, 3, 1, 2) / 255)
        return self.policy(hidden), self.critic(hidden)


def advantages_of(
    values: torch.Tensor, last: torch.Tensor, batch: rollhouse.Batch, gamma: float = 0.99, decay: float = 0.95
) -> torch.Tensor:
    """Generalised advantage estimates, [T, N], of values [T + 1, N] and those of episodes' last pictures, by which episodes that a time limit
    cut are bootstrapped."""
    following = values[1:].clone()
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
    """Four passes over the batch's steps in minibatches."""
    tensors, valid = batch.torch(), torch.from_numpy(batch.valid)
    pictures = tensors["observations"].float()
    with torch.no_grad():
        values = agent(pictures.flatten(0, 1))[1].view(pictures.shape[:2])
        # Of no pictures where no episode has ended.
        last = agent(tensors["final_observations"].float().view(-1, *pictures.shape[2:]))[1].squeeze(-1)
    advantages = advantages_of(values, last, batch)
    returns = (advantages + values[:-1])[valid]
    pictures, actions, log_probs = pictures[:-1][valid], tensors["actions"][valid], tensors["log_probs"][valid]
    advantages = advantages[valid]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(4):
        for rows in torch.randperm(len(actions)).split(256):
            logits, value = agent(pictures[rows])
            distribution = Categorical(logits=logits, validate_args=False)
            ratio = (distribution.log_prob(actions[rows]) - log_probs[rows]).exp()
            gain = advantages[rows]
            policy_loss = -torch.min(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()
            value_loss = (value.squeeze(-1) - returns[rows]).pow(2).mean()
            optimizer.zero_grad()
            (policy_loss + 0.5 * value_loss - 0.01 * distribution.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main() -> int:
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    agent = Agent()
    net = OnnxNet(agent, {"obs": torch.zeros(2, 10, 10, 4)}, ["logits", "value"])
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    returns: collections.deque[float] = collections.deque(maxlen=100)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(rollhouse.connect(args.connect)) if args.connect else None
        begin = cluster.rollouts if cluster else rollhouse.rollouts
        (random,) = rollhouse.evaluate("GridBreakout-v0", ["random"], episodes=100, seed=1 << 20, cluster=cluster)
        print(f"random actions have a mean return of {random.mean:.2f}", flush=True)
        played = {"fragment": args.fragment, "staleness": args.staleness, "seed": args.seed}
        rollouts = stack.enter_context(begin("GridBreakout-v0", args.lanes, policy=net.file(), **played))
        began, steps, lag, number = time.perf_counter(), 0, 0, 0
        while steps < args.steps:
            number += 1
            left = 1 - steps / args.steps
            optimizer.param_groups[0]["lr"] = 2.5e-3 * left
            batch = next(rollouts)
            steps += int(batch.valid.sum())
            lag = max(lag, rollouts.version - int(batch.versions.min()))
            returns.extend(episode.total for episode in batch.episodes)
            update(agent, optimizer, batch, clip=0.2)
            rollouts.update(net.file())
            mean = sum(returns) / max(len(returns), 1)
            reached = len(returns) == returns.maxlen and mean >= GOAL
            if number % 10 == 0 or reached:
                rate = steps / (time.perf_counter() - began)
                print(f"{steps:>9,} steps  mean return {mean:6.2f}  {rate:>8,.0f} steps/s  lag {lag}", flush=True)
            if reached:
                print(f"reached {GOAL:.0f} in {time.perf_counter() - began:.1f} s")
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
