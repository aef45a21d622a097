"""Worker processes are run by an interpreter, and find what they need whatever lies in the folder they are started in."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ENV = """
import sys
from pathlib import Path

import gymnasium

import rollhouse
from rollhouse.errors import InterpreterError


def step_once(envs):
    assert envs.reset(seed=0)[0].shape == (2, 4)
    envs.step([0, 1])
    envs.close()


def make():
    return gymnasium.make("CartPole-v1")
"""

DOORS = {
    "functions": "rollhouse.vectorize([make] * 2)",
    "an id": "rollhouse.make_vec('gymnasium:CartPole-v1', 2)",
    "a class": "rollhouse.make_vec('gymnasium.envs.classic_control:CartPoleEnv', 2)",
}


def run(body: str, folder: Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a script of that folder in a process of its own."""
    (folder / "script.py").write_text(ENV + textwrap.dedent(body))
    line = [sys.executable, folder / "script.py"]
    return subprocess.run(line, cwd=cwd or folder, capture_output=True, text=True, timeout=300)


def fine(body: str, folder: Path, cwd: Path | None = None) -> None:
    ended = run(textwrap.dedent(body) + "\nprint('fine')\n", folder, cwd)
    assert ended.returncode == 0 and ended.stdout.endswith("fine\n"), ended.stderr


@pytest.fixture
def shadows(tmp_path: Path) -> Path:
    """A folder with modules of names that everybody imports."""
    folder = tmp_path / "shadows"
    for name in ("json", "random", "pickle", "rollhouse_command"):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(f"raise RuntimeError('{name}.py of the working folder was imported')\n")
    for name in ("gymnasium", "numpy", "rollhouse"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise RuntimeError('{name} of the working folder was imported')\n")
    return folder


@pytest.mark.parametrize("door", DOORS)
def test_modules_in_the_working_folder_are_not_the_workers(door: str, shadows: Path, tmp_path: Path) -> None:
    """Symptom: a worker that is started beside a `json.py` imports it, where the script, which lies elsewhere, does not. Even
    if the script has that folder in its path by now, as notebooks do."""
    for first in ("", "sys.path.insert(0, '')", "import os; sys.path.insert(0, os.getcwd())"):
        fine(f"{first}\nstep_once({DOORS[door]})", tmp_path, shadows)


def test_plug_ins_and_clusters_start_beside_them_too(shadows: Path, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    plugin = Path(__file__).parents[3] / "crates" / "plugin"
    flags = ["-std=c99", "-O2", "-fPIC", "-shared", "-I", plugin / "include"]
    subprocess.run([compiler, *flags, plugin / "examples" / "cartpole.c", "-o", tmp_path / "plugin.so"], check=True)
    fine(f"step_once(rollhouse.make_vec(rollhouse.load_plugin('{tmp_path}/plugin.so')[0], 2))", tmp_path, shadows)
    body = """
        from rollhouse import launch
        with launch.local(nodes=1, data="data") as cluster:
            step_once(cluster.make_vec("CartPole-v1", 2))
        """
    fine(body, tmp_path, shadows)


@pytest.mark.parametrize("door", DOORS)
def test_what_is_no_text_in_the_search_path_does_no_harm(door: str, tmp_path: Path) -> None:
    fine(f"sys.path += [Path({str(tmp_path)!r}), None, b'bytes']\nstep_once({DOORS[door]})", tmp_path)


NONE = {
    "frozen": ("sys.frozen = True", "frozen"),
    "empty": ("sys.executable = ''", "names no interpreter"),
    "missing": ("sys.executable = None", "names no interpreter"),
    "gone": ("sys.executable = '/nowhere/program'", "no file that can be run"),
}


@pytest.mark.parametrize("how", NONE)
@pytest.mark.parametrize("door", DOORS)
def test_a_program_without_an_interpreter_is_refused_and_can_name_one(door: str, how: str, tmp_path: Path) -> None:
    """Symptom: a frozen program ran itself a second time, and so on."""
    setting, says = NONE[how]
    named = DOORS[door].replace(", 2)", ", 2, python=python)").replace("* 2)", "* 2, python=python)")
    body = f"""
        python = sys.executable
        {setting}
        try:
            {DOORS[door]}
        except InterpreterError as error:
            assert "{says}" in str(error) and "python=" in str(error), error
        else:
            raise AssertionError("a worker was started")
        step_once({named})
        """
    fine(body, tmp_path)


def test_a_program_that_runs_itself_as_a_worker_does_so_once(tmp_path: Path) -> None:
    """Where nothing tells that the interpreter is the program, what it starts refuses."""
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path / "script.py"} "$@"\n')
    program.chmod(0o755)
    body = f"""
        with open({str(tmp_path / "starts")!r}, "a") as starts:
            print("started", file=starts)
        sys.executable = {str(program)!r}
        rollhouse.vectorize([make])
        """
    ended = run(body, tmp_path)
    assert ended.returncode == 1 and "ran the program instead" in ended.stderr, ended.stderr
    # A worker that ends as it starts is started once more.
    assert (tmp_path / "starts").read_text().count("started") == 3


def test_another_interpreter_runs_the_workers_if_it_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    fine(f"step_once(rollhouse.vectorize([make] * 2, python={str(python)!r}))", tmp_path)
    ended = run("rollhouse.vectorize([make], python='/nowhere/python')", tmp_path)
    assert ended.returncode == 1 and "/nowhere/python" in ended.stderr, ended.stderr
