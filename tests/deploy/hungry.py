"""A trainer for the tests of containers: one of the Python envs that it hosts eats all the memory that its container has.

It steps lanes of a cluster beside those that it hosts, and says in its last line, of JSON, which lanes were lost and whether all
others saw what they see without that env.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import gymnasium
import numpy as np

import rollhouse

LANES, WORKERS, HUNGRY, STEPS = 4, 4, 2, 300
# Seconds, longer than a worker takes to be started again.
PATIENCE = 60.0
# In the memory of the container: eaten once, for a worker that is started again would eat again.
EATEN = Path("/tmp/eaten")


class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, hungry: bool) -> None:
        self.hungry, self.steps, self.meals = hungry, 0, []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.random(2), {}

    def step(self, action: int) -> tuple:
        self.steps += 1
        if self.hungry and self.steps == 30 and not EATEN.exists():
            EATEN.touch()
            while True:
                self.meals.append(np.ones(1 << 20))
        return self.np_random.random(2) + action, 1.0, self.steps % 40 == 0, False, {}


def played(hungry: bool) -> tuple[np.ndarray, list, bool]:
    """All observations, which lanes were lost and why, and whether all play in the end."""
    envs = rollhouse.vectorize([lambda lane=lane: Env(hungry and lane == HUNGRY) for lane in range(LANES)],
                               workers=WORKERS, on_loss="report")
    observations, _ = envs.reset(seed=3)
    seen, lost = [observations], []
    for _ in range(STEPS):
        observations, _, _, _, infos = envs.step(np.ones(LANES, np.int64))
        seen.append(observations)
        lost += [(lane, why) for lane, why in enumerate(infos.get("lost", [])) if why]
    # Until the lane is back: its row moves again.
    end = time.monotonic() + PATIENCE
    moved = False
    while not moved and time.monotonic() < end:
        last = envs.step(np.ones(LANES, np.int64))[0]
        moved = bool((last != observations).any(axis=1).all())
        observations = last
    envs.close()
    return np.array(seen), lost, moved


def main() -> None:
    cluster = rollhouse.connect(os.environ["ROLLHOUSE_CONNECT"])
    theirs = cluster.make_vec("CartPole-v1", 8, seed=1)
    theirs.reset()
    quiet, nothing, _ = played(hungry=False)
    seen, lost, is_back = played(hungry=True)
    for _ in range(100):
        infos = theirs.step(np.zeros(8, np.int64))[4]
        assert "lost" not in infos
    theirs.close()
    others = [lane for lane in range(LANES) if lane != HUNGRY]
    print(json.dumps({
        "lost": sorted(set(lost)),
        "before": nothing,
        "others_are_equal": bool((quiet[:, others] == seen[:, others]).all()),
        "is_back": is_back,
    }))


if __name__ == "__main__":
    main()
