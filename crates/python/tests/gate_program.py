"""Gates of the program, as tests and benchmarks run them."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

PROGRAM = "ROLLHOUSE_GATE_PROGRAM"
"""The variable that names the command with gates, if it is not that of the installed package."""


def program() -> list[str]:
    """The command with gates."""
    named = os.environ.get(PROGRAM)
    return shlex.split(named) if named else [sys.executable, "-m", "rollhouse"]


@contextlib.contextmanager
def gate(protocol: str, *arguments: str, listen: str = "127.0.0.1:0") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Runs a gate, on a free port unless `listen` names one, and gives its address and process. It has to end in order at the end, unless it did before."""
    line = [*program(), "gate", protocol, "--listen", listen, "--json", *arguments]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"], process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
