"""`rollhouse rollout` with Python envs: what is recorded is what Gymnasium gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from local_cluster import rollhouse_program
from python_nodes import PACKAGES

from rollhouse import replays

HERE = str(Path(__file__).parent)


def rollout(data: Path, *arguments: str, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the binary with this interpreter, unless another one is given."""
    python = [] if "--python" in arguments else ["--python", sys.executable]
    line = [str(rollhouse_program()), "rollout", *arguments, *python, "--data", str(data)]
    environment = os.environ | {"PYTHONPATH": HERE} | variables
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, env=environment, timeout=300, check=False)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_every_recorded_episode_is_the_one_that_gymnasium_plays(tmp_path: Path, env_id: str) -> None:
    done = rollout(tmp_path, "--env", f"gymnasium:{env_id}", "--lanes", "5", "--episodes", "12", "--seed", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["episodes"] == 12
    recorded = replays.open(tmp_path)
    episodes = [recorded.read(episode) for episode in recorded.list()]
    assert len(episodes) == 12
    env = gymnasium.make(env_id)
    for episode in episodes:
        observation, _ = env.reset(seed=episode.seed)
        over = False
        rewards: list[Any] = []
        for step, action in enumerate(episode.actions):
            assert not over
            assert np.asarray(observation).tobytes() == episode.observations[step].tobytes()
            observation, reward, terminated, truncated, _ = env.step(action)
            rewards.append(reward)
            over = terminated or truncated
        assert over and episode.outcome == ("terminated" if terminated else "truncated")
        assert np.asarray(observation).tobytes() == episode.observations[-1].tobytes()
        assert np.array(rewards, np.float64).tobytes() == episode.rewards.tobytes()


def test_an_env_that_fails_is_told_with_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    done = rollout(
        tmp_path, "--env", "hosted_lanes:Failing", "--allow", "hosted_lanes", "--env-kwargs", '{"at": 40}',
        "--lanes", "3", "--steps", "200", "--seed", "1", "--json",
    )  # fmt: skip
    assert json.loads(done.stdout)["outcomes"].get("crashed", 0) > 0, done.stderr
    assert "enough" in done.stderr or "shape (3,)" in done.stderr


def test_what_is_missing_is_named_with_the_way_to_mend_it(tmp_path: Path) -> None:
    cartpole = ["--env", "gymnasium:CartPole-v1", "--lanes", "1", "--steps", "1"]
    refused = rollout(tmp_path, "--env", "hosted_lanes:Columns", "--lanes", "1", "--steps", "1")
    assert refused.returncode == 1 and "'hosted_lanes' is not in the list" in refused.stderr
    assert "--allow" in refused.stderr
    absent = rollout(tmp_path, *cartpole, "--python", "/nowhere/python3")
    assert absent.returncode == 1 and "could not be started" in absent.stderr and "--python" in absent.stderr
    empty = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", empty], check=True)
    bare = rollout(tmp_path, *cartpole, "--python", str(empty / "bin/python"), PYTHONPATH="")
    assert bare.returncode == 1 and "has no package rollhouse" in bare.stderr and "pip install" in bare.stderr
    builtin = rollout(tmp_path, "--env", "CartPole-v1", "--lanes", "1", "--steps", "1", "--workers", "2")
    assert builtin.returncode == 2 and "is for environments of Python" in builtin.stderr
    nonsense = rollout(tmp_path, *cartpole, "--env-kwargs", "[1]")
    assert nonsense.returncode == 2 and "no JSON object" in nonsense.stderr


def test_a_worker_hears_nothing_of_secrets(tmp_path: Path) -> None:
    done = rollout(
        tmp_path, "--env", "hosted_lanes:Curious", "--allow", "hosted_lanes", "--lanes", "1", "--steps", "1",
        ROLLHOUSE_CONNECT_TOKEN="secret", SOME_API_KEY="secret",
    )  # fmt: skip
    assert done.returncode == 1 and "these reach an env: []" in done.stderr, done.stderr


@pytest.mark.parametrize("named", [False, True], ids=["not_named", "named"])
def test_modules_in_the_working_folder_are_not_the_workers(tmp_path: Path, named: bool) -> None:
    """Even if `PYTHONPATH` names it: envs find what lies there, and a worker what is installed."""
    folder = tmp_path / "working"
    folder.mkdir()
    for name in ("json", "gymnasium", "mmap"):
        (folder / f"{name}.py").write_text("raise RuntimeError('a module of the working folder was imported')\n")
    (folder / "mine.py").write_text("import balls\n\n\nclass Mine(balls.Ball):\n    pass\n")
    path = os.pathsep.join([*([str(folder)] if named else []), str(PACKAGES), os.environ.get("PYTHONPATH", "")])
    given = ["--env", "mine:Mine" if named else "balls:Ball", "--allow", "mine", "--allow", "balls"]
    done = rollout(tmp_path / "data", *given, "--episodes", "1", "--lanes", "1", folder=folder, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
