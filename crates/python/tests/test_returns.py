"""A return that is no number is never the best."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from chatter import Chatter
from local_cluster import rollhouse_program

import rollhouse
from rollhouse import replays

ACTIONS = np.zeros((2, 2), np.int64)


class Odd(Chatter):
    """Gives one reward that is no number, in its first episodes alone."""

    episodes = 0

    def reset(self, **arguments: Any) -> Any:
        self.episodes += 1
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float("nan") if self.steps == 2 and self.episodes == 1 else 1.0, *rest


def test_a_return_that_is_no_number_is_never_the_best_and_warns_once(tmp_path: Path) -> None:
    """Symptom: `ls --sort -return` began with NaN; `prune --keep-best` goes by the same order."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rollhouse.vectorize([Odd] * 2, workers=1, record=True, data=tmp_path, autoreset_mode="SameStep") as envs:
            envs.reset(seed=0)
            for _ in range(15):
                envs.step(ACTIONS)
    assert len([warning for warning in caught if "is no number" in str(warning.message)]) == 1
    recorded = replays.open(tmp_path)
    for sort in ("-return", "return"):
        returns = [info.return_ for info in recorded.list(sort=sort)]
        assert returns[:4] == [5.0] * 4 and np.isnan(returns[4:]).all() and len(returns) == 6, (sort, returns)

    def run(*line: str) -> str:
        whole = [str(rollhouse_program()), "replay", *line, "--data", str(tmp_path)]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "nan" not in run("ls", "--sort=-return", "--limit", "1").lower()
    assert "no number" in run("stats", "--plot")
