"""`rollhouse replay verify` and `Replays.verify` with Python envs: what was recorded is played again and compared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_cluster import rollhouse_program

from rollhouse import replays

PACKAGE = '''
import os, signal
import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """A walk from a random place, with noise of its own generator, until it is far away."""

    metadata = {"deterministic": True, "render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = spaces.Dict(
        {"noise": spaces.Box(-1, 1, (3,), np.float32), "place": spaces.Box(-1e9, 1e9, (), np.float64)}
    )
    action_space = spaces.Discrete(2)

    def __init__(self, far=60, render_mode=None):
        self.far, self.render_mode = far, render_mode

    def _shown(self):
        return {"noise": self.np_random.uniform(-1, 1, 3).astype(np.float32), "place": np.float64(self.place)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.age = int(self.np_random.integers(-3, 4)), 0
        return self._shown(), {}

    def step(self, action):
        self.age += 1
        self.place += 2 * int(action) - 1
        reward = float(self.np_random.normal()) + self.strange()
        shown = self._shown()
        return shown, reward, abs(self.place) >= self.far or self.age >= 200, False, {}

    def render(self):
        picture = np.zeros((24, 120, 3), np.uint8)
        picture[:, self.place + 60] = 255
        return picture

    def strange(self):
        return 0.0
'''
"""The package `walks`. What is added to it below changes what it does in steps that no try-out comes to, or at once."""

OTHERWISE = "\n    def strange(self):\n        return float(self.age == 90)\n"
LOUDER = "\n    def strange(self):\n        return 1.0\n"
PAIR = """

class Pair(Walk):
    action_space = spaces.MultiDiscrete([2, 3])

    def step(self, action):
        shown, reward, *rest = super().step(action[0])
        return shown, reward + int(action[1]), *rest
"""
RAISING = "\n    def strange(self):\n        return 1 // (self.age - 90) * 0.0\n"
DYING = "\n    def strange(self):\n        return os.kill(os.getpid(), signal.SIGKILL) if self.age == 90 else 0.0\n"


class Recorded:
    """A folder of recordings, and the package that they were made with."""

    def __init__(self, folder: Path, added: str = ""):
        self.data, self.package = folder / "data", folder / "package"
        self.package.mkdir(exist_ok=True)
        self.change(added)

    def change(self, added: str) -> None:
        (self.package / "walks.py").write_text(PACKAGE + added)

    def run(self, *line: str) -> subprocess.CompletedProcess[str]:
        # No byte code is written: two versions of the package may be as long, and of one second.
        path = os.pathsep.join([str(self.package), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        whole = [str(rollhouse_program()), *line, "--data", str(self.data)]
        return subprocess.run(whole, capture_output=True, text=True, env=environment, timeout=300, check=False)

    def rollout(self, env: str, *arguments: str) -> dict[str, Any]:
        hosting = ["--python", sys.executable, "--allow", "walks", "--workers", "2"] if ":" in env else []
        line = ["--env", env, *hosting, "--lanes", "3", "--episodes", "9", "--seed", "5", "--json", *arguments]
        done = self.run("rollout", *line)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def verify(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("replay", "verify", "--python", sys.executable, *arguments)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    Recorded(folder).rollout("walks:Walk")
    return folder


@pytest.fixture
def recorded(original: Path, tmp_path: Path) -> Recorded:
    """Nine episodes of `walks:Walk`, each of which goes on behind step 90: a copy, which a test may change."""
    shutil.copytree(original / "data", tmp_path / "data")
    return Recorded(tmp_path)


def test_every_episode_of_a_python_env_is_played_again_and_compared(recorded: Recorded) -> None:
    steps = recorded.rollout("walks:Walk", "--env-kwargs", '{"far": 12}')["steps"]
    recorded.rollout("gymnasium:CartPole-v1", "--deterministic")
    recorded.rollout("CartPole-v1")
    told = recorded.verify("--allow", "walks", "--json")
    assert told.returncode == 0, told.stderr
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(lines) == 36 and all(line["ok"] and line["note"] is None for line in lines), told.stdout
    assert sum(line["steps"] for line in lines) > steps
    shown = recorded.verify("--allow", "walks", "--workers", "1", "--worker-memory", "2 GiB")
    assert "36 episodes recomputed" in shown.stdout and "all of them are as recorded" in shown.stdout, shown.stdout
    assert "cannot be recomputed" not in shown.stdout
    name = lines[0]["id"]
    assert recorded.verify("--allow", "walks", name).stdout.startswith("1 episode recomputed")
    # Nothing is imported that nobody asked for.
    plain = recorded.run("replay", "verify")
    assert plain.returncode == 0 and "27 episodes not compared, but complete" in plain.stdout, plain.stdout


def test_a_step_that_comes_out_otherwise_is_named(recorded: Recorded) -> None:
    recorded.change(OTHERWISE)
    told = recorded.verify("--allow", "walks")
    assert told.returncode == 3, told.stdout + told.stderr
    assert told.stdout.count("reward differs at step 90: recorded ") == 9, told.stdout
    assert "9 episodes not as recorded" in told.stdout


def test_an_env_with_other_dynamics_is_another_one_and_both_hashes_are_told(recorded: Recorded) -> None:
    recorded.change(LOUDER)
    told = recorded.verify("--allow", "walks")
    assert told.returncode == 3, told.stdout + told.stderr
    assert told.stdout.count("the env is another one here: its package, what it needs, or this machine: hash ") == 9
    line = json.loads(recorded.verify("--allow", "walks", "--json").stdout.splitlines()[0])
    differs = line["first_divergence"]
    assert differs["field"] == "dynamics" and differs["recorded"] != differs["replayed"], line


@pytest.mark.parametrize(
    ("added", "words"),
    [(RAISING, "ZeroDivisionError: integer division or modulo by zero"), (DYING, "SIGKILL")],
    ids=["raises", "dies"],
)
def test_an_episode_whose_lane_is_lost_is_not_compared_and_says_why(recorded: Recorded, added: str, words: str) -> None:
    recorded.change(added)
    told = recorded.verify("--allow", "walks")
    assert told.returncode == 3, told.stdout + told.stderr
    lost = [line for line in told.stdout.splitlines() if "not recomputed to its end: step 90 was lost: " in line]
    assert lost and words in lost[0], told.stdout
    assert "9 episodes not compared" in told.stdout, told.stdout


def test_episodes_whose_actions_are_several_integers_are_played_again(tmp_path: Path) -> None:
    # Symptom: they were found to differ at their first step. Cause: actions of int64 were taken for one integer each. Fix: only
    # those of one element are.
    recorded = Recorded(tmp_path, PAIR)
    recorded.rollout("walks:Pair")
    done = recorded.verify("--allow", "walks")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_missing_for_a_python_env_is_refused_with_the_way_to_mend_it(recorded: Recorded) -> None:
    refused = recorded.verify()
    assert refused.returncode == 1 and "'walks' is not in the list" in refused.stderr, refused.stderr
    assert "--allow PACKAGE permits it" in refused.stderr and "9 episodes not compared" in refused.stdout
    (recorded.package / "walks.py").unlink()
    gone = recorded.verify("--allow", "walks")
    assert gone.returncode == 1 and "No module named 'walks'" in gone.stderr, gone.stderr
    absent = recorded.run("replay", "verify", "--python", "/nowhere/python3", "--allow", "walks")
    assert absent.returncode == 1 and "could not be started" in absent.stderr, absent.stderr
    alone = recorded.run("replay", "verify", "--allow", "walks")
    assert alone.returncode == 2 and "--allow is for Python environments, which need --python" in alone.stderr


def test_python_verifies_as_the_command_does(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(recorded.package))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    folder = replays.open(recorded.data)
    report = folder.verify(python=sys.executable, allow=["walks"], workers=1)
    assert report.ok and report.episodes == 9 and not report.noted
    assert [one.note is not None for one in folder.verify().noted] == [True] * 9
    one = folder.list()[0]
    refused = folder.verify([one], python=sys.executable)
    assert not refused.ok and "'walks' is not in the list" in (refused.noted[0].note or "")
    recorded.change(OTHERWISE)
    different = folder.verify([one], python=sys.executable, allow=["walks"]).noted[0].first_divergence
    assert different is not None and (different.first_step, different.field) == (90, "reward")
    python = {"python": sys.executable}
    wrongs: list[dict[str, Any]] = [{"allow": ["walks"]}, python | {"workers": 0}, python | {"worker_memory": 0}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="allow|workers|worker_memory"):
            folder.verify(**wrong)


def fork(recorded: Recorded, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    hosting = ["--python", sys.executable, "--allow", "walks"]
    return recorded.run("replay", "fork", name, *hosting, "--json", *arguments)


def test_a_fork_shares_the_steps_of_its_parent_and_verifies_by_itself(recorded: Recorded, tmp_path: Path) -> None:
    recorded.rollout("walks:Walk", "--env-kwargs", '{"far": 40}')
    folder = replays.open(recorded.data)
    parent = next(info for info in folder.list() if info.length > 90)
    done = fork(recorded, parent.id, "--at", "70", "--policy", "random", "--seed", "3", "--steps", "400")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["parent"]["id"] == parent.id and told["parent"]["step"] == 70 and told["length"] > 70, told
    folder = replays.open(recorded.data)
    child, theirs = folder.read(told["id"]), folder.read(parent)
    assert child.actions[:70].tolist() == theirs.actions[:70].tolist()
    assert child.rewards[:70].tolist() == theirs.rewards[:70].tolist()
    assert child.actions[70:].tolist() != theirs.actions[70:].tolist()
    # With the parent's own actions it is the parent.
    actions = tmp_path / "actions"
    actions.write_text("".join(f"{action}\n" for action in theirs.actions[70:].tolist()))
    same = fork(recorded, parent.id, "--at", "70", "--actions", str(actions))
    assert same.returncode == 0, same.stderr
    again = replays.open(recorded.data).read(json.loads(same.stdout)["id"])
    assert again.rewards.tolist() == theirs.rewards.tolist() and again.info.outcome == parent.outcome
    assert "20 episodes recomputed" in (told := recorded.verify("--allow", "walks").stdout), told
    assert "all of them are as recorded" in told


def test_a_fork_imports_nothing_that_nobody_asked_for_and_goes_on_in_no_other_env(recorded: Recorded) -> None:
    name = replays.open(recorded.data).list()[0].id
    line = ["replay", "fork", name, "--at", "5", "--policy", "noop"]
    alone = recorded.run(*line)
    assert alone.returncode == 1 and "imported only when that is asked for: --python" in alone.stderr, alone.stderr
    assert "--python PATH names the interpreter, --allow PACKAGE what it may import" in alone.stderr
    outside = recorded.run(*line, "--python", sys.executable)
    assert outside.returncode == 1 and "'walks' is not in the list" in outside.stderr, outside.stderr
    assert "--allow PACKAGE permits it" in outside.stderr
    recorded.change(LOUDER)
    other = fork(recorded, name, "--at", "5", "--policy", "noop")
    assert other.returncode == 1 and "dynamics have changed since" in other.stderr, other.stderr
    recorded.change(OTHERWISE)
    differs = fork(recorded, name, "--at", "92", "--policy", "noop")
    assert differs.returncode == 3 and "differs from what was recorded between steps 65 and 128" in differs.stderr
    assert len(replays.open(recorded.data).list()) == 9, "nothing was recorded"


def test_a_recorded_episode_is_played_as_recorded_and_with_the_pictures_of_its_env(recorded: Recorded, tmp_path: Path) -> None:
    name = replays.open(recorded.data).list()[0].id

    def shown(*hosting: str) -> str:
        file = tmp_path / "shown.svg"
        done = recorded.run("replay", "play", name, "--at", "40", "--svg", str(file), *hosting)
        assert done.returncode == 0, done.stderr
        return file.read_text()

    plain = shown()
    assert "40" in plain and "imported only when" in plain, plain
    drawn = shown("--python", sys.executable, "--allow", "walks")
    assert "imported only when" not in drawn and "#ffffff" in drawn.lower(), drawn
    place = replays.open(recorded.data).read(name).observations["place"][40]
    for screen in (plain, drawn):
        assert f"{place:g}" in screen
    outside = shown("--python", sys.executable)
    assert "not in the list" in outside, outside


def test_the_recorded_arguments_of_an_env_are_shown(recorded: Recorded) -> None:
    arguments = {"far": 12}
    recorded.rollout("walks:Walk", "--env-kwargs", json.dumps(arguments))
    shown = set()
    for info in replays.open(recorded.data).list():
        told = json.loads(recorded.run("replay", "show", info.id, "--json").stdout)
        text = recorded.run("replay", "show", info.id).stdout
        assert ('arguments  {"far":12}' in text) == (told["env_kwargs"] is not None), text
        assert told["env_kwargs"] in (None, arguments)
        shown.add(told["env_kwargs"] is not None)
    assert shown == {True, False}


@pytest.mark.adapters("mujoco")
def test_a_recorded_half_cheetah_is_played_again(tmp_path: Path) -> None:
    folder = Recorded(tmp_path)
    folder.rollout("gymnasium:HalfCheetah-v5", "--deterministic", "--env-kwargs", '{"reset_noise_scale": 0.2}')
    told = folder.verify("--json")
    assert told.returncode == 0, told.stdout + told.stderr
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(lines) == 9 and all(line["ok"] and line["steps"] == 1000 and line["note"] is None for line in lines)
