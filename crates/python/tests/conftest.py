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

TEST_API = "ROLLHOUSE_TEST_API"
"""The variable that is set where another Gymnasium is tried: what uses none of its API runs on the newest alone."""

# Files whose tests measure time, interrupt, or count processes: nothing runs beside them.
ALONE = {
    "test_cluster.py",
    "test_connecting.py",
    "test_embedded_cost.py",
    "test_embedded_first_done.py",
    "test_hosted.py",
    "test_hosted_interrupts.py",
    "test_hosted_losses.py",
    "test_launch.py",
    "test_shared_memory.py",
}

# Packages that only `cargo xtask test --all` installs, by marker.
HEAVY = {
    "torch": ("torch",),
    "examples": ("torch", "stable_baselines3"),
    "adapters": ("torch", "stable_baselines3", "torchrl", "pettingzoo", "minari"),
}


def uses_gymnasium(item: pytest.Item) -> bool:
    """Whether the test's file has imported something of Gymnasium's, and starts no cluster."""
    named = (getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in vars(item.module).values())
    return any(str(name).partition(".")[0] == "gymnasium" for name in named) and "test_cluster" not in item.path.name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what needs a package that is not installed, naming it, and what takes long unless all tests are wanted. Marks
    what runs alone; leaves out what does not concern another Gymnasium where that is what is tried."""
    everything = bool(os.environ.get(TEST_ALL))
    if os.environ.get(TEST_API):
        others = [item for item in items if not uses_gymnasium(item)]
        items[:] = [item for item in items if uses_gymnasium(item)]
        config.hook.pytest_deselected(items=others)
    for item in items:
        if item.path.name in ALONE:
            item.add_marker(pytest.mark.alone)
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
