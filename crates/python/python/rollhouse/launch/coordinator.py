"""The coordinator of a launch: one that the launcher starts, or one that runs elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rollhouse.interpreter import COMMAND, interpreter
from rollhouse.launch.errors import COMMAND_PATIENCE, LaunchError
from rollhouse.launch.tied import PATIENCE, Tied, tied

GRACE = 10
"""Seconds that a coordinator whose launcher was killed gives its nodes to ship what they have recorded."""
START_PATIENCE = 60.0


def own_program() -> list[str]:
    """Returns the command line of this package's ``rollhouse``."""
    return [interpreter(way_out="; program= names the rollhouse command"), "-c", COMMAND]


class Coordinator:
    """Knows the nodes and keeps the recordings: in a process of its own, or, with ``join``, elsewhere."""

    def __init__(
        self,
        data: str | os.PathLike[str],
        host: str,
        program: Sequence[str],
        *,
        join: str | None = None,
        connect: str | None = None,
    ):
        self.join_given = join
        self.address = connect
        """How trainers connect; None if a coordinator elsewhere was named by a join token only."""
        self._data, self._host, self._program = Path(data), host, list(program)
        self._process: Tied | None = None
        if join is None:
            if connect is not None:
                raise ValueError("connect= names a coordinator elsewhere, of which join= says how nodes join it")
            self._start()

    @property
    def process(self) -> Tied | None:
        """The process; None if it runs elsewhere."""
        return self._process

    def join_string(self, nodes: int, prefix: str) -> str:
        """Returns the string by which so many nodes join whose names begin so."""
        if self.join_given is not None:
            held = Path(self.join_given)
            if "://" not in self.join_given and held.is_file():
                return held.read_text(encoding="utf-8").strip()
            return self.join_given.strip()
        line = ["--uses", str(nodes), "--name-prefix", prefix, "--expires", "24 h", "--name", "launch"]
        return self._token("join", *line)

    def close(self) -> None:
        """Ends it in order, if it runs here."""
        if self._process is not None:
            self._process.ask_to_end()
            if self._process.wait() is None:
                raise LaunchError(f"the coordinator did not end within {PATIENCE} s", self._process.said())
            self._process = None

    def _start(self) -> None:
        folder, authority = self._data / "coordinator", self._data / "ca"
        if not (authority / "ca.pem").exists():
            self._run("certs", "init", "--dir", authority)
        self._run("certs", "issue", "--dir", authority, "--role", "coordinator", "--name", "launch",
                  "--output", folder / "tls")  # fmt: skip
        self._run("certs", "issuer", "--dir", authority, "--output", folder / "issuer.pem")
        listen = "127.0.0.1:0" if self._host in LOCAL else "0.0.0.0:0"
        line = [*self._program, "coordinator", "--data", str(folder), "--listen", listen, "--set", "metrics.listen="]
        process = Tied("coordinator", tied(line, GRACE), {})
        heard = process.hear("listens on ", 1, START_PATIENCE)
        port = re.search(r":(\d+)\b", heard[0]) if heard else None
        if port is None:
            process.ask_to_end()
            process.wait()
            raise LaunchError("the coordinator did not start", process.said())
        self._process, self._at = process, f"{self._host}:{port.group(1)}"
        self.address = self._token("admin", "--name", "launch", "--expires", "1000 h")

    def _token(self, role: str, *more: str) -> str:
        line = ["token", "create", "--role", role, "--address", self._at, "--json"]
        said = self._run(*line, "--data", self._data / "coordinator", *more)
        connect = json.loads(said)["connect"]
        assert isinstance(connect, str)
        return connect

    def _run(self, *line: str | Path) -> str:
        command = [*self._program, *map(str, line)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_PATIENCE
            )
        except subprocess.TimeoutExpired as late:
            raise LaunchError(f"`rollhouse {line[0]} {line[1]}` did not end in {COMMAND_PATIENCE:g} s") from late
        if done.returncode != 0:
            raise LaunchError(f"`rollhouse {line[0]} {line[1]}` failed", done.stderr.strip())
        return done.stdout


LOCAL = ("127.0.0.1", "localhost")
