"""A coordinator and nodes, each a process of its own, for tests that do something to one of them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from conftest import free_port, run, until


class Processes:
    """A cluster with certificates of its own in `folder`. Its processes are known by name: the coordinator is `main`."""

    def __init__(self, folder: Path, binary: Path, nodes: list[str], *, days: int = 365, common: dict[str, str] | None = None,
                 coordinator: dict[str, str] | None = None, node: dict[str, str] | None = None) -> None:
        self.folder, self.binary, self.common = folder, binary, common or {}
        # Settings of each kind of process, as variables.
        self.own = {"coordinator": coordinator or {}, "node": node or {}}
        self.processes: dict[str, subprocess.Popen] = {}
        self.pages: dict[str, str] = {}
        # What is to be undone in the end.
        self.at_end: list[Callable[[], object]] = []
        self.ca = folder / "ca"
        self.run("certs", "init", "--dir", self.ca)
        for role, name in [("coordinator", "main"), *(("node", node) for node in nodes)]:
            self.run("certs", "issue", "--dir", self.ca, "--role", role, "--name", name, "--output", folder / name / "tls",
                     "--days", str(days))
        self.start("main")
        self.address = self.heard("main", r"listens on ([0-9.:]+)")
        for node in nodes:
            self.start(node)
        for node in nodes:
            self.heard(node, "joined the coordinator()")
        token = self.run("token", "create", "--role", "admin", "--name", "t", "--data", folder / "main")
        self.connection = f"rollhouse://{self.address}?token={token.strip()}&ca={self.ca / 'ca.pem'}"

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def run(self, *words: str | Path) -> str:
        return run(self.binary, *words, env=dict(os.environ, **self.common))

    def join(self, name: str) -> None:
        """Starts a node that has a join token and no certificate."""
        token = self.run("token", "create", "--role", "join", "--node", name, "--address", self.address, "--data",
                         self.folder / "main")
        own = self.own["node"]
        self.own["node"] = {**own, "ROLLHOUSE_NODE__JOIN": token.strip(), "ROLLHOUSE_NODE__NAME": name}
        self.start(name)
        self.own["node"] = own
        self.heard(name, "joined the coordinator()")

    def start(self, name: str) -> None:
        """Starts it, for the first time or again."""
        role = "coordinator" if name == "main" else "node"
        listen = getattr(self, "address", "127.0.0.1:0") if name == "main" else "127.0.0.1:0"
        words = [role, "--data", self.folder / name, "--listen", listen]
        if role == "node":
            words += ["--coordinator", self.address]
        port = self.pages[name].rsplit(":", 1)[1] if name in self.pages else str(free_port())
        self.pages[name] = f"127.0.0.1:{port}"
        environment = dict(os.environ, **self.common, **self.own[role], ROLLHOUSE_METRICS__LISTEN=self.pages[name])
        with open(self.folder / f"{name}.log", "a") as log:
            self.processes[name] = subprocess.Popen([self.binary, *words], cwd=self.folder, env=environment, stderr=log)

    def trainer(self, lanes: int = 16) -> subprocess.Popen:
        """A rollout that goes on until it is ended."""
        line = [self.binary, "rollout", "--connect", self.connection, "--env", "CartPole-v1", "--lanes", str(lanes)]
        self.processes["trainer"] = subprocess.Popen([*line, "--steps", "1000000000000"], cwd=self.folder,
                                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self.processes["trainer"]

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def heard(self, name: str, what: str) -> str:
        return until(f"{name} says {what}", lambda: re.search(what, self.log(name)))[1]

    def end(self) -> None:
        """Ends all, trainers and nodes first; at once, for what was done to them may keep them from ending in order."""
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()
        for undo in self.at_end:
            undo()

    def end_in_order(self) -> None:
        """Ends all as operators do."""
        for process in reversed(self.processes.values()):
            process.terminate()
            assert process.wait() == 0
