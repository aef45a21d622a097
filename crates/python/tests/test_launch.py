"""Nodes that are launched join by a token, are used like any cluster's, and do not outlive whoever launched them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_cluster import rollhouse_program
from pages import LAUNCH, blocks, run

import rollhouse
import rollhouse.launch

PATIENCE = 60.0


@pytest.fixture
def common(tmp_path: Path) -> dict[str, Any]:
    """What every launch of a test says."""
    return {"data": tmp_path / "launch", "program": [str(rollhouse_program())]}


def step(envs: Any, steps: int = 20) -> None:
    envs.reset(seed=1)
    for _ in range(steps):
        envs.step(envs.action_space.sample())


def running(marker: str) -> list[int]:
    """Processes whose command line or environment has that in it, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            ended = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            continue
        if marker.encode() in said and not ended:
            found.append(int(entry.name))
    return found


def until(what: str, reached: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


@pytest.mark.parametrize("code", blocks(LAUNCH))
def test_the_blocks_of_the_page_run(code: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run(code, tmp_path, request)


def test_nodes_are_launched_used_and_gone(common: dict[str, Any], tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    settings = {"node.threads": 1, "node.labels": "zone=a"}
    os.environ["TMPDIR"], before = str(scratch), os.environ.get("TMPDIR")
    try:
        with rollhouse.launch.local(nodes=2, settings=settings, **common) as cluster:
            nodes = cluster.nodes()
            assert sorted(node["node"] for node in nodes) == [f"{cluster.prefix}0", f"{cluster.prefix}1"]
            assert all((node["threads"], node["labels"]) == (1, {"zone": "a"}) for node in nodes)
            with contextlib.closing(cluster.make_vec("CartPole-v1", num_envs=16)) as envs:
                step(envs)
            prefix = cluster.prefix
            assert len(running(prefix)) > 0
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
    assert running(prefix) == []
    assert list(scratch.iterdir()) == [], "folders of nodes that have shipped everything are gone"
    said = subprocess.run(
        [*common["program"], "replay", "stats", "--json", "--data", common["data"] / "coordinator/store"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(said.stdout)["episodes"] > 0, "what was played is in the coordinator's store"
    cluster.close()
    with pytest.raises(ValueError, match="closed"):
        cluster.make_vec("CartPole-v1")


def test_nodes_that_are_launched_here_host_the_python_that_launches_them(common: dict[str, Any]) -> None:
    with rollhouse.launch.local(nodes=1, **common) as cluster:
        assert "gymnasium:*" in cluster.nodes()[0]["kinds"]
        with contextlib.closing(cluster.make_vec("gymnasium:CartPole-v1", num_envs=2)) as envs:
            step(envs)


LAUNCHER = """
import sys, rollhouse.launch
cluster = rollhouse.launch.local(nodes=2, data=sys.argv[1], program=[sys.argv[2]])
print(cluster.prefix, flush=True)
sys.stdin.read()
"""


def test_nothing_stays_behind_when_the_launching_process_is_killed(common: dict[str, Any]) -> None:
    line = [sys.executable, "-c", LAUNCHER, str(common["data"]), common["program"][0]]
    launcher = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    prefix = launcher.stdout.readline().strip()
    assert prefix and len(running(prefix)) >= 2
    launcher.kill()
    launcher.wait()
    until("its nodes have ended", lambda: running(prefix) == [])
    until("its coordinator has ended", lambda: running(str(common["data"])) == [])


def test_nodes_of_another_launch_join_the_coordinator_of_the_first_by_a_token(common: dict[str, Any]) -> None:
    with rollhouse.launch.local(nodes=1, **common) as first:
        folder = common["data"] / "coordinator"
        assert first.address is not None
        where = first.address.split("://")[1].split("?")[0]
        line = [*common["program"], "token", "create", "--role", "join", "--address", where, "--data", folder]
        join = subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()
        with rollhouse.launch.local(nodes=1, join=join, connect=first.address, name="more", **common) as second:
            assert len(second.nodes()) == 1 and second.prefix.startswith("more-")
            assert len(second.connection.nodes()) == 2
            with contextlib.closing(second.make_vec("CartPole-v1", num_envs=8)) as envs:
                step(envs)
        assert [node["state"] for node in first.nodes()] == ["alive"]
        # The token was for one node.
        with pytest.raises(rollhouse.launch.LaunchError, match="the token was for one node"):
            rollhouse.launch.local(nodes=1, join=join, **common)


def test_what_does_not_start_is_said_and_leaves_nothing_behind(common: dict[str, Any]) -> None:
    settings = {"node.capacity": "many"}
    with pytest.raises(rollhouse.launch.LaunchError, match=r"node.capacity = `many`"):
        rollhouse.launch.local(nodes=2, settings=settings, **common)
    assert running(str(common["data"])) == []
    with pytest.raises(ValueError, match="at least 1"):
        rollhouse.launch.local(nodes=0, **common)
    with pytest.raises(ValueError, match="join="):
        rollhouse.launch.local(nodes=1, connect="rollhouse://h", **common)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """A real sshd on a free port of this machine, for this user and a key of its own: destination and options."""
    server, client = shutil.which("sshd", path="/usr/sbin:/usr/bin"), shutil.which("ssh")
    if server is None or client is None:
        pytest.skip("there is no sshd and ssh here (Debian's openssh-server and openssh-client)")
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    if os.getuid() == 0:
        # Where it puts what it does without rights.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [f"Port={port}", "ListenAddress=127.0.0.1", f"HostKey={folder / 'host'}", "StrictModes=no",
               f"AuthorizedKeysFile={folder / 'authorized'}", f"PidFile={folder / 'pid'}", "UsePAM=no",
               "PermitRootLogin=prohibit-password"]  # fmt: skip
    line = [server, "-D", "-e", "-f", "/dev/null", *(f"-o{option}" for option in options)]
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
    ours = ["-i", str(folder / "user"), "-p", str(port), "-F", "/dev/null", "-o", "StrictHostKeyChecking=accept-new"]
    ours += ["-o", f"UserKnownHostsFile={folder / 'known'}", "-o", "IdentitiesOnly=yes"]
    try:
        reach = ["ssh", "-T", "-o", "BatchMode=yes", *ours, "127.0.0.1", "true"]
        until("sshd lets in", lambda: subprocess.run(reach, stderr=subprocess.DEVNULL).returncode == 0)
        yield "127.0.0.1", ours
    finally:
        process.terminate()
        process.wait()


def test_nodes_on_hosts_behind_ssh_join_and_end_with_their_connection(
    common: dict[str, Any], sshd: tuple[str, list[str]]
) -> None:
    destination, options = sshd
    settings = {"node.listen": "127.0.0.1:0"}
    remote = {"remote_program": common["program"][0], "options": options, "host": "127.0.0.1", "settings": settings}
    with rollhouse.launch.ssh([destination, destination], **remote, **common) as cluster:
        assert len(cluster.nodes()) == 2
        with contextlib.closing(cluster.make_vec("CartPole-v1", num_envs=8)) as envs:
            step(envs)
        prefix = cluster.prefix
    assert running(prefix) == []

    cluster = rollhouse.launch.ssh([destination], **remote, **common)
    node = f"{cluster.prefix}0"
    # Those here are ssh; what runs there has the node's name as a word of its own.
    ssh = [pid for pid in running(node) if Path(f"/proc/{pid}/exe").resolve().name == "ssh"]
    assert len(ssh) == 1
    os.kill(ssh[0], signal.SIGKILL)
    until("the node has ended with its connection", lambda: running(node) == [])
    with pytest.raises(rollhouse.launch.LaunchError, match="did not end in order"):
        cluster.close()
    with pytest.raises(rollhouse.launch.LaunchError, match="has not joined|ended with exit code"):
        wrong = {**remote, "options": [*options, "-o", f"IdentityFile={common['data']}", "-l", "nobody-here"]}
        rollhouse.launch.ssh([destination], **wrong, **common)


def test_what_is_started_on_ray_takes_what_was_asked_for_and_hosts_the_python_that_starts_it(
    common: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a stand-in for Ray, which is not installed everywhere: its actors are objects of this process."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(Path(__file__).parent / "stand_ins")
    import ray
    from ray.util.placement_group import groups

    asked: dict[str, Any] = {"cpus_per_node": 2, "resources": {"memory": 5.0}, "settings": {"node.labels": "zone=b"}}
    try:
        with rollhouse.launch.ray(nodes=2, strategy="PACK", **asked, **common) as cluster:
            assert ray.is_initialized()
            (group,) = groups
            assert (group.bundles, group.strategy) == ([{"CPU": 2.0, "memory": 5.0}] * 2, "PACK")
            for number, actor in enumerate(ray.started):
                place = actor.options.pop("scheduling_strategy")
                assert (place.group, place.index) == (group, number)
                resources = {"num_cpus": 2.0, "num_gpus": 0, "resources": {"memory": 5.0}}
                assert actor.options == {"max_restarts": 0, "max_concurrency": 4, **resources}
                assert actor.arguments[0] == f"{cluster.prefix}{number}"
            assert [(node["threads"], node["labels"]) for node in cluster.nodes()] == [(2, {"zone": "b"})] * 2
            with contextlib.closing(cluster.make_vec("gymnasium:CartPole-v1", num_envs=2)) as envs:
                step(envs)
            for actor in ray.started:
                variables = Path(f"/proc/{actor.body.pid()}/environ").read_bytes().split(b"\0")
                assert f"ROLLHOUSE_PYTHON__INTERPRETER={sys.executable}".encode() in variables
            marker = cluster.prefix
        assert group.removed and all(actor.killed for actor in ray.started) and len(ray.started) == 2
        assert running(marker) == []
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
            del sys.modules[name]


@pytest.mark.adapters("ray")
def test_nodes_as_actors_of_ray_take_its_resources_and_end_with_their_actors(common: dict[str, Any]) -> None:
    import ray

    ray.init(num_cpus=3, include_dashboard=False)
    try:
        with rollhouse.launch.ray(nodes=2, cpus_per_node=1, host="127.0.0.1", **common) as cluster:
            assert [node["threads"] for node in cluster.nodes()] == [1, 1]
            until("Ray has given them their CPUs", lambda: ray.available_resources().get("CPU") == 1.0)
            with contextlib.closing(cluster.make_vec("CartPole-v1", num_envs=64, spread="even")) as envs:
                step(envs)
            prefix = cluster.prefix
        assert running(prefix) == []
        until("Ray has its CPUs back", lambda: ray.available_resources().get("CPU") == 3.0)

        # An actor that Ray ends takes its node with it, and the lanes go on at the other.
        cluster = rollhouse.launch.ray(nodes=2, cpus_per_node=1, host="127.0.0.1", **common)
        with contextlib.closing(cluster.make_vec("CartPole-v1", num_envs=8)) as envs:
            step(envs)
            placed = envs.placements[0].node
            gone = int(placed.removeprefix(cluster.prefix))
            ray.kill(cluster._nodes.actors[gone])
            until("its node has gone", lambda: len(cluster.nodes()) == 1)
            for _ in range(20):
                envs.step(envs.action_space.sample())
            assert envs.placements[0].node != placed
        with pytest.raises(rollhouse.launch.LaunchError, match="did not end in order"):
            cluster.close()
        assert running(cluster.prefix) == []

        with pytest.raises(rollhouse.launch.LaunchError, match="Ray has no room"):
            rollhouse.launch.ray(nodes=9, cpus_per_node=1, timeout=2, **common)
    finally:
        ray.shutdown()
