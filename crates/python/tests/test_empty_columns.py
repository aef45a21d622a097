"""Columns without an element: counts come from steps."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from local_cluster import rollhouse_program

import rollhouse
from rollhouse import replays

NOTHING = spaces.Box(-1, 1, (0,), np.float32)
SPACES: dict[str, spaces.Space] = {
    "alone": NOTHING,
    "flat": spaces.Box(0, 255, (0, 4, 3), np.uint8),
    "beside": spaces.Dict({"nothing": NOTHING, "at": spaces.Box(-1, 1, (2,), np.float32)}),
    "before": spaces.Tuple((spaces.Discrete(3), NOTHING)),
}
FORMATS = ["jsonl", "npz", "parquet", "mcap", "html"]
STEPS = 5


class Sparse(gymnasium.Env):
    """Ends after five steps."""

    def __init__(self, observation: spaces.Space, action: spaces.Space):
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert action in self.action_space
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == STEPS, False, {}


def recorded(folder: Path, observation: spaces.Space, action: spaces.Space) -> replays.Episode:
    """Plays an episode of two lanes and returns that of one."""
    envs = rollhouse.vectorize([partial(Sparse, observation, action)] * 2, workers=1, record=True, data=folder)
    envs.reset(seed=1)
    for _ in range(STEPS):
        envs.step(envs.action_space.sample())
    envs.close()
    found = replays.open(folder)
    return found.read(found.list(limit=1)[0])


def lengths(value: Any) -> set[int]:
    """The number of rows of each array."""
    return {n for part in value.values() for n in lengths(part)} if isinstance(value, dict) else {len(value)}


@pytest.mark.parametrize("role", ["observation", "action"])
@pytest.mark.parametrize("name", SPACES)
def test_episodes_with_empty_columns_are_read_and_exported(name: str, role: str, tmp_path: Path) -> None:
    """Symptom: `export --format npz` ran for ever. Cause: rows were counted in elements. Fix: they are counted in steps."""
    given = {"observation": spaces.Discrete(2), "action": spaces.Discrete(2)} | {role: SPACES[name]}
    episode = recorded(tmp_path, given["observation"], given["action"])
    assert len(episode) == STEPS
    assert replays.open(tmp_path).verify().ok
    assert lengths(episode.observations) == {STEPS + 1} and lengths(episode.actions) == {STEPS}
    for batch in replays.open(tmp_path).batches(2, seed=0):
        assert len(batch["rewards"]) == 2
    for form in FORMATS:
        line = [str(rollhouse_program()), "replay", "export", episode.info.id, "--format", form, "--data", str(tmp_path)]
        done = subprocess.run(line, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, (form, done.stderr)
        if form == "npz":
            arrays = np.load(io.BytesIO(done.stdout))
            roots = {key: len(arrays[key]) for key in arrays if key.partition("/")[0] in ("obs", "action")}
            assert set(roots.values()) == {STEPS, STEPS + 1}, roots
        if form == "jsonl":
            assert len(done.stdout.splitlines()) >= STEPS and all(map(json.loads, done.stdout.splitlines()))
        if form == "parquet":
            pq = pytest.importorskip("pyarrow.parquet")
            assert pq.read_table(io.BytesIO(done.stdout)).num_rows in (STEPS, STEPS + 1)


def test_envs_with_empty_observations_are_rolled_out(tmp_path: Path) -> None:
    (tmp_path / "sparse.py").write_text(
        "import gymnasium, numpy as np\nfrom gymnasium import spaces\n\n\nclass Sparse(gymnasium.Env):\n"
        "    action_space = spaces.Discrete(2)\n"
        "    observation_space = spaces.Box(-1, 1, (0,), np.float32)\n"
        "    def reset(self, *, seed=None, options=None):\n        return np.zeros(0, np.float32), {}\n"
        "    def step(self, action):\n        return np.zeros(0, np.float32), 1.0, False, True, {}\n"
    )
    line = [str(rollhouse_program()), "rollout", "--env", "sparse:Sparse", "--python", sys.executable, "--allow", "sparse"]
    given = ["--lanes", "3", "--episodes", "6", "--data", str(tmp_path / "data")]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run([*line, *given], capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert {info.length for info in replays.open(tmp_path / "data")} == {1}
