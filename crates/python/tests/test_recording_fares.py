"""How a recording fares is reported while it plays: figures, warnings, and events of what is lost, moves or fails."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hosted_envs import CountEnv
from local_cluster import LocalCluster

import rollhouse
from rollhouse import Event, RecordingWarning, errors

DEADLINE = 60.0
"""Seconds after which what has not come never does."""

# Files of the process end at 64 KiB, as on a disk that is full; a probe of the disk is longer.
FULL_DISK = """
import json, resource, sys, time, warnings
import rollhouse

FULL, ROOM = 1 << 16, resource.RLIM_INFINITY

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def step_until(envs, what):
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until, (what, envs.recording.figures)
        envs.step(envs.action_space.sample())

def of(events, state):
    return [event for event in events if event.state == state]

env, data = sys.argv[1:]
envs = rollhouse.make_vec(env, 64, record=True, data=data)
events = []
envs.on_event(events.append)
envs.reset(seed=0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    limit(FULL)
    step_until(envs, lambda: caught)
    step_until(envs, lambda: envs.recording.figures["lost_episodes"] > 0)
    failing = dict(envs.recording.figures), envs.recording.failure
    for _ in range(200):
        envs.step(envs.action_space.sample())
    first = len(caught)
    limit(ROOM)
    step_until(envs, lambda: of(events, "recovered"))
    well = dict(envs.recording.figures), envs.recording.failure
    limit(FULL)
    step_until(envs, lambda: len(of(events, "failed")) == 2)
    raised = None
    try:
        envs.close()
    except rollhouse.errors.RecordingError as error:
        raised = str(error)
print(json.dumps({
    "first": first,
    "warnings": [(warning.category.__name__, str(warning.message), warning.filename) for warning in caught],
    "events": [[event.kind, event.state, event.episodes] for event in events],
    "failing": failing,
    "well": well,
    "raised": raised,
    "last": dict(envs.recording.figures),
}))
"""


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_a_full_disk_is_warned_of_once_for_each_outage_when_it_fails(env: str, tmp_path: Path) -> None:
    """Symptom: with a full disk nearly all episodes were lost, and nothing showed it before ``close``. Cause: nobody looked at the
    recorder while it recorded. Fix: the keeper does, and the next step warns.
    """
    script = tmp_path / "trainer.py"
    script.write_text(FULL_DISK)
    command = [sys.executable, str(script), env, str(tmp_path / "data")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["first"] == 1
    for category, message, filename in found["warnings"]:
        assert category == "RecordingWarning" and "no space left on the disk" in message
        assert filename == str(script)
    assert len(found["warnings"]) == 2
    figures, failure = found["failing"]
    assert "no space left on the disk" in failure == figures["failure"]
    assert figures["failing_since"] > 0 and figures["lost_episodes"] > 0
    well, failure = found["well"]
    assert (failure, well["failing_since"]) == (None, None)
    assert [state for kind, state, _ in found["events"] if kind == "disk"] == ["failed", "recovered", "failed"]
    lost = sum(episodes for kind, _, episodes in found["events"] if kind == "lost")
    assert 0 < lost <= found["last"]["lost_episodes"]
    assert "episodes in" in found["raised"]


def wait_for(what: Callable[[], Any]) -> None:
    until = time.monotonic() + DEADLINE
    while not what():
        assert time.monotonic() < until


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_figures_grow_while_it_plays_and_stay_as_they_were_at_its_close(env: str, tmp_path: Path) -> None:
    envs = rollhouse.make_vec(env, 8, seed=1, record=True, data=tmp_path)
    envs.reset()
    recording, ended = envs.recording, 0
    assert recording.failure is None and recording.figures["episodes"] == 0
    for _ in range(100):
        _, _, terminations, truncations, _ = envs.step(envs.action_space.sample())
        ended += int((terminations | truncations).sum())
    wait_for(lambda: recording.figures["episodes"] == ended > 0)
    figures = recording.figures
    assert 0 < figures["bytes"] and 0 < figures["steps"] <= 800 and figures["raw_bytes"] >= 8 * figures["steps"]
    assert figures["lost_episodes"] == 0 and figures["free_bytes"] > 0
    with pytest.raises(TypeError):
        figures["episodes"] = 0  # type: ignore[index]
    envs.close()
    assert envs.recording is recording
    assert ended < recording.figures["episodes"] <= ended + 8 and 800 - ended <= recording.figures["steps"] <= 800


def lose_a_lane(envs: rollhouse.VectorEnv, hosted: bool) -> None:
    envs.step(np.array([CountEnv.RAISE, 0] if hosted else [0, 0]))


def two_lanes(hosted: bool) -> rollhouse.VectorEnv:
    """Lanes of which the first is lost in its first step, or by its action."""
    if hosted:
        return rollhouse.vectorize([CountEnv] * 2, on_loss="report")
    return rollhouse.make_vec("test/Faulty-v0", 2, lane_options=[{"panic_at": 1}, {}], on_loss="report")


@pytest.mark.parametrize("hosted", [False, True])
def test_the_loss_of_a_lane_is_reported_on_the_callers_thread_in_the_next_call(hosted: bool) -> None:
    envs = two_lanes(hosted)
    events: list[Event] = []
    envs.on_event(events.append)
    envs.reset(seed=0)
    lose_a_lane(envs, hosted)
    assert events == []
    envs.step(np.array([0, 0]))
    (event,) = events
    assert (event.kind, event.lanes, event.episodes) == ("lost", (0,), 0)
    assert "lane 0 is lost" in event.message and event.why
    with pytest.raises(AttributeError):
        event.kind = "moved"  # type: ignore[misc]
    envs.close()


@pytest.mark.parametrize("hosted", [False, True])
def test_what_a_callback_raises_is_the_callers_and_no_lane_has_moved(hosted: bool) -> None:
    envs = two_lanes(hosted)
    seen: list[Event] = []

    def refuse(event: Event) -> None:
        seen.append(event)
        raise LookupError(event.message)

    envs.on_event(refuse)
    envs.reset(seed=0)
    lose_a_lane(envs, hosted)
    steps = envs.statistics()["steps"]
    with pytest.raises(LookupError, match="lane 0 is lost"):
        envs.step(np.array([0, 0]))
    assert envs.statistics()["steps"] == steps
    envs.step(np.array([0, 0]))
    assert envs.statistics()["steps"] > steps and len(seen) == 1
    envs.close()


def test_losses_that_no_call_has_reported_are_reported_by_close() -> None:
    envs = two_lanes(False)
    events: list[Event] = []
    envs.on_event(events.append)
    envs.reset(seed=0)
    lose_a_lane(envs, False)
    envs.close()
    assert [event.lanes for event in events] == [(0,)]
    with pytest.raises(errors.ClosedError):
        envs.on_event(events.append)


def test_a_callback_that_is_no_function_is_refused() -> None:
    envs = rollhouse.make_vec("CartPole-v1", 1)
    with pytest.raises(TypeError, match="callback=3"):
        envs.on_event(3)  # type: ignore[arg-type]
    envs.close()


class Noted:
    """What the native half has noted."""

    def __init__(self, *items: dict[str, Any]):
        self.items = list(items)

    @property
    def has_news(self) -> bool:
        return bool(self.items)

    def take_news(self) -> list[dict[str, Any]]:
        items, self.items = self.items, []
        return items


def test_a_disk_that_is_nearly_full_is_warned_of_before_anything_is_lost() -> None:
    from rollhouse.events import Events

    short = {"kind": "disk", "state": "nearly full", "why": "3 of its 100 bytes are free"}
    failed = {"kind": "disk", "state": "failed", "why": "append failed"}
    lost = {"kind": "lost", "episodes": 7, "why": "append failed"}
    with pytest.warns(RecordingWarning) as caught:
        Events(Noted(short, failed, lost), "/data").report()
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 2 and all(warning.filename == __file__ for warning in caught)
    assert "/data is nearly full: 3 of its 100 bytes" in messages[0] and "fails" in messages[1]
    with pytest.warns(RecordingWarning, match="has lost 7 episodes: append failed"):
        Events(Noted(lost), "/data").report()


def test_a_warning_that_is_an_exception_keeps_no_event_from_its_callback() -> None:
    from rollhouse.events import Events

    events, seen = Events(Noted({"kind": "disk", "state": "failed", "why": "it is full"}), "/data"), []
    events.add(seen.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RecordingWarning):
            events.report()
    assert [event.state for event in seen] == ["failed"] and not events.waits


def test_lanes_of_a_cluster_report_what_nodes_record_and_where_they_go_when_one_is_killed(two_nodes: LocalCluster) -> None:
    with rollhouse.connect(two_nodes.url, transport="quic", timeout=120) as cluster:
        envs = cluster.make_vec("CartPole-v1", 8, seed=1, spread="single")
        events: list[Event] = []
        envs.on_event(events.append)
        envs.reset()
        for _ in range(50):
            envs.step(envs.action_space.sample())
        recording = envs.recording
        assert recording is not None and recording.path is None and recording.run == envs.run
        wait_for(lambda: recording.figures["steps"] > 0)
        assert recording.figures["lost_episodes"] == 0 and recording.failure is None
        assert recording.figures["bytes"] is None
        (killed,) = (placement.node for placement in envs.placements)
        two_nodes.kill(killed)
        for _ in range(2):
            envs.step(envs.action_space.sample())
        (event,) = events
        other = {"one": "two", "two": "one"}[killed]
        assert (event.kind, event.source, event.target) == ("moved", killed, other)
        assert event.lanes == tuple(range(8))
        assert not cluster.make_vec("CartPole-v1", 1, record=False).recording
        envs.close()
        assert recording.figures["steps"] > 0


def keepers() -> int:
    names = (task / "comm" for task in Path("/proc/self/task").iterdir())
    return sum(name.read_text().startswith("rollhouse-keepe") for name in names if name.exists())


@pytest.mark.parametrize("ending", ["close", "collect"])
def test_the_thread_that_looks_after_a_folder_ends_with_its_envs(ending: str, tmp_path: Path) -> None:
    before = keepers()
    one, two = (rollhouse.make_vec("CartPole-v1", 2, record=True, data=tmp_path) for _ in range(2))
    wait_for(lambda: keepers() == before + 1)
    if ending == "close":
        one.close()
        two.close()
    del one, two
    gc.collect()
    wait_for(lambda: keepers() == before)


def test_a_recording_is_its_process_own(tmp_path: Path) -> None:
    program = f"""
import os, rollhouse
envs = rollhouse.make_vec("CartPole-v1", 2, record=True, data={str(tmp_path)!r})
envs.reset(seed=0)
child = os.fork()
if child == 0:
    try:
        envs.recording.figures
    except rollhouse.errors.ForkedError:
        other = rollhouse.make_vec("CartPole-v1", 2, record=True, data={str(tmp_path)!r})
        other.reset(seed=0)
        other.close()
        os._exit(other.recording.figures["episodes"])
    os._exit(9)
_, status = os.waitpid(child, 0)
envs.close()
print(os.waitstatus_to_exitcode(status), envs.recording.figures["episodes"])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["2", "2"], ran.stderr
