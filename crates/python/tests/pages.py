"""The Python blocks of pages, for tests that run them as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "python.md"
TRAINERS = ROOT / "docs" / "trainers.md"
LAUNCH = ROOT / "docs" / "launch.md"
LIVE = ROOT / "docs" / "live.md"
RECIPES = ROOT / "docs" / "recipes.md"

# What a block imports, or makes rollhouse import, beyond what the package requires.
OPTIONAL = {
    "ale_py": r"ale_py|from atari",
    "jax": r"import jax",
    "minari": r"to_minari",
    "mujoco": r"HalfCheetah",
    "pettingzoo": r"pettingzoo",
    "pygame": r"knights_archers",
    "pyarrow": r"to_lerobot",
    "ray": r"from ray",
    "skrl": r"from skrl",
    "stable_baselines3": r"sb3|stable_baselines3",
    "tianshou": r"tianshou",
    "torch": r"import torch",
    "torchrl": r"torchrl",
    # Comes with ray[rllib] and not with Ray alone.
    "tree": r"ray\.rllib",
}


def blocks(page: Path) -> list:
    """The blocks of a page as parameters of a test; what needs a package that is not installed is skipped."""
    text = page.read_text()
    found = []
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        code = match.group(1)
        line = text[: match.start()].count("\n") + 2
        packages = [name for name, pattern in OPTIONAL.items() if re.search(pattern, code)]
        marks = [pytest.mark.adapters(*packages)] if packages else []
        found.append(pytest.param(code, id=f"{page.name}:{line}", marks=marks))
    return found


def run(code: str, folder: Path, request: pytest.FixtureRequest) -> None:
    """Runs a block in a process of its own, in an empty folder, with a cluster if it asks for one."""
    script = folder / "block.py"
    script.write_text(code)
    environment = {key: value for key, value in os.environ.items() if key != "ROLLHOUSE_DATA"}
    environment["MINARI_DATASETS_PATH"] = str(folder / "datasets")
    environment["SDL_VIDEODRIVER"] = "dummy"
    if "ROLLHOUSE_CONNECT" in code:
        environment["ROLLHOUSE_CONNECT"] = request.getfixturevalue("cluster_url")
    done = subprocess.run([sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
