"""What has ended is on the disk soon after a trainer pauses, however its process ends."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_cluster import LocalCluster

from rollhouse import replays

DEADLINE = 60.0
"""Seconds after which what has not reached the disk never does."""

PLAYER = """
import sys
import numpy as np
import rollhouse

def play(envs):
    envs.reset(seed=0)
    envs.action_space.seed(0)
    ended = 0
    for _ in range(50):
        _, _, terminations, truncations, _ = envs.step(envs.action_space.sample())
        ended += int((terminations | truncations).sum())
    # What follows is learning, which takes for ever.
    print(ended, *{placement.node for placement in getattr(envs, "placements", ())}, flush=True)
    sys.stdin.read()
"""


@contextmanager
def player(*lines: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that plays and then pauses, with what it has printed."""
    program = "\n".join([PLAYER, *lines])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()
        finally:
            process.kill()


def finished(*folders: Path) -> set[str]:
    """The episodes in folders that have ended by themselves."""
    found = (info for folder in folders if folder.is_dir() for info in replays.open(folder))
    return {info.id for info in found if info.finished}


def wait_for(episodes: int, read: Callable[[], set[str]]) -> None:
    until = time.monotonic() + DEADLINE
    while (there := len(read())) < episodes:
        assert time.monotonic() < until, f"{there} of {episodes} episodes are on the disk"


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_a_kill_while_a_trainer_learns_costs_no_episode_that_has_ended(env: str, tmp_path: Path) -> None:
    """Symptom: after a rollout of 50 steps and a kill while the trainer learned, all episodes that had ended were gone.
    Cause: only the next step handed over what was recorded. Fix: a pause in stepping does.
    """
    with player(f"play(rollhouse.make_vec({env!r}, 64, record=True, data={str(tmp_path)!r}))") as (process, printed):
        ended = int(printed[0])
        assert ended > 64
        wait_for(ended, lambda: finished(tmp_path))
        process.kill()
        process.wait()
    assert len(finished(tmp_path)) == ended


@pytest.mark.parametrize("transport", ["quic", "shm"])
def test_kills_of_trainer_and_node_cost_no_episode_that_ended_before_the_trainer_paused(
    two_nodes: LocalCluster, transport: str, tmp_path: Path
) -> None:
    url = two_nodes.url
    with player(
        f"cluster = rollhouse.connect({url!r}, transport={transport!r}, timeout=120)",
        "play(cluster.make_vec('CartPole-v1', 64, spread='single'))",
    ) as (process, printed):
        ended, node = int(printed[0]), printed[1]
        assert ended > 64

        def read() -> set[str]:
            # What was sealed may be in the store by now.
            stores = (tmp_path / "main" / "store").glob("*")
            return finished(tmp_path / node / "spool", *stores)

        wait_for(ended, read)
        two_nodes.kill(node)
        process.kill()
        process.wait()
        assert len(read()) == ended
