"""Recurrent PPO: CartPole-v1 balanced, here or on a cluster, by a net that sees places and no velocities, and remembers, to a mean return of 475.

    python examples/ppo_recurrent.py --seed 1
    rollhouse up &
    python examples/ppo_recurrent.py --connect rollhouse://...

The policy is a gated recurrent unit in a file of ONNX, whose weights are replaced with each update. It is given all that the env shows and masks
the velocities itself. Its state is kept for each lane where the lane is played, zeros where an episode begins. Batches have whole episodes, so
that the learner goes through each from its beginning, with the states that its lane had. It prints mean return, steps per second and the
greatest lag in updates as it learns, and the time to the goal. The exit code is 0 only if that was reached.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

import torch
from onnx_net import OnnxNet
from torch import nn
from torch.nn import functional
from torch.distributions import Categorical

import rollhouse

GOAL = 475.0
HIDDEN = 64
GAMMA, DECAY, CLIP, EPOCHS = 0.99, 0.95, 0.2, 5
SCALE = 0.1
"""Rewards are multiplied by it, so that values are small numbers."""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connect", metavar="URL", help="play on this cluster's nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=32, help="episodes in a batch")
    parser.add_argument("--staleness", type=int, default=1, help="batches that are played while one is learned from")
    parser.add_argument("--steps", type=int, default=1_500_000, help="give up after so many")
    return parser.parse_args()


class Agent(nn.Module):
    """Logits of actions, the value and the next state, of an observation [rows, 4] and a state [rows, HIDDEN]."""

    def __init__(self) -> None:
        super().__init__()
        # Of place, velocity, angle and its velocity.
        self.register_buffer("shown", torch.tensor([1.0, 0.0, 5.0, 0.0]))
        self.gru = nn.GRU(4, HIDDEN)
        self.policy, self.critic = nn.Linear(HIDDEN, 2), nn.Linear(HIDDEN, 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.zeros_(self.policy.bias)

    def forward(self, seen: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        gru = self.gru
        of_seen = functional.linear(seen * self.shown, gru.weight_ih_l0, gru.bias_ih_l0).chunk(3, -1)
        of_state = functional.linear(state, gru.weight_hh_l0, gru.bias_hh_l0).chunk(3, -1)
        reset, keep = torch.sigmoid(of_seen[0] + of_state[0]), torch.sigmoid(of_seen[1] + of_state[1])
        state = keep * state + (1 - keep) * torch.tanh(of_seen[2] + reset * of_state[2])
        return self.policy(state), self.critic(state), state

    def sequences(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [T, N, 2] and values [T, N] of episodes from their beginnings, [T, N, 4]: what ``forward`` gives step by step."""
        hidden, _ = self.gru(seen * self.shown)
        return self.policy(hidden), self.critic(hidden).squeeze(-1)


def advantages_of(values: torch.Tensor, batch: rollhouse.Batch) -> torch.Tensor:
    """Generalised advantage estimates, [T, N], of values [T + 1, N]. An episode that its time limit cut is bootstrapped from its last step's
    value: the state behind that is not the learner's."""
    terminated = torch.from_numpy(batch.terminations.copy())
    over = torch.from_numpy(batch.terminations | batch.truncations)
    following = torch.where(over, values[:-1], values[1:]) * ~terminated
    errors = torch.from_numpy(batch.rewards.copy()).float() * SCALE + GAMMA * following - values[:-1]
    advantages, ahead = torch.zeros_like(errors), torch.zeros(errors.shape[1])
    for t in reversed(range(len(errors))):
        ahead = errors[t] + GAMMA * DECAY * ~over[t] * ahead
        advantages[t] = ahead
    return advantages


def update(agent: Agent, optimizer: torch.optim.Optimizer, batch: rollhouse.Batch) -> None:
    """Passes over whole episodes, some lanes at a time."""
    seen, valid = torch.from_numpy(batch.observations.copy()), torch.from_numpy(batch.valid.copy())
    actions, log_probs = torch.from_numpy(batch.actions.copy()), torch.from_numpy(batch.log_probs.copy())
    with torch.no_grad():
        values = agent.sequences(seen)[1]
    advantages = advantages_of(values, batch)
    returns = advantages + values[:-1]
    mean, spread = advantages[valid].mean(), advantages[valid].std()
    advantages = (advantages - mean) / (spread + 1e-8)
    for _ in range(EPOCHS):
        for lanes in torch.randperm(seen.shape[1]).split(8):
            rows = valid[:, lanes]
            length = int(rows.any(1).sum())
            rows = rows[:length]
            logits, value = agent.sequences(seen[:length, lanes])
            distribution = Categorical(logits=logits[rows], validate_args=False)
            ratio = (distribution.log_prob(actions[:length, lanes][rows]) - log_probs[:length, lanes][rows]).exp()
            gain = advantages[:length, lanes][rows]
            policy_loss = -torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
            value_loss = (value[rows] - returns[:length, lanes][rows]).pow(2).mean()
            optimizer.zero_grad()
            (policy_loss + 0.5 * value_loss).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main() -> int:
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    agent = Agent()
    net = OnnxNet(agent, {"obs": torch.zeros(2, 4), "h_in": torch.zeros(2, HIDDEN)}, ["logits", "value", "h_out"])
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    played = {"complete_episodes": True, "staleness": args.staleness, "seed": args.seed}
    with contextlib.ExitStack() as stack:
        begin = stack.enter_context(rollhouse.connect(args.connect)).rollouts if args.connect else rollhouse.rollouts
        rollouts = stack.enter_context(begin("CartPole-v1", args.lanes, policy=net.file(), **played))
        began, steps, lag, number = time.perf_counter(), 0, 0, 0
        while steps < args.steps:
            number += 1
            batch = next(rollouts)
            steps += int(batch.valid.sum())
            lag = max(lag, rollouts.version - int(batch.versions[batch.valid].min()))
            mean = float(batch.valid.sum(0).mean())
            update(agent, optimizer, batch)
            rollouts.update(net.file())
            reached = mean >= GOAL
            if number % 10 == 0 or reached:
                rate = steps / (time.perf_counter() - began)
                print(f"{steps:>9,} steps  mean return {mean:6.1f}  {rate:>8,.0f} steps/s  lag {lag}", flush=True)
            if reached:
                print(f"reached {GOAL:.0f} in {time.perf_counter() - began:.1f} s")
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
