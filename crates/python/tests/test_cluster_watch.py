"""Lanes of Python envs on nodes are watched by what they show."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_cluster import LocalCluster, rollhouse_program
from python_nodes import python_nodes

import rollhouse


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with closing(python_nodes(tmp_path_factory.mktemp("watched"), "tallies", names=("one",))) as cluster:
        yield cluster


def watched(nodes: LocalCluster, run: str, step: Callable[[], None], frames: int = 6) -> list[dict[str, Any]]:
    """The frames that a watcher of lane 1 of a pool sees, which is stepped for as long as it looks."""
    line = [str(rollhouse_program()), "watch", run, "--connect", nodes.url, "--lane", "1", "--json", "--frames", str(frames)]
    watcher = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(watcher.communicate)
        while not seen.done():
            step()
    assert watcher.returncode == 0
    return [json.loads(frame) for frame in seen.result()[0].splitlines()]


def test_a_watched_lane_shows_its_values_action_reward_and_infos(nodes: LocalCluster) -> None:
    """Symptom: `watch` showed "-" of a Python lane, and said that its env was unknown. Cause: what watchers see was computed
    again where they are. Fix: of an env that shows no state they see what its lane shows."""
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        with closing(cluster.make_vec("tallies:Tally", 2, record=False)) as envs:
            envs.reset(seed=3)
            rewards: dict[tuple[int, int], float] = {}
            episode = 0

            def step() -> None:
                nonlocal episode
                observations, given, *_ = envs.step(np.array([1, 2 if len(rewards) % 5 == 4 else 1]))
                steps = int(observations[1, 0])
                episode += int(steps == 0)
                rewards[episode, steps] = float(given[1])

            frames = watched(nodes, envs.run, step)
    assert len(frames) == 6
    for frame in frames:
        steps = frame["step"]
        assert frame["observation"][""][0] == steps
        if frame["action"] is not None:
            assert frame["action"] in ([1.0], [2.0])
            assert 1 <= frame["infos"]["lives"][0] + int(frame["terminated"]) <= 3
        assert frame["state"] == []
    # Where a watcher came in, nobody has kept what led there.
    stepped = [frame for frame in frames if frame["action"] is not None]
    assert len(stepped) >= 3 and all(frame["reward"] == rewards[frame["episode"], frame["step"]] for frame in stepped)


def test_an_html_export_of_a_python_env_says_what_is_true(nodes: LocalCluster, tmp_path: Path) -> None:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        with closing(cluster.make_vec("tallies:Tally", 1)) as envs:
            envs.reset(seed=3)
            for _ in range(5):
                envs.step(np.array([2]))
            run = envs.run
        assert cluster.close_pool(run, timeout=60)["stored"]
        name = next(info.id for info in rollhouse.replays.open(cluster) if info.run == run)
    line = [str(rollhouse_program()), "replay", "export", name, "--connect", nodes.url, "-o", str(tmp_path / "a.html")]
    subprocess.run(line, check=True, capture_output=True)
    page = (tmp_path / "a.html").read_text()
    assert "the env is not deterministic, and this is what was recorded" in page
    assert "unknown env" not in page and "are not recorded" not in page and "--plugin" not in page
