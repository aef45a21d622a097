"""Lanes of Python envs on nodes are watched by what they show."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_cluster import LocalCluster, rollhouse_program
from python_nodes import python_nodes, search_path

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

            # Which rows are looked at is chance, and those that begin an episode have no action: of so many a few have one.
            frames = watched(nodes, envs.run, step, 30)
    assert len(frames) == 30
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


class Terminal:
    """A program on a terminal, and what it has written there."""

    def __init__(self, line: list[str]):
        self._side, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        variables = os.environ | {"COLORTERM": "truecolor", "TERM": "xterm-256color", **search_path()}
        self._process = subprocess.Popen(line, stdin=there, stdout=there, stderr=there, env=variables, start_new_session=True)
        os.close(there)
        self.written = b""

    def wait_for(self, wanted: str, step: Callable[[], None]) -> None:
        """Steps until it is written."""
        deadline = time.monotonic() + 120
        while wanted.encode() not in self.written:
            assert time.monotonic() < deadline, (wanted, self.written)
            step()
            while select.select([self._side], [], [], 0)[0]:
                self.written += os.read(self._side, 1 << 16)

    def press(self, keys: str) -> None:
        self.written = b""
        os.write(self._side, keys.encode())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._side)


def watch_line(nodes: LocalCluster, run: str, *more: str) -> list[str]:
    return [str(rollhouse_program()), "watch", run, "--connect", nodes.url, "--pictures", "cells", *more]


def test_the_picture_of_a_python_lane_is_drawn_on_a_terminal_and_the_way_back_is_there(nodes: LocalCluster) -> None:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        with closing(cluster.make_vec("tallies:Tally", 1, record=False, render_mode="rgb_array")) as envs:
            envs.reset(seed=3)

            def step() -> None:
                envs.step(np.array([1]))

            with closing(Terminal(watch_line(nodes, envs.run))) as terminal:
                terminal.wait_for("● live", step)
                # A grey that the lane's picture has: ten times its lives, and the last digit of its steps.
                terminal.wait_for("▀▀▀▀", step)
                assert re.search(rb"[34]8;2;(3\d);\1;\1", terminal.written)
                terminal.press("\x1b[D")
                terminal.wait_for("paused", step)
                terminal.press("f")
                terminal.wait_for("live", step)


def test_an_episode_of_a_deterministic_python_lane_is_recomputed_by_who_watches_it(nodes: LocalCluster) -> None:
    """The lane draws nothing; whoever names an interpreter sees what the env would have drawn."""
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        with closing(cluster.make_vec("tallies:SteadyTally", 1, record=False)) as envs:
            envs.reset(seed=3)

            def step() -> None:
                envs.step(np.array([2]))

            hosting = ["--python", sys.executable, "--allow", "tallies"]
            with closing(Terminal(watch_line(nodes, envs.run, *hosting))) as terminal:
                terminal.wait_for("● live", step)
                # Nobody has kept what led to where a watcher came in, and an episode may last for long.
                envs.reset(seed=3)
                for _ in range(20):
                    step()
                terminal.press("\x1b[D")
                terminal.wait_for("paused", step)
                terminal.wait_for("▀▀▀▀", step)
            with closing(Terminal(watch_line(nodes, envs.run))) as terminal:
                terminal.wait_for("● live", step)
                envs.reset(seed=3)

                def step_and_go_back() -> None:
                    # There is no way back before the watcher has met the episode's beginning.
                    step()
                    terminal.press("\x1b[D")

                terminal.wait_for("paused", step_and_go_back)
                assert "▀▀▀▀".encode() not in terminal.written


@pytest.mark.parametrize("name", ["Wide", "Wider"])
def test_the_way_back_of_a_lane_with_wide_observations_is_there(nodes: LocalCluster, name: str) -> None:
    """Symptom: `watch` had no way back in observations above 48 KiB, as ALE's in colour, and showed nothing of those above
    112 KiB, as a camera's. Cause: two of them, or one, fit no answer. Fix: the first one comes in an answer of its own, and answers
    come in pieces."""
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        with closing(cluster.make_vec(f"tallies:{name}", 1, record=False)) as envs:
            envs.reset(seed=3)

            def step() -> None:
                envs.step(np.array([1]))

            with closing(Terminal(watch_line(nodes, envs.run))) as terminal:
                terminal.wait_for("▀▀▀▀", step)
                for _ in range(10):
                    step()
                terminal.press("\x1b[D")
                terminal.wait_for("paused", step)
                terminal.wait_for("▀▀▀▀", step)


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
