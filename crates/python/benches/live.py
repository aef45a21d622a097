"""Live lanes: how far from their time ticks are, and what they cost the node.

    python benches/live.py ROLLHOUSE [--json] [--sessions 64] [--hz 25] [--seconds 20] [--env Pendulum-v1] [--transport shm]

``ROLLHOUSE`` is the program, of which a cluster is started on free ports of this machine: coordinator and node in one process,
whose CPU is counted. Each session has one lane and an owner that is attached; the owner of the first one steps, and sees when
it is answered: a tick's lateness is how long after its time, by the grid on which it began, its row is there. The others do
nothing, but for the second, which comes 2 s late each time. Program and wheel have to be release builds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from local_cluster import local_cluster

import rollhouse


def child() -> int:
    """The cluster's process."""
    (task,) = [task for task in Path("/proc/self/task").iterdir() if task.name == str(os.getpid())]
    return int((task / "children").read_text().split()[0])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(program: str, sessions: int, hz: float, seconds: float, env: str, transport: str) -> dict[str, Any]:
    with local_cluster(program) as url, rollhouse.connect(url) as cluster, ExitStack() as held:
        pools = [cluster.make_vec(env, 1, pace=hz, record=False, max_episode_steps=0, transport=transport) for _ in range(sessions)]
        for pool in pools:
            held.callback(pool.close)
            pool.reset(seed=1)
        idle_action = np.zeros(pools[0].action_space.shape, pools[0].action_space.dtype)
        pools[0].step(idle_action)
        pid, times, period = child(), [], 1 / hz
        cpu, began, last_late = cpu_seconds(pid), time.monotonic(), time.monotonic()
        while time.monotonic() < began + seconds:
            pools[0].step(idle_action)
            times.append(time.monotonic())
            if sessions > 1 and time.monotonic() > last_late + 2:
                pools[1].latest()
                last_late = time.monotonic()
        spent, took = cpu_seconds(pid) - cpu, time.monotonic() - began
        rows = [pool.latest() for pool in pools[2:]]
        late = sum(int(row[4]["late"][0]) for row in rows)
        ticks = sum(int(row[4]["ticks"][0]) for row in rows)
    # Ticks stand on a grid; its origin is the earliest answer, so that the least lateness is 0.
    phases = np.array(times) % period
    origin = min(phases, key=lambda phase: np.percentile((phases - phase) % period, 50))
    lateness = np.sort((phases - origin) % period)
    lateness = np.where(lateness > period / 2, lateness - period, lateness) * 1000
    return {
        "sessions": sessions,
        "hz": hz,
        "answers": len(times),
        "p50_ms": float(np.percentile(np.abs(lateness), 50)),
        "p99_ms": float(np.percentile(np.abs(lateness), 99)),
        "cores": spent / took,
        "ticks_of_others": ticks,
        "late_of_others": late,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--hz", type=float, default=25)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--transport", choices=["quic", "shm"], default="quic")
    asked = parser.parse_args()
    rest = (asked.hz, asked.seconds, asked.env, asked.transport)
    one, many = measure(asked.program, 1, *rest), measure(asked.program, asked.sessions, *rest)
    if asked.json:
        print(json.dumps({"machine": platform.platform(), "one": one, "many": many}))
        return
    for shown in (one, many):
        print(
            f"{shown['sessions']:>4} sessions at {shown['hz']:g} Hz: {shown['p50_ms']:.2f} ms from its time (median), "
            f"{shown['p99_ms']:.2f} ms (99 of 100) of {shown['answers']} ticks; {100 * shown['cores']:.1f} % of a core; "
            f"{shown['late_of_others']} of {shown['ticks_of_others']} ticks of others not played in time"
        )


if __name__ == "__main__":
    main()
