"""What hosted lanes do when envs raise, die or hang."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hosted_envs import CountEnv, FloodEnv, TornEnv, Unpicklable

import rollhouse
from rollhouse.errors import LaneLostError

FINE = np.zeros(4, np.int64)


def four(**kwargs: Any) -> rollhouse.HostedVectorEnv:
    """Four counters in two workers: lanes 0, 1 and 2, 3."""
    envs = rollhouse.vectorize([CountEnv] * 4, workers=2, valid="always", **kwargs)
    envs.reset(seed=0)
    return envs


def workers_of(envs: rollhouse.HostedVectorEnv) -> list[int]:
    """The process ids of its workers."""
    return envs._crew.workers.process_ids()


def step_until_back(envs: rollhouse.HostedVectorEnv, lane: int) -> list[tuple[Any, ...]]:
    """Steps until the rows of a lane are transitions again; its rows meanwhile."""
    rows = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        observations, rewards, terminations, truncations, infos = envs.step(FINE)
        if infos["valid"][lane]:
            return rows
        rows.append((observations[lane, 0], rewards[lane], terminations[lane], truncations[lane], "lost" in infos))
    raise AssertionError(f"lane {lane} is not back")


@pytest.mark.parametrize(
    ("action", "worker_too", "outcome", "mode"),
    [
        (CountEnv.RAISE, False, "crashed", "NextStep"),
        (CountEnv.RAISE, False, "crashed", "SameStep"),
        (CountEnv.RAISE, False, "crashed", "Disabled"),
        (CountEnv.EXIT, True, "crashed", "NextStep"),
        (CountEnv.EXIT, True, "crashed", "SameStep"),
        (CountEnv.EXIT, True, "crashed", "Disabled"),
        (CountEnv.KILL, True, "crashed", "NextStep"),
        (CountEnv.HANG, True, "hung", "NextStep"),
        (CountEnv.HANG, True, "hung", "Disabled"),
        (CountEnv.STOP, True, "hung", "SameStep"),
    ],
)
def test_a_lost_lane_is_reported_once_and_comes_back_while_the_others_go_on(
    action: int, worker_too: bool, outcome: str, mode: str
) -> None:
    """Lane 0 has the same worker: its row is complete when lane 1 ends that, so that it is lost with its next one."""
    envs = four(on_loss="report", step_timeout=0.5 if outcome == "hung" else 60.0, autoreset_mode=mode)
    envs.step(FINE)
    actions = FINE.copy()
    actions[1] = action
    for lost, before in ([1], 1.0), ([0] if worker_too else [], 2.0):
        observations, rewards, terminations, truncations, infos = envs.step(actions)
        mask = np.isin(np.arange(4), lost)
        moved = ~mask & (np.arange(4) != 1)
        # The last delivered observation, not what the env may have written before it failed.
        assert observations[mask, 0].tolist() == [before] * len(lost)
        assert rewards.tolist() == moved.astype(float).tolist()
        assert not terminations.any() and truncations.tolist() == mask.tolist()
        assert infos["valid"].tolist() == moved.tolist()
        if lost:
            assert infos["_lost"].tolist() == mask.tolist()
            assert infos["lost"].tolist() == [outcome if m else None for m in mask]
        actions = FINE

    rows = step_until_back(envs, 1)
    assert len(rows) > 1
    assert set(rows[:-1]) == {(1.0, 0.0, False, False, False)}
    assert rows[-1] == (0.0, 0.0, False, False, False)
    if worker_too:
        step_until_back(envs, 0)
    observations, *_, infos = envs.step(FINE)
    assert infos["valid"].all() and (observations[:2, 0] < observations[3, 0]).any()
    envs.close()


def test_a_worker_that_writes_over_all_memory_that_it_reaches_loses_its_own_lanes_alone() -> None:
    envs = rollhouse.vectorize([FloodEnv] * 4, workers=2, valid="always", on_loss="report")
    envs.reset(seed=0)
    told = []
    for count in range(1, 9):
        observations, rewards, *_, infos = envs.step([0, FloodEnv.FLOOD if count == 2 else 0, 0, 0])
        assert observations[2:, 0].tolist() == [count] * 2 and rewards[2:].tolist() == [1.0] * 2
        assert infos["valid"][2:].all() and (count == 1 or not infos["valid"][1])
        told += [(int(lane), infos["lost"][lane]) for lane in np.flatnonzero(infos.get("_lost", []))]
    assert sorted(told) == [(0, "crashed"), (1, "crashed")]
    step_until_back(envs, 0)
    step_until_back(envs, 1)
    envs.close()


def test_raising_gives_the_envs_own_exception_and_a_reset_brings_the_lane_back() -> None:
    envs = four()
    with pytest.raises(ZeroDivisionError, match="told to raise") as caught:
        envs.step([0, CountEnv.RAISE, 0, 0])
    cause = caught.value.__cause__
    assert isinstance(cause, LaneLostError) and cause.lanes == (1,) and cause.outcome == "crashed"
    assert "hosted_envs.py" in str(cause) and "in step" in str(cause)
    for call in (lambda: envs.step(FINE), lambda: envs.send([0], [1]), lambda: envs.get_attr("count")):
        with pytest.raises(LaneLostError, match="lane.* 1 .*ZeroDivisionError"):
            call()
    assert envs.reset()[0].tolist() == [[0.0]] * 4
    assert envs.step(FINE)[0].tolist() == [[1.0]] * 4
    with pytest.raises(LaneLostError, match="lanes 2, 3.*signal: 9") as died:
        envs.step([0, 0, CountEnv.KILL, 0])
    assert died.value.lanes == (2, 3) and died.value.outcome == "crashed"
    assert envs.reset(seed=5)[0].tolist() == [[0.0]] * 4
    assert envs.np_random_seed == (5, 6, 7, 8)
    envs.close()


class Stumbling:
    """Makes an env; the call that makes the file kills its process instead."""

    def __init__(self, path: Path):
        self.path = str(path)

    def __call__(self) -> CountEnv:
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return CountEnv()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")


def test_a_worker_that_is_killed_while_it_starts_is_started_once_more(tmp_path: Path) -> None:
    envs = rollhouse.vectorize([CountEnv, Stumbling(tmp_path / "at once")], workers=2)
    assert envs.reset(seed=1)[0].tolist() == [[0.0], [0.0]]
    envs.close()
    # One of those that are started later.
    stumbling = Stumbling(tmp_path / "later")
    (tmp_path / "later").touch()
    envs = rollhouse.vectorize([stumbling] * 3, workers=3)
    (tmp_path / "later").unlink()
    assert envs.reset(seed=1)[0].tolist() == [[0.0], [0.0], [0.0]]
    assert envs.step(FINE[:3])[0].tolist() == [[1.0], [1.0], [1.0]]
    envs.close()


def test_a_lane_can_be_reset_alone_after_its_loss() -> None:
    envs = four(autoreset_mode="Disabled")
    envs.step(FINE)
    with pytest.raises(ZeroDivisionError):
        envs.step([0, 0, 0, CountEnv.RAISE])
    mask = np.array([False, False, False, True])
    assert envs.reset(options={"reset_mask": mask})[0][:, 0].tolist() == [2.0, 2.0, 2.0, 0.0]
    assert envs.step(FINE)[0][:, 0].tolist() == [3.0, 3.0, 3.0, 1.0]
    envs.close()


def test_failures_in_reset_are_told_like_those_in_steps() -> None:
    envs = four()
    mask = np.array([True, False, False, False])
    with pytest.raises(RuntimeError, match="told to fail in reset"):
        envs.reset(options={"reset_mask": mask, "fail": True})
    envs.close()
    envs = four(on_loss="report")
    observations, infos = envs.reset(options={"reset_mask": mask, "fail": True})
    assert infos["lost"].tolist() == ["crashed", None, None, None]
    assert infos["valid"].tolist() == [False, True, True, True]
    assert observations.tolist() == [[0.0]] * 4
    step_until_back(envs, 0)
    envs.close()


def test_first_done_lanes_are_lost_alone_too() -> None:
    envs = four(on_loss="report", step_timeout=0.5)
    envs.send([CountEnv.HANG, 0, 0], [0, 2, 3])
    ready = envs.recv(min_envs=2)
    assert ready[4]["env_id"].tolist() == [2, 3] and ready[4]["valid"].all()
    hung = envs.recv()
    assert hung[4]["env_id"].tolist() == [0] and hung[4]["lost"].tolist() == ["hung"]
    assert hung[3].tolist() == [True]
    # Lane 1 was not under way; its loss is told with its next row.
    envs.send([0], [1])
    told = envs.recv()
    assert told[4]["lost"].tolist() == ["hung"] and told[0].tolist() == [[0.0]]
    envs.close()


def test_what_cannot_be_raised_or_written_loses_its_lane_alone() -> None:
    for action, message in [(2, "Unpicklable"), (3, "shape"), (4, "cast|dtype")]:
        envs = rollhouse.vectorize([TornEnv] * 2, workers=1)
        envs.reset()
        with pytest.raises(Exception, match=message) as caught:
            envs.step([0, action])
        assert caught.value.__cause__.lanes == (1,) and not isinstance(caught.value, Unpicklable)
        envs.close()


# Processes, descriptors, files


def children() -> set[int]:
    """The processes whose parent this one is, zombies included."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


def groups_alive(groups: set[int]) -> set[int]:
    """Those process groups that have a living member."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) in groups and fields[0] != "Z":
            found.add(int(fields[2]))
    return found


def descriptors() -> list[str]:
    """What this process has open."""
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(fd))
        except OSError:
            continue
    return sorted(name for name in found if "/proc/" not in name)


class Spoiler(threading.Thread):
    """Kills and stops workers at random until it is told to end.

    Attributes:
        now: The process ids to choose from.
        pids: All that there ever were.
    """

    def __init__(self, pids: list[int], seed: int, wait: float):
        super().__init__(daemon=True)
        self.random, self.wait = random.Random(seed), wait
        self.over = threading.Event()
        self.now = pids
        self.pids: set[int] = set(pids)

    def know(self, pids: list[int]) -> None:
        """These are there now."""
        self.now = pids
        self.pids.update(pids)

    def run(self) -> None:
        while not self.over.wait(self.random.uniform(self.wait / 2, self.wait)):
            pids = self.now
            if pids:
                try:
                    os.kill(self.random.choice(pids), self.random.choice([signal.SIGKILL, signal.SIGSTOP]))
                except ProcessLookupError:
                    continue


def spoil(seconds: float, seed: int) -> None:
    """Steps under SIGKILL, SIGSTOP, sys.exit and exceptions; checks what is delivered and what is left behind."""
    processes, opened, shared = children(), descriptors(), set(os.listdir("/dev/shm"))
    make = functools.partial(
        rollhouse.vectorize, [CountEnv] * 8, workers=4, on_loss="report", valid="always", step_timeout=0.5
    )
    envs = make()
    envs.reset(seed=seed)
    spoiler = Spoiler(workers_of(envs), seed, 0.4)
    rng = np.random.default_rng(seed)
    counts = np.zeros(8)
    stepped = losses = 0
    spoiler.start()
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end or losses < 4:
            actions = np.where(rng.random(8) < 0.98, 0, rng.choice([6, 7], 8))
            if rng.random() < 0.002:
                actions[rng.integers(8)] = rng.choice([CountEnv.RAISE, CountEnv.EXIT])
            start = time.monotonic()
            observations, rewards, terminations, truncations, infos = envs.step(actions)
            # A deadline, and what it takes to kill and reap; far below the 60 s of a hang.
            assert time.monotonic() - start < 30
            valid = infos["valid"]
            lost = infos.get("_lost", np.zeros(8, bool))
            stepped, losses = stepped + int(valid.sum()), losses + int(lost.sum())
            assert (observations[valid, 0] == counts[valid] + 1).all()
            assert (rewards == valid).all() and (truncations == lost).all()
            assert (terminations == (valid & (actions == CountEnv.END))).all()
            began = ~valid & ~lost & (observations[:, 0] == 0)
            assert (observations[~valid & ~began, 0] == counts[~valid & ~began]).all()
            counts = observations[:, 0].copy()
            spoiler.know(workers_of(envs))
            if envs._losses.away and envs._native.failed():
                spoiler.now = []
                envs.close()
                envs = make()
                spoiler.know(workers_of(envs))
                envs.reset(seed=seed)
                counts[:] = 0
    finally:
        spoiler.over.set()
        spoiler.join()
        envs.close(terminate=True)
    assert stepped
    assert children() == processes
    assert groups_alive(spoiler.pids) == set()
    assert descriptors() == opened
    assert set(os.listdir("/dev/shm")) == shared


def test_killed_and_stopped_workers_leave_nothing_behind_and_spoil_no_row() -> None:
    spoil(4.0, seed=1)


@pytest.mark.soak
def test_killed_and_stopped_workers_for_a_minute() -> None:
    spoil(60.0, seed=2)


def test_workers_and_what_they_started_end_with_a_killed_parent() -> None:
    """Whatever they are doing: waiting, inside a step, stopped."""
    script = """
        import sys; sys.path.insert(0, sys.argv[1])
        from hosted_envs import CountEnv
        import os, signal, rollhouse, time
        envs = rollhouse.vectorize([CountEnv] * 3, workers=3)
        envs.reset()
        envs.send([CountEnv.HANG], [0])
        pids = envs._crew.workers.process_ids()
        os.kill(pids[1], signal.SIGSTOP)
        print(*pids, flush=True)
        time.sleep(1000)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pids = {int(pid) for pid in parent.stdout.readline().split()}
    assert len(pids) == 3 and groups_alive(pids) == pids
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while groups_alive(pids) and time.monotonic() < deadline:
        os.sched_yield()
    assert groups_alive(pids) == set()


def test_closing_leaves_no_process_and_no_descriptor() -> None:
    processes, opened = children(), descriptors()
    for how in ({}, {"terminate": True}):
        envs = four()
        assert len(children() - processes) == 2
        envs.close(**how)
        assert children() == processes and descriptors() == opened
    envs = four()
    del envs
    assert children() == processes and descriptors() == opened
