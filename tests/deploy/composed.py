"""The cluster of compose.yaml, in a folder and under a name of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import DEPLOY, run, until

DOCKER = DEPLOY / "docker"
# Of this run alone: images and containers of a user are not touched.
NAME = f"rollhouse-test-{os.getpid()}"


def compose() -> list[str]:
    """Compose in the version that is here."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        pytest.skip("there is no Compose here (Debian's docker-compose)")
    return ["docker-compose"]


class Compose:
    """A cluster of containers; `files` beside compose.yaml say what is different."""

    def __init__(self, folder: Path, image: str, name: str = NAME, files: tuple[str, ...] = ()) -> None:
        self.name, self.network = name, f"{name}_default"
        self.folder = folder / "docker"
        self.line = [*compose(), "--project-name", name]
        for file in ["compose.yaml", *files]:
            self.line += ["--file", str(self.folder / file)]
        shutil.copytree(DOCKER, self.folder, ignore=shutil.ignore_patterns("secrets"))
        for sibling in ["prometheus", "grafana"]:
            shutil.copytree(DEPLOY / sibling, folder / sibling)
        self.environment = dict(os.environ, ROLLHOUSE_IMAGE=image, COMPOSE=" ".join(self.line))

    def __call__(self, *words: str) -> str:
        return run(*self.line, *words, env=self.environment)

    def prepare(self, *words: str, **variables: str) -> None:
        run(self.folder / "prepare.sh", *words, env=self.environment | variables)

    def container(self, service: str) -> str:
        return self("ps", "--quiet", service).strip()

    def connection(self) -> str:
        return (self.folder / "secrets" / "connection").read_text().strip()

    def operators(self) -> str:
        """A connection string that may do anything."""
        line = ["exec", "-T", "coordinator", "rollhouse", "token", "create", "--role", "admin", "--name", "operator"]
        address, _, query = self.connection().partition("?")
        authority = next(word for word in query.split("&") if word.startswith("ca="))
        return f"{address}?token={self(*line).strip()}&{authority}"

    def line_of(self, connection: str | None = None, *options: str) -> list[str]:
        """The beginning of a command that runs an image in the network of the cluster."""
        given = ["--env", f"ROLLHOUSE_CONNECT={connection or self.connection()}"]
        return ["docker", "run", "--network", self.network, *given, *options]

    def rollhouse(self, *words: str, connection: str | None = None) -> str:
        """A command of a trainer's, in the network of the cluster."""
        return run(*self.line_of(connection, "--rm"), self.environment["ROLLHOUSE_IMAGE"], *words)

    def nodes(self) -> dict[str, str]:
        listed = map(json.loads, self.rollhouse("nodes", "--json").splitlines())
        return {node["node"]: node["state"] for node in listed}

    def await_nodes(self, *names: str) -> None:
        """Waits until these nodes are alive, and no others."""
        until(f"{names} are alive", lambda: self.nodes_or_none() == dict.fromkeys(names, "alive"))

    def nodes_or_none(self) -> dict[str, str] | None:
        try:
            return self.nodes()
        except AssertionError:
            # No coordinator answers at the moment.
            return None

    def health(self, service: str) -> str:
        state = run("docker", "inspect", "--format", "{{json .State}}", self.container(service))
        return json.loads(state)["Health"]["Status"]
