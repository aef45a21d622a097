"""Units: systemd takes them, they leave a service little that it could do beyond its work, and it does that."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import DEPLOY, ROOT, heavy, need, need_docker, need_packages, program, run, until

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


def test_a_node_may_make_code_while_it_runs_if_the_drop_in_is_there_and_nothing_else_changes(tmp_path: Path) -> None:
    """Symptom: Python envs that compile while they run failed on a node under systemd. Cause: its unit forbids memory that is
    both written and executed, and no page said so. Fix: a drop-in allows it to whoever asks for it."""
    need("systemd-analyze")
    (unit,) = (unit for unit in UNITS if unit.stem == "rollhouse-node")
    copy, drop_ins = tmp_path / unit.name, tmp_path / f"{unit.name}.d"
    copy.write_text(unit.read_text().replace("/usr/bin/rollhouse", str(program())))

    def exposed() -> set[str]:
        """What of the unit could be tighter."""
        told = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--json=short", copy)
        return {one["json_field"] for one in json.loads(told) if one["set"] is False}

    before = exposed()
    drop_ins.mkdir()
    (drop_ins / "jit.conf").write_text((DEPLOY / "systemd" / "rollhouse-node-jit.conf").read_text())
    assert not run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", copy)
    assert exposed() - before == {"MemoryDenyWriteExecute"} and before < exposed()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_program_takes_the_command_line(unit: Path) -> None:
    line = re.search(r"^ExecStart=/usr/bin/rollhouse (\w+) (.*)$", unit.read_text(), re.MULTILINE)
    options = set(re.findall(r"--\w+", line[2]))
    helped = run(program(), line[1], "--help")
    assert all(option in helped for option in options)
    # Longer than the 20 s in which a service stops in order.
    assert int(re.search(r"^TimeoutStopSec=(\d+)s$", unit.read_text(), re.MULTILINE)[1]) > 20


class Machine:
    """A container in which systemd is the first process."""

    def __init__(self, id: str) -> None:
        self.id = id

    def run(self, command: str) -> str:
        """What a command prints that has to succeed."""
        return run("docker", "exec", "--interactive", "--workdir", "/root", self.id, "sh", "-euc", command)

    def ask(self, unit: str, *properties: str) -> list[str]:
        """Properties of a unit."""
        return [self.run(f"systemctl show --value --property {name} {unit}").strip() for name in properties]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    need_docker()
    need("debootstrap")
    need_packages()
    tree = tmp_path_factory.mktemp("systemd") / "tree"
    release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)[1]
    run("debootstrap", "--variant=minbase", "--include=systemd,systemd-sysv,dbus", release, tree)
    # What the page takes to be in the folder in which its commands are run. The node is this machine too.
    run("cp", program(), tree / "root" / "rollhouse")
    run("cp", "-r", DEPLOY, tree / "root" / "deploy")
    ssh = tree / "usr" / "bin" / "ssh"
    ssh.write_text('#!/bin/sh\nexec sh -c "$2"\n')
    ssh.chmod(0o755)
    with subprocess.Popen(["tar", "-C", tree, "-c", "."], stdout=subprocess.PIPE) as archive:
        image = run("docker", "import", "-", stdin=archive.stdout).strip()
    # Where systemd finds its own groups of processes.
    groups = Path("/sys/fs/cgroup/systemd")
    groups = groups if groups.is_dir() else groups.parent
    line = ["docker", "run", "--detach", "--cap-add", "SYS_ADMIN", "--cap-add", "SYS_PTRACE", "--security-opt", "seccomp=unconfined",
            "--cgroupns", "host", "--volume", f"{groups}:{groups}", "--tmpfs", "/run", "--tmpfs", "/tmp",
            "--env", "container=docker", "--hostname", "node-1", "--add-host", "coordinator.example:127.0.0.1"]  # fmt: skip
    id = run(*line, image, "/sbin/init").strip()
    try:
        asked = ["docker", "exec", id, "systemctl", "is-system-running"]
        until("systemd runs", lambda: subprocess.run(asked, capture_output=True, text=True).stdout.strip() == "running")
        yield Machine(id)
    finally:
        # Shown if a test has failed.
        print(run("docker", "exec", id, "journalctl", "--no-pager", "--unit", "rollhouse-*"))
        run("docker", "rm", "--force", "--volumes", id)
        run("docker", "rmi", image)


def blocks() -> list[str]:
    """What the page has people run who install it on bare machines."""
    section = (ROOT / "docs" / "operations.md").read_text().split("\n## Install on bare machines\n", 1)[1].split("\n## ")[0]
    found = re.findall(r"```(sh|console)\n(.*?)```", section, re.DOTALL)
    return [re.sub(r"^\$ ", "", code, flags=re.MULTILINE) if kind == "console" else code for kind, code in found]


@heavy
def test_installed_as_the_page_says_the_services_serve_and_systemd_tells_a_crash_from_an_end(machine: Machine) -> None:
    for block in blocks():
        machine.run(f"name=node-1\n{block}")
    for unit in ("rollhouse-coordinator", "rollhouse-node"):
        assert machine.ask(unit, "ActiveState", "Result", "NRestarts") == ["active", "success", "0"]
        (process,) = machine.ask(unit, "MainPID")
        status = dict(line.split(":\t") for line in machine.run(f"cat /proc/{process}/status").splitlines())
        assert (status["NoNewPrivs"], int(status["CapEff"], 16), status["Seccomp"]) == ("1", 0, "2")
        assert machine.run(f"stat -c %U /proc/{process}").strip() == "rollhouse"
    token = machine.run("rollhouse token create --role admin --name test --data /var/lib/rollhouse/coordinator").strip()
    connection = f"rollhouse://coordinator.example:7600?token={token}&ca=/root/rollhouse-ca/ca.pem"
    machine.run(f"printf 'export ROLLHOUSE_CONNECT=\"%s\"\\n' '{connection}' >connection")

    def nodes() -> str:
        return machine.run(". ./connection; rollhouse nodes --json")

    until("the node has joined", lambda: '"alive"' in nodes())
    rollout = machine.run(". ./connection; rollhouse rollout --env CartPole-v1 --lanes 8 --episodes 50 --json")
    report = json.loads(rollout)
    assert report["episodes"] == 50 and report["stored"] is True

    # What crashes is started again; what was asked to end, or has drained, is not.
    (first,) = machine.ask("rollhouse-node", "MainPID")
    machine.run(f"kill -9 {first}")
    until("it is started again", lambda: machine.ask("rollhouse-node", "ActiveState", "NRestarts") == ["active", "1"])
    until("it has joined again", lambda: nodes().count('"alive"') == 1)
    # One that hangs says nothing any more, and is killed by the watchdog.
    (second,) = machine.ask("rollhouse-node", "MainPID")
    machine.run(f"kill -STOP {second}")
    until("it is started again", lambda: machine.ask("rollhouse-node", "ActiveState", "NRestarts") == ["active", "2"])
    until("it has joined again", lambda: nodes().count('"alive"') == 1)
    machine.run(". ./connection; rollhouse drain node-1 --wait")
    until("it has ended", lambda: machine.ask("rollhouse-node", "ActiveState", "Result") == ["inactive", "success"])
    assert machine.ask("rollhouse-node", "NRestarts", "ExecMainStatus") == ["2", "0"]
    machine.run("systemctl stop rollhouse-coordinator")
    assert machine.ask("rollhouse-coordinator", "ActiveState", "Result") == ["inactive", "success"]
