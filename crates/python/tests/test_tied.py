"""Processes that are tied to the one that launched them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rollhouse.launch.tied import Tied, tied

LONG = 60.0
"""Far longer than anything takes; only a test that fails waits for it."""

SERVICE = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("pid", os.getpid(), file=sys.stderr, flush=True)
while True:
    signal.pause()
"""


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def stop_service(service: int, _: int) -> None:
    os.kill(service, signal.SIGSTOP)


def stop_both(service: int, shell: int) -> None:
    os.kill(service, signal.SIGSTOP)
    os.kill(shell, signal.SIGSTOP)


def stop_group(_: int, shell: int) -> None:
    os.killpg(shell, signal.SIGSTOP)


STOPS = [stop_service, stop_both]
# What stays awake then has to be in a session of its own.
STOPS += [stop_group] if shutil.which("setsid") else []


@pytest.mark.parametrize("stop", STOPS)
def test_a_process_that_was_stopped_ends_with_its_launcher(stop: Callable[[int, int], None]) -> None:
    """Symptom: a node that was stopped (SIGSTOP), alone or with its shell, stayed for ever when its launcher had gone.
    Cause: it was asked to end by SIGTERM alone, which a stopped process does not take, and later the shell that was to
    wait for it, or whoever was to ask it, stayed stopped.
    Fix: both are continued by a watcher that is not stopped with them, and the process is killed if it does not end.
    """
    held = Tied("service", tied([sys.executable, "-c", SERVICE]), {})
    heard = held.hear("pid", 1, LONG)
    assert heard is not None
    service = int(heard[0])
    stop(service, held.pid)
    began = time.monotonic()
    while not is_stopped(service):
        assert time.monotonic() - began < LONG
        os.sched_yield()
    # As the kernel does when the launcher dies.
    assert held._process.stdin is not None
    held._process.stdin.close()
    assert held.wait(LONG) == 7
