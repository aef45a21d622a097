"""`rollhouse up` hosts the Python of who starts it, whichever program it is; what hosts none says how it would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_cluster import rollhouse_program

import rollhouse
from rollhouse.errors import RefusedError

PORTS = ("coordinator.listen", "node.listen", "metrics.coordinator", "metrics.node")


@contextmanager
def up(folder: Path, path: str) -> Iterator[rollhouse.Cluster]:
    """A cluster of the program that was built, which finds programs in that `path`."""
    line = [str(rollhouse_program()), "up", "--data", str(folder / "up"), *(f"--set={key}=127.0.0.1:0" for key in PORTS)]
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"} | {"PATH": path}
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None
        with rollhouse.connect(process.stdout.readline().strip(), timeout=120) as cluster:
            yield cluster
    finally:
        process.terminate()
        process.wait()


def test_up_that_no_python_has_started_hosts_the_one_of_the_path(tmp_path: Path) -> None:
    """Symptom: the program that cargo installs hosted no Python env without a setting. Cause: only a process of Python knew one.
    Fix: `python3` is asked."""
    with up(tmp_path, f"{Path(sys.executable).parent}:{os.environ['PATH']}") as cluster:
        assert "gymnasium:*" in cluster.nodes()[0]["kinds"]
        with cluster.make_vec("gymnasium:CartPole-v1", 2, record=False) as envs:
            envs.reset(seed=1)


def test_where_no_python_is_hosted_the_refusal_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text("#!/bin/sh\necho\n")
    (tmp_path / "bin/python3").chmod(0o755)
    program = rollhouse_program()
    if program.read_bytes()[:4] != b"\x7fELF":
        pytest.skip(f"{program} is a script of a Python")
    with up(tmp_path, str(tmp_path / "bin")) as cluster, pytest.raises(RefusedError, match=r"python\.interpreter"):
        cluster.make_vec("gymnasium:CartPole-v1", 2, record=False)
