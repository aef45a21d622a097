"""Every Python block of docs/recipes.md runs as it stands, with the files that the page has beside it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import RECIPES, ROOT, blocks, run

FILE = re.compile(r"# (\w+\.py)\n")
BLOCKS = blocks(RECIPES)


def name_of(block: pytest.param) -> str | None:
    """The name of the file that a block is."""
    found = FILE.match(block.values[0])
    return found and found[1]


@pytest.mark.parametrize("code", [block for block in BLOCKS if name_of(block) is None])
def test_a_recipe_runs(
    code: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    for block in BLOCKS:
        if name := name_of(block):
            (modules / name).write_text(block.values[0])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(modules), os.environ.get("PYTHONPATH", "")]))
    run(code, tmp_path, request)


def test_the_comparison_measures_what_is_installed_and_names_what_is_not() -> None:
    line = [sys.executable, ROOT / "crates/python/benches/compare.py", "--json", "--lanes", "4", "--steps", "5"]
    done = subprocess.run([*line, "--repeats", "1"], capture_output=True, text=True, check=True)
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert len(rows) == 8 and all(("steps_per_second" in row) != ("skipped" in row) for row in rows), rows
    assert all("steps_per_second" in row for row in rows if row["name"].startswith(("Rollhouse", "Gymnasium"))), rows


def test_the_reference_is_that_of_the_docstrings() -> None:
    done = subprocess.run([sys.executable, ROOT / "crates/python/reference.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_page_is_in_the_contents_and_every_link_of_a_page_leads_somewhere() -> None:
    contents = (ROOT / "docs" / "README.md").read_text()
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert page.name == "README.md" or f"({page.name})" in contents, page.name
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "crates" / "python" / "README.md"]:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"


def test_nobody_is_told_to_install_from_where_the_package_is_not() -> None:
    line = ["git", "grep", "-nE", r"pip install (-\S+ )*['\"]?rollhouse", "--", "*.md", "*.rs", "*.py", "*.toml", "*.sh"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    said = [row for row in done.stdout.splitlines() if "test_recipes.py" not in row and not row.startswith("CHANGELOG.md")]
    assert not said, said
