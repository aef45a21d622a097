"""Python envs in worker processes, beside others' classes for that: env steps per second.

    python benches/hosted.py [--json] [--env CartPole-v1] [--lanes 64] [--workers 2] [--keys 0] [--mode NextStep]
        [--repeats 9] [--busy 1] [--program ROLLHOUSE]

With ``--program`` the same envs are also stepped on a node of a cluster of its own, through memory and over QUIC,
unrecorded; it has to be a release build, as the wheel has. All contestants are stepped in turns within one run, so that whatever else the machine does meets them alike. A ratio
is the median of the ratios of the turns. Every env's step adds ``--keys`` numbers to its infos. With ``--busy`` so many
processes keep a core busy meanwhile. SB3 and PufferLib are measured where they are installed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from local_cluster import local_cluster

import rollhouse

SECONDS_PER_TURN = 0.4

REST_SECONDS = 0.6
"""Between two turns. PufferLib's workers keep their cores busy for half a second after their last step."""


class Telling(gymnasium.Wrapper):
    """Adds so many numbers to the infos of every step."""

    def __init__(self, env: gymnasium.Env, keys: int):
        super().__init__(env)
        self.told = {f"number_{key}": float(key) for key in range(keys)}

    def step(self, action: Any) -> Any:
        *step, info = self.env.step(action)
        return *step, {**info, **self.told}


def make(env: str, keys: int) -> gymnasium.Env:
    made = gymnasium.make(env)
    return Telling(made, keys) if keys else made


def measure(envs: Any, actions: list[np.ndarray]) -> float:
    """Env steps per second over one turn."""
    calls = 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < SECONDS_PER_TURN:
        for batch in actions:
            envs.step(batch)
        calls += len(actions)
    return calls * envs.num_envs / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keys", type=int, default=0, help="numbers in the infos of every env's step")
    parser.add_argument("--mode", default="NextStep", help="the autoreset mode: NextStep or SameStep")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--busy", type=int, default=0, help="processes that keep a core busy")
    parser.add_argument("--program", help="the path of rollhouse, to step on a node too")
    args = parser.parse_args()
    if args.program and args.keys:
        parser.error("--keys has wrappers of this file's, which no node has: leave --program or --keys out")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.busy)]
    try:
        with contextlib.ExitStack() as stack:
            url = stack.enter_context(local_cluster(args.program, python=True)) if args.program else None
            result = contest(args, url)
    finally:
        for process in busy:
            process.kill()
    if args.json:
        print(json.dumps(result))
        return
    for name, rate in result["steps_per_second"].items():
        print(f"{name:20} {rate['min']:12,.0f} {rate['median']:12,.0f} {rate['max']:12,.0f}  steps/s (min median max)")
    for name, ratio in result["hosted_over"].items():
        print(f"hosted is {ratio:.2f} times {name}")


def on_a_node(args: argparse.Namespace, url: str, mode: AutoresetMode) -> dict[str, Any]:
    """The same lanes, hosted by a node."""
    cluster = rollhouse.connect(url)

    def lanes(transport: Any) -> Any:
        return cluster.make_vec(
            f"gymnasium:{args.env}", args.lanes, autoreset_mode=mode, record=False, transport=transport
        )

    return {"on a node, memory": lanes("shm"), "on a node, QUIC": lanes("quic")}


def of_sb3(fns: list[Callable[[], gymnasium.Env]]) -> dict[str, Any]:
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    return {"SB3 DummyVecEnv": DummyVecEnv(fns), "SB3 SubprocVecEnv": SubprocVecEnv(fns)}


def of_pufferlib(args: argparse.Namespace) -> dict[str, Any]:
    import pufferlib.emulation
    import pufferlib.vector

    def env(buf: Any = None, seed: int = 0) -> Any:
        return pufferlib.emulation.GymnasiumPufferEnv(gymnasium.make(args.env), buf=buf, seed=seed)

    backend = pufferlib.vector.Multiprocessing
    envs = pufferlib.vector.make(env, num_envs=args.lanes, num_workers=args.workers, backend=backend)
    return {"PufferLib Multiprocessing": envs}


def contest(args: argparse.Namespace, url: str | None) -> dict[str, Any]:
    """Rates of all, and what ours come to beside others."""
    fns = [functools.partial(make, args.env, args.keys)] * args.lanes
    mode = AutoresetMode(args.mode)
    ours = functools.partial(rollhouse.vectorize, fns, workers=args.workers, autoreset_mode=mode)
    contestants = {
        "hosted": ours(),
        "hosted copy=False": ours(copy=False),
        "SyncVectorEnv": gymnasium.vector.SyncVectorEnv(fns, autoreset_mode=mode),
        "AsyncVectorEnv": gymnasium.vector.AsyncVectorEnv(fns, shared_memory=True, autoreset_mode=mode),
    }
    if url is not None:
        contestants |= on_a_node(args, url, mode)
    for others in (functools.partial(of_sb3, fns), functools.partial(of_pufferlib, args)):
        with contextlib.suppress(ImportError):
            contestants |= others()
    space = contestants["hosted"].action_space
    space.seed(0)
    actions = [space.sample() for _ in range(16)]
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for envs in contestants.values():
        envs.reset()
    for turn in range(args.repeats + 1):
        for name, envs in contestants.items():
            rate = measure(envs, actions)
            # The first turn is for warming up.
            if turn:
                rates[name].append(rate)
            time.sleep(REST_SECONDS)
    for envs in contestants.values():
        envs.close()
    return {
        "env": args.env,
        "lanes": args.lanes,
        "workers": args.workers,
        "keys": args.keys,
        "mode": args.mode,
        "busy": args.busy,
        "gymnasium": gymnasium.__version__,
        "steps_per_second": {
            name: {"min": min(r), "median": statistics.median(r), "max": max(r)} for name, r in rates.items()
        },
        "hosted_over": {
            name: statistics.median(a / b for a, b in zip(rates["hosted"], rates[name], strict=True))
            for name in contestants
            if not name.startswith("hosted")
        },
    }


if __name__ == "__main__":
    main()
