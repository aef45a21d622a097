"""Who installs the wheel has the ``rollhouse`` command, and ``python -m rollhouse``.

Symptom: the wheel had no command, and said neither who made it nor what it is for. Cause: the command was a binary alone.
Fix: it is a library that the extension module carries, with a console script.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import sysconfig
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rollhouse

WHEEL = "ROLLHOUSE_WHEEL"
"""The environment variable that names the wheel, which `cargo xtask python` sets."""

MAX_WHEEL_BYTES = 24 << 20
"""Of the wheel that tests are run with, most of which is compiled without optimisation; one for users is smaller."""

Line = list[str]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and nothing else in it."""
    wheel = os.environ.get(WHEEL)
    if not wheel:
        pytest.skip(f"{WHEEL} does not name the wheel")
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder)
    python = folder / "bin/python"
    install = ["--python", python, "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", wheel]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    return folder


def run(line: Line, **arguments) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, capture_output=True, text=True, timeout=120, **arguments)


def test_the_command_needs_nothing_but_the_wheel(fresh: Path) -> None:
    done = run([str(fresh / "bin/rollhouse"), "--version"])
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"rollhouse {rollhouse.__version__}"), done.stderr
    done = run([str(fresh / "bin/rollhouse"), "envs"])
    assert done.returncode == 0 and "CartPole-v1" in done.stdout, done.stderr


def test_the_module_is_the_command(fresh: Path, tmp_path: Path) -> None:
    # What the package requires comes from this environment; the package itself does not.
    (site,) = fresh.glob("lib/python*/site-packages")
    (site / "required.pth").write_text(sysconfig.get_path("purelib"))
    python = [str(fresh / "bin/python"), "-m", "rollhouse"]
    rollout = ["rollout", "--env", "CartPole-v1", "--lanes", "4", "--episodes", "8", "--seed", "1", "--data", str(tmp_path)]
    done = run([*python, *rollout], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    where = "import rollhouse; print(rollhouse.__file__)"
    assert run([python[0], "-c", where]).stdout.startswith(str(fresh))
    listed = run([*python, "replay", "ls", "--json", "--data", str(tmp_path)])
    episodes = [json.loads(line) for line in listed.stdout.splitlines()]
    assert listed.returncode == 0 and len(episodes) == 8, listed.stderr
    # The same files as those of the Python side.
    assert {info.id for info in rollhouse.replays.open(tmp_path)} == {episode["id"] for episode in episodes}
    fork = ["replay", "fork", episodes[0]["id"], "--at", "3", "--policy", "noop", "--json", "--data", str(tmp_path)]
    forked = run([*python, *fork])
    assert forked.returncode == 0, forked.stderr
    parents = {info.id: info.parent for info in rollhouse.replays.open(tmp_path)}
    assert parents[json.loads(forked.stdout)["id"]] == (episodes[0]["id"], 3)
    assert parents[episodes[0]["id"]] is None


WAYS = {
    "script": [str(Path(sysconfig.get_path("scripts")) / "rollhouse")],
    "module": [sys.executable, "-m", "rollhouse"],
}
"""How it is called in this environment."""


@pytest.fixture(params=WAYS)
def command(request: pytest.FixtureRequest) -> Line:
    return WAYS[request.param]


@pytest.mark.parametrize(
    ("line", "code", "stdout", "stderr"),
    [
        (["--version"], 0, "rollhouse ", ""),
        (["--help"], 0, "Exit codes: 0 done", ""),
        (["rollout", "--env", "CartPole-v1", "--lanes", "none"], 2, "", "error: invalid value 'none'"),
        (["rollout", "--env", "CartPole-v9", "--lanes", "4", "--episodes", "4"], 2, "", "unknown env `CartPole-v9`"),
        (["replay", "ls", "--data", "nowhere"], 2, "", "there are no recordings at nowhere"),
    ],
)
def test_its_exit_codes_are_the_commands(
    command: Line, line: Line, code: int, stdout: str, stderr: str, tmp_path: Path
) -> None:
    done = run([*command, *line], cwd=tmp_path)
    assert done.returncode == code, done
    assert stdout in done.stdout and stderr in done.stderr
    assert "Traceback" not in done.stderr


def test_its_exit_code_is_the_commands_where_nobody_listens(tmp_path: Path) -> None:
    line = ["status", "--connect", "rollhouse://127.0.0.1:9?token=x&ca=sha256:" + 64 * "0"]
    # Both at once, because each tries for as long as a coordinator may take to be there again.
    with ThreadPoolExecutor() as threads:
        for done in threads.map(lambda command: run([*command, *line], cwd=tmp_path), WAYS.values()):
            assert done.returncode == 5, done
            assert not done.stdout and "127.0.0.1:9" in done.stderr
            assert "Traceback" not in done.stderr


def test_ctrl_c_ends_it_in_order(command: Line, tmp_path: Path) -> None:
    line = [*command, "rollout", "--env", "CartPole-v1", "--lanes", "8", "--steps", "100000000000", "--data", str(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        # It has begun when its folder is there.
        while not (tmp_path / "segments").is_dir():
            assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=60)
    assert process.returncode == 130, talk
    assert "Traceback" not in talk and "KeyboardInterrupt" not in talk
    assert run([*command, "replay", "verify", "--data", str(tmp_path)]).returncode == 0


def test_the_wheel_says_who_and_what_for() -> None:
    told = importlib.metadata.metadata("rollhouse")
    assert told["Version"] == rollhouse.__version__
    assert told["Summary"] == "Vector environments that run fast, anywhere, and record every episode"
    assert told["License-Expression"] == "MIT OR Apache-2.0"
    assert sorted(told.get_all("License-File") or []) == ["LICENSE-APACHE", "LICENSE-MIT"]
    assert "Rollhouse contributors" in told["Author"]
    assert "reinforcement learning" in told["Keywords"]
    assert "Topic :: Scientific/Engineering :: Artificial Intelligence" in (told.get_all("Classifier") or [])
    assert "```python" in (told.get_payload() or told["Description"])


def test_the_wheel_is_of_a_size_to_download() -> None:
    wheel = os.environ.get(WHEEL)
    if not wheel:
        pytest.skip(f"{WHEEL} does not name the wheel")
    assert Path(wheel).stat().st_size < MAX_WHEEL_BYTES
