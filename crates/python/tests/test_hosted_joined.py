"""Workers of a vector env that it has not started: processes that connect to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hosted_envs import CountEnv

import rollhouse
from rollhouse.errors import LaneLostError

TESTS = Path(__file__).parent


class Programs:
    """Programs that want to be workers of the vector env that listens in a folder."""

    def __init__(self, folder: Path):
        self.folder, self.started = folder, list[subprocess.Popen[str]]()

    def start(self, *place: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "rollhouse.hosted.join", str(self.folder), *place]
        paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": paths}
        self.started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment))
        return self.started[-1]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path / "workers")
    yield programs
    for program in programs.started:
        program.kill()
        program.wait()
        assert program.stderr is not None
        program.stderr.close()


def test_programs_of_others_step_the_lanes_as_workers_of_its_own_do_and_are_not_ended_by_it(programs: Programs) -> None:
    first, second = programs.start("0"), programs.start("1")
    with rollhouse.vectorize([CountEnv] * 4, workers=2, listen=programs.folder) as envs, rollhouse.vectorize([CountEnv] * 4, workers=2) as own:
        assert envs._crew.workers.process_ids() == [first.pid, second.pid]
        (shown, _), (wanted, _) = envs.reset(seed=3), own.reset(seed=3)
        assert np.array_equal(shown, wanted)
        for _ in range(30):
            actions = np.zeros(4, np.int64)
            for shown, wanted in zip(envs.step(actions)[:4], own.step(actions)[:4], strict=True):
                assert np.array_equal(shown, wanted)
        assert envs.get_attr("spec") == own.get_attr("spec")
    # They were let go, and have ended by themselves.
    assert (first.wait(60), second.wait(60)) == (0, 0)
    assert os.listdir(programs.folder) == []


def test_the_end_of_such_a_program_costs_its_lanes_alone_and_the_next_one_has_its_place(programs: Programs) -> None:
    first, second = programs.start("0"), programs.start("1")
    with rollhouse.vectorize([CountEnv] * 4, workers=2, listen=programs.folder, on_loss="report") as envs:
        envs.reset(seed=3)
        first.send_signal(signal.SIGKILL)
        first.wait()
        actions = np.zeros(4, np.int64)
        infos = envs.step(actions)[4]
        assert infos["lost"][:2].tolist() == ["crashed", "crashed"] and infos["valid"].tolist() == [False, False, True, True]
        third = programs.start()
        while not (valid := envs.step(actions)[4].get("valid", np.ones(4, bool)))[:2].all():
            assert valid[2:].all()
        assert envs._crew.workers.process_ids() == [third.pid, second.pid]


def test_a_program_for_a_place_that_is_taken_is_refused_and_says_so(programs: Programs) -> None:
    programs.start()
    with rollhouse.vectorize([CountEnv] * 2, workers=1, listen=programs.folder) as envs:
        envs.reset(seed=3)
        late = programs.start("0")
        while late.poll() is None:
            envs.step(np.zeros(2, np.int64))
            envs._crew.workers.look_after()
        assert late.stderr is not None and "another program has its place" in late.stderr.read() and late.returncode == 1
        assert envs._losses.away == {}


def test_what_cannot_be_listened_for_is_refused_by_name(programs: Programs) -> None:
    with pytest.raises(ValueError, match="python="):
        rollhouse.vectorize([CountEnv], listen=programs.folder, python=sys.executable)
    programs.folder.mkdir(mode=0o755)
    programs.folder.chmod(0o755)
    with pytest.raises(OSError, match="nobody else can enter"):
        rollhouse.vectorize([CountEnv], listen=programs.folder)
    programs.folder.chmod(0o700)
    with pytest.raises(LaneLostError, match="launch_timeout=0.2"):
        rollhouse.vectorize([CountEnv], listen=programs.folder, launch_timeout=0.2)
