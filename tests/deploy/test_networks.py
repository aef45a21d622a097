"""Networks that are not one flat one: the commands of docs/operations.md, each on a host of its own.

A host is a network namespace, joined to others by veth pairs and bridges. Needs root (`ip netns`), and iptables for one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, program, run, until

HERE = Path(__file__).parent
# For each heading of the page, the hosts: networks that each is in, with its address there; interfaces are eth0, eth1.
HOSTS = {
    "A node behind a port mapping": {
        "coordinator": {"outside": "198.51.100.1/24"},
        "gateway": {"outside": "198.51.100.2/24", "inside": "10.1.0.1/24"},
        "trainer": {"outside": "198.51.100.3/24"},
        "node": {"inside": "10.1.0.7/24"},
    },
    "A node with several interfaces": {
        "coordinator": {"control": "192.0.2.1/24", "data": "198.51.100.1/24"},
        "node": {"control": "192.0.2.7/24", "data": "198.51.100.7/24"},
        "trainer": {"data": "198.51.100.3/24"},
    },
    "IPv6 alone": {
        "coordinator": {"lan": "2001:db8::1/64"},
        "node": {"lan": "2001:db8::7/64"},
        "trainer": {"lan": "2001:db8::3/64"},
    },
}
ROUTES = {"A node behind a port mapping": {"node": "default via 10.1.0.1"}}
ADVERTISED = {
    "A node behind a port mapping": "198.51.100.2:17610",
    "A node with several interfaces": "198.51.100.7:7610",
    "IPv6 alone": "[2001:db8::7]:7610",
}
DIALLED = {
    "A node behind a port mapping": "198.51.100.1:7600",
    "A node with several interfaces": "198.51.100.1:7600",
    "IPv6 alone": "[2001:db8::1]:7600",
}


def commands(heading: str) -> list[tuple[str, str]]:
    """Host and command of each line behind a prompt, as in `node# rollhouse node`."""
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.split(f"\n### {heading}\n", 1)[1].split("\n#", 1)[0]
    (block,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    return re.findall(r"^(\w+)# (.+)$", block, re.MULTILINE)


class Network:
    """Hosts that reach each other as they say, and nobody else."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made, self.running = folder, [], []

    def build(self, hosts: dict[str, dict[str, str]]) -> None:
        self.make("switch")
        for network in sorted({network for networks in hosts.values() for network in networks}):
            self.inside("switch", f"ip link add {network} type bridge && ip link set {network} up")
        for host, networks in hosts.items():
            self.make(host)
            for number, (network, address) in enumerate(networks.items()):
                port = f"{host[:8]}{number}"
                self.inside("switch", f"ip link add {port} type veth peer name eth{number} netns {self.name(host)}")
                self.inside("switch", f"ip link set {port} master {network} up")
                # An address of IPv6 is used at once, though nobody was asked whether it is taken.
                self.inside(host, f"ip addr add {address} dev eth{number} {'nodad' if ':' in address else ''}")
                self.inside(host, f"ip link set eth{number} up && ip link set lo up")

    def name(self, host: str) -> str:
        return f"rollhouse-{os.getpid()}-{host}"

    def make(self, host: str) -> None:
        made = subprocess.run(["ip", "netns", "add", self.name(host)], capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip(f"no network namespaces can be made here: {made.stderr.strip()}")
        self.made.append(host)

    def line(self, host: str, command: str) -> list[str]:
        return ["ip", "netns", "exec", self.name(host), "sh", "-c", command]

    def inside(self, host: str, command: str, **variables: str) -> str:
        return run(*self.line(host, command), cwd=self.folder, env=self.environment() | variables)

    def environment(self) -> dict[str, str]:
        return dict(os.environ, PATH=f"{self.folder / 'programs'}:{os.environ['PATH']}")

    def serve(self, host: str, command: str) -> None:
        with open(self.folder / f"{host}.log", "a") as log:
            line = self.line(host, f"exec {command}")
            self.running.append(subprocess.Popen(line, cwd=self.folder, env=self.environment(), stdout=log, stderr=log))

    def remove(self) -> None:
        for process in reversed(self.running):
            process.terminate()
            process.wait()
        for host in self.made:
            run("ip", "netns", "del", self.name(host))


@pytest.fixture
def network(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Network]:
    if shutil.which("ip") is None or os.getuid() != 0:
        pytest.skip("network namespaces want root and `ip` (Debian's iproute2)")
    made = Network(tmp_path)
    try:
        made.build(HOSTS[request.param])
        yield made
    finally:
        made.remove()


def prepare(network: Network) -> str:
    """Certificates and a token, made on one machine and carried to the others; gives what follows the address in a
    connection string."""
    folder = network.folder
    (folder / "programs").mkdir()
    (folder / "programs" / "rollhouse").symlink_to(program())
    run(program(), "certs", "init", "--dir", folder / "ca")
    for role, name in [("coordinator", "coordinator"), ("node", "node")]:
        line = ["certs", "issue", "--dir", folder / "ca", "--role", role, "--name", name]
        run(program(), *line, "--output", folder / name / "tls")
    line = ["token", "create", "--new", "--role", "trainer", "--name", "test", "--data", folder / "coordinator"]
    return f"?token={run(program(), *line).strip()}&ca={folder / 'ca' / 'ca.pem'}"


@pytest.mark.parametrize(("network", "heading"), [(heading, heading) for heading in HOSTS], indirect=["network"])
def test_the_commands_of_the_page_make_a_cluster_that_trainers_reach(network: Network, heading: str) -> None:
    query = prepare(network)
    for host, route in ROUTES.get(heading, {}).items():
        network.inside(host, f"ip route add {route}")
    for host, command in commands(heading):
        if command.startswith("iptables") and shutil.which("iptables") is None:
            pytest.skip("there is no iptables here (Debian's iptables)")
        if command.startswith("rollhouse "):
            network.serve(host, command)
        else:
            network.inside(host, command)
    connect = {"ROLLHOUSE_CONNECT": f"rollhouse://{DIALLED[heading]}{query}"}

    def nodes() -> list[dict]:
        asked = subprocess.run(network.line("trainer", "rollhouse nodes --json"), cwd=network.folder,
                               env=network.environment() | connect, capture_output=True, text=True)
        return [json.loads(line) for line in asked.stdout.splitlines()]

    until("the node is alive", lambda: [node["state"] for node in nodes()] == ["alive"])
    assert nodes()[0]["address"] == ADVERTISED[heading]
    rollout = "rollhouse rollout --env CartPole-v1 --lanes 8 --episodes 100 --json"
    report = json.loads(network.inside("trainer", rollout, **connect))
    assert report["episodes"] == 100 and report["stored"] is True
    if importlib.util.find_spec("rollhouse") is None:
        pytest.skip("nodes play; a trainer's own steps want the package here: cargo xtask deploy --all installs it")
    # The way that only trainers take: straight to the node. All hosts have one file system here, and so its attach socket.
    connect["ROLLHOUSE_CONNECT"] += "&transport=quic"
    trainer = f"exec {sys.executable} {HERE / 'steady.py'} --steps 500"
    last = json.loads(network.inside("trainer", trainer, **connect).splitlines()[-1])
    assert (last["nodes"], last["transport"], last["steps"]) == (["node"], "quic", 500)
    here = json.loads(run(sys.executable, HERE / "steady.py", "--embedded", "--steps", "500").splitlines()[-1])
    assert last["digest"] == here["digest"]


HOSTS["One network"] = {
    "coordinator": {"lan": "198.51.100.1/24"},
    "node": {"lan": "198.51.100.7/24"},
    "trainer": {"lan": "198.51.100.3/24"},
}


@pytest.mark.parametrize("network", ["One network"], indirect=True)
def test_a_node_whose_address_changes_while_it_runs_is_reached_at_the_new_one_and_that_is_said(network: Network) -> None:
    """Symptom: a node that got another address (a lease of DHCP, a network that was set up again) was dialled at the old one
    until it was started again, and nothing said so. Cause: it told its address when it dialled, and its connection to the
    coordinator went on from the new one. Fix: it looks with each heartbeat, and registers once more."""
    query = prepare(network)
    network.serve("coordinator", "rollhouse coordinator --data coordinator")
    network.serve("node", "rollhouse node --data node --coordinator 198.51.100.1:7600")
    connect = {"ROLLHOUSE_CONNECT": f"rollhouse://198.51.100.1:7600{query}"}

    def nodes() -> list[dict]:
        asked = subprocess.run(network.line("trainer", "rollhouse nodes --json"), cwd=network.folder,
                               env=network.environment() | connect, capture_output=True, text=True)
        return [json.loads(line) for line in asked.stdout.splitlines()]

    def placed() -> list[tuple[str, str]]:
        return [(node["state"], node["address"]) for node in nodes()]

    def said(host: str) -> str:
        return (network.folder / f"{host}.log").read_text()

    until("the node is alive", lambda: placed() == [("alive", "198.51.100.7:7610")])
    network.inside("node", "ip addr del 198.51.100.7/24 dev eth0 && ip addr add 198.51.100.8/24 dev eth0")
    until("it is reached at the new one", lambda: placed() == [("alive", "198.51.100.8:7610")])
    until("its log says so", lambda: "reached at 198.51.100.8:7610 from now on" in said("node"))
    until("the coordinator's log says so", lambda: "is reached at 198.51.100.8:7610, it was 198.51.100.7:7610" in said("coordinator"))
    report = json.loads(network.inside("trainer", "rollhouse rollout --env CartPole-v1 --lanes 8 --episodes 100 --json", **connect))
    assert report["episodes"] == 100 and report["stored"] is True
    # Started again under its name, elsewhere.
    network.running.pop().kill()
    network.inside("node", "ip addr del 198.51.100.8/24 dev eth0 && ip addr add 198.51.100.9/24 dev eth0")
    network.serve("node", "rollhouse node --data node --coordinator 198.51.100.1:7600")
    until("it is reached there", lambda: placed() == [("alive", "198.51.100.9:7610")])
