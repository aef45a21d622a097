"""Units: systemd takes them, and they leave a service little that it could do beyond its work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import DEPLOY, need, program, run

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def test_there_is_a_unit_for_each_service() -> None:
    assert [unit.name for unit in UNITS] == ["rollhouse-coordinator.service", "rollhouse-node.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_it_and_finds_it_little_exposed(unit: Path, tmp_path: Path) -> None:
    need("systemd-analyze")
    copy = tmp_path / unit.name
    # Where it is not installed, a program stands in its place; nothing is started.
    copy.write_text(unit.read_text().replace("/usr/bin/rollhouse", str(program())))
    said = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", copy)
    assert not said, said
    # Ten times the exposure: 2.5 at most.
    told = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=25", copy)
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert exposure and float(exposure[1]) < 2.5, told


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_program_takes_the_command_line(unit: Path) -> None:
    line = re.search(r"^ExecStart=/usr/bin/rollhouse (\w+) (.*)$", unit.read_text(), re.MULTILINE)
    options = set(re.findall(r"--\w+", line[2]))
    helped = run(program(), line[1], "--help")
    assert all(option in helped for option in options)
    # Longer than the 20 s in which a service stops in order.
    assert int(re.search(r"^TimeoutStopSec=(\d+)s$", unit.read_text(), re.MULTILINE)[1]) > 20
