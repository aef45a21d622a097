"""Starts and restarts of workers: what they take, and what they leave behind.

    python benches/restarts.py [--json] [--env CartPole-v1] [--restarts 1000]

First 64 lanes are started in 8 workers: the seconds until they have been reset, and those that one process takes to import
Gymnasium and to make and reset the env. Then all 64 workers of 64 lanes are killed, twice, and that with new lanes until so
many have been started again; after each round, memory, descriptors, threads and processes of this process are told. The pause
before a worker is started again doubles each time from a second on, and the sixth time in five minutes it is given up: so each
round has lanes of its own. A thousand take about four minutes of two cores, most of which are imports of Gymnasium.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import rollhouse

LANES, WORKERS = 64, 8
ROUND = 64
"""Workers that are killed together, each of one lane."""

KILLS = 2
"""Times that each of them is killed: fewer than would give it up."""

LOOK_EVERY = 0.05
"""Seconds between two looks at lanes that are to come back. Steps without a pause would take the processor from their workers."""


def imported(env: str) -> float:
    """The seconds of a process that imports Gymnasium and makes and resets one env."""
    began = time.perf_counter()
    program = f"import gymnasium; gymnasium.make({env!r}).reset(seed=0)"
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - began


def started(env: str) -> float:
    """The seconds until lanes in workers have been made and reset."""
    began = time.perf_counter()
    envs = rollhouse.vectorize([functools.partial(gymnasium.make, env)] * LANES, workers=WORKERS)
    envs.reset(seed=0)
    took = time.perf_counter() - began
    envs.close()
    return took


def held() -> dict[str, int]:
    """What this process holds: kibibytes of memory, descriptors, threads, child processes."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    children = (Path(f"/proc/self/task/{task}/children").read_text() for task in os.listdir("/proc/self/task"))
    return {
        "memory_kib": int(status["VmRSS"].split()[0]),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "processes": sum(len(text.split()) for text in children),
    }


def restart(env: str) -> int:
    """Kills each worker of a round of lanes so many times; how many were started again."""
    fns = [functools.partial(gymnasium.make, env)] * ROUND
    envs = rollhouse.vectorize(fns, workers=ROUND, on_loss="report", valid="always")
    envs.reset(seed=0)
    actions = np.zeros(ROUND, np.int64)
    restarts = 0
    for _ in range(KILLS):
        before = envs._crew.workers.process_ids()
        for process in before:
            os.kill(process, signal.SIGKILL)
        # A lane is back with its first valid row. They are never valid at once, because some of them begin episodes.
        back = np.zeros(ROUND, bool)
        while not back.all():
            time.sleep(LOOK_EVERY)
            back |= envs.step(actions)[4]["valid"]
        restarts += len(set(envs._crew.workers.process_ids()) - set(before))
    envs.close()
    return restarts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--restarts", type=int, default=1000)
    args = parser.parse_args()
    alone = sorted(imported(args.env) for _ in range(3))[1]
    start = sorted(started(args.env) for _ in range(3))[1]
    result: dict[str, Any] = {"import_seconds": alone, "start_seconds": start, "held": []}
    say = (lambda _: None) if args.json else functools.partial(print, flush=True)
    say(f"{LANES} lanes in {WORKERS} workers: {start:.2f} s; import, make and reset in one process: {alone:.2f} s")
    result["held"].append({"restarts": 0, **held()})
    say(", ".join(f"{value} {name}" for name, value in result["held"][-1].items()))
    restarts = 0
    while restarts < args.restarts:
        restarts += restart(args.env)
        result["held"].append({"restarts": restarts, **held()})
        say(", ".join(f"{value} {name}" for name, value in result["held"][-1].items()))
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
