"""Gymnasium's own tests of vector envs and of their wrappers, run against every class of ours.

They are part of none of Gymnasium's packages. ``ROLLHOUSE_GYMNASIUM_SOURCE`` names a folder with a source tree of the
installed version, or one with such trees in folders named by version. Where it is not set, ``cargo xtask test --all``
gets the tree of that version from Gymnasium's repository; without a network the suite is skipped. What of it is not
run, and why, stands in one table, ``gymnasium_suite/skips.py``. Against lanes on a node all of it is run, with ``--all``
alone, and what that table names has to fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from local_cluster import LocalCluster, rollhouse_program
from python_nodes import python_settings, search_path

FOLDERS = ("tests/vector", "tests/wrappers/vector")
REPOSITORY = "https://github.com/Farama-Foundation/Gymnasium"
SUITE = Path(__file__).parent / "gymnasium_suite"
CONNECTED = {"cluster": "cluster_url", "nodes": "node"}
"""The fixtures that give the connection strings of what is tested on a cluster."""

CLONES = Path(__file__).parents[3] / "target" / "python" / "gymnasium-source"


@pytest.fixture(scope="module")
def source() -> Path:
    """A folder with the tests of the installed Gymnasium."""
    named = os.environ.get("ROLLHOUSE_GYMNASIUM_SOURCE")
    if not named:
        return clone()
    for folder in (Path(named) / gymnasium.__version__, Path(named)):
        if (folder / FOLDERS[0]).is_dir():
            return folder
    pytest.skip(f"{named} has no {FOLDERS[0]} of Gymnasium {gymnasium.__version__}")


def clone() -> Path:
    """Gets the tests of the installed version, unless they were got before."""
    folder = CLONES / gymnasium.__version__
    if (folder / FOLDERS[0]).is_dir():
        return folder
    if not os.environ.get("ROLLHOUSE_TEST_ALL"):
        pytest.skip("ROLLHOUSE_GYMNASIUM_SOURCE does not name Gymnasium's source tree; `--all` gets it")
    tree = CLONES / f"{gymnasium.__version__}.part"
    shutil.rmtree(tree, ignore_errors=True)
    line = ["git", "clone", "--quiet", "--depth=1", f"--branch=v{gymnasium.__version__}", REPOSITORY, str(tree)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"{REPOSITORY} cannot be cloned, and ROLLHOUSE_GYMNASIUM_SOURCE names no tree: {done.stderr.strip()}")
    folder.mkdir(parents=True)
    (tree / "tests").rename(folder / "tests")
    shutil.rmtree(tree)
    return folder


@pytest.fixture
def node(source: Path, tmp_path: Path) -> Iterator[str]:
    """The connection string of a cluster of one node, whose workers find the functions that Gymnasium's tests make envs by."""
    if not os.environ.get("ROLLHOUSE_TEST_ALL"):
        pytest.skip("each of these tests starts processes on a node: minutes of them run with `--all`")
    settings, variables = python_settings("sent_functions", workers="1"), {"one": search_path(SUITE, source)}
    cluster = LocalCluster(tmp_path, rollhouse_program(), settings, variables, names=("one",))
    try:
        yield cluster.url
    finally:
        cluster.close()


@pytest.mark.parametrize("which", ["embedded", "hosted", "cluster", "nodes"])
def test_the_tests_of_gymnasium_pass(
    which: str, source: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # Some of these tests write where they are run, and beside them the package would hide the one that is installed.
    shutil.copytree(source / "tests", tmp_path / "tests")
    environment = {**os.environ, "PYTHONPATH": str(SUITE)}
    environment |= {"ROLLHOUSE_SUITE_CLASS": which, "SDL_VIDEODRIVER": "dummy"}
    if which in CONNECTED:
        environment["ROLLHOUSE_SUITE_CONNECT"] = request.getfixturevalue(CONNECTED[which])
    line = [sys.executable, "-m", "pytest", "-q", "-rs", "--disable-warnings", "-p", "repointed", "-p", "no:cacheprovider"]
    line += [f"--rootdir={tmp_path}", *FOLDERS]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
