"""Images and compose.yaml, with a real engine: what is built runs, is small, may little, and survives what happens to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from composed import DOCKER, NAME, Compose, compose
from conftest import DEPLOY, Released, get, heavy, keys_of, need, need_docker, program, run, size_of, until

COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())


def services(*names: str) -> list[dict]:
    return [COMPOSE["services"][name] for name in names or COMPOSE["services"]]


@pytest.fixture(scope="module")
def running(images: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    cluster = Compose(tmp_path_factory.mktemp("compose"), images)
    try:
        cluster.prepare()
        cluster("up", "--detach", "coordinator", "node-1", "node-2")
        yield cluster
    finally:
        cluster("down", "--volumes", "--timeout", "25")


def test_every_service_has_limits_and_may_nothing() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], name
        assert size_of(service["mem_limit"].replace("g", "GiB").replace("m", "MiB")) > 0, name
        assert service["cpus"] > 0 and service["pids_limit"] > 0, name
        # Grafana writes beside its data at the start.
        assert service.get("read_only") or name == "grafana", name
        assert re.search(r":[^:/]+$", service["image"]) and ":latest" not in service["image"], name


def test_the_program_knows_every_setting_of_the_services() -> None:
    for name in ["coordinator", "node-1", "node-2"]:
        service = COMPOSE["services"][name]
        keys_of(service["command"][0], service["environment"])


def test_prometheus_asks_each_service() -> None:
    targets = yaml.safe_load((DOCKER / "targets.yml").read_text())
    asked = {target.split(":")[0]: group["labels"]["role"] for group in targets for target in group["targets"]}
    ours = {name: service["command"][0] for name, service in COMPOSE["services"].items()
            if service.get("command", [""])[0] in {"coordinator", "node"}}
    assert asked == ours


def test_compose_takes_the_file() -> None:
    need_docker()
    run(*compose(), "--file", DOCKER / "compose.yaml", "config", "--quiet")


def test_scripts_are_shell_that_a_shell_can_read() -> None:
    for script in [*DOCKER.glob("*.sh"), DEPLOY / "k8s" / "secrets.sh"]:
        run("sh", "-n", script)
        assert os.access(script, os.X_OK), script


def test_the_image_is_small_has_no_shell_and_is_nobody(images: str) -> None:
    told = json.loads(run("docker", "image", "inspect", images))[0]
    assert told["Config"]["User"] == "65532:65532" and told["Config"]["StopSignal"] == "SIGTERM"
    assert told["Config"]["Labels"]["org.opencontainers.image.licenses"] == "MIT OR Apache-2.0"
    packed = subprocess.run(f"docker save {images} | gzip -1 | wc -c", shell=True, capture_output=True, text=True)
    # A debug build is larger than what is released.
    assert int(packed.stdout) < 60e6, packed.stdout
    shell = subprocess.run(["docker", "run", "--rm", "--entrypoint", "/bin/sh", images, "-c", "true"],
                           capture_output=True, text=True)
    assert shell.returncode != 0 and "no such file" in shell.stderr.lower(), shell.stderr
    version = ["docker", "run", "--rm", "--read-only", "--cap-drop", "ALL", "--network", "none", images, "-V"]
    assert run(*version).startswith("rollhouse ")


def test_a_cluster_of_containers_plays_and_survives_what_happens_to_its_containers(running: Compose) -> None:
    for service in ["coordinator", "node-1", "node-2"]:
        until(f"{service} is healthy", lambda name=service: running.health(name) == "healthy")
    assert running.nodes() == {"node-1": "alive", "node-2": "alive"}
    rollout = ["rollout", "--env", "CartPole-v1", "--lanes", "64", "--episodes", "2000", "--json"]

    def play() -> None:
        report = json.loads(running.rollhouse(*rollout))
        assert report["episodes"] == 2000 and report["stored"] is True, report

    play()
    # Killed, as by a machine that fails, and started again with its volume.
    run("docker", "kill", running.container("node-1"))
    until("one node is left", lambda: running.nodes().get("node-1") != "alive")
    play()
    running("up", "--detach", "node-1")
    until("it is back", lambda: running.nodes().get("node-1") == "alive")
    # Made anew, as by a newer image: what it keeps is on its volume.
    running("up", "--detach", "--force-recreate", "--no-deps", "coordinator")
    until("nodes are back", lambda: running.health("coordinator") == "healthy"
          and set(running.nodes().values()) == {"alive"} and len(running.nodes()) == 2)
    play()
    stats = json.loads(running.rollhouse("replay", "stats", "--json"))
    assert stats["episodes"] >= 6000, stats
    # A cable that is pulled, and plugged in again.
    network, node = f"{NAME}_default", running.container("node-2")
    run("docker", "network", "disconnect", network, node)
    until("it is missed", lambda: running.nodes().get("node-2") != "alive")
    play()
    run("docker", "network", "connect", "--alias", "node-2", network, node)
    until("it is back", lambda: running.nodes().get("node-2") == "alive")
    # A new certificate is taken without a restart.
    began = run("docker", "inspect", "--format", "{{.State.StartedAt}}", node)
    before = expiry(running, node)
    running.prepare("node-2", RENEW="1")
    until("the new certificate is shown", lambda: running.nodes() and expiry(running, node) > before)
    assert run("docker", "inspect", "--format", "{{.State.StartedAt}}", node) == began
    # Asked to end, it does so in order.
    running("stop", "--timeout", "25", "node-2")
    assert run("docker", "inspect", "--format", "{{.State.ExitCode}}", node).strip() == "0"


def expiry(running: Compose, container: str) -> float:
    address = run("docker", "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", container)
    status, page = get(f"http://{address.strip()}:7611/metrics")
    assert status == 200, page
    return float(re.search(r"^rollhouse_certificate_expiry_time_seconds (\S+)$", page, re.MULTILINE)[1])


def test_pods_run_with_exactly_what_their_manifests_say(images: str, tmp_path: Path) -> None:
    from pods import Pods

    pods = Pods("trial", NAME, {"rollhouse": images}, tmp_path)
    try:
        pods.start("rollhouse-coordinator")
        pods.start("rollhouse-node")
    finally:
        pods.remove()


@heavy
def test_a_trainer_in_the_pod_of_a_node_steps_by_shared_memory(released: Released, tmp_path: Path) -> None:
    from pods import Pods

    pods = Pods("beside", f"{NAME}-beside", {"rollhouse": released.rollhouse, "rollhouse-python": released.python}, tmp_path)
    try:
        pods.start("rollhouse-coordinator")
        pods.give_token()
        pods.start("rollhouse-node")

        def said() -> str:
            logs = subprocess.run(["docker", "logs", pods.started["trainer"]], capture_output=True, text=True)
            return logs.stdout + logs.stderr

        until("the trainer steps", lambda: "steps by" in said())
        assert said() == "steps by shm on rollhouse-node-0\n"
        line = ["docker", "exec", "--env", "ROLLHOUSE_CONNECT=/run/connection/connection", pods.started["trainer"]]
        (session,) = map(json.loads, run(*line, "rollhouse", "sessions", "--json").splitlines())
        assert (session["lanes"], session["transport"]) == (1024, "shm")
    finally:
        pods.remove()


@heavy
def test_a_trainer_learns_on_the_cluster_which_prometheus_watches(running: Compose) -> None:
    """With $ROLLHOUSE_WHEELS, a folder with the package and what it needs, nothing is compiled for the image."""
    need("debootstrap")
    wheels = os.environ.get("ROLLHOUSE_WHEELS")
    given = ["--wheels", wheels] if wheels else []
    run(DOCKER / "build.sh", "--binary", program(), *given, "--tag", NAME, "rollhouse-python", "prometheus")
    running.environment |= {
        "ROLLHOUSE_PYTHON_IMAGE": f"rollhouse-python:{NAME}",
        "PROMETHEUS_IMAGE": f"rollhouse-prometheus:{NAME}",
    }
    running("up", "--detach", "node-1", "node-2", "prometheus")
    said = running("--profile", "trainer", "run", "--rm", "-T", "trainer")
    assert said.splitlines()[-1] == "learned", said

    def watched() -> list:
        status, body = get("http://127.0.0.1:9090/api/v1/query?query=up")
        return json.loads(body)["data"]["result"] if status == 200 else []

    until("all are scraped", lambda: [one["value"][1] for one in watched()] == ["1", "1", "1"])
    running("stop", "prometheus")
    run("docker", "image", "rm", "--force", f"rollhouse-python:{NAME}", f"rollhouse-prometheus:{NAME}")
