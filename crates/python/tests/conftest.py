"""What all tests share."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from local_cluster import PORTS, LocalCluster, rollhouse_program
from python_nodes import ALLOWED, python_nodes

import rollhouse

TEST_ALL = "ROLLHOUSE_TEST_ALL"
"""The environment variable that `cargo xtask test --all` sets."""

# Packages that only `cargo xtask test --all` installs, by marker.
HEAVY = {
    "torch": ("torch",),
    "examples": ("torch", "stable_baselines3"),
    "adapters": ("torch", "stable_baselines3", "torchrl", "pettingzoo", "minari"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs a package that is not installed, naming it, and what takes long unless all tests are wanted."""
    everything = bool(os.environ.get(TEST_ALL))
    for item in items:
        if item.get_closest_marker("soak") is not None and not everything:
            item.add_marker(pytest.mark.skip(reason="a minute of faults; runs with `cargo xtask test --all`"))
        for marker, packages in HEAVY.items():
            wanted = item.get_closest_marker(marker)
            if wanted is None:
                continue
            # A test of one adapter names its own packages: @pytest.mark.adapters("pettingzoo").
            missing = [name for name in wanted.args or packages if importlib.util.find_spec(name) is None]
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed"))


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes that host all packages of `packages`, with two workers a session, and of which no test kills one."""
    with closing(python_nodes(tmp_path_factory.mktemp("nodes"), *ALLOWED)) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=["quic", "shm"])
def cluster(nodes: LocalCluster, request: pytest.FixtureRequest) -> Iterator[rollhouse.Cluster]:
    """Those nodes, by either transport."""
    with rollhouse.connect(nodes.url, transport=request.param, timeout=120) as connected:
        yield connected


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster whose nodes a test may kill."""
    cluster = LocalCluster(tmp_path, rollhouse_program())
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of a cluster of one node, which runs while the tests do, on free ports."""
    program = rollhouse_program()
    anywhere = "127.0.0.1:0"
    sets = [f"--set={key}={anywhere}" for key in PORTS]
    data = tmp_path_factory.mktemp("cluster")
    command = [str(program), "up", "--data", str(data), *sets]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("rollhouse://"), f"{command} said {url!r}"
            yield url
        finally:
            process.terminate()
