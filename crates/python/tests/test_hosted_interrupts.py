"""Ctrl-C, and a second thread, in the middle of a call of hosted lanes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError
from hosted_envs import GateEnv

import rollhouse
from rollhouse.errors import ResetNeededError

CALLS: dict[str, Callable[[rollhouse.VectorEnv], Any]] = {
    "step of an array": lambda envs: envs.step(np.array([1, 0])),
    "step of a list": lambda envs: envs.step([1, 0]),
    "call": lambda envs: envs.call("stand"),
}


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    for name in ("in", "out"):
        os.mkfifo(tmp_path / name)
    return tmp_path


def make(gate: Path) -> rollhouse.HostedVectorEnv:
    # Only lane 0 ever stands still.
    envs = rollhouse.vectorize([partial(GateEnv, str(gate))] * 2, workers=1, step_timeout=None, call_timeout=None)
    envs.reset()
    return envs


def release(gate: Path) -> None:
    """Lets an env that stands still go on."""
    (gate / "out").write_text("")


def interrupt(gate: Path, call: Callable[[], Any]) -> None:
    """Presses Ctrl-C while an env stands still in ``call``."""

    def press() -> None:
        (gate / "in").read_text()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # Whoever starts the tests in the background may have them ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        presser.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("how", ["step of an array", "step of a list"])
def test_after_ctrl_c_in_a_step_the_lanes_are_reset_and_go_on(gate: Path, how: str) -> None:
    # Symptom: AlreadyPendingCallError from every later call. Cause: the step stayed pending, for a `step_wait` that nobody
    # who calls `step` knows of. Fix: a call that is interrupted is given up; a reset waits until it is over.
    envs = make(gate)
    interrupt(gate, lambda: CALLS[how](envs))
    with pytest.raises(ResetNeededError, match="interrupted"):
        envs.step(np.zeros(2, np.int64))
    with pytest.raises(ResetNeededError):
        envs.reset(options={"reset_mask": np.array([True, False])})
    release(gate)
    assert envs.reset()[0].tolist() == [[0.0], [0.0]]
    assert envs.step(np.zeros(2, np.int64))[0].tolist() == [[1.0], [1.0]]
    envs.close()


def test_after_ctrl_c_in_a_call_the_lanes_go_on(gate: Path) -> None:
    envs = make(gate)
    interrupt(gate, lambda: envs.call("stand"))
    # Both lanes stand still, one after the other.
    release(gate)
    (gate / "in").read_text()
    release(gate)
    assert envs.get_attr("count") == (0.0, 0.0)
    assert envs.step(np.zeros(2, np.int64))[0].tolist() == [[1.0], [1.0]]
    envs.close()


@pytest.mark.parametrize("how", CALLS)
def test_close_does_not_wait_for_what_was_interrupted(gate: Path, how: str) -> None:
    # It would wait for ever: nobody lets the env go on.
    envs = make(gate)
    interrupt(gate, lambda: CALLS[how](envs))
    envs.close()


def test_a_second_thread_is_told_that_a_step_is_under_way(gate: Path) -> None:
    # Symptom: "Already borrowed".
    envs = make(gate)
    stepping = threading.Thread(target=envs.step, args=(np.array([1, 0]),))
    stepping.start()
    (gate / "in").read_text()
    for call in (lambda: envs.step(np.zeros(2, np.int64)), envs.reset, lambda: envs.call("stand")):
        with pytest.raises(AlreadyPendingCallError, match="pending call to `step`"):
            call()
    release(gate)
    stepping.join()
    assert envs.step(np.zeros(2, np.int64))[0].tolist() == [[2.0], [2.0]]
    envs.close()


def test_who_closes_it_under_a_step_of_another_thread_is_told(gate: Path) -> None:
    envs = make(gate)
    stepping = threading.Thread(target=envs.step, args=(np.array([1, 0]),))
    stepping.start()
    (gate / "in").read_text()
    with pytest.raises(RuntimeError, match="another thread is inside this vector env; use one thread at a time"):
        envs.close()
    release(gate)
    stepping.join()
