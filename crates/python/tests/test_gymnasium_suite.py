"""Gymnasium's own tests of vector envs, run against the hosted class.

They are not part of Gymnasium's packages. ``ROLLHOUSE_GYMNASIUM_SOURCE`` names a folder with a source tree of the
installed version (``git clone --branch v1.2.2 https://github.com/Farama-Foundation/Gymnasium``), or one with such
trees in folders named by version.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

FILES = (
    "test_async_vector_env.py",
    "test_autoreset_mode.py",
    "test_observation_mode.py",
    "test_sync_vector_env.py",
    "test_vector_env.py",
    "test_vector_env_info.py",
)


def source() -> Path:
    """The source tree of the installed Gymnasium."""
    named = os.environ.get("ROLLHOUSE_GYMNASIUM_SOURCE")
    if not named:
        pytest.skip("ROLLHOUSE_GYMNASIUM_SOURCE does not name Gymnasium's source tree")
    for folder in (Path(named) / gymnasium.__version__, Path(named)):
        if (folder / "tests" / "vector").is_dir():
            return folder
    pytest.skip(f"{named} has no tests/vector of Gymnasium {gymnasium.__version__}")


def test_the_tests_of_gymnasium_pass_with_hosted_envs() -> None:
    plugin = Path(__file__).parent / "gymnasium_suite"
    tree = source()
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rs", "-p", "repointed", "-p", "no:cacheprovider"),
            *(f"tests/vector/{file}" for file in FILES),
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{plugin}{os.pathsep}{tree}"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    print(result.stdout)
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr[-2_000:]
