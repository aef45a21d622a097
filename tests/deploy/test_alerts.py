"""What alerts say of real processes: nothing of an hour of ordinary work, and of a fault what they are for.

A minute of a cluster's pages is kept, and Prometheus' own promtool is told that it went on so for an hour: gauges as they
were, counters, and what grows for as long as nothing is taken, growing as they did. Each alert has tests with made series as well
(rules_test.yml)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import get, heavy, need, program, run, until
from faults import FAULTS, shown
from processes import Processes
from prometheus_client.parser import text_string_to_metric_families
from test_rules import RULES, TESTS, alerts

pytestmark = heavy

# Seconds between two samples in what promtool is told, and of pages that are kept.
INTERVAL, SECOND = 15, 1.0
ORDINARY_MINUTES, FAULT_MINUTES = 20, 90
# What a fault takes at most until it shows.
LONGEST_SECONDS = 120

# Alerts that are made to fire by tests of their own.
TOLD_ELSEWHERE = {"RollhouseCertificateNotRenewed", "RollhouseProcessRestarts"}

# Alerts that made series alone make fire (rules_test.yml), and why.
BY_SERIES_ALONE = {
    "RollhouseRequestsRefusedBusy": "batches of the built-in envs take too little time for a queue to fill",
    "RollhouseNodeRunsOutOfRoom": "a disk that is nearly full, and not quite, would have to be a disk of its own",
}

# Gauges that grow for as long as nothing is taken: those that did so all through a fault go on as they did.
GROWING = {"rollhouse_spool_bytes", "rollhouse_spool_oldest_age_seconds", "rollhouse_archive_waiting_seconds"}

Series = dict[str, list[float | None]]


class Recording:
    """Pages of a cluster's processes, second by second."""

    def __init__(self, processes: Processes) -> None:
        self.processes, self.series, self.counters, self.seconds = processes, {}, set(), 0
        self.began = time.time()

    def go_on(self, seconds: int) -> range:
        """Keeps the pages for so long, and gives which seconds of the recording that was."""
        first, began = self.seconds, time.time()
        for _ in range(seconds):
            # The clock of the recording: a page a second. Nothing is waited for to happen.
            due = began + (self.seconds - first + 1) * SECOND
            time.sleep(max(0.0, due - time.time()))
            for name, address in self.processes.pages.items():
                role = "coordinator" if name == "main" else "node"
                labels = {"instance": name, "job": "rollhouse", "role": role}
                status, page = get(f"http://{address}/metrics")
                self.keep("up", labels, float(status == 200))
                for family in text_string_to_metric_families(page) if status == 200 else []:
                    for sample in family.samples:
                        if family.type in {"counter", "histogram"}:
                            self.counters.add(sample.name)
                        # Moments are told as what they are after the beginning.
                        moment = sample.name.endswith("_time_seconds")
                        self.keep(sample.name, sample.labels | labels, sample.value - (self.began if moment else 0.0))
            self.seconds += 1
        return range(first, self.seconds)

    def keep(self, name: str, labels: dict[str, str], value: float) -> None:
        words = ",".join(f'{key}="{word}"' for key, word in sorted(labels.items()))
        values = self.series.setdefault(f"{name}{{{words}}}", [])
        values += [None] * (self.seconds - len(values)) + [value]

    def told(self, parts: list[tuple[range, int]], fault: int | None) -> list[dict[str, str]]:
        """Series as promtool takes them: each part of the recording goes on for so many minutes. In the part of the fault
        also what has grown goes on to grow."""
        told = []
        for name, values in self.series.items():
            metric = name.partition("{")[0]
            values = values + [None] * (self.seconds - len(values))
            words, before = [], 0.0
            for part, (seconds, minutes) in enumerate(parts):
                kept = [values[second] for second in seconds]
                length = len(kept) - 1
                known = [value for value in kept if value is not None]
                counts = metric in self.counters or (part == fault and metric in GROWING and grows(known))
                # What is counted for the first time was not there before: in this part, or in those before it.
                is_new = kept[0] is None or (part > 0 and all(value is None for value in values[: seconds.start]))
                start = known[0] if counts and not is_new else 0.0
                growth = known[-1] - start if counts and known else 0.0
                for sample in range(minutes * 60 // INTERVAL):
                    rounds, second = divmod(sample * INTERVAL, length)
                    value = kept[second]
                    if value is None:
                        words.append("stale")
                    else:
                        words.append(repr(value + (before - start + rounds * growth if counts else 0.0)))
                rounds = minutes * 60 / length
                # A process that was started again counts from zero.
                before += rounds * growth
            told.append({"series": name, "values": " ".join(words)})
        return told


def grows(values: list[float]) -> bool:
    """Whether it grew by and by; segments that are sealed late or counted late make it stand still for a moment."""
    return len(values) > 1 and values == sorted(values) and values[-1] > values[0]


def firing(
    recording: Recording, parts: list[tuple[range, int]], folder: Path, fault: int | None = None
) -> Callable[[int], set[str]]:
    """Which alerts fire in a minute."""
    shutil.copy(RULES, folder)
    order = yaml.safe_load(TESTS.read_text())["group_eval_order"]
    series = recording.told(parts, fault)

    def at(minute: int) -> set[str]:
        # What is found is told by what is said to be expected of each alert: nothing.
        asked = [{"expr": f'count(ALERTS{{alertname="{alert["alert"]}",alertstate="firing"}})',
                  "eval_time": f"{minute}m", "exp_samples": []} for alert in alerts()]
        test = {"interval": f"{INTERVAL}s", "input_series": series, "promql_expr_test": asked}
        whole = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "group_eval_order": order, "tests": [test]}
        (folder / "test.yml").write_text(yaml.safe_dump(whole, width=10**9))
        done = subprocess.run(["promtool", "test", "rules", folder / "test.yml"], capture_output=True, text=True)
        said = done.stdout + done.stderr
        found = {alert["alert"] for alert in alerts() if f'alertname=\\"{alert["alert"]}\\"' in said or f'alertname="{alert["alert"]}"' in said}
        assert (done.returncode == 0) == (not found), said[-4000:]
        return found

    return at


def cluster(folder: Path, **how: object) -> Processes:
    return Processes(folder, program(), ["node-1", "node-2"], **how)


def playing(processes: Processes) -> None:
    """Waits until lanes play."""
    until("lanes play", lambda: all(shown(processes, name, "rollhouse_steps_total") for name in processes.pages if name != "main"))


def test_nothing_fires_in_an_hour_of_ordinary_work(tmp_path: Path) -> None:
    need("promtool")
    with cluster(tmp_path, node={"ROLLHOUSE_SPOOL__SEAL_AFTER": "2 s"}) as processes:
        processes.trainer(64)
        playing(processes)
        recording = Recording(processes)
        minute = recording.go_on(45)
    assert sum(values[-1] - values[0] for name, values in recording.series.items() if name.startswith("rollhouse_steps_total")) > 1e5
    at = firing(recording, [(minute, 61)], tmp_path)
    for when in (2, 10, 15, 30, 45, 60):
        assert at(when) == set(), f"in minute {when}"


@pytest.mark.parametrize("fault", FAULTS)
def test_what_an_alert_is_for_makes_it_fire(fault: str, tmp_path: Path) -> None:
    need("promtool")
    tells, act, how, lanes, reached, after = FAULTS[fault]
    with cluster(tmp_path, **how) as processes:
        if lanes:
            processes.trainer(lanes)
            playing(processes)
        recording = Recording(processes)
        parts = []
        # What is done later was not there before.
        if act:
            parts.append((recording.go_on(10), ORDINARY_MINUTES))
            act(processes)
        # Spools and stores take a while to fill.
        fault_began = recording.seconds
        recording.go_on(20)
        while reached and not shown(processes, *reached):
            assert recording.seconds < fault_began + LONGEST_SECONDS, f"{reached[1]} of {reached[0]} stays 0"
            recording.go_on(5)
        parts.append((range(fault_began, recording.seconds), FAULT_MINUTES))
    at = firing(recording, parts, tmp_path, fault=len(parts) - 1)
    if act:
        assert not tells & at(ORDINARY_MINUTES - 1), "before the fault"
    began = ORDINARY_MINUTES if act else 0
    found = at(began + after)
    assert tells <= found, found


def test_a_certificate_that_is_not_renewed_is_told_of(tmp_path: Path) -> None:
    need("promtool")
    with cluster(tmp_path, coordinator={"ROLLHOUSE_COORDINATOR__NODE_VALIDITY": "30 s"}) as processes:
        issuer = tmp_path / "main" / "issuer.pem"
        processes.run("certs", "issuer", "--dir", processes.ca, "--output", issuer)
        processes.join("node-3")
        recording = Recording(processes)
        parts = [(recording.go_on(5), ORDINARY_MINUTES)]
        issuer.unlink()
        until("it is refused", lambda: shown(processes, "node-3", "rollhouse_certificate_renewal_failing"))
        parts.append((recording.go_on(5), FAULT_MINUTES))
    at = firing(recording, parts, tmp_path)
    assert "RollhouseCertificateNotRenewed" not in at(ORDINARY_MINUTES - 1)
    # It waits for an hour.
    assert "RollhouseCertificateNotRenewed" in at(ORDINARY_MINUTES + 65)


def test_every_alert_is_made_to_fire_by_what_it_is_for_or_it_is_said_why_not() -> None:
    told = set.union(*(fault.tells for fault in FAULTS.values())) | TOLD_ELSEWHERE
    assert not told & set(BY_SERIES_ALONE)
    assert told | set(BY_SERIES_ALONE) == {alert["alert"] for alert in alerts()}


def test_a_process_that_is_restarted_again_and_again_is_told_of(tmp_path: Path) -> None:
    need("promtool")
    with cluster(tmp_path) as processes:
        processes.trainer(64)
        playing(processes)
        recording = Recording(processes)
        parts = [(recording.go_on(10), ORDINARY_MINUTES)]
        for _ in range(4):
            processes.kill("node-2")
            processes.start("node-2")
            until("it is back", lambda: get(f"http://{processes.pages['node-2']}/readyz")[0] == 200)
            parts.append((recording.go_on(4), 3))
        at = firing(recording, parts, tmp_path)
        assert "RollhouseProcessRestarts" not in at(ORDINARY_MINUTES - 1)
        assert "RollhouseProcessRestarts" in at(ORDINARY_MINUTES + 12)


def test_a_full_disk_is_told_of(tmp_path: Path) -> None:
    need("promtool")
    if os.geteuid() != 0:
        pytest.skip("a file system of its own wants root")
    disk = tmp_path / "node-2"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk)
    try:
        with cluster(tmp_path) as processes:
            processes.trainer(4)
            playing(processes)
            recording = Recording(processes)
            parts = [(recording.go_on(5), ORDINARY_MINUTES)]
            with open(disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError):
                while True:
                    filler.write(bytes(1 << 12))
            until("its recorder fails", lambda: shown(processes, "node-2", "rollhouse_recorder_failing"))
            parts.append((recording.go_on(10), FAULT_MINUTES))
        # Stepping waits for the disk, so that nothing is lost.
        assert "RollhouseRecorderFailing" in firing(recording, parts, tmp_path)(ORDINARY_MINUTES + 30)
    finally:
        run("umount", "--lazy", disk)
