"""Every Python block of the guide and of the README runs as it stands."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "python.md"
PAGES = [GUIDE, ROOT / "README.md"]
# What a block imports, or makes rollhouse import, beyond what the package requires.
OPTIONAL = {
    "minari": r"to_minari",
    "pettingzoo": r"pettingzoo",
    "pygame": r"knights_archers",
    "stable_baselines3": r"sb3",
    "torchrl": r"torchrl",
}


def blocks(page: Path) -> list:
    text = page.read_text()
    found = []
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        code = match.group(1)
        line = text[: match.start()].count("\n") + 2
        packages = [name for name, pattern in OPTIONAL.items() if re.search(pattern, code)]
        marks = [pytest.mark.adapters(*packages)] if packages else []
        found.append(pytest.param(code, id=f"{page.name}:{line}", marks=marks))
    return found


def test_the_pages_have_examples() -> None:
    assert len(blocks(GUIDE)) >= 10
    assert blocks(ROOT / "README.md")


@pytest.mark.parametrize("code", [block for page in PAGES for block in blocks(page)])
def test_it_runs(code: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    script = tmp_path / "block.py"
    script.write_text(code)
    environment = {key: value for key, value in os.environ.items() if key != "ROLLHOUSE_DATA"}
    environment["MINARI_DATASETS_PATH"] = str(tmp_path / "datasets")
    environment["SDL_VIDEODRIVER"] = "dummy"
    if "ROLLHOUSE_CONNECT" in code:
        environment["ROLLHOUSE_CONNECT"] = request.getfixturevalue("cluster_url")
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_name_of_the_page_is_there() -> None:
    import rollhouse
    from rollhouse import errors, replays

    text = GUIDE.read_text()
    for name in set(re.findall(r"`(\w+Error)`", text)):
        assert hasattr(errors, name), name
    for module in ("rollhouse.sb3", "rollhouse.pettingzoo"):
        assert module in text and importlib.util.find_spec(module)
    for name in ("list", "filter", "read", "verify", "batches"):
        assert f"`recorded.{name}(" in text and hasattr(replays.Replays, name)
    assert set(re.findall(r"rollhouse\.(\w+)\(", text)) <= set(dir(rollhouse))
