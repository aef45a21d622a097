"""Python envs on nodes that are declared deterministic: tried out, and resumed when their node dies."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import walks
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from local_cluster import LocalCluster, rollhouse_program
from python_nodes import THREE, play, python_nodes

import rollhouse
from rollhouse.errors import RefusedError

LANES = 4
STEPS = 400


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_a_node_killed_in_the_middle_of_episodes_changes_no_number(tmp_path: Path, mode: AutoresetMode) -> None:
    two = python_nodes(tmp_path, "walks")
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


def test_a_resumed_lane_that_comes_out_otherwise_is_lost_and_gives_no_other_numbers(tmp_path: Path) -> None:
    two = python_nodes(tmp_path, "walks")
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
    assert told["ok"] and told["steps"] == len(episodes[0].rewards) and told["note"] is None, told


@pytest.mark.parametrize(
    ("id", "steps"),
    [("walks:Walk", 1200), pytest.param("gymnasium:HalfCheetah-v5", 2600, marks=pytest.mark.adapters("mujoco"))],
)
def test_two_of_three_nodes_that_are_killed_change_no_number(tmp_path: Path, id: str, steps: int) -> None:
    make = walks.Walk if id == "walks:Walk" else partial(gymnasium.make, "HalfCheetah-v5")
    nodes = python_nodes(tmp_path, "walks", names=THREE)
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
