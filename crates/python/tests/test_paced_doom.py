"""`vizdoom` as it comes from PyPI, in a mode in which it waits for nobody, as a live world."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vizdoom", reason="vizdoom is not installed")

from local_cluster import LocalCluster, rollhouse_program  # noqa: E402
from python_nodes import python_nodes, recorded_of  # noqa: E402

import rollhouse  # noqa: E402

PACE = {"hz": 35, "clock": "realtime"}

NOTHING, LEFT, RIGHT = np.zeros((1, 3), np.int8), np.array([[1, 0, 0]], np.int8), np.array([[0, 1, 0]], np.int8)

TIMEOUT = 300
"""Tics after its start at which an episode of the scenario ends."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with closing(python_nodes(tmp_path_factory.mktemp("doom"), "dooms", names=("one",))) as cluster:
        yield cluster


def until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while not (found := holds()):
        assert time.monotonic() < deadline
    return found


def test_doom_goes_on_while_its_owner_does_nothing_and_its_episode_is_recorded_and_shown(
    nodes: LocalCluster, tmp_path: Path
) -> None:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        with cluster.make_vec("dooms:Basic", 1, pace=PACE, autoreset_mode="Disabled", render_mode="rgb_array") as envs:
            first = envs.reset(seed=3)[0]["tic"][0, 0]
            # Nothing is asked of the lane itself.
            known = until(lambda: next((ticks for one in cluster.sessions() if (ticks := one["steps"]) > 20), 0))
            rows = envs.latest()
            assert rows[4]["ticks"][0] >= known and rows[0]["tic"][0, 0] >= first + known
            assert not rows[2][0] and not rows[3][0]
            ticks, rewards = 0, 0.0
            while True:
                side = LEFT if ticks // 30 % 2 else RIGHT
                observations, reward, terminated, truncated, infos = envs.step(side)
                ticks, rewards = ticks + int(infos["ticks"][0]), rewards + float(reward[0])
                if terminated[0] or truncated[0]:
                    break
            assert truncated[0] and not terminated[0], "nobody has shot the monster, and its time is over"
            run = envs.run
        (episode,) = recorded_of(cluster, run, 0)
        (info,) = [info for info in rollhouse.replays.open(cluster) if info.run == run]
        assert info.finished and len(episode.rewards) == ticks and episode.rewards.sum() == rewards
        tics = episode.observations["tic"][:, 0]
        assert tics[0] == first and (np.diff(tics[:-1]) > 0).all() and tics[-1] >= TIMEOUT
        assert tics[-1] == observations["tic"][0, 0]
        screens = episode.observations["screen"]
        assert (screens[-1] == observations["screen"][0]).all() and len(np.unique(screens, axis=0)) > 50
        for name in ("game.gif", "game.html"):
            line = [str(rollhouse_program()), "replay", "export", info.id, "--connect", nodes.url]
            ran = subprocess.run([*line, "-o", str(tmp_path / name)], capture_output=True, text=True, check=False)
            assert ran.returncode == 0, ran.stderr
            assert (tmp_path / name).stat().st_size > 50_000, name


def test_a_pause_stops_the_lane_and_not_doom(nodes: LocalCluster) -> None:
    """The pace leaves time between two ticks: in this mode a step takes as long as a tic."""
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        with cluster.make_vec("dooms:Basic", 1, pace={"hz": 10, "clock": "realtime"}) as envs:
            envs.reset(seed=3)
            envs.step(NOTHING)
            assert envs.pause() == ("paused",)
            before = envs.latest()
            began = time.monotonic()
            while time.monotonic() < began + 1:
                assert (envs.latest()[4]["ticks"] == before[4]["ticks"]).all()
            envs.tick(1)
            rows = until(lambda: (rows := envs.latest())[4]["ticks"][0] > before[4]["ticks"][0] and rows)
            assert rows[4]["ticks"][0] == before[4]["ticks"][0] + 1
            assert rows[0]["tic"][0, 0] > before[0]["tic"][0, 0] + 10, "its own clock went on"
