"""Every Python block of the guides and of the READMEs runs as it stands; those of the page on trainers in test_trainers.py."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import GUIDE, LIVE, ROOT, TRAINERS, blocks, run

PAGES = [GUIDE, LIVE, ROOT / "README.md", ROOT / "crates" / "python" / "README.md"]


def test_the_pages_have_examples() -> None:
    assert len(blocks(GUIDE)) >= 8
    assert all(blocks(page) for page in PAGES)


@pytest.mark.parametrize("code", [block for page in PAGES for block in blocks(page)])
def test_it_runs(code: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run(code, tmp_path, request)


@pytest.mark.adapters("mypy")
def test_type_checkers_find_what_the_pages_show(tmp_path: Path) -> None:
    """Symptom: ``make_vec`` was annotated as what has less than the pages show. Fix: its type has all, which mypy looks at here."""
    files = []
    for number, block in enumerate(block for page in (*PAGES, TRAINERS) for block in blocks(page)):
        (file := tmp_path / f"block_{number}.py").write_text(str(block.values[0]))
        files.append(file)
    # What is not installed has no types; each block is a module of its own.
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--check-untyped-defs", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*command, *files], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_name_of_the_pages_is_there() -> None:
    import rollhouse
    from rollhouse import errors, replays

    text = GUIDE.read_text() + TRAINERS.read_text()
    for name in set(re.findall(r"`(\w+Error)`", text)):
        assert hasattr(errors, name), name
    for module in ("rollhouse.sb3", "rollhouse.tianshou", "rollhouse.pettingzoo"):
        assert module in text and importlib.util.find_spec(module)
    for name in ("list", "filter", "read", "verify", "batches"):
        assert f"`recorded.{name}(" in text and hasattr(replays.Replays, name)
    assert set(re.findall(r"rollhouse\.(\w+)\(", text)) <= set(dir(rollhouse))
