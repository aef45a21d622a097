"""A step through memory shared with a node, beside one in this process: microseconds a call.

    python benches/shm.py [--json] [--lanes 64] [--steps 20000] [--repeats 10] [--url URL]

Starts `rollhouse up` (`$ROLLHOUSE_PROGRAM`, or the one on the path) unless a cluster on this machine is named. Both are
stepped in turns, with arrays of actions that were made before and are handed over as training loops do: `copy=False`, the
actions filled in place. Wheel and program have to be release builds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from local_cluster import local_cluster

import rollhouse

ENV = "CartPole-v1"


@contextlib.contextmanager
def cluster_of(url: str | None) -> Iterator[str]:
    if url:
        yield url
        return
    with local_cluster(os.environ.get("ROLLHOUSE_PROGRAM", "rollhouse")) as local:
        yield local


def microseconds(envs: Any, steps: int) -> float:
    envs.reset(seed=0)
    actions = envs.actions
    actions[...] = np.arange(envs.num_envs) % 2
    step = envs.step
    began = time.perf_counter()
    for _ in range(steps):
        step(actions)
    return (time.perf_counter() - began) / steps * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--url")
    arguments = parser.parse_args()
    with cluster_of(arguments.url) as url, rollhouse.connect(url, transport="shm") as cluster:
        here = rollhouse.make_vec(ENV, arguments.lanes, threads=1, copy=False)
        there = cluster.make_vec(ENV, arguments.lanes, copy=False, record=False)
        turns = []
        for turn in range(arguments.repeats + 1):
            times = [microseconds(envs, arguments.steps) for envs in (here, there)]
            # The first turn warms up.
            if turn:
                turns.append(times)
        here.close()
        there.close()
    result = {
        "env": ENV,
        "lanes": arguments.lanes,
        "embedded_us": statistics.median(turn[0] for turn in turns),
        "shm_us": statistics.median(turn[1] for turn in turns),
        "shm_over_embedded_us": statistics.median(turn[1] - turn[0] for turn in turns),
        "shm_over_embedded_us_min": min(turn[1] - turn[0] for turn in turns),
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:26} {value if isinstance(value, str | int) else f'{value:.3f}'}")


if __name__ == "__main__":
    main()
