"""Python envs on nodes that are declared deterministic: tried out, and resumed when their node dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from conftest import LocalCluster, rollhouse_program
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from test_cluster_python import THREE, play, python_settings

import rollhouse
from rollhouse.errors import RefusedError

LANES = 4
STEPS = 400

PACKAGE = '''
import random, time
import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """A walk from a random place, with noise of its own generator, until it is far away."""

    metadata = {"deterministic": True}
    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, far=20):
        self.far, self.age = far, 0

    def _shown(self):
        return np.concatenate([[self.place], self.np_random.uniform(-1, 1, 3)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.age = int(self.np_random.integers(-3, 4, dtype=np.int32)), 0
        return self._shown(), {}

    def step(self, action):
        self.age += 1
        self.place += 2 * int(action) - 1 + int(self.np_random.integers(-1, 2, dtype=np.int32))
        reward = self.np_random.normal() + self.lie()
        return self._shown(), float(reward), abs(self.place) >= self.far, False, {}

    def lie(self):
        return 0.0


class Chance(Walk):
    def lie(self):
        return random.random() if self.age == 5 else 0.0


class Clock(Walk):
    def _shown(self):
        return super()._shown() + time.monotonic()


class Grudge(Walk):
    """Begins otherwise after an episode that it has played."""

    played = 0

    def reset(self, *, seed=None, options=None):
        shown, infos = super().reset(seed=seed)
        self.played += 1
        return shown * (2 if seed is None and self.played == 3 else 1), infos


class Shared(Walk):
    """Has a generator that all envs of a process share."""

    def reset(self, *, seed=None, options=None):
        shown = super().reset(seed=seed)
        random.seed(int(self.np_random.integers(2**31)))
        return shown

    def lie(self):
        return random.random()


class Reseeding(Walk):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed if seed is None else seed + 1)


class Later(Walk):
    """Lies at steps that no try-out comes to."""

    def lie(self):
        return time.monotonic() if self.age == 80 else 0.0
'''


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package `walks`."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "walks.py").write_text(PACKAGE)
    return folder


def nodes_with(folder: Path, package: Path, *allow: str, names: Sequence[str] = ("one", "two")) -> LocalCluster:
    path = {"PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])}
    variables = {name: path for name in names}
    return LocalCluster(folder, rollhouse_program(), python_settings(*allow), variables, names)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Iterator[LocalCluster]:
    """A cluster that no test kills a node of."""
    cluster = nodes_with(tmp_path_factory.mktemp("nodes"), package, "walks", "ale_py")
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_a_node_killed_in_the_middle_of_episodes_changes_no_number(
    tmp_path: Path, package: Path, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(package)
    import walks  # type: ignore[import-not-found]

    two = nodes_with(tmp_path, package, "walks")
    try:
        with rollhouse.connect(two.url, timeout=120) as cluster:
            there = cluster.make_vec("walks:Walk", LANES, autoreset_mode=mode, spread="single")
            assert there.on_loss == "resume"
            first = there.placements[0].node
            here = SyncVectorEnv([walks.Walk] * LANES, autoreset_mode=mode)
            assert play(there, here, mode, STEPS, {STEPS // 2: lambda: two.kill(first)}) > LANES
            assert there.placements[0].node != first
            there.close()
    finally:
        two.close()


def test_a_resumed_lane_that_comes_out_otherwise_is_lost_and_gives_no_other_numbers(
    tmp_path: Path, package: Path
) -> None:
    two = nodes_with(tmp_path, package, "walks")
    try:
        with rollhouse.connect(two.url, timeout=120) as cluster:
            envs = cluster.make_vec(
                "walks:Later", LANES, env_kwargs={"far": 10**6}, spread="single", on_loss="resume", valid="always"
            )
            envs.reset(seed=1)
            for _ in range(140):
                assert envs.step(np.ones(LANES, np.int64))[4]["valid"].all()
            two.kill(envs.placements[0].node)
            _, rewards, _, _, infos = envs.step(np.ones(LANES, np.int64))
            assert infos["_lost"].all() and set(infos["lost"]) == {"node_lost"}
            assert rewards.tolist() == [0.0] * LANES and not infos["valid"].any()
            envs.close()
    finally:
        two.close()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("Chance", r"declared deterministic, and is not taken as such: begun again .* its episode 2 differs at step 5 "),
        ("Clock", r"its episode 2 differs at step 0 "),
        ("Grudge", r"its episode 2 differs at step 0 "),
        ("Shared", r"its episode 2 differs at step 1 "),
        ("Reseeding", r"failed while it was tried out: it gives an np_random that is not the generator of its seed"),
    ],
)
def test_an_env_that_lies_is_refused_with_the_step_that_differed(nodes: LocalCluster, env: str, words: str) -> None:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        with pytest.raises(RefusedError, match=words) as refused:
            cluster.make_vec(f"walks:{env}", 2)
        assert refused.value.code == "unsupported"
        # Who says that it is not is believed at once.
        envs = cluster.make_vec(f"walks:{env}", 2, deterministic=False)
        assert envs.on_loss == "raise"
        envs.close()
        with pytest.raises(RefusedError, match="deterministic is for Python envs"):
            cluster.make_vec("CartPole-v1", 2, deterministic=True)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_envs_of_gymnasium_are_deterministic_if_they_are_declared_so(nodes: LocalCluster, id: str) -> None:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        envs = cluster.make_vec(f"gymnasium:{id}", LANES, spread="even", deterministic=True)
        assert envs.on_loss == "resume" and len(envs.placements) == 2
        here = SyncVectorEnv([partial(gymnasium.make, id)] * LANES)
        play(envs, here, AutoresetMode.NEXT_STEP)
        envs.close()


def test_a_rollout_of_a_declared_env_is_recorded_with_everything_and_its_hashes(nodes: LocalCluster) -> None:
    line = [str(rollhouse_program()), "rollout", "--connect", nodes.url, "--env", "gymnasium:CartPole-v1"]
    line += ["--lanes", "2", "--episodes", "6", "--seed", "3", "--deterministic", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        recorded = rollhouse.replays.open(cluster)
        episodes = list(recorded.filter(lambda info: info.run == json.loads(done.stdout)["run"]).read_many())
        assert len(episodes) == 6
        env = gymnasium.make("CartPole-v1")
        for episode in episodes:
            observation, _ = env.reset(seed=episode.seed)
            for step, action in enumerate(episode.actions):
                assert episode.observations[step].tobytes() == observation.tobytes()
                observation = env.step(action)[0]
        with cluster.open_replay(episodes[0].id) as shown:
            assert shown is not None
    verify = [str(rollhouse_program()), "replay", "verify", "--connect", nodes.url, episodes[0].id, "--json"]
    verified = subprocess.run(verify, capture_output=True, text=True, timeout=300, check=False)
    assert verified.returncode == 0, verified.stderr
    told = json.loads(verified.stdout)
    assert told["ok"] and "the env is one of a Python package" in told["note"], told
    line = [*verify, "--python", sys.executable]
    again = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert told["ok"] and told["steps"] == len(episodes[0].rewards) and "note" not in told, told


@pytest.mark.parametrize(
    ("id", "steps"),
    [("walks:Walk", 3000), pytest.param("gymnasium:HalfCheetah-v5", 2600, marks=pytest.mark.adapters("mujoco"))],
)
def test_two_of_three_nodes_that_are_killed_change_no_number(
    tmp_path: Path, package: Path, id: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(package)
    import walks

    make = walks.Walk if id == "walks:Walk" else partial(gymnasium.make, "HalfCheetah-v5")
    nodes = nodes_with(tmp_path, package, "walks", names=THREE)
    try:
        with rollhouse.connect(nodes.url, timeout=120) as cluster:
            there = cluster.make_vec(id, 6, spread="even", deterministic=True)
            assert {placement.node for placement in there.placements} == set(THREE)
            here = SyncVectorEnv([make] * 6)
            kills = {steps // 3: lambda: nodes.kill("one"), 2 * steps // 3: lambda: nodes.kill("two")}
            assert play(there, here, AutoresetMode.NEXT_STEP, steps, kills) >= 6
            assert {placement.node for placement in there.placements} == {"three"}
            there.close()
    finally:
        nodes.close()
