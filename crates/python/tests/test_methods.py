"""Methods that an env lists are called on one lane, and calls that change it are part of its episodes, wherever lanes run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from lamps import Chatterer, Lamp, WeakLamp
from python_nodes import play, python_nodes

import rollhouse
from rollhouse import errors, replays

CALLED = "test/Called-v0"


def played(envs: rollhouse.VectorEnv, push: str, by: list[Any]) -> list[list[Any]]:
    """Steps lanes, with a call on lane 1 before every third step. Returns what was seen."""
    seen = [envs.reset(seed=4)[0].tolist()]
    for step in range(30):
        if step % 3 == 1:
            envs.call_method(1, push, by[step % len(by)])
        seen.append(envs.step(np.full(envs.num_envs, step % 2))[0].tolist())
    return seen


def test_a_built_in_env_says_what_it_has_and_answers() -> None:
    envs = rollhouse.make_vec(CALLED, 3)
    assert list(envs.methods) == ["where", "push", "shake", "seldom", "panic", "shout"]
    assert envs.methods["seldom"]["max_per_second"] == 2 and envs.methods["seldom"]["changes"]
    assert not envs.methods["where"]["changes"] and "minimum" in envs.methods["push"]["params"]
    with pytest.raises(errors.ResetNeededError, match="no open episode"):
        envs.call_method(0, "push", 1)
    envs.reset(seed=1)
    before = envs.call_method(2, "where")
    after = envs.call_method(2, "push", 2.5)
    assert after == before["place"] + 2.5 and envs.call_method(2, "where") == {"place": after, "pushed": 1}
    assert envs.call_method(1, "where")["pushed"] == 0
    with pytest.raises(AttributeError, match="no method `fly`; it has where, push"):
        envs.call_method(0, "fly")
    with pytest.raises(errors.CallError, match="is no number from -100 to 100"):
        envs.call_method(0, "push", 1e9)
    with pytest.raises(IndexError, match="lane 3 of a batch of 3"):
        envs.call_method(3, "where")
    with pytest.raises(errors.BusyError, match="2 times a second"):
        for _ in range(3):
            envs.call_method(0, "seldom")
    with pytest.raises(errors.CallError, match="the lane is lost"):
        envs.call_method(0, "panic")
    envs.send([1], [1])
    with pytest.raises(errors.OutstandingError):
        envs.call_method(1, "where")
    envs.close()
    with pytest.raises(AttributeError, match="no method `where`; it has none"):
        rollhouse.make_vec("CartPole-v1", 1).call_method(0, "where")


def test_calls_are_recorded_and_recomputed_with_their_steps(tmp_path: Path) -> None:
    envs = rollhouse.make_vec(CALLED, 3, record=True, data=tmp_path)
    played(envs, "push", [5, -3])
    envs.close()
    recorded = replays.open(tmp_path)
    episodes = {episode.lane: episode for episode in recorded.list()}
    assert episodes[0].calls() == []
    calls = episodes[1].calls()
    assert [(step, method) for step, method, _ in calls] == [(step, "push") for step in range(1, 30, 3)]
    assert {payload for *_, payload in calls} == {"5", "-3"}
    for episode in episodes.values():
        assert len(recorded.read(episode).observations) == 31
    assert recorded.verify().ok


def test_a_python_env_is_called_as_it_lists_its_methods(tmp_path: Path) -> None:
    envs = rollhouse.vectorize([Lamp] * 3, workers=2, record=True, data=tmp_path)
    assert set(envs.methods) == {"dim", "flicker", "tell", "break_it", "mumble"}
    assert envs.methods["dim"]["changes"] and not envs.methods["tell"]["changes"]
    seen = played(envs, "dim", [3.5, 8.0])
    assert [row[1][0] for row in seen[2:5]] == [9.0, 8.0, 9.0]
    assert envs.call_method(2, "tell") == {"brightness": seen[-1][2][0]}
    with pytest.raises(errors.CallError, match="ValueError: -1 is less than nothing"):
        envs.call_method(1, "dim", -1)
    with pytest.raises(errors.CallError, match="is not JSON"):
        envs.call_method(1, "mumble")
    with pytest.raises(AttributeError, match="no method `seen`; it has dim, flicker"):
        envs.call_method(1, "seen")
    assert envs.call("tell")[0] == {"brightness": seen[-1][0][0]}, "what Gymnasium has is there as before"
    with pytest.raises(errors.CallError, match="the lane is lost"):
        envs.call_method(0, "break_it")
    with pytest.raises(RuntimeError, match="the bulb is broken"):
        envs.step([0, 0, 0])
    envs.close()
    calls = {(e.lane, e.number): e.calls() for e in replays.open(tmp_path).list()}
    assert [payload for *_, payload in calls[1, 0]] == ["8.0", "3.5"] * 5
    assert calls[0, 0] == [] and calls[2, 0] == []


@pytest.mark.parametrize(
    ("methods", "why"),
    [
        (["dim"], "must be a dict"),
        ({"fly": {}}, "has no method 'fly'"),
        ({"_hidden": {}}, "no name of a method"),
        ({"dim": {"speed": 1}}, "must be a dict with some of"),
        ({"dim": {"max_per_second": 0}}, "max_per_second=0"),
    ],
)
def test_a_list_of_methods_that_makes_no_sense_is_refused(methods: Any, why: str) -> None:
    class Odd(Lamp):
        metadata = {"methods": methods}

    with pytest.raises(ValueError, match=why):
        rollhouse.vectorize([Odd])


def test_lanes_under_way_are_not_called() -> None:
    envs = rollhouse.vectorize([Lamp] * 2)
    envs.reset(seed=1)
    envs.send([1], [0])
    with pytest.raises(errors.OutstandingError):
        envs.call_method(0, "tell")
    envs.recv()
    envs.step_async([1, 1])
    with pytest.raises(gymnasium.error.AlreadyPendingCallError):
        envs.call_method(1, "tell")
    envs.step_wait()
    envs.call_method(1, "tell")
    envs.close()


@pytest.mark.parametrize("transport", ["quic", "shm"])
def test_lanes_of_a_cluster_are_called_and_recorded_too(cluster_url: str, transport: str) -> None:
    cluster = rollhouse.connect(cluster_url, transport=transport)
    envs = cluster.make_vec(CALLED, 3)
    here = rollhouse.make_vec(CALLED, 3)
    assert list(envs.methods) == list(here.methods)
    assert played(envs, "push", [5, -3]) == played(here, "push", [5, -3])
    assert envs.call_method(1, "where") == here.call_method(1, "where")
    with pytest.raises(errors.RefusedError, match="no method `fly`; it has where"):
        envs.call_method(0, "fly")
    with pytest.raises(errors.RefusedError, match="2 times a second"):
        for _ in range(3):
            envs.call_method(0, "seldom")
    run = envs.run
    envs.close()
    deadline = time.monotonic() + 60
    calls: list[Any] = []
    while not calls and time.monotonic() < deadline:
        listed = replays.open(cluster).list(env=CALLED)
        calls = [episode.calls() for episode in listed if episode.run == run and episode.lane == 1 and episode.length == 30]
    assert [(step, method) for step, method, _ in calls[0]] == [(step, "push") for step in range(1, 30, 3)]


def test_a_python_env_on_a_node_is_called_and_goes_on_elsewhere_with_its_calls(tmp_path: Path) -> None:
    two = python_nodes(tmp_path, "lamps")
    try:
        with rollhouse.connect(two.url, timeout=120) as cluster:
            there = cluster.make_vec("lamps:WeakLamp", 3, spread="single")
            here = SyncVectorEnv([WeakLamp] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
            assert there.methods["tell"] == {"summary": "tells the brightness", "params": None} | {
                "changes": False,
                "max_per_second": None,
            }
            first = there.placements[0].node
            called = 0

            def call(method: str, payload: Any = None) -> None:
                nonlocal called
                for lane in range(2):
                    try:
                        answer = there.call_method(lane, method, payload)
                    except errors.RefusedError as error:
                        assert "no open episode" in str(error)
                        continue
                    env = here.envs[lane].unwrapped
                    assert answer == (getattr(env, method)() if payload is None else getattr(env, method)(payload))
                    called += 1

            def call_and_kill() -> None:
                call("flicker")
                two.kill(first)

            at: dict[int, Any] = {step: lambda: call("dim", 4.5) for step in range(5, 200, 17)}
            at |= {step: lambda: call("flicker") for step in range(9, 200, 23)}
            at[100] = call_and_kill
            assert play(there, here, AutoresetMode.NEXT_STEP, 200, at) > 3
            assert called > 20 and there.placements[0].node != first
            # Lane 2, whose episode has ended, begins the next one.
            there.step(np.zeros(3, np.int64))
            with pytest.raises(errors.RefusedError, match="ValueError: -1 is less than nothing"):
                there.call_method(2, "dim", -1)
            with pytest.raises(errors.RefusedError, match="no method `seen`"):
                there.call_method(2, "seen")
            there.close()
    finally:
        two.close()


def chatters(envs: rollhouse.VectorEnv, refused: type[Exception]) -> None:
    assert len(envs.methods) == 128
    envs.reset(seed=1)
    assert [envs.call_method(1, f"say_{number}") for number in (0, 64, 126)] == [0, 64, 126]
    # With its quotation marks an answer has two bytes more than it has letters.
    assert envs.call_method(1, "recite", (1 << 20) - 2) == "x" * ((1 << 20) - 2)
    with pytest.raises(refused, match="its answer has 1048577 bytes, may have at most 1048576"):
        envs.call_method(1, "recite", (1 << 20) - 1)
    assert envs.call_method(1, "say_5") == 5


def test_a_python_env_has_128_methods_and_answers_of_a_mebibyte() -> None:
    with rollhouse.vectorize([Chatterer] * 2) as envs:
        chatters(envs, errors.CallError)


def test_a_python_env_on_a_node_has_128_methods_and_answers_of_a_mebibyte(tmp_path: Path) -> None:
    one = python_nodes(tmp_path, "lamps", names=("one",))
    try:
        for transport in ("quic", "shm"):
            with rollhouse.connect(one.url, timeout=120, transport=transport) as cluster:
                envs = cluster.make_vec("lamps:Chatterer", 2)
                assert envs.placements[0].transport == transport
                chatters(envs, errors.RefusedError)
                envs.close()
    finally:
        one.close()
