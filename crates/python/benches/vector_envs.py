"""Vector envs of other packages as lanes here, beside themselves: which part of their own rate is left.

    python benches/vector_envs.py [--json] [--envs envpool:Pong-v5 envpool:HalfCheetah-v4] [--lanes 64] [--repeats 9] [--record]

Each is stepped bare and hosted in turns within one run, with actions that were drawn beforehand, so that whatever else the machine does
meets both alike. A rate is the median of the turns, a ratio the median of the ratios of two turns that follow each other. With
``--record`` the hosted one records. The wheel has to be a release build.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from typing import Any

import numpy as np

import rollhouse
from rollhouse.vector_maker import VectorMaker

SECONDS_PER_TURN = 1.0

BATCHES = 32
"""Batches of actions that were drawn."""


def measure(envs: Any, actions: list[np.ndarray]) -> float:
    """Env steps per second over one turn."""
    calls = 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < SECONDS_PER_TURN:
        envs.step(actions[calls % len(actions)])
        calls += 1
    return calls * envs.num_envs / spent


def contest(id: str, lanes: int, repeats: int, record: bool) -> dict[str, float]:
    """The rates of both, and the ratio of hosted to bare."""
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory()) if record else None
        bare = VectorMaker(f"vector:{id}", {})(lanes, None, list(range(lanes)))
        stack.callback(bare.close)
        hosted = stack.enter_context(rollhouse.make_vec(f"vector:{id}", lanes, record=record, data=data))
        bare.reset()
        hosted.reset(seed=0)
        hosted.action_space.seed(0)
        actions = [hosted.action_space.sample() for _ in range(BATCHES)]
        rates: dict[str, list[float]] = {"bare": [], "hosted": []}
        for turn in range(repeats + 1):
            # Whoever comes first in one turn comes last in the next.
            for name in sorted(rates, reverse=bool(turn % 2)):
                rate = measure(bare if name == "bare" else hosted, actions)
                if turn:
                    rates[name].append(rate)
        ratio = statistics.median(hosted / bare for hosted, bare in zip(rates["hosted"], rates["bare"], strict=True))
        return {"bare": statistics.median(rates["bare"]), "hosted": statistics.median(rates["hosted"]), "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--envs", nargs="+", default=["envpool:Pong-v5", "envpool:HalfCheetah-v4"])
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    report = {id: contest(id, args.lanes, args.repeats, args.record) for id in args.envs}
    if args.json:
        print(json.dumps(report))
        return
    for id, of in report.items():
        print(f"{id:28} bare {of['bare']:>12,.0f}/s   hosted {of['hosted']:>12,.0f}/s   {of['ratio']:.3f} of its own rate")


if __name__ == "__main__":
    main()
