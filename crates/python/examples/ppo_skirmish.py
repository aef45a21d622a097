"""PPO with action masks on Skirmish-v0: an agent that builds a base, trains an army and leads it, until it beats the weakest opponent.

    python examples/ppo_skirmish.py --seed 1

Each step of 50 ticks the net makes two choices, of which the env's masks forbid what could not be carried out: what to build or train
(a building that is ready is placed beside the base), and to which sixteenth of the map the army goes. It prints the share of won games
that choices at random among those allowed come to, then win rate, mean return and steps per second as it learns, and at the end the
share that the learned choices win of new games. The exit code is 0 only if that is at least 0.9.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time

import numpy as np
import skirmish_orders as sk
import torch
from torch import nn

import rollhouse

GOAL = 0.9
"""The share of new games that are to be won, by the most probable choices."""
LEARNED = 0.95
"""The share of the last 100 games of learning at which that is tried."""
TICKS = 50
"""Ticks of a step: two seconds of a live game."""
GAMMA, DECAY, CLIP = 0.997, 0.95, 0.2

BUILDINGS = ("power_plant", "refinery", "barracks", "factory", "turret")
UNITS = ("rifle", "rocket", "buggy", "tank", "harvester")
ECONOMY = ("wait", *BUILDINGS, *UNITS)
"""The first choice: what is built or trained."""
GRID = 4
"""The map has so many regions in a row, and as many rows of them."""
CHOICES = (len(ECONOMY), 1 + GRID * GRID)
"""The second choice: that the army goes on with what it does, or to which region it goes."""
PLANES = {sk.ORE: 10, sk.FOG: 40, sk.OWN_BUILDING: 10, sk.OWN_UNITS: 5, sk.ENEMY_BUILDING: 10, sk.ENEMY_UNITS: 5}
"""The planes of the map that are shown, and by what a region's sum of each is divided."""
MAX_WAITING = 2
"""Units that wait in a line of production."""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--opponent", default="beginner", choices=["beginner", "easy", "medium", "hard"])
    parser.add_argument("--time-limit", type=int, default=4000, help="ticks after which a game is a draw")
    parser.add_argument("--lanes", type=int, default=32)
    parser.add_argument("--rollout", type=int, default=64, help="steps of every lane between two updates")
    parser.add_argument("--steps", type=int, default=400_000, help="give up after so many")
    parser.add_argument("--games", type=int, default=64, help="games of an evaluation")
    return parser.parse_args()


def mask_of(observation: sk.Row) -> np.ndarray:
    """Returns which choices can be carried out, bool [28]: those of ECONOMY, then those of the army. To wait always can."""
    masks = observation["masks"]
    lines = collections.Counter(int(job["line"]) for job in observation["production"])
    waiting = {**dict.fromkeys(BUILDINGS, lines[0] < 1), **dict.fromkeys(UNITS[:2], lines[1] < MAX_WAITING)}
    waiting |= dict.fromkeys(UNITS[2:], lines[2] < MAX_WAITING)
    economy = [masks["produce"][sk.ITEMS.index(item)] and waiting[item] for item in ECONOMY[1:]]
    leads = masks["orders"][sk.COMBAT, sk.KINDS.index("attack_move")]
    ground = regions(observation, observation["spatial"][..., sk.PASSABLE]) > 0
    return np.concatenate([[True, *economy, True], ground & bool(leads)]).astype(bool)


def regions(observation: sk.Row, plane: np.ndarray) -> np.ndarray:
    """Returns the sums of a plane over the regions of the map, [16]."""
    height, width = (int(observation["map"][side]) for side in ("height", "width"))
    rows = np.add.reduceat(plane[:height, :width], np.arange(GRID) * height // GRID)
    return np.add.reduceat(rows, np.arange(GRID) * width // GRID, axis=1).ravel()


def target(observation: sk.Row, region: int) -> sk.Cell:
    """Returns where in a region the army goes: to what is known of the enemy there, else to its middle."""
    height, width = (int(observation["map"][side]) for side in ("height", "width"))
    row, column = divmod(region, GRID)
    (top, bottom), (left, right) = ((part * side // GRID, (part + 1) * side // GRID) for part, side in ((row, height), (column, width)))
    known = [sk.cell(thing) for thing in (*observation["enemy_buildings"], *observation["enemies"])]
    there = [(x, y) for x, y in known if top <= y < bottom and left <= x < right]
    return sk.free_near(observation, there[0] if there else ((left + right) // 2, (top + bottom) // 2))


def orders_of(observation: sk.Row, economy: int, army: int) -> list[dict[str, int]]:
    """Returns the orders that carry the two choices out."""
    orders, base = [], sk.home(observation)
    place = sk.site(observation, base)
    if place is not None:
        orders.append(sk.order("place_building", cell=place))
    if economy:
        item = ECONOMY[economy]
        orders.append(sk.order("build" if item in BUILDINGS else "train", item=item))
    if army:
        orders.append(sk.order("attack_move", sk.COMBAT, cell=target(observation, army - 1)))
    return orders


def features_of(observation: sk.Row) -> np.ndarray:
    """Returns what the net is shown, float32: money and power, how many there are of each thing, how the war goes, and six planes of the
    map by region."""
    economy, military = observation["economy"], observation["military"]
    money = (int(economy["cash"]) + int(economy["ore"])) / 2000
    spare = (int(economy["power_provided"]) - int(economy["power_drained"])) / 100
    units, buildings = collections.Counter(sk.kinds(observation["units"])), collections.Counter(sk.kinds(observation["buildings"]))
    made = collections.Counter(sk.ITEMS[int(job["item"])] for job in observation["production"])
    army = sk.army(observation)
    war = [
        sum(int(unit["hp_percent"]) for unit in army) / 1000,
        sum(bool(unit["is_idle"]) for unit in army) / 8,
        int(military["kills_cost"]) / 5000,
        int(military["deaths_cost"]) / 5000,
        int(military["army_value"]) / 5000,
        int(observation["tick"]) / 15_000,
    ]
    counts = [units[kind] / 8 for kind in sk.UNITS] + [buildings[kind] / 2 for kind in sk.BUILDINGS]
    counts += [made[kind] for kind in sk.ITEMS[1:]]
    planes = regions(observation, observation["spatial"][..., list(PLANES)].clip(0, 1)).reshape(-1, len(PLANES))
    return np.concatenate([[money, spare, spare < 0.3, *counts, *war], (planes / list(PLANES.values())).ravel()]).astype(np.float32)


FEATURES = 3 + 2 * (len(sk.ITEMS) - 1) + 6 + len(PLANES) * GRID * GRID


class Rows:
    """What the choices of a batch's lanes are made by, and what they come to."""

    def __init__(self, observations: sk.Row, lanes: int):
        self.rows = [sk.row(observations, lane) for lane in range(lanes)]
        self.features = torch.from_numpy(np.stack([features_of(one) for one in self.rows]))
        self.masks = torch.from_numpy(np.stack([mask_of(one) for one in self.rows]))

    def actions(self, choices: torch.Tensor) -> dict[str, object]:
        """Returns the env's actions for choices [lanes, 2]."""
        chosen = zip(self.rows, choices.tolist(), strict=True)
        return sk.batch([sk.action(orders_of(one, economy, army), TICKS) for one, (economy, army) in chosen])


class Agent(nn.Module):
    """Logits of both choices, and the value."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.critic = mlp(FEATURES, sum(CHOICES), 0.01), mlp(FEATURES, 1, 1.0)

    def value(self, features: torch.Tensor) -> torch.Tensor:
        return self.critic(features).squeeze(-1)

    def log_probs(self, features: torch.Tensor, masks: torch.Tensor) -> list[torch.Tensor]:
        """Returns the logarithms of the probabilities of each choice; what is masked has none."""
        logits = self.policy(features).masked_fill(~masks, -1e9)
        return [part.log_softmax(-1) for part in logits.split(CHOICES, -1)]


def mlp(inputs: int, outputs: int, last_gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width_in, width_out, gain in ((inputs, 128, 2**0.5), (128, 128, 2**0.5), (128, outputs, last_gain)):
        linear = nn.Linear(width_in, width_out)
        nn.init.orthogonal_(linear.weight, gain)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def drawn(log_probs: list[torch.Tensor]) -> torch.Tensor:
    """Draws a choice of each part, [rows, 2]."""
    return torch.stack([torch.multinomial(part.exp(), 1).squeeze(-1) for part in log_probs], -1)


def log_prob(log_probs: list[torch.Tensor], choices: torch.Tensor) -> torch.Tensor:
    """Returns the logarithm of the probability of choices [rows, 2]."""
    parts = [part.gather(-1, choice[..., None]).squeeze(-1) for part, choice in zip(log_probs, choices.unbind(-1), strict=True)]
    return torch.stack(parts).sum(0)


def entropy(log_probs: list[torch.Tensor]) -> torch.Tensor:
    return -torch.stack([(part.exp() * part).sum(-1).mean() for part in log_probs]).sum()


class Rollout:
    """T steps of N lanes. An episode's next one begins in the row that ends it, so that each row is a transition."""

    def __init__(self, envs: rollhouse.VectorEnv, agent: Agent, steps: int, seed: int):
        self.envs, self.agent, lanes = envs, agent, envs.num_envs
        self.features = torch.zeros(steps + 1, lanes, FEATURES)
        self.masks = torch.zeros(steps, lanes, sum(CHOICES), dtype=torch.bool)
        self.choices = torch.zeros(steps, lanes, 2, dtype=torch.int64)
        self.log_probs, self.rewards, self.over = (torch.zeros(steps, lanes) for _ in range(3))
        self.now = Rows(envs.reset(seed=seed)[0], lanes)
        self.lane_returns = np.zeros(lanes)
        self.returns: collections.deque[float] = collections.deque(maxlen=100)
        self.wins: collections.deque[bool] = collections.deque(maxlen=100)

    @torch.no_grad()
    def play(self) -> None:
        """Plays on from where the last rollout ended. A game that the time limit cut is worth nothing more: it is a draw."""
        for t in range(len(self.choices)):
            now = self.now
            log_probs = self.agent.log_probs(now.features, now.masks)
            choices = drawn(log_probs)
            observations, rewards, terminations, truncations, _ = self.envs.step(now.actions(choices))
            over = terminations | truncations
            self.features[t], self.masks[t], self.choices[t] = now.features, now.masks, choices
            self.log_probs[t] = log_prob(log_probs, choices)
            self.rewards[t], self.over[t] = torch.from_numpy(rewards), torch.from_numpy(over)
            self.lane_returns += rewards
            self.returns.extend(self.lane_returns[over].tolist())
            self.wins.extend(won(rewards, terminations)[over].tolist())
            self.lane_returns[over] = 0.0
            self.now = Rows(observations, self.envs.num_envs)
        self.features[-1] = self.now.features

    @torch.no_grad()
    def advantages(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Generalised advantage estimates and the returns they imply, [T, N] each."""
        values = self.agent.value(self.features)
        advantages, ahead = torch.zeros_like(self.rewards), torch.zeros(self.rewards.shape[1])
        for t in reversed(range(len(advantages))):
            goes_on = 1 - self.over[t]
            ahead = self.rewards[t] + GAMMA * goes_on * (values[t + 1] + DECAY * ahead) - values[t]
            advantages[t] = ahead
        return advantages, advantages + values[:-1]


def won(rewards: np.ndarray, terminations: np.ndarray) -> np.ndarray:
    """Returns which games have been won with this step: a victory is worth 10, and nothing else in a step is worth as much."""
    return terminations & (rewards > 0)


def update(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout) -> None:
    """Four passes over the rollout's transitions in minibatches."""
    advantages, returns = (part.flatten() for part in rollout.advantages())
    features, masks = rollout.features[:-1].flatten(0, 1), rollout.masks.flatten(0, 1)
    choices, before = rollout.choices.flatten(0, 1), rollout.log_probs.flatten()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(4):
        for rows in torch.randperm(len(choices)).split(256):
            log_probs = agent.log_probs(features[rows], masks[rows])
            ratio = (log_prob(log_probs, choices[rows]) - before[rows]).exp()
            gain = advantages[rows]
            policy_loss = -torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
            value_loss = (agent.value(features[rows]) - returns[rows]).pow(2).mean()
            optimizer.zero_grad()
            (policy_loss + 0.5 * value_loss - 0.01 * entropy(log_probs)).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


@torch.no_grad()
def evaluate(agent: Agent | None, args: argparse.Namespace) -> float:
    """Returns the share of games that the most probable choices win, one game of each of so many lanes; without an agent of choices drawn
    at random among those allowed."""
    with rollhouse.make_vec("Skirmish-v0", args.games, opponent=args.opponent, time_limit=args.time_limit) as envs:
        observations, _ = envs.reset(seed=args.seed + 1_000_000)
        running, wins = np.ones(args.games, dtype=bool), np.zeros(args.games, dtype=bool)
        while running.any():
            now = Rows(observations, args.games)
            if agent is None:
                choices = drawn([part.float().log_softmax(-1) for part in now.masks.float().log().split(CHOICES, -1)])
            else:
                choices = torch.stack([part.argmax(-1) for part in agent.log_probs(now.features, now.masks)], -1)
            observations, rewards, terminations, truncations, _ = envs.step(now.actions(choices))
            wins |= running & won(rewards, terminations)
            running &= ~(terminations | truncations)
    return float(wins.mean())


def main() -> int:
    args = parse_args()
    torch.manual_seed(args.seed)
    # The networks are small: threads would spend their time waiting for each other.
    torch.set_num_threads(1)
    random = evaluate(None, args)
    print(f"random choices win {random:.2f} of {args.games} games against {args.opponent}", flush=True)
    envs = rollhouse.make_vec("Skirmish-v0", args.lanes, opponent=args.opponent, time_limit=args.time_limit, autoreset_mode="SameStep")
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=5e-4, eps=1e-5)
    rollout = Rollout(envs, agent, args.rollout, args.seed)
    began, steps, number = time.perf_counter(), 0, 0
    while steps < args.steps:
        number += 1
        rollout.play()
        steps += rollout.rewards.numel()
        update(agent, optimizer, rollout)
        full = len(rollout.wins) == rollout.wins.maxlen
        wins, mean = (float(np.mean(some)) if some else 0.0 for some in (rollout.wins, rollout.returns))
        reached = full and wins >= LEARNED
        if number % 10 == 0 or reached:
            rate = steps / (time.perf_counter() - began)
            print(f"{steps:>9,} steps  win rate {wins:4.2f}  mean return {mean:6.2f}  {rate:>6,.0f} steps/s", flush=True)
        if reached:
            break
    envs.close()
    final = evaluate(agent, args)
    said = f"greedy choices win {final:.2f} of {args.games} new games, random ones {random:.2f}"
    print(f"{said}; {time.perf_counter() - began:.0f} s and {steps:,} steps of learning")
    return 0 if final >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
