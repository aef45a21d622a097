"""send and recv of Python lanes on nodes: nobody waits for a lane that takes long."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gates import Gate
from local_cluster import LocalCluster
from python_nodes import same, workers_of

import rollhouse

LANES = 4
HELD = 2
"""The action that keeps a lane under way until the test lets it go."""


class Pipes:
    """Two pipes between the test and the lane that it holds."""

    def __init__(self, folder: Path):
        self.begun, self.go = folder / "begun", folder / "go"
        for pipe in (self.begun, self.go):
            os.mkfifo(pipe)

    def arguments(self) -> dict[str, str]:
        return {"begun": str(self.begun), "go": str(self.go)}

    def wait_until_held(self) -> int:
        """Returns the process of the lane, once it is in its step."""
        return int(self.begun.read_text())

    def let_go(self) -> None:
        self.go.write_text("")


class Alone:
    """The lanes, each an env that is stepped alone."""

    def __init__(self, make: Any, seed: int):
        self.envs = [make() for _ in range(LANES)]
        self.first = [env.reset(seed=seed + lane)[0] for lane, env in enumerate(self.envs)]
        self.over = [False] * LANES

    def step(self, lane: int, action: int) -> tuple[Any, ...]:
        row: tuple[Any, ...]
        if self.over[lane]:
            row = (self.envs[lane].reset()[0], 0.0, False, False)
        else:
            row = self.envs[lane].step(action)[:4]
        self.over[lane] = row[2] or row[3]
        return row


class Turns:
    """A pool beside the same lanes alone: what is received is compared."""

    def __init__(self, pool: Any, alone: Alone, seed: int):
        self.pool, self.alone = pool, alone
        self.random = np.random.default_rng(seed)
        self.under_way: dict[int, int] = {}
        for lane, row in enumerate(pool.reset(seed=seed)[0]):
            same(row, alone.first[lane])

    def send(self, lanes: list[int], action: int | None = None) -> None:
        actions = self.random.integers(0, 2, len(lanes)) if action is None else np.full(len(lanes), action)
        self.pool.send(actions, lanes)
        self.under_way |= dict(zip(lanes, actions.tolist(), strict=True))

    def recv(self, least: int) -> dict[int, Any]:
        """Returns the lanes that came, with the causes of those that are lost."""
        observations, *arrays, infos = self.pool.recv(least)
        lanes = infos["env_id"].tolist()
        assert len(lanes) >= least
        came = {}
        for row, lane in enumerate(lanes):
            action = self.under_way.pop(lane)
            came[lane] = infos["lost"][row] if "lost" in infos and infos["_lost"][row] else None
            if came[lane] is None:
                shown, *theirs = self.alone.step(lane, action)
                same(observations[row], shown)
                assert [array[row] for array in arrays] == theirs
        return came


@pytest.fixture(params=["quic", "shm"])
def cluster(nodes: LocalCluster, request: pytest.FixtureRequest) -> Iterator[rollhouse.Cluster]:
    with rollhouse.connect(nodes.url, transport=request.param, timeout=120) as cluster:
        yield cluster


@pytest.fixture
def turns(cluster: rollhouse.Cluster, tmp_path: Path) -> Iterator[tuple[Turns, Pipes]]:
    pipes = Pipes(tmp_path)
    pool = cluster.make_vec("gates:Gate", LANES, env_kwargs=pipes.arguments(), spread="even", on_loss="report")
    assert {placement.transport for placement in pool.placements} == {cluster.transport}
    yield Turns(pool, Alone(Gate, 5), 5), pipes
    pool.close()


@pytest.mark.parametrize("slow", [0, 3])
def test_lanes_are_received_while_a_slow_one_is_under_way(turns: tuple[Turns, Pipes], slow: int) -> None:
    lanes, pipes = turns
    for _ in range(3):
        lanes.send([slow], HELD)
        pipes.wait_until_held()
        idle = [lane for lane in range(LANES) if lane != slow]
        for _ in range(40):
            lanes.send(idle)
            idle = list(lanes.recv(2))
            assert slow not in idle
        pipes.let_go()
        while lanes.under_way:
            assert set(lanes.recv(1).values()) == {None}


def test_a_killed_worker_costs_just_the_lane_that_it_held(turns: tuple[Turns, Pipes], nodes: LocalCluster) -> None:
    lanes, pipes = turns
    lanes.send([1], HELD)
    worker = pipes.wait_until_held()
    assert worker in [found for name in ("one", "two") for found in workers_of(nodes.process_id(name))]
    idle = [0, 2, 3]
    for turn in range(40):
        lanes.send(idle)
        if turn == 20:
            os.kill(worker, signal.SIGKILL)
        came = lanes.recv(2)
        assert all(cause is None for lane, cause in came.items() if lane != 1)
        if 1 in came:
            assert turn >= 20 and came[1] == "crashed"
        idle = [lane for lane in came if lane != 1]
    while lanes.under_way:
        for lane, cause in lanes.recv(1).items():
            assert cause == ("crashed" if lane == 1 else None)


def test_another_env_is_learned_and_played_while_sessions_are_in_steps_that_do_not_end(
    cluster: rollhouse.Cluster, tmp_path: Path
) -> None:
    held: list[tuple[Any, Pipes]] = []
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        pipes = Pipes(folder)
        pool = cluster.make_vec("gates:Gate", 1, env_kwargs=pipes.arguments(), spread="single", on_loss="report")
        pool.reset(seed=number)
        pool.send(np.array([HELD]), np.array([0]))
        pipes.wait_until_held()
        held.append((pool, pipes))
    # No node knows it with this size.
    size = {"quic": 41, "shm": 43}[cluster.transport]
    other = cluster.make_vec("mazes.envs:Maze", 2, env_kwargs={"size": size}, spread="even")
    other.reset(seed=1)
    for _ in range(20):
        other.step(np.array([5, 6]))
    other.close()
    for pool, pipes in held:
        pipes.let_go()
        *_, infos = pool.recv(1)
        assert "lost" not in infos
        pool.close()
