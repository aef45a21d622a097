"""Stable-Baselines3's PPO on 64 lanes of CartPole-v1, to a mean return of 475.

    python examples/sb3.py --seed 1

It prints mean return and steps per second as it learns, then the greedy policy's mean return over 100 new
episodes. The exit code is 0 only if that is at least 475.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

from rollhouse.sb3 import make_vec_env

GOAL = 475.0


class UntilGoal(BaseCallback):
    """Prints how training goes, and ends it when the last 100 episodes have the goal as their mean return."""

    def _on_training_start(self) -> None:
        self.began = time.perf_counter()
        self.rollouts = 0
        self.reached = False

    def _on_step(self) -> bool:
        return not self.reached

    def _on_rollout_end(self) -> None:
        self.rollouts += 1
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        mean = float(np.mean(returns)) if returns else 0.0
        self.reached = len(returns) == 100 and mean >= GOAL
        if self.rollouts % 10 == 0 or self.reached:
            rate = self.num_timesteps / (time.perf_counter() - self.began)
            print(f"{self.num_timesteps:>9,} steps  mean return {mean:6.1f}  {rate:>8,.0f} steps/s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1_000_000, help="give up after so many")
    args = parser.parse_args()
    # The networks are small: threads would spend their time waiting for each other.
    torch.set_num_threads(1)
    envs = make_vec_env("CartPole-v1", args.lanes, seed=args.seed)
    model = PPO(
        "MlpPolicy",
        envs,
        seed=args.seed,
        n_steps=32,
        batch_size=256,
        n_epochs=10,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate=lambda left: 1e-3 * left,
        clip_range=lambda left: 0.2 * left,
        device="cpu",
    )
    model.learn(args.steps, callback=UntilGoal())
    envs.close()
    test_envs = make_vec_env("CartPole-v1", 100, seed=args.seed + 1_000_000)
    mean, _ = evaluate_policy(model, test_envs, n_eval_episodes=100, deterministic=True)
    test_envs.close()
    print(f"greedy policy: mean return {mean:.1f} over 100 new episodes, after {model.num_timesteps:,} steps")
    return 0 if mean >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
