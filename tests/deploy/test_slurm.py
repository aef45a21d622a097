"""The Slurm job, with a real Slurm where one runs: it brings a cluster up on its allocation and takes it down again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import DEPLOY, program, run, until

JOB = DEPLOY / "slurm" / "rollhouse.sbatch"


def test_a_shell_can_read_the_job() -> None:
    run("bash", "-n", JOB)


def test_a_job_plays_on_a_cluster_of_its_own_and_leaves_its_recordings(tmp_path: Path) -> None:
    if shutil.which("sbatch") is None or subprocess.run(["sinfo"], capture_output=True).returncode != 0:
        pytest.skip("no Slurm answers here (Debian's slurmctld and slurmd, configured and running)")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "rollhouse").symlink_to(program())
    environment = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}")
    command = ["rollhouse", "rollout", "--env", "CartPole-v1", "--lanes", "16", "--episodes", "200", "--json"]
    submitted = run("sbatch", "--parsable", "--cpus-per-task=1", JOB, *command, cwd=tmp_path, env=environment)
    number = submitted.strip().split(";")[0]

    def state() -> str:
        return run("scontrol", "show", "job", number).split("JobState=")[1].split()[0]

    until("the job ends", lambda: state() not in {"PENDING", "RUNNING", "COMPLETING"})
    said = (tmp_path / f"slurm-{number}.out").read_text()
    assert state() == "COMPLETED", said
    report = next(json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert report["episodes"] == 200 and report["stored"] is True
    folder = tmp_path / f"rollhouse-{number}"
    assert "has gone" in (folder / "coordinator.log").read_text(), "the node said good-bye"
    stats = json.loads(run(program(), "replay", "stats", "--json", "--data", folder / "coordinator" / "store"))
    assert stats["episodes"] == 200
