"""Plays the sample replays anew: python replays/make_samples.py FOLDER, with the `rollhouse` package installed.

Each env is played twice by a rule of a few lines that does well, and once at random. Each episode is a run of its own, of one
lane, that ends with its last step; their segments are put into one folder.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import rollhouse


def cartpole(obs):
    position, velocity, angle, angular_velocity = obs
    return int(0.1 * position + 0.3 * velocity + 3.0 * angle + angular_velocity > 0)


def mountain_car(obs):
    return 2 if obs[1] >= 0 else 0


def mountain_car_continuous(obs):
    return np.array([0.8 if obs[1] >= 0 else -0.8], np.float32)


def pendulum(obs):
    cosine, sine, speed = obs
    if cosine > 0.9:
        torque = -12.0 * sine - 3.0 * speed
    else:
        energy = speed**2 / 6.0 + 5.0 * (cosine - 1.0)
        torque = -2.0 * energy * np.sign(speed if speed else 1.0)
    return np.array([np.clip(torque, -2.0, 2.0)], np.float32)


def acrobot(obs):
    return 2 if obs[5] >= 0 else 0


def breakout(obs):
    board = np.asarray(obs).reshape(10, 10, 4)
    paddle = int(board[:, :, 0].any(axis=0).argmax())
    (row, column), trail = np.argwhere(board[:, :, 1])[0], np.argwhere(board[:, :, 2])
    aim = column
    if len(trail) and row > trail[0][0]:
        # Where it comes down, with the walls as mirrors.
        aim = column + (column - trail[0][1]) * max(8 - row, 0)
        aim = abs(aim) if aim <= 9 else 18 - aim
    return 0 if aim == paddle else 1 if aim < paddle else 2


RULES = {
    "Acrobot-v1": acrobot,
    "CartPole-v1": cartpole,
    "GridBreakout-v0": breakout,
    "MountainCar-v0": mountain_car,
    "MountainCarContinuous-v0": mountain_car_continuous,
    "Pendulum-v1": pendulum,
}


def play(env, rule, seed, folder):
    """Plays one episode of one lane; gives its return and its length."""
    envs = rollhouse.make_vec(env, 1, seed=seed, record=True, data=folder)
    envs.action_space.seed(seed)
    obs, _ = envs.reset()
    total, length, over = 0.0, 0, False
    while not over:
        actions = envs.action_space.sample() if rule is None else np.array([rule(obs[0])])
        obs, rewards, terminations, truncations, _ = envs.step(actions)
        total, length, over = total + rewards[0], length + 1, bool(terminations[0] or truncations[0])
    envs.close()
    return total, length


def main(folder):
    segments = Path(folder) / "segments"
    segments.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as runs:
        for env, rule in RULES.items():
            for seed, chosen in ((2, rule), (3, rule), (1, None)):
                total, length = play(env, chosen, seed, runs)
                print(f"{env:26} seed {seed} {'by rule' if chosen else 'random ':8} return {total:9.2f} in {length} steps")
        found = sorted(Path(runs).glob("*/segments/*.seg"))
        for number, segment in enumerate(found, 1):
            shutil.copyfile(segment, segments / f"{number:010}.seg")


if __name__ == "__main__":
    main(sys.argv[1])
