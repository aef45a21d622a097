"""Processes that are tied to the one that launched them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from rollhouse.launch.tied import Tied, tied

LONG = 60.0
"""Far longer than anything takes; only a test that fails waits for it."""

SERVICE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("pid", os.getpid(), file=sys.stderr, flush=True)
while True:
    time.sleep(1)
"""


def state(pid: int) -> str:
    """Returns the letter of a process's state."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_process_that_was_stopped_ends_with_its_launcher() -> None:
    """Symptom: a node that was stopped (SIGSTOP) stayed for ever when its launcher had gone.
    Cause: it was asked to end by SIGTERM alone, which a stopped process does not take.
    Fix: it is continued as well, and killed if it does not end.
    """
    service = Tied("service", tied([sys.executable, "-c", SERVICE]), {})
    heard = service.hear("pid", 1, LONG)
    assert heard is not None
    pid = int(heard[0])
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    while state(pid) != "T":
        assert time.monotonic() - began < LONG
        os.sched_yield()
    # As the kernel does when the launcher dies.
    assert service._process.stdin is not None
    service._process.stdin.close()
    assert service.wait(LONG) == 7
