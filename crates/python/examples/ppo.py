"""PPO in one file: PyTorch, 64 lanes of CartPole-v1, to a mean return of 475.

    python examples/ppo.py --seed 1

It prints mean return and steps per second as it learns, then the greedy policy's mean return over 100 new
episodes. The exit code is 0 only if that is at least 475. The same seed gives the same run on the same machine.

The vector env is in NEXT_STEP mode, Gymnasium's default: the step after an episode's end begins the next episode
and ignores the action, so that its row is no transition. ``infos["valid"]``, which it asks for in every step, is False
there, and such rows are left out of the loss. In return every row's next observation is the one the env gave, also at the end of an episode,
and the value of an episode that a time limit cut can be bootstrapped from it.
"""

from __future__ import annotations

import argparse
import collections
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
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--rollout", type=int, default=32, help="steps of every lane between two updates")
    parser.add_argument("--steps", type=int, default=1_000_000, help="give up after so many")
    parser.add_argument("--record", action="store_true", help="record every episode into ./rollhouse-data")
    return parser.parse_args()


class Agent(nn.Module):
    """Policy and value of an observation, in networks of their own."""

    def __init__(self, observations: int, actions: int):
        super().__init__()
        self.policy = mlp(observations, actions, 0.01)
        self.critic = mlp(observations, 1, 1.0)

    def value(self, observations: torch.Tensor) -> torch.Tensor:
        return self.critic(observations).squeeze(-1)

    def distribution(self, observations: torch.Tensor) -> Categorical:
        return Categorical(logits=self.policy(observations), validate_args=False)


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


class Rollout:
    """T steps of N lanes, and who plays them."""

    def __init__(self, envs: rollhouse.VectorEnv, agent: Agent, steps: int, seed: int):
        self.envs, self.agent = envs, agent
        lanes, width = envs.num_envs, envs.single_observation_space.shape[0]
        self.observations = torch.zeros(steps + 1, lanes, width)
        self.actions = torch.zeros(steps, lanes, dtype=torch.int64)
        self.log_probs = torch.zeros(steps, lanes)
        self.rewards = torch.zeros(steps, lanes)
        self.terminated = torch.zeros(steps, lanes)
        self.over = torch.zeros(steps, lanes)
        self.valid = torch.zeros(steps, lanes, dtype=torch.bool)
        first, _ = envs.reset(seed=seed)
        self.observations[-1] = torch.from_numpy(first)
        self.lane_returns = np.zeros(lanes)
        self.returns: collections.deque[float] = collections.deque(maxlen=100)

    @torch.no_grad()
    def play(self) -> None:
        """Plays on from where the last rollout ended."""
        self.observations[0] = self.observations[-1]
        for t in range(len(self.actions)):
            distribution = self.agent.distribution(self.observations[t])
            action = distribution.sample()
            observations, rewards, terminations, truncations, infos = self.envs.step(action.numpy())
            over = terminations | truncations
            self.actions[t], self.log_probs[t] = action, distribution.log_prob(action)
            self.rewards[t] = torch.from_numpy(rewards)
            self.terminated[t], self.over[t] = torch.from_numpy(terminations), torch.from_numpy(over)
            self.valid[t] = torch.from_numpy(infos["valid"])
            self.observations[t + 1] = torch.from_numpy(observations)
            self.lane_returns += rewards
            self.returns.extend(self.lane_returns[over].tolist())
            self.lane_returns[over] = 0.0

    @torch.no_grad()
    def advantages(self, gamma: float = 0.98, decay: float = 0.8) -> tuple[torch.Tensor, torch.Tensor]:
        """Generalised advantage estimates and the returns they imply, [T, N] each.

        Only a terminated episode has no value left; a truncated one is bootstrapped from its last observation.
        """
        values = self.agent.value(self.observations)
        advantages = torch.zeros_like(self.rewards)
        ahead = torch.zeros(self.rewards.shape[1])
        for t in reversed(range(len(advantages))):
            error = self.rewards[t] + gamma * (1 - self.terminated[t]) * values[t + 1] - values[t]
            ahead = error + gamma * decay * (1 - self.over[t]) * ahead
            advantages[t] = ahead
        return advantages, advantages + values[:-1]


def update(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout, clip: float) -> None:
    """Ten passes over the rollout's transitions in minibatches."""
    advantages, returns = rollout.advantages()
    valid = rollout.valid
    observations, actions = rollout.observations[:-1][valid], rollout.actions[valid]
    log_probs, advantages, returns = rollout.log_probs[valid], advantages[valid], returns[valid]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(10):
        for rows in torch.randperm(len(actions)).split(256):
            distribution = agent.distribution(observations[rows])
            ratio = (distribution.log_prob(actions[rows]) - log_probs[rows]).exp()
            gain = advantages[rows]
            policy_loss = -torch.min(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()
            value_loss = (agent.value(observations[rows]) - returns[rows]).pow(2).mean()
            loss = policy_loss + 0.5 * value_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


@torch.no_grad()
def evaluate(agent: Agent, episodes: int, seed: int) -> float:
    """Mean return of the most probable actions over one episode of each of so many lanes."""
    envs = rollhouse.make_vec("CartPole-v1", episodes)
    observations, _ = envs.reset(seed=seed)
    returns, running = np.zeros(episodes), np.ones(episodes, dtype=bool)
    while running.any():
        actions = agent.policy(torch.from_numpy(observations)).argmax(-1)
        observations, rewards, terminations, truncations, _ = envs.step(actions.numpy())
        returns += rewards * running
        running &= ~(terminations | truncations)
    envs.close()
    return float(returns.mean())


def main() -> int:
    args = parse_args()
    torch.manual_seed(args.seed)
    # The networks are small: threads would spend their time waiting for each other.
    torch.set_num_threads(1)
    envs = rollhouse.make_vec("CartPole-v1", args.lanes, record=args.record, valid="always")
    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    rollout = Rollout(envs, agent, args.rollout, args.seed)
    updates = args.steps // (args.lanes * args.rollout)
    began, steps = time.perf_counter(), 0
    for number in range(1, updates + 1):
        left = 1 - (number - 1) / updates
        optimizer.param_groups[0]["lr"] = 1e-3 * left
        rollout.play()
        steps += int(rollout.valid.sum())
        update(agent, optimizer, rollout, clip=0.2 * left)
        mean = float(np.mean(rollout.returns)) if rollout.returns else 0.0
        reached = len(rollout.returns) == rollout.returns.maxlen and mean >= GOAL
        if number % 10 == 0 or reached:
            rate = steps / (time.perf_counter() - began)
            print(f"{steps:>9,} steps  mean return {mean:6.1f}  {rate:>8,.0f} steps/s", flush=True)
        if reached:
            break
    envs.close()
    final = evaluate(agent, 100, seed=args.seed + 1_000_000)
    print(f"greedy policy: mean return {final:.1f} over 100 new episodes, after {steps:,} steps")
    return 0 if final >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
