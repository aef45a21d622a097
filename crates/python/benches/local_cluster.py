"""A cluster of one node on this machine, for benches."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

SETTINGS = [
    "coordinator.listen=127.0.0.1:0",
    "node.listen=127.0.0.1:0",
    "metrics.coordinator=",
    "metrics.node=",
]
"""Free ports, and no metrics."""


@contextlib.contextmanager
def local_cluster(program: str, python: bool = False) -> Iterator[str]:
    """Runs `rollhouse up`, and gives the cluster's connection string.

    Args:
        program: The path of `rollhouse`.
        python: Whether the node hosts Gymnasium's envs, with the interpreter of this process.
    """
    settings = SETTINGS + ([f"python.interpreter={sys.executable}"] if python else [])
    with tempfile.TemporaryDirectory() as folder:
        line = [program, "up", "--data", f"{folder}/cluster", *(f"--set={setting}" for setting in settings)]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            try:
                url = process.stdout.readline().strip()
                if not url:
                    raise SystemExit(f"`{program} up` did not start (exit code {process.wait()})")
                yield url
            finally:
                process.terminate()
