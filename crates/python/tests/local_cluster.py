"""Clusters of processes on this machine."""

from __future__ import annotations

import os
import subprocess
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


def rollhouse_program() -> Path:
    """The binary, or the test is skipped."""
    program = Path(os.environ.get(PROGRAM) or Path(__file__).parents[3] / "target/debug/rollhouse")
    if not program.is_file():
        pytest.skip(f"{program} is not there: `cargo build` makes it, {PROGRAM} names another one")
    return program


class LocalCluster:
    """A cluster of a coordinator and nodes, each a process of its own, on free ports.

    Args:
        settings: Settings of all nodes, as ``KEY=VALUE``.
        variables: Variables of a node's environment, by its name.
        names: Names of the nodes.
    """

    def __init__(
        self,
        folder: Path,
        program: Path,
        settings: Sequence[str] = (),
        variables: Mapping[str, Mapping[str, str]] | None = None,
        names: Sequence[str] = ("one", "two"),
    ):
        self._folder, self._program = folder, program
        self._settings, self._variables = settings, variables or {}
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._pages: dict[str, str] = {}
        self._run("certs", "init", "--dir", "ca")
        for role, name in [("coordinator", "main"), *(("node", name) for name in names)]:
            self._run("certs", "issue", "--dir", "ca", "--role", role, "--name", name, "--output", f"{name}/tls")
        address = self._start("main", "coordinator", ["coordinator.listen", "metrics.listen"], "listens on ")
        self._address = address
        self.url = self.owner("test")
        for name in names:
            self._start(name, "node", ["node.listen", "metrics.listen"], "joined the coordinator", address)

    def _run(self, *line: str) -> str:
        return subprocess.run(
            [self._program, *line], cwd=self._folder, check=True, capture_output=True, text=True
        ).stdout

    def bridge(self, name: str, world: str, *arguments: str) -> None:
        """Starts a node of that name as ``rollhouse bridge WORLD``, and waits until it has joined."""
        self._run("certs", "issue", "--dir", "ca", "--role", "node", "--name", name, "--output", f"{name}/tls")
        address = self.url.split("//", 1)[1].split("?", 1)[0]
        self._start(name, ("bridge", world, *arguments), ["node.listen", "metrics.listen"], "joined the coordinator", address)

    def _start(self, name: str, role: str | Sequence[str], ports: list[str], words: str, coordinator: str | None = None) -> str:
        words_of_role = [role] if isinstance(role, str) else role
        line = [str(self._program), *words_of_role, "--data", name, *(f"--set={key}=127.0.0.1:0" for key in ports)]
        if coordinator is not None:
            line += ["--coordinator", coordinator, *(f"--set={setting}" for setting in self._settings)]
        environment = {**os.environ, "ROLLHOUSE_LOG__FORMAT": "text", **self._variables.get(name, {})}
        process = subprocess.Popen(line, cwd=self._folder, env=environment, stderr=subprocess.PIPE, text=True)
        self._processes[name] = process
        assert process.stderr is not None
        said = []
        for heard in process.stderr:
            said.append(heard)
            if "metrics and health on " in heard:
                self._pages[name] = heard.split("metrics and health on ", 1)[1].strip()
            if words in heard:
                # What it says later is not to fill the pipe.
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return heard.split(words, 1)[1].strip()
        raise AssertionError(f"{line} never said {words!r}: {''.join(said)}")

    def owner(self, name: str) -> str:
        """The connection string of an owner of that name, by a token of its own."""
        token = self._run("token", "create", "--role", "trainer", "--name", name, "--data", "main").strip()
        return f"rollhouse://{self._address}?token={token}&ca={self._folder / 'ca/ca.pem'}"

    def kill(self, name: str) -> None:
        """Ends a process with SIGKILL and waits for that."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def end(self, name: str) -> int:
        """Ends a process in order, and returns its exit code."""
        process = self._processes.pop(name)
        process.terminate()
        return process.wait(timeout=60)

    def process_id(self, name: str) -> int:
        """The process id of a node."""
        return self._processes[name].pid

    def figures(self, name: str) -> dict[str, float]:
        """The figures that a process exports now, by name and labels."""
        with urllib.request.urlopen(f"{self._pages[name]}/metrics", timeout=60) as page:
            lines = (line.rpartition(" ") for line in page.read().decode().splitlines() if not line.startswith("#"))
            return {series: float(value) for series, _, value in lines}

    def close(self) -> None:
        """Ends all that run."""
        for name in list(self._processes):
            self.kill(name)


PROGRAM = "ROLLHOUSE_PROGRAM"
"""The environment variable that names the `rollhouse` binary, if it is not the one that `cargo build` makes."""

PORTS = ["coordinator.listen", "node.listen", "metrics.coordinator", "metrics.node"]
"""Settings of `rollhouse up` that say where it listens."""
