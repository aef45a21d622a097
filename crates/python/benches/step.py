"""Stepping built-in lanes in this process, beside its peers: microseconds per call and env steps per second.

    python benches/step.py [--json] [--lanes 64 4096] [--repeats 15] [--busy 1]

All contestants are stepped in turns within one run and, but for "default threads", on one thread, so that whatever else
the machine does meets them alike. A ratio is the median of the ratios of the turns, and so is what one adds to a call.
With ``--busy`` so many processes keep a core busy meanwhile, as a learner would. The wheel has to be a release build. Peers that are not
installed are named and left out: `pip install envpool stable-baselines3 pufferlib`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import rollhouse

ENV = "CartPole-v1"
SECONDS_PER_TURN = 0.05
BATCHES_OF_ACTIONS = 64
OURS = "rollhouse copy=False"


def ours(lanes: int, **arguments: Any) -> rollhouse.VectorEnv:
    return rollhouse.make_vec(ENV, lanes, threads=1, seed=0, **arguments)


def recording(lanes: int) -> rollhouse.VectorEnv:
    return ours(lanes, copy=False, record=True, data=tempfile.mkdtemp(prefix="rollhouse-bench-"))


def with_wrapper(envs: gymnasium.vector.VectorEnv) -> Any:
    return gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)


def gymnasium_numpy(lanes: int) -> Any:
    return gymnasium.make_vec(ENV, num_envs=lanes, vectorization_mode="vector_entry_point")


def gymnasium_sync(lanes: int) -> Any:
    return gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(ENV)] * lanes)


def gymnasium_async(lanes: int) -> Any:
    return gymnasium.vector.AsyncVectorEnv([lambda: gymnasium.make(ENV)] * lanes)


def sb3_dummy(lanes: int) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv

    return DummyVecEnv([lambda: gymnasium.make(ENV)] * lanes)


def sb3_ours(lanes: int) -> Any:
    from rollhouse.sb3 import Sb3VecEnv

    return Sb3VecEnv(ours(lanes, autoreset_mode="SameStep"))


def envpool(lanes: int) -> Any:
    import envpool

    return envpool.make(ENV, "gymnasium", num_envs=lanes, num_threads=1)


def pufferlib(lanes: int) -> Any:
    from pufferlib.ocean.cartpole.cartpole import Cartpole

    return Cartpole(num_envs=lanes, report_interval=128)


CONTESTANTS: dict[str, Callable[[int], Any]] = {
    OURS: lambda lanes: ours(lanes, copy=False),
    "rollhouse copy=True": lambda lanes: ours(lanes),
    "rollhouse SAME_STEP copy=False": lambda lanes: ours(lanes, copy=False, autoreset_mode="SameStep"),
    "rollhouse SAME_STEP copy=True": lambda lanes: ours(lanes, autoreset_mode="SameStep"),
    "rollhouse record=True": recording,
    "rollhouse statistics=True": lambda lanes: ours(lanes, copy=False, statistics=True),
    "rollhouse RecordEpisodeStatistics": lambda lanes: with_wrapper(ours(lanes, copy=False)),
    "rollhouse default threads": lambda lanes: rollhouse.make_vec(ENV, lanes, seed=0, copy=False),
    "Gymnasium CartPoleVectorEnv": gymnasium_numpy,
    "rollhouse.sb3": sb3_ours,
    "Gymnasium SyncVectorEnv": gymnasium_sync,
    "Gymnasium AsyncVectorEnv": gymnasium_async,
    "SB3 DummyVecEnv": sb3_dummy,
    "EnvPool": envpool,
    "PufferLib Ocean": pufferlib,
}

# A turn of these takes longer than one of all others together.
SMALL_ONLY = {"Gymnasium SyncVectorEnv", "Gymnasium AsyncVectorEnv", "SB3 DummyVecEnv"}


def turn(envs: Any, actions: list[np.ndarray]) -> float:
    """Seconds per call, over one turn."""
    step = envs.step
    calls = 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < SECONDS_PER_TURN:
        # As many as the clock's own cost asks for.
        for batch in actions[: 1 if spent / max(calls, 1) > 1e-3 else None]:
            step(batch)
            calls += 1
    return spent / calls


def contest(lanes: int, repeats: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds per call by contestant and turn; and why those that are missing are."""
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 2, lanes) for _ in range(BATCHES_OF_ACTIONS)]
    contestants, missing = {}, {}
    for name, make in CONTESTANTS.items():
        if lanes > 64 and name in SMALL_ONLY:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                envs = make(lanes)
                envs.reset()
        except Exception as error:  # noqa: BLE001: whatever a peer raises, the others are measured
            missing[name] = f"{type(error).__name__}: {error}"
            continue
        contestants[name] = envs
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(repeats + 1):
        for name, envs in contestants.items():
            spent = turn(envs, actions)
            # The first turn warms up.
            if number:
                taken[name].append(spent)
    for envs in contestants.values():
        envs.close()
    return taken, missing


def report(lanes: int, repeats: int) -> dict[str, Any]:
    taken, missing = contest(lanes, repeats)
    rows = {}
    for name, spent in taken.items():
        median = statistics.median(spent)
        pairs = list(zip(spent, taken[OURS], strict=True))
        rows[name] = {
            "us_per_call": {"min": min(spent) * 1e6, "median": median * 1e6, "max": max(spent) * 1e6},
            "steps_per_second": lanes / median,
            "times_ours": statistics.median(theirs / mine for theirs, mine in pairs),
            "adds_us": statistics.median(theirs - mine for theirs, mine in pairs) * 1e6,
        }
    return {"lanes": lanes, "contestants": rows, "missing": missing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--lanes", type=int, nargs="+", default=[64, 4096])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--busy", type=int, default=0, help="processes that keep a core busy")
    arguments = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        results = [report(lanes, arguments.repeats) for lanes in arguments.lanes]
    finally:
        for process in busy:
            process.kill()
    if arguments.json:
        versions = {"rollhouse": rollhouse.__version__, "gymnasium": gymnasium.__version__, "numpy": np.__version__}
        machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
        print(json.dumps({"env": ENV, "versions": versions, "machine": machine, "busy": arguments.busy, "results": results}))
        return
    for result in results:
        lanes = result["lanes"]
        print(f"{ENV}, {lanes} lanes, one thread, {arguments.repeats} turns, {arguments.busy} busy cores beside")
        for name, row in result["contestants"].items():
            call, rate = row["us_per_call"], row["steps_per_second"] / 1e6
            print(
                f"  {name:<32} {call['median']:10.2f} us/call ({call['min']:.2f} to {call['max']:.2f})"
                f" {rate:8.2f} M steps/s {row['times_ours']:8.2f} x ours, {row['adds_us']:+9.2f} us"
            )
        for name, why in result["missing"].items():
            print(f"  {name:<32} left out: {why}")


if __name__ == "__main__":
    main()
