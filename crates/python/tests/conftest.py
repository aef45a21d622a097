"""What all tests share."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections import Counter
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
"""The variable that is set where another Gymnasium is tried: only what meets its API runs there, in `API`."""

# Files whose tests hold vector envs, spaces, wrappers and infos to what Gymnasium does. On the oldest Gymnasium, `--all` runs the
# others too.
API = {
    "test_action_masks.py",
    "test_embedded_bad_input.py",
    "test_embedded_contract.py",
    "test_embedded_equality.py",
    "test_embedded_wrappers.py",
    "test_empty_columns.py",
    "test_env_words.py",
    "test_first_reset.py",
    "test_hosted.py",
    "test_info_columns.py",
    "test_lane_attributes.py",
    "test_own_spaces.py",
    "test_remarks.py",
    "test_step_columns.py",
}

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

TRANSPORTS = ("quic", "shm")

# Packages that only `cargo xtask test --all` installs, by marker.
HEAVY = {
    "torch": ("torch",),
    "examples": ("torch", "stable_baselines3"),
    "adapters": ("torch", "stable_baselines3", "torchrl", "pettingzoo", "minari"),
}


def by_one_transport(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of which each runs by one transport of `cluster`: those of a file alternate."""
    seen: Counter[tuple[Path, str]] = Counter()
    kept = []
    for item in items:
        callspec = getattr(item, "callspec", None)
        transport = callspec.params.get("cluster") if callspec is not None else None
        if transport is None:
            kept.append(item)
            continue
        # Pytest has all tests of one transport before those of the other.
        place = seen[item.path, transport]
        seen[item.path, transport] += 1
        if TRANSPORTS[place % len(TRANSPORTS)] == transport:
            kept.append(item)
    return kept


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what needs a package that is not installed, naming it, and what takes long unless all tests are wanted. Marks
    what runs alone; leaves out what does not concern another Gymnasium where that is what is tried, and, unless all tests
    are wanted or some are named, the second transport of each."""
    everything = bool(os.environ.get(TEST_ALL))
    kept = items
    if os.environ.get(TEST_API):
        kept = [item for item in kept if item.path.name in API]
    if not everything and not any("::" in argument for argument in config.args):
        kept = by_one_transport(kept)
    ran = {id(item) for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in ran])
    items[:] = kept
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


@pytest.fixture(scope="module", params=TRANSPORTS)
def cluster(nodes: LocalCluster, request: pytest.FixtureRequest) -> Iterator[rollhouse.Cluster]:
    """Those nodes, by either transport (`by_one_transport`)."""
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
