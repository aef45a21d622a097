"""What is done to a cluster of processes so that an alert has something to tell of, and what that is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from conftest import ROOT, get, need, run, until
from processes import Processes

HERE = Path(__file__).parent


class Fault(NamedTuple):
    """Something that goes wrong."""

    # The alerts that are for it.
    tells: set[str]
    # What is done to a cluster that has played for a while; None if it is wrong from the beginning.
    act: Callable[[Processes], object] | None = None
    # What the cluster is started with.
    how: dict[str, object] = {}
    # Lanes that nodes play all the while; 0 if others play.
    lanes: int = 64
    # Process and metric: until that is not 0, the fault has not come to what the alert is for.
    until: tuple[str, str] | None = None
    # Minutes after the fault in which the alerts fire; the longest of most wait for ten minutes.
    after: int = 30


def shown(processes: Processes, name: str, metric: str) -> float:
    """The sum of a metric's series on a page."""
    lines = get(f"http://{processes.pages[name]}/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if re.match(rf"{metric}[ {{]", line))


def stays(what: str, look: Callable[[], object]) -> None:
    """Waits until two looks see the same."""
    before: list[object] = [None]

    def same() -> bool:
        now = look()
        before.append(now)
        return now == before[-2]

    until(f"{what} stays as it is", same)


def kill_coordinator(processes: Processes) -> None:
    processes.kill("main")
    processes.heard("node-1", "without coordinator()")


def fill_spools(metric: str, lanes: int = 0) -> Callable[[Processes], None]:
    """The coordinator dies, and goes on to be away until that can be seen of a node's spool. Somebody steps `lanes` lanes
    himself meanwhile."""

    def seen(processes: Processes, metric: str) -> float:
        return sum(shown(processes, name, metric) for name in ("node-1", "node-2"))

    def act(processes: Processes) -> None:
        if lanes:
            owner(processes, "owner", "--record", "--lanes", str(lanes))
            until("lanes are stepped", lambda: seen(processes, "rollhouse_owner_steps_total"))
        kill_coordinator(processes)
        until("the spool is full", lambda: seen(processes, metric), 120)

    return act


def kill_node(processes: Processes) -> None:
    processes.kill("node-2")
    until("it is lost", lambda: 'rollhouse_nodes{state="lost"} 1' in get(f"http://{processes.pages['main']}/metrics")[1])


def kill_all_nodes(processes: Processes) -> None:
    processes.kill("node-1")
    processes.kill("node-2")
    until("both are lost", lambda: 'rollhouse_nodes{state="alive"} 0' in get(f"http://{processes.pages['main']}/metrics")[1])


def knock(processes: Processes) -> None:
    """Somebody tries tokens that are none, until he is ended."""
    address, _, ca = processes.connection.partition("?token=")
    wrong = f"{address}?token=rh_0000000000_{'0' * 64}&ca={ca.partition('&ca=')[2]}"
    again_and_again(processes, "stranger", f"'{processes.binary}' status --connect '{wrong}'")


def again_and_again(processes: Processes, who: str, line: str) -> None:
    processes.processes[who] = subprocess.Popen(
        ["sh", "-c", f"while :; do {line}; done"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def fill_disk_of(processes: Processes, *names: str) -> None:
    """Lets processes write no byte to any file: what a full disk does."""
    for name in names:
        run("prlimit", "--pid", str(processes.processes[name].pid), "--fsize=0:")


def fill_disks_of_nodes(processes: Processes) -> None:
    nodes = ["node-1", "node-2"]
    fill_disk_of(processes, *nodes)
    for name in nodes:
        until("its recorder fails", lambda name=name: shown(processes, name, "rollhouse_recorder_failing"))
        stays("stepping", lambda name=name: shown(processes, name, "rollhouse_steps_total"))


def fill_disk_of_store(processes: Processes) -> None:
    fill_disk_of(processes, "main")
    until("shipping fails", lambda: shown(processes, "node-1", "rollhouse_spool_failed_attempts_total"))


def damage_spool(processes: Processes) -> None:
    """What a node has sealed is damaged on its disk before the store gets it."""
    kill_coordinator(processes)
    until("some is sealed", lambda: shown(processes, "node-1", "rollhouse_spool_segments") >= 3)
    segments = sorted((processes.folder / "node-1" / "spool" / "segments").glob("*.seg"))
    for segment in segments[:-1]:
        with open(segment, "r+b") as file:
            # Behind the head, which is what segments are known by.
            file.seek(segment.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 0xFF]))
    processes.start("main")


def lose_archive(processes: Processes) -> None:
    """The archive's folder is not mounted any more."""
    until("something is archived", lambda: shown(processes, "main", "rollhouse_archive_segments"))
    (processes.folder / "archive").rename(processes.folder / "elsewhere")


def empty_archive(processes: Processes) -> None:
    """What was archived is not there any more, and somebody reads it."""
    until("some is there alone", lambda: shown(processes, "main", "rollhouse_archive_away_segments"), 120)
    (processes.folder / "archive" / "segments").rename(processes.folder / "elsewhere")
    again_and_again(processes, "reader", f"'{processes.binary}' replay verify --all --connect '{processes.connection}'")


def start_to_panic(processes: Processes) -> None:
    """A node is started again, of which a part is to panic when it ships."""
    processes.kill("node-2")
    processes.common["ROLLHOUSE_FAILPOINT"] = "panic:node.shipping.spooled"
    processes.start("node-2")
    del processes.common["ROLLHOUSE_FAILPOINT"]


def owner(processes: Processes, who: str, *words: str) -> None:
    """Somebody steps lanes himself, until he is ended."""
    environment = dict(os.environ, ROLLHOUSE_CONNECT=processes.connection)
    processes.processes[who] = subprocess.Popen([sys.executable, HERE / "owner.py", *words], env=environment,
                                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def steps_an_env_that(option: str) -> Callable[[Processes], None]:
    return lambda processes: owner(processes, "owner", "--env", "test/Faulty-v0", "--option", option)


def slow_down(processes: Processes) -> None:
    """A node's env takes 20 ms for a step, and that of the other next to nothing, on a machine of any kind: its own environment
    says so to the plug-in that both have."""
    # Whoever has compiled the program has it.
    plugin, sources = processes.folder / "delayed.so", ROOT / "crates" / "plugin"
    run("cc", "-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared", f"-I{sources / 'include'}", f"-I{sources / 'examples'}",
        HERE / "delayed.c", "-o", plugin)
    processes.own["node"] = {**processes.own["node"], "ROLLHOUSE_PLUGIN": f"trusted:{plugin}"}
    for name, own in {"node-1": {}, "node-2": {"STEP_MICROSECONDS": "20000"}}.items():
        processes.kill(name)
        processes.common |= own
        processes.start(name)
        for key in own:
            del processes.common[key]
    for name in ("node-1", "node-2"):
        until("it is back", lambda name=name: get(f"http://{processes.pages[name]}/readyz")[0] == 200)
    # A delayed step is one of at least 8 lanes.
    owner(processes, "owner", "--env", "c/CartPole-v0", "--lanes", "32")
    until("lanes are stepped", lambda: shown(processes, "node-2", "rollhouse_owner_steps_total"))


def lose_address(processes: Processes) -> None:
    """A node is started again and advertises a port at which nobody listens, which is noticed when lanes are placed there."""
    processes.kill("node-2")
    processes.common["ROLLHOUSE_NODE__ADVERTISE"] = "127.0.0.1:9"
    processes.start("node-2")
    del processes.common["ROLLHOUSE_NODE__ADVERTISE"]
    until("it is back", lambda: get(f"http://{processes.pages['node-2']}/readyz")[0] == 200)
    # Spread over both.
    owner(processes, "owner", "--lanes", "64")


def lose_packets(processes: Processes) -> None:
    """One in five packets that a node sends is lost."""
    need("iptables")
    port = processes.heard("node-1", r"listens on [0-9.]+:([0-9]+)")
    rule = ["OUTPUT", "--out-interface", "lo", "--protocol", "udp", "--source-port", port, "--match", "statistic",
            "--mode", "random", "--probability", "0.2", "--jump", "DROP"]  # fmt: skip
    run("iptables", "--insert", *rule)
    processes.at_end.append(lambda: run("iptables", "--delete", *rule))
    owner(processes, "owner", "--lanes", "256")
    until("packets are lost", lambda: shown(processes, "node-1", "rollhouse_quic_packets_lost_total") > 10)


# More than is recorded until it is shipped, and less than in two minutes.
SMALL_SPOOL = {"ROLLHOUSE_SPOOL__LIMIT": "16 MB", "ROLLHOUSE_SPOOL__SEAL_AFTER": "1 s"}
SOON_SEALED = {"ROLLHOUSE_SPOOL__SEAL_AFTER": "1 s"}
FAULTS = {
    "the coordinator dies": Fault({"RollhouseCoordinatorDown", "RollhouseNodeWithoutCoordinator"}, kill_coordinator),
    "the coordinator is away for long": Fault(
        {"RollhouseSegmentsWait", "RollhouseStoreFallsBehind"}, kill_coordinator, {"node": SOON_SEALED}, lanes=4096),
    "a node dies": Fault({"RollhouseNodeDown", "RollhouseNodesLost"}, kill_node),
    "all nodes die": Fault({"RollhouseNodeDown", "RollhouseNoNodes"}, kill_all_nodes),
    "a part of a node panics": Fault(
        {"RollhousePartFailed"}, start_to_panic, {"node": SOON_SEALED}, until=("node-2", "rollhouse_part_restarts_total")),
    "the cluster is full": Fault({"RollhouseClusterFull"}, how={"node": {"ROLLHOUSE_NODE__CAPACITY": "32"}}),
    "certificates end soon": Fault({"RollhouseCertificateExpires"}, how={"days": 6}),
    "the socket's buffer is small": Fault(
        {"RollhouseSocketBufferSmall"}, how={"node": {"ROLLHOUSE_NETWORK__SOCKET_BUFFER": "64 KiB"}}),
    "one in five packets is lost": Fault({"RollhousePacketsLost"}, lose_packets, {"node": SOON_SEALED}, lanes=0),
    "somebody tries tokens": Fault({"RollhouseStrangersRefused"}, knock),
    "an env panics": Fault(
        {"RollhouseEpisodesInterrupted"}, steps_an_env_that("panic_at=3"), lanes=0, until=("node-1", "rollhouse_episodes_total")),
    "an env hangs": Fault(
        {"RollhouseThreadsAbandoned"}, steps_an_env_that("hang_at=3"), {"node": {"ROLLHOUSE_NODE__HANG_AFTER": "1 s"}},
        until=("node-1", "rollhouse_abandoned_threads_total")),
    "a node's env is slow": Fault({"RollhouseNodeSlow"}, slow_down, lanes=0),
    "a node advertises where it does not listen": Fault(
        {"RollhouseNodeNotReached"}, lose_address, lanes=0, until=("main", "rollhouse_unfit_nodes")),
    "the disks of all nodes are full": Fault({"RollhouseRecorderFailing", "RollhouseTrainingStalled"}, fill_disks_of_nodes),
    "the spool is full and holds stepping up": Fault(
        {"RollhouseSpoolHeld"}, fill_spools("rollhouse_spool_held"),
        {"node": {**SMALL_SPOOL, "ROLLHOUSE_SPOOL__WHEN_FULL": "back_pressure"}}),
    "the spool is full and drops what is oldest": Fault(
        # Nodes that play by themselves record more than is shipped on a small machine, and would drop it all the while.
        {"RollhouseEpisodesLost"}, fill_spools("rollhouse_spool_dropped_episodes_total", lanes=512),
        {"node": {**SMALL_SPOOL, "ROLLHOUSE_SPOOL__LIMIT": "8 MB", "ROLLHOUSE_SPOOL__WHEN_FULL": "drop"}}, lanes=0),
    "the store's disk is full": Fault({"RollhouseShippingFails"}, fill_disk_of_store, {"node": SOON_SEALED}),
    "the store is full": Fault(
        {"RollhouseStoreDropsOldest"}, how={"coordinator": {"ROLLHOUSE_STORE__BUDGET": "1 MB"}, "node": SOON_SEALED}),
    "a node's disk damages what it has": Fault(
        {"RollhouseStoreQuarantine"}, damage_spool, {"node": SOON_SEALED},
        until=("main", "rollhouse_store_quarantined_segments")),
    "the archive is away": Fault(
        {"RollhouseArchiveFallsBehind"}, lose_archive, {"coordinator": {"ROLLHOUSE_ARCHIVE__TARGET": "archive"}, "node": SOON_SEALED},
        after=80),
    "what was archived is not there any more": Fault(
        {"RollhouseArchiveReadsFail"}, empty_archive,
        {"coordinator": {"ROLLHOUSE_ARCHIVE__TARGET": "archive", "ROLLHOUSE_STORE__BUDGET": "1 MB"}, "node": SOON_SEALED},
        until=("main", "rollhouse_archive_failed_reads_total")),
}
