"""Packages of envs that others use, here and on nodes: what `SyncVectorEnv` gives, recorded and exported.

The table of docs/trainers.md names them. They are too large to be installed for every change: `cargo xtask test --all` installs
them, NLE without what it asks for, which is another Gymnasium.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from local_cluster import LocalCluster, rollhouse_program
from python_nodes import python_nodes, same, same_spaces

import rollhouse
from rollhouse.agents import adapted
from rollhouse.leaving_out import leaving_out
from rollhouse.vector import rows_at

pytestmark = pytest.mark.skipif("ROLLHOUSE_TEST_ALL" not in os.environ, reason="takes minutes; runs with `cargo xtask test --all`")

LANES = 2
STEPS = 60


@dataclass(frozen=True)
class Package:
    """An env of a package.

    Attributes:
        id: What it is called with `make_vec`.
        module: What has to be imported for it.
        leave_out: Parts of its observation that are neither recorded nor hosted on nodes.
        kwargs: Its arguments.
    """

    id: str
    module: str
    leave_out: tuple[str, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def make(self) -> gymnasium.Env:
        """The env as `SyncVectorEnv` gets it."""
        if self.id.startswith("gymnasium:"):
            importlib.import_module(self.module)
        name = self.id.rpartition(":")[2]
        if self.id.startswith("gymnasium:"):
            make: Callable[[], Any] = partial(gymnasium.make, name, **self.kwargs)
        else:
            make = partial(getattr(importlib.import_module(self.id.partition(":")[0]), name), **self.kwargs)
        return leaving_out(make, self.leave_out) if self.leave_out else adapted(make())


PACKAGES = {
    "ale": Package("gymnasium:ALE/Pong-v5", "ale_py"),
    "minigrid": Package("gymnasium:MiniGrid-Empty-5x5-v0", "minigrid", leave_out=("mission",)),
    "babyai": Package("gymnasium:BabyAI-GoToRedBallGrey-v0", "minigrid", leave_out=("mission",)),
    "highway": Package("gymnasium:highway-fast-v0", "highway_env"),
    "parking": Package("gymnasium:parking-v0", "highway_env"),
    "lunar-lander": Package("gymnasium:LunarLander-v3", "Box2D"),
    "car-racing": Package("gymnasium:CarRacing-v3", "Box2D"),
    "bipedal-walker": Package("gymnasium:BipedalWalker-v3", "Box2D"),
    "point-maze": Package("gymnasium:gymnasium_robotics:PointMaze_UMaze-v3", "gymnasium_robotics"),
    "vizdoom": Package("gymnasium:vizdoom.gymnasium_wrapper:VizdoomBasic-v1", "vizdoom.gymnasium_wrapper"),
    "half-cheetah": Package("gymnasium:HalfCheetah-v5", "mujoco"),
    "blackjack": Package("gymnasium:Blackjack-v1", "gymnasium"),
    "taxi": Package("gymnasium:Taxi-v4", "gymnasium"),
    "frozen-lake": Package("gymnasium:FrozenLake-v1", "gymnasium"),
    # Of the folder `packages`: NLE itself does not use the seed of a reset.
    "nethack": Package("nights:Score", "nle"),
    "pistonball": Package("pettingzoo.butterfly.pistonball_v6:parallel_env", "pettingzoo", kwargs={"n_pistons": 4}),
    "tic-tac-toe": Package("pettingzoo.classic.tictactoe_v3:env", "pettingzoo"),
}

ROOTS = sorted({package.module.partition(".")[0] for package in PACKAGES.values()} | {"gymnasium", "nights"})


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> Package:
    """One that is installed; others are named."""
    package = PACKAGES[request.param]
    root = package.module.partition(".")[0]
    if importlib.util.find_spec(root) is None:
        pytest.skip(f"{root} not installed")
    return package


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node that may import them all."""
    with closing(python_nodes(tmp_path_factory.mktemp("nodes"), *ROOTS, names=("one",))) as cluster:
        yield cluster


@dataclass
class Shown:
    """What lane 0 showed, and took, in its first episode."""

    observations: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    over: bool = False


def play(there: Any, here: SyncVectorEnv) -> Shown:
    """Plays both with the same actions and asserts that they give the same."""
    same_spaces(there, here)
    here.action_space.seed(4)
    ours, theirs = there.reset(seed=11)[0], here.reset(seed=11)[0]
    same(ours, theirs)
    shown = Shown([rows_at(theirs, 0, here.single_observation_space)])
    for _ in range(STEPS):
        actions = here.action_space.sample()
        ours, theirs = there.step(actions), here.step(actions)
        for index in range(4):
            same(ours[index], theirs[index])
        if not shown.over:
            shown.observations.append(rows_at(theirs[0], 0, here.single_observation_space))
            shown.rewards.append(float(theirs[1][0]))
            shown.over = bool(theirs[2][0] | theirs[3][0])
    return shown


def parts(value: Any) -> list[np.ndarray]:
    """The arrays of a value, in its own order."""
    if isinstance(value, dict):
        return [part for key in value for part in parts(value[key])]
    if isinstance(value, (tuple, list)):
        return [part for one in value for part in parts(one)]
    return [np.asarray(value)]


def check(episode: Any, shown: Shown) -> None:
    """Asserts that a recorded episode is the one that was shown."""
    assert len(episode.rewards) == len(shown.rewards)
    same(np.asarray(episode.rewards), np.array(shown.rewards))
    columns = [np.stack(column) for column in zip(*(parts(one) for one in shown.observations), strict=True)]
    for recorded, wanted in zip(parts(episode.observations), columns, strict=True):
        same(recorded, wanted.astype(recorded.dtype).reshape(recorded.shape))


def test_a_package_here_is_what_gymnasium_steps_and_is_recorded_and_exported(package: Package, tmp_path: Path) -> None:
    here = SyncVectorEnv([package.make] * LANES, autoreset_mode=AutoresetMode.NEXT_STEP)
    more: dict[str, Any] = {"leave_out": package.leave_out} if package.leave_out else {}
    there = rollhouse.make_vec(
        package.id, LANES, workers=2, record=True, data=tmp_path / "data", env_kwargs=package.kwargs, **more
    )
    try:
        shown = play(there, here)
    finally:
        there.close()
        here.close()
    recorded = rollhouse.replays.open(tmp_path / "data")
    first = next(info for info in recorded if info.lane == 0 and info.number == 0)
    check(recorded.read(first), shown)
    line = [str(rollhouse_program()), "replay", "export", first.id, "--data", str(tmp_path / "data")]
    for form in ("jsonl", "npz"):
        path = tmp_path / f"episode.{form}"
        ran = subprocess.run([*line, "--format", form, "--output", str(path)], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert path.stat().st_size > 0
    with np.load(tmp_path / "episode.npz") as arrays:
        same(arrays["reward"], np.array(shown.rewards))


def test_a_package_on_a_node_is_what_gymnasium_steps_and_is_recorded(
    package: Package, one_node: LocalCluster
) -> None:
    here = SyncVectorEnv([package.make] * LANES, autoreset_mode=AutoresetMode.NEXT_STEP)
    with rollhouse.connect(one_node.url, timeout=120) as cluster:
        there = cluster.make_vec(package.id, LANES, env_kwargs=package.kwargs, leave_out=package.leave_out)
        try:
            shown = play(there, here)
        finally:
            there.close()
            here.close()
        assert cluster.close_pool(there.run, timeout=120)["stored"]
        recorded = rollhouse.replays.open(cluster)
        first = next(info for info in recorded if info.run == there.run and info.lane == 0 and info.number == 0)
        check(recorded.read(first), shown)


def test_a_program_that_was_frozen_plays_and_records_with_the_interpreter_that_it_names(tmp_path: Path) -> None:
    """PyInstaller's own: a program without an interpreter of its own has built-in envs, and others by one that is named."""
    if importlib.util.find_spec("PyInstaller") is None:
        pytest.skip("PyInstaller not installed")
    script = tmp_path / "program.py"
    script.write_text(
        """
import sys
import rollhouse
envs = rollhouse.make_vec("CartPole-v1", 4, record=True, data=sys.argv[1])
envs.reset(seed=0)
for _ in range(100):
    envs.step(envs.action_space.sample())
envs.close()
print(getattr(sys, "frozen", False), len(rollhouse.replays.open(sys.argv[1])) > 0)
try:
    rollhouse.make_vec("gymnasium:CartPole-v1", 2, workers=1)
except rollhouse.errors.InterpreterError as error:
    print(error)
envs = rollhouse.make_vec("gymnasium:CartPole-v1", 2, workers=1, python=sys.argv[2])
envs.reset(seed=0)
print(envs.step(envs.action_space.sample())[1].tolist())
envs.close()
"""
    )
    build = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "ERROR"]
    # What is imported by name, when it is asked for; and not what its adapters are for, which is gigabytes.
    build += [f"--exclude-module={name}" for name in ("torch", "ray", "stable_baselines3", "torchrl", "minari", "pettingzoo")]
    build += ["--collect-submodules", "rollhouse", str(script)]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, timeout=600)
    program = tmp_path / "dist" / "program" / "program"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = subprocess.run(
        [str(program), str(tmp_path / "data"), sys.executable], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    plays, refusal, rewards = ran.stdout.strip().splitlines()
    assert (plays, rewards) == ("True True", "[1.0, 1.0]")
    assert "python=" in refusal
