"""Vector envs of other packages, whose lanes step together, on the nodes of a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from python_nodes import PACKAGES, recorded_of, same
from swarms import SwarmVector
from test_python_rollout import rollout
from test_vector_envs import HAS_ENVPOOL, SWARM, same_steps

import rollhouse
from rollhouse import replays
from rollhouse.errors import LaneLostError, RefusedError, UnsupportedError


@pytest.mark.parametrize("parts", [False, True], ids=["box", "dict"])
def test_lanes_on_nodes_give_what_the_vector_env_gives(cluster: rollhouse.Cluster, parts: bool) -> None:
    with cluster.make_vec(SWARM, 70, parts=parts, spread="single") as ours:
        assert {placement.transport for placement in ours.placements} == {cluster.transport}
        assert same_steps(ours, SwarmVector(70, parts=parts), 30, infos=False) > 200


def test_numbers_in_infos_are_those_of_the_vector_env(cluster: rollhouse.Cluster) -> None:
    theirs = SwarmVector(4)
    with cluster.make_vec(SWARM, 4, spread="single") as ours:
        ours.reset(seed=3)
        theirs.reset(seed=3)
        for _ in range(12):
            mine, other = ours.step(np.zeros(4, np.int64))[4], theirs.step(np.zeros(4, np.int64))[4]
            there = other["_count"]
            same(mine["count"][there], other["count"][there])
            same(mine["nested"]["half"][there], other["nested"]["half"][there])


def test_gymnasiums_own_vector_env_is_hosted(cluster: rollhouse.Cluster) -> None:
    theirs = gymnasium.make_vec("CartPole-v1", 6, vectorization_mode="vector_entry_point")
    with cluster.make_vec("vector:gymnasium:CartPole-v1", 6, spread="single") as ours:
        assert same_steps(ours, theirs, 120, infos=False) > 6


def test_all_lanes_are_sent_and_received_together(cluster: rollhouse.Cluster) -> None:
    theirs = SwarmVector(70)
    with cluster.make_vec(SWARM, 70, spread="single") as ours:
        ours.reset(seed=2)
        theirs.reset(seed=2)
        for _ in range(9):
            ours.send(np.ones(70, np.int64))
            mine = ours.recv(1)
            order = np.argsort(mine[4]["env_id"])
            assert len(order) == 70
            same(mine[0][order], theirs.step(np.ones(70, np.int64))[0])


def test_lanes_of_two_nodes_are_two_vector_envs(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec(SWARM, 6, spread="even") as ours:
        placed = sorted((placement.lanes.start, len(placement.lanes)) for placement in ours.placements)
        assert len(placed) == 2
        observations = ours.reset(seed=8)[0]
        for first, count in placed:
            same(observations[first : first + count], SwarmVector(count).reset(seed=8 + first)[0])


def test_episodes_are_recorded_in_full(cluster: rollhouse.Cluster) -> None:
    ours = cluster.make_vec(SWARM, 3, spread="single", record_infos={"count": 0})
    ours.reset(seed=1)
    for step in range(15):
        ours.step(np.full(3, step % 4))
    ours.close()
    episodes = [episode for episode in recorded_of(cluster, ours.run, 1) if episode.outcome == "truncated"]
    assert len(episodes) == 2
    for episode in episodes:
        assert episode.observations[:, 1].tolist() == [0, 1, 2, 3, 4, 5]
        assert episode.infos["count"].tolist() == [1, 2, 3, 4, 5]
        assert episode.observations[1:, 2].tolist() == episode.actions.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"autoreset_mode": "SameStep"}, "their vector env has 'NextStep'"),
        ({"max_episode_steps": 9}, "max_episode_steps=9"),
        ({"record_frames": 1}, "record_frames=1"),
    ],
)
def test_what_lanes_that_step_together_do_not_have_is_refused(cluster: rollhouse.Cluster, arguments: Any, message: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{message}|step together"):
        cluster.make_vec(SWARM, 2, **arguments)


def test_what_lanes_do_alone_is_refused_and_costs_nothing(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec(SWARM, 4, spread="single") as ours:
        ours.reset(seed=0)
        with pytest.raises(UnsupportedError, match="send: 2 of 4 lanes"):
            ours.send(np.zeros(2, np.int64), [0, 1])
        with pytest.raises(UnsupportedError, match="reset_mask leaves out lanes 1"):
            ours.reset(options={"reset_mask": np.array([True, False, True, True])})
        assert ours.step(np.zeros(4, np.int64))[0][:, 1].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("id", "arguments", "message"),
    [
        ("vector:swarms:Nothing", {}, "Nothing"),
        ("vector:swarms:SwarmVector", {"deterministic": True}, "deterministic"),
        ("vector:swarms:SwarmVector", {"env_kwargs": {"num_envs": 9}}, "num_envs: not an argument"),
        ("vector:swarms:np", {}, "neither a class of vector envs"),
        ("vector:gymnasium.vector:SyncVectorEnv", {}, "neither a class of vector envs"),
        ("vector:walks_of_nobody:Vector", {}, "walks_of_nobody"),
        ("vector:swarms:Unmarked", {}, "no autoreset mode"),
    ],
)
def test_nodes_refuse_what_is_no_vector_env_of_an_allowed_package(cluster: rollhouse.Cluster, id: str, arguments: Any, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        cluster.make_vec(id, 2, **arguments)


def test_a_crash_loses_all_lanes_which_come_back_together(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec(SWARM, 70, spread="single", on_loss="report", valid="always") as ours:
        ours.reset(seed=1)
        ours.step(np.zeros(70, np.int64))
        actions = np.zeros(70, np.int64)
        actions[69] = SwarmVector.RAISE
        infos = ours.step(actions)[4]
        assert infos["lost"].tolist() == ["crashed"] * 70
        while not infos["valid"].any():
            observations, _, _, _, infos = ours.step(np.zeros(70, np.int64))
        assert infos["valid"].all()
        assert observations[:, 1].tolist() == [1] * 70


def test_a_loss_is_raised_by_default(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec(SWARM, 3, spread="single") as ours:
        ours.reset(seed=1)
        with pytest.raises(LaneLostError):
            ours.step(np.array([0, SwarmVector.EXIT, 0]))
        ours.reset(seed=1)
        valid = np.zeros(3, np.bool_)
        while not valid.any():
            observations, _, _, _, infos = ours.step(np.zeros(3, np.int64))
            valid = infos.get("valid", np.ones(3, np.bool_))
        assert valid.all() and observations[:, 1].tolist() == [1, 1, 1]


def test_a_rollout_plays_and_records_a_vector_env(tmp_path: Path) -> None:
    variables = {"PYTHONPATH": os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")])}
    arguments = ("--env", SWARM, "--allow", "swarms", "--lanes", "6", "--episodes", "15", "--seed", "3", "--json", "--env-kwargs", '{"length": 9, "actions": 5}')
    done = rollout(tmp_path, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["episodes"] == 15
    recorded = replays.open(tmp_path)
    episodes = [recorded.read(info) for info in recorded.list()]
    assert len(episodes) == 15
    for episode in episodes:
        assert episode.observations[:, 1].tolist() == list(range(10 + episode.info.lane % 3))


@HAS_ENVPOOL
def test_lanes_of_envpool_run_on_nodes(cluster: rollhouse.Cluster) -> None:
    import envpool

    theirs = envpool.make_gymnasium("HalfCheetah-v4", num_envs=4, seed=6, max_episode_steps=20)
    with cluster.make_vec("vector:envpool:HalfCheetah-v4", 4, env_kwargs={"max_episode_steps": 20}, spread="single") as ours:
        same(ours.reset(seed=6)[0], theirs.reset()[0])
        for _ in range(45):
            actions = ours.action_space.sample()
            mine, other = ours.step(actions), theirs.step(actions)
            same(mine[0], other[0])
            same(mine[1], other[1].astype(np.float64))
            same(mine[3], other[3])
            same(mine[4]["x_position"][~mine[4]["_x_position"]], np.zeros((~mine[4]["_x_position"]).sum()))
    assert theirs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
