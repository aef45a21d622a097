"""What happens to containers happens to no trainer: it goes on with the same numbers, and no episode is lost.

Heavy: with the release build's images, and those of the build under test as another version of it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from composed import DOCKER, NAME, Compose, compose
from conftest import Released, heavy, need_docker, run, until

HERE = Path(__file__).parent
PROJECT = f"{NAME}-heavy"
FILES = ("more-nodes.yaml", "shared-memory.yaml")


@pytest.mark.parametrize("file", FILES)
def test_compose_takes_the_file_beside_the_first(file: str) -> None:
    need_docker()
    line = [*compose(), "--file", DOCKER / "compose.yaml", "--file", DOCKER / file]
    merged = yaml.safe_load(run(*line, "config"))
    first = merged["services"]["node-1"]
    for name, service in merged["services"].items():
        if name.startswith("node-"):
            differs = {key for key in first if first[key] != service[key]} - {"volumes"}
            assert not differs or file == "shared-memory.yaml", (name, differs)
    if file == "more-nodes.yaml":
        groups = yaml.safe_load((DOCKER / "more-targets.yml").read_text())
        asked = {target.split(":")[0] for group in groups for target in group["targets"]}
        assert asked == set(merged["services"]) & {"node-3", "node-4", "node-5"}


@pytest.fixture(scope="module")
def playing(released: Released, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """A coordinator and two nodes of the release build."""
    cluster = Compose(tmp_path_factory.mktemp("containers"), released.rollhouse, PROJECT, ("more-nodes.yaml",))
    try:
        cluster.prepare("node-3", "node-4", "node-5")
        cluster("up", "--detach", "coordinator", "node-1", "node-2")
        cluster.await_nodes("node-1", "node-2")
        yield cluster
    finally:
        cluster("down", "--volumes", "--timeout", "25")


class Trainer:
    """steady.py in a container, which steps without an end."""

    def __init__(self, cluster: Compose, image: str, *words: str, options: tuple[str, ...] = ()) -> None:
        line = cluster.line_of(None, "--detach", *CONFINED, *options, *MOUNTED)
        self.id = run(*line, image, "/steady.py", "--pace", "0.004", *words).strip()
        self.first = until("the trainer steps", self.said)[0]

    def said(self) -> list[dict]:
        logs = subprocess.run(["docker", "logs", self.id], capture_output=True, text=True)
        lines = [json.loads(line) for line in logs.stdout.splitlines() if line.startswith("{")]
        assert self.runs() or "digest" in lines[-1], logs.stdout[-2000:] + logs.stderr
        return lines

    def runs(self) -> bool:
        return run("docker", "inspect", "--format", "{{.State.Running}}", self.id).strip() == "true"

    def goes_on(self, steps: int = 100) -> dict:
        """Waits until it has made so many steps more, and gives what it says then."""
        before = self.said()[-1]["steps"]
        return until("the trainer goes on", lambda: next(
            (line for line in self.said() if line["steps"] >= before + steps), None))

    def ends(self) -> dict:
        """Asks it to end, and gives its last line."""
        run("docker", "kill", "--signal", "TERM", self.id)
        assert run("docker", "wait", self.id).strip() == "0", self.said()
        return self.said()[-1]

    def remove(self) -> None:
        run("docker", "rm", "--force", self.id)


CONFINED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--entrypoint", "python")
MOUNTED = ("--volume", f"{HERE}/steady.py:/steady.py:ro")


def undisturbed(image: str, steps: int) -> dict:
    """The last line of the same trainer that steps the same lanes in its own process."""
    line = ["docker", "run", "--rm", "--network", "none", *CONFINED, *MOUNTED, image, "/steady.py"]
    return json.loads(run(*line, "--embedded", "--steps", str(steps)).splitlines()[-1])


def remake(cluster: Compose, service: str, image: str, operator: str) -> None:
    """Replaces a node by one of another image, as docs/operations.md says."""
    cluster.rollhouse("drain", service, "--wait", connection=operator)
    cluster.environment["ROLLHOUSE_IMAGE"] = image
    cluster("up", "--detach", "--no-deps", service)
    until(f"{service} is alive again", lambda: (cluster.nodes_or_none() or {}).get(service) == "alive")
    runs = run("docker", "inspect", "--format", "{{.Config.Image}}", cluster.container(service)).strip()
    assert runs == image


@heavy
def test_a_trainer_sees_the_same_numbers_and_the_store_gets_every_episode_whatever_happens(
    playing: Compose, released: Released, images: str
) -> None:
    operator = playing.operators()
    trainer = Trainer(playing, released.python)
    try:
        assert set(trainer.first["nodes"]) == {"node-1", "node-2"}
        disturb(playing, trainer, operator, another=images)
        last = trainer.ends()
    finally:
        trainer.remove()
    assert last["steps"] > 1000 and last["episodes"] > 300, last
    still = undisturbed(released.python, last["steps"])
    assert (last["digest"], last["episodes"]) == (still["digest"], still["episodes"])
    audit(playing, last)


def disturb(cluster: Compose, trainer: Trainer, operator: str, another: str) -> None:
    trainer.goes_on()
    # Killed, as by a machine that fails; the other has its lanes, and it comes back with its volume.
    run("docker", "kill", cluster.container("node-1"))
    assert trainer.goes_on()["nodes"] == ["node-2"]
    cluster("up", "--detach", "--no-deps", "node-1")
    cluster.await_nodes("node-1", "node-2")
    # Drained and replaced by another build, one after another; the coordinator first, on its volume.
    before = cluster.environment["ROLLHOUSE_IMAGE"]
    cluster.environment["ROLLHOUSE_IMAGE"] = another
    cluster("up", "--detach", "--no-deps", "coordinator")
    cluster.await_nodes("node-1", "node-2")
    trainer.goes_on()
    remake(cluster, "node-2", another, operator)
    assert trainer.goes_on()["nodes"] == ["node-1"]
    remake(cluster, "node-1", another, operator)
    assert trainer.goes_on()["nodes"] == ["node-2"], "its lanes play in another build"
    # And back again.
    remake(cluster, "node-2", before, operator)
    assert trainer.goes_on()["nodes"] == ["node-1"]
    # From two to five: lanes stay where they are, and others go everywhere.
    cluster("up", "--detach", "--no-deps", "node-3", "node-4", "node-5")
    cluster.await_nodes(*FIVE)
    rollout = ["rollout", "--env", "CartPole-v1", "--lanes", "10", "--episodes", "200", "--json"]
    report = json.loads(cluster.rollhouse(*rollout))
    assert (report["nodes"], report["episodes"], report["stored"]) == (5, 200, True), report
    assert trainer.goes_on()["nodes"] == ["node-1"]
    # A cable that is pulled, and plugged in again.
    node = cluster.container("node-1")
    run("docker", "network", "disconnect", cluster.network, node)
    assert "node-1" not in trainer.goes_on()["nodes"]
    run("docker", "network", "connect", "--alias", "node-1", cluster.network, node)
    cluster.await_nodes(*FIVE)
    trainer.goes_on()
    # From five to two.
    cluster("stop", "--timeout", "25", "node-3", "node-4", "node-5")
    trainer.goes_on()


FIVE = tuple(f"node-{number}" for number in range(1, 6))


def audit(cluster: Compose, last: dict) -> None:
    """Everything that ended where the trainer saw it is in the store, whole, and nothing else that ended."""
    cluster("up", "--detach", "--no-deps", *FIVE)

    def stored() -> list[dict]:
        rows = []
        for outcome in ["terminated", "truncated"]:
            rows += cluster.rollhouse("replay", "ls", "--outcome", outcome, "--json").splitlines()
        return list(map(json.loads, rows))

    # 200 of the rollout, which ended by itself.
    until("all is shipped", lambda: len(stored()) >= last["episodes"] + 200)
    assert len(stored()) == last["episodes"] + 200
    verified = list(map(json.loads, cluster.rollhouse("replay", "verify", "--all", "--json").splitlines()))
    assert all(episode["ok"] for episode in verified), [episode for episode in verified if not episode["ok"]][:3]


@heavy
def test_a_python_env_that_eats_its_containers_memory_costs_its_own_lane_and_nothing_else(
    playing: Compose, released: Released
) -> None:
    """Nodes host built-in envs alone: a Python env runs in workers of its trainer's container."""
    limits = ["--memory", "700m", "--memory-swap", "700m", "--tmpfs", "/tmp"]
    line = playing.line_of(None, "--rm", *CONFINED, *limits, "--volume", f"{HERE}/hungry.py:/hungry.py:ro")
    said = json.loads(run(*line, released.python, "/hungry.py").splitlines()[-1])
    assert said == {"lost": [[2, "crashed"]], "before": [], "others_are_equal": True, "is_back": True}


@heavy
def test_a_trainer_attaches_to_the_memory_of_a_node_in_another_container(
    released: Released, tmp_path: Path
) -> None:
    cluster = Compose(tmp_path, released.rollhouse, f"{NAME}-memory", ("shared-memory.yaml",))
    try:
        cluster.prepare()
        cluster.environment["ROLLHOUSE_PYTHON_IMAGE"] = released.python
        cluster("up", "--detach", "coordinator", "node-1", "node-2")
        cluster.await_nodes("node-1", "node-2")
        said = cluster("--profile", "trainer", "run", "--rm", "-T", "trainer", "--label", "machine=this")
        assert "steps by shm on node-1" in said and said.splitlines()[-1] == "learned", said
        options = ("--volume", f"{cluster.name}_attach:/run/rollhouse")
        trainer = Trainer(cluster, released.python, "--label", "machine=this", options=options)
        try:
            assert trainer.goes_on()["transport"] == "shm"
            last = trainer.ends()
        finally:
            trainer.remove()
        assert last["digest"] == undisturbed(released.python, last["steps"])["digest"]
    finally:
        cluster("down", "--volumes", "--timeout", "25")


@heavy
def test_the_released_image_is_small_stripped_and_lists_what_is_in_it(released: Released, tmp_path: Path) -> None:
    sizes = dict(line.split(": ", 1) for line in released.said.splitlines() if " MB compressed" in line)
    packed = int(sizes[released.rollhouse].split()[-3])
    assert packed < 40, released.said
    made = run("docker", "create", released.rollhouse).strip()
    try:
        for path in ["/usr/bin/rollhouse", "/usr/share/doc/rollhouse/sbom.cdx.json"]:
            run("docker", "cp", f"{made}:{path}", tmp_path)
    finally:
        run("docker", "rm", made)
    sections = run("readelf", "--sections", "--wide", tmp_path / "rollhouse")
    assert ".text" in sections and ".symtab" not in sections and ".debug_info" not in sections
    bom = json.loads((tmp_path / "sbom.cdx.json").read_text())
    listed = {(part["name"], part["version"]) for part in bom["components"]}
    locked = (DOCKER.parents[1] / "Cargo.lock").read_text()
    assert all(f'name = "{name}"\nversion = "{version}"' in locked for name, version in listed)
    assert {"quinn", "rustls", "sled", "tokio", "rollhouse-cli"} <= {name for name, _ in listed}
    assert all(part["licenses"][0]["expression"] for part in bom["components"])
    version = run("docker", "run", "--rm", released.rollhouse, "-V").split()[1]
    assert bom["metadata"]["component"]["version"] == version
