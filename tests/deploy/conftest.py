"""What the tests of deploy/ share: the tools of the machine, or the reason why a test is skipped."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"

# Debian's packages, for whoever reads why a test was skipped.
PACKAGES = {
    "docker": "docker.io",
    "kubectl": "kubernetes-client, or the Kubernetes project's own",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
    "apt-get": "apt",
    "debootstrap": "debootstrap",
}

heavy = pytest.mark.skipif("ROLLHOUSE_TEST_ALL" not in os.environ, reason="takes minutes: runs with --all")


def need(*tools: str) -> None:
    """Skips the test unless the machine has these programs."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} here (Debian's {PACKAGES[tool]})")


def need_docker() -> None:
    """Skips the test unless a Docker engine answers."""
    need("docker")
    asked = subprocess.run(["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True)
    if asked.returncode != 0:
        pytest.skip(f"no Docker engine answers: {asked.stderr.strip()}")


def need_packages() -> None:
    """Skips the test unless apt knows where Debian's packages are, of which bases are made."""
    need("apt-get")
    asked = subprocess.run(["apt-get", "download", "--print-uris", "libc6"], capture_output=True, text=True)
    if asked.returncode != 0:
        pytest.skip(f"apt has no lists of packages here (apt-get update): {asked.stderr.strip()}")


def run(*command: str | Path, **options: object) -> str:
    """Runs a command that has to succeed, and gives its stdout."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def program() -> Path:
    """The binary that is tested."""
    given = os.environ.get("ROLLHOUSE_PROGRAM")
    assert given, "run this by `cargo xtask deploy`, or set ROLLHOUSE_PROGRAM to a rollhouse binary"
    return Path(given)


def keys_of(role: str, variables: dict[str, str]) -> None:
    """Fails unless the program takes these variables in that role, and knows each of them."""
    environment = {"PATH": os.environ["PATH"], **variables}
    shown = run(program(), "config", "show", "--for", role, "--json", env=environment)
    known = {json.loads(line)["variable"] for line in shown.splitlines()}
    unknown = {name for name in variables if name.startswith("ROLLHOUSE_")} - known
    assert not unknown, f"a {role} has no {unknown}"


def size_of(text: str) -> float:
    """Bytes of a size as our settings and Kubernetes write it."""
    number, unit = re.fullmatch(r"([0-9.]+) ?([A-Za-z]*)", text).groups()
    units = {"MB": 1e6, "GB": 1e9, "MiB": 2**20, "GiB": 2**30, "Mi": 2**20, "Gi": 2**30}
    return float(number) * units[unit]


def metrics() -> set[str]:
    """Every metric that the program registers: a test of crates/metrics compares that page with the program."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    return set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE))


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names; a histogram's series count as the histogram."""
    # Recorded series have colons in their names.
    names = re.findall(r"(?<![:\w])(?:rollhouse|process)_[a-z0-9_]+(?![:\w])", expression)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def until(what: str, reached: Callable[[], object], patience: float = 60.0) -> object:
    """What `reached` gives once that is true. Fails the test if it never is."""
    end = time.monotonic() + patience
    while True:
        found = reached()
        if found:
            return found
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.1)


def get(url: str, **headers: str) -> tuple[int, str]:
    """Status and body of a page, (0, why) if nobody answers."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def free_port() -> int:
    """A TCP port that nobody has at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A coordinator and a node in one process, which play: connection string, addresses of both pages, file of the log."""
    folder = tmp_path_factory.mktemp("cluster")
    ports = {"coordinator": free_port(), "node": free_port()}
    environment = dict(os.environ, ROLLHOUSE_SPOOL__SEAL_AFTER="500 ms")
    for section, key in [("COORDINATOR", "LISTEN"), ("NODE", "LISTEN")]:
        environment[f"ROLLHOUSE_{section}__{key}"] = "127.0.0.1:0"
    for role, port in ports.items():
        environment[f"ROLLHOUSE_METRICS__{role.upper()}"] = f"127.0.0.1:{port}"
    with open(folder / "log", "w") as log:
        up = subprocess.Popen([program(), "up"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    rollout = None
    try:
        connection = up.stdout.readline().strip()
        assert connection, "rollhouse up does not start"
        line = [program(), "rollout", "--connect", connection, "--env", "CartPole-v1", "--lanes", "16"]
        rollout = subprocess.Popen([*line, "--steps", "1000000000000"], cwd=folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        steps = re.compile(r"^rollhouse_steps_total [^0]", re.MULTILINE)
        until("lanes play", lambda: steps.search(get(f"http://127.0.0.1:{ports['node']}/metrics")[1]))
        yield {"connection": connection, "log": str(folder / "log"), **{role: f"127.0.0.1:{port}" for role, port in ports.items()}}
    finally:
        for process in filter(None, [rollout, up]):
            process.terminate()
            process.wait()


@pytest.fixture(scope="session")
def images() -> Iterator[str]:
    """The image of the binary under test, with a tag of its own; gone after the tests, but for the bases."""
    from composed import DOCKER, NAME

    need_docker()
    need_packages()
    run(DOCKER / "build.sh", "--binary", program(), "--tag", NAME, "rollhouse")
    yield f"rollhouse:{NAME}"
    run("docker", "image", "rm", f"rollhouse:{NAME}")


class Released(NamedTuple):
    """Images of the release build."""

    rollhouse: str
    python: str
    # What build.sh said of them.
    said: str


@pytest.fixture(scope="session")
def released() -> Iterator[Released]:
    """Images of the release build in $ROLLHOUSE_RELEASE; the package for the second is compiled, unless its wheel and what
    it needs are in $ROLLHOUSE_WHEELS."""
    from composed import DOCKER, NAME

    need_docker()
    need_packages()
    need("debootstrap")
    binary, wheels = os.environ.get("ROLLHOUSE_RELEASE"), os.environ.get("ROLLHOUSE_WHEELS")
    if not binary or not Path(binary).exists():
        pytest.skip("no release build is given: `cargo xtask deploy --all` makes one")
    tag = f"{NAME}-release"
    given = ["--binary", binary, *(["--wheels", wheels] if wheels else []), "--tag", tag]
    said = run(DOCKER / "build.sh", *given, "rollhouse", "rollhouse-python")
    images = Released(f"rollhouse:{tag}", f"rollhouse-python:{tag}", said)
    yield images
    run("docker", "image", "rm", "--force", images.rollhouse, images.python)


sys.path.insert(0, str(Path(__file__).parent))
