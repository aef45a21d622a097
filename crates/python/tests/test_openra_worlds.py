"""Worlds of engines on nodes: `openra://MAP` is played by any pool of a cluster whose nodes may connect to an engine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gate_program import gate
from local_cluster import LocalCluster, rollhouse_program

import rollhouse
from rollhouse.errors import RefusedError


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with gate("openra", "--option", "cash=0") as (address, _):
        yield address


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, engine: str) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("worlds")
    settings = [f"openra.engines={engine}"]
    with closing(LocalCluster(folder, rollhouse_program(), settings, names=("one",))) as cluster:
        yield cluster


@pytest.fixture
def cluster(nodes: LocalCluster) -> Iterator[rollhouse.Cluster]:
    with rollhouse.connect(nodes.url, timeout=60) as cluster:
        yield cluster


def arguments(engine: str, **others: Any) -> dict[str, Any]:
    return {"engine": engine, "map_size": [32, 32], "bots": "Multi1:rl-agent,Multi0:beginner", **others}


def test_a_trainer_steps_games_of_an_engine_and_each_is_recorded(
    nodes: LocalCluster, cluster: rollhouse.Cluster, engine: str
) -> None:
    with cluster.make_vec("openra://river", 4, env_kwargs=arguments(engine), record=True) as envs:
        seen, _ = envs.reset(seed=1)
        assert sorted(seen) == sorted(envs.single_observation_space.spaces)
        envs.action_space.seed(1)
        advanced = np.zeros(4)
        for _ in range(5):
            advanced += envs.step(envs.action_space.sample())[4]["ticks_advanced"]
        assert (advanced > 0).all()
        run = envs.run
    assert cluster.close_pool(run, timeout=60)["stored"]
    recorded = [info for info in rollhouse.replays.open(nodes.url) if info.run == run]
    assert len(recorded) >= 4, recorded
    assert {info.env for info in recorded} == {"openra://river"}



def test_nodes_list_the_kind_and_refuse_an_engine_that_their_operator_does_not_name(
    nodes: LocalCluster, cluster: rollhouse.Cluster
) -> None:
    listed = subprocess.run(
        [rollhouse_program(), "envs", "--connect", nodes.url, "--json"], capture_output=True, text=True, check=True
    ).stdout
    assert any("openra" in line for line in listed.splitlines()), listed
    with pytest.raises(RefusedError, match="may not be connected to"):
        cluster.make_vec("openra://river", 1, env_kwargs=arguments("127.0.0.1:1"))


def test_a_rollout_on_a_cluster_plays_such_worlds(nodes: LocalCluster, engine: str) -> None:
    line = [rollhouse_program(), "rollout", "--connect", nodes.url, "--env", "openra://river", "--lanes", "2"]
    line += ["--steps", "20", "--env-kwargs", json.dumps(arguments(engine))]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "does not say that the same seed gives the same episodes" in done.stdout


def test_lanes_whose_engine_dies_are_lost_alone_and_go_on_with_the_next_one(tmp_path: Path) -> None:
    with gate("openra", "--option", "cash=0") as (engine, process):
        settings = [f"openra.engines={engine}"]
        with (
            closing(LocalCluster(tmp_path, rollhouse_program(), settings, names=("one",))) as nodes,
            rollhouse.connect(nodes.url, timeout=60) as cluster,
            cluster.make_vec("openra://river", 2, env_kwargs=arguments(engine), on_loss="report") as envs,
        ):
            envs.reset(seed=1)
            envs.action_space.seed(1)
            process.kill()
            process.wait()
            infos = step_until(envs, lambda infos: "lost" in infos)
            assert np.asarray(infos["lost"]).any()
            with gate("openra", "--option", "cash=0", listen=engine):
                step_until(envs, lambda infos: (infos.get("ticks_advanced", np.zeros(1)) > 0).all())


def test_a_bridge_joins_starts_its_engine_and_starts_it_again_when_it_dies(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        engine = "127.0.0.1:{}".format(free.getsockname()[1])
    launch = f"{rollhouse_program()} gate openra --option cash=0 --listen {engine}"
    with closing(LocalCluster(tmp_path, rollhouse_program(), names=())) as nodes:
        nodes.bridge("beside", "openra", "--engine", engine, "--launch", launch)
        with (
            rollhouse.connect(nodes.url, timeout=60) as cluster,
            cluster.make_vec("openra://river", 1, env_kwargs=arguments(engine), on_loss="report") as envs,
        ):
            envs.reset(seed=1)
            envs.action_space.seed(1)
            (process,) = processes_of(launch)
            os.kill(process, signal.SIGKILL)
            step_until(envs, lambda infos: "lost" in infos)
            step_until(envs, lambda infos: (infos.get("ticks_advanced", np.zeros(1)) > 0).all())
            (again,) = processes_of(launch)
            assert again != process
        assert nodes.end("beside") == 0
        assert processes_of(launch) == [], "it ends with its bridge"


def processes_of(line: str) -> list[int]:
    """The processes that run that command line."""
    words = [word.encode() for word in line.split()]
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "cmdline").read_bytes().split(b"\0")[:-1] == words:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def step_until(envs: Any, holds: Any) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        infos = envs.step(envs.action_space.sample())[4]
        if holds(infos):
            return infos
    raise AssertionError(infos)
