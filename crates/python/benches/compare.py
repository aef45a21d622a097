"""Steps one env as Rollhouse and its neighbours do, and prints a table.

    python benches/compare.py [--json] [--lanes 64] [--steps 1000] [--repeats 5]

Random actions, drawn beforehand, in one process that is given as many threads or workers as it wants: what is compared is what a
trainer's loop waits for. A library that is not installed is named as skipped; ``pip install envpool pufferlib 'ray[rllib]'`` has
them. A figure is the median of the repeats with their spread, in steps a second of all lanes together.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

Step = Callable[[np.ndarray], Any]

ENV = "CartPole-v1"


def rollhouse_here(lanes: int) -> tuple[Step, Callable[[], None]]:
    import rollhouse

    envs = rollhouse.make_vec(ENV, lanes, seed=0)
    envs.reset()
    return envs.step, envs.close


def rollhouse_recorded(lanes: int) -> tuple[Step, Callable[[], None]]:
    import tempfile

    import rollhouse

    folder = tempfile.TemporaryDirectory()
    envs = rollhouse.make_vec(ENV, lanes, seed=0, record=True, data=folder.name)
    envs.reset()
    return envs.step, lambda: (envs.close(), folder.cleanup())


def rollhouse_hosted(lanes: int) -> tuple[Step, Callable[[], None]]:
    import rollhouse

    envs = rollhouse.make_vec(f"gymnasium:{ENV}", lanes, seed=0)
    envs.reset()
    return envs.step, envs.close


def gymnasium_sync(lanes: int) -> tuple[Step, Callable[[], None]]:
    envs = gymnasium.make_vec(ENV, lanes, vectorization_mode="sync")
    envs.reset(seed=0)
    return envs.step, envs.close


def gymnasium_async(lanes: int) -> tuple[Step, Callable[[], None]]:
    envs = gymnasium.make_vec(ENV, lanes, vectorization_mode="async")
    envs.reset(seed=0)
    return envs.step, envs.close


def envpool(lanes: int) -> tuple[Step, Callable[[], None]]:
    import envpool

    envs = envpool.make(ENV, env_type="gymnasium", num_envs=lanes, seed=0)
    envs.reset()
    return envs.step, envs.close


def pufferlib(lanes: int) -> tuple[Step, Callable[[], None]]:
    import pufferlib.emulation
    import pufferlib.vector

    def make(buf: Any = None, seed: int = 0) -> Any:
        return pufferlib.emulation.GymnasiumPufferEnv(env_creator=gymnasium.make, env_args=[ENV], buf=buf, seed=seed)

    workers = max(count for count in range(1, (os.cpu_count() or 1) + 1) if lanes % count == 0)
    envs = pufferlib.vector.make(make, num_envs=lanes, num_workers=workers, backend=pufferlib.vector.Multiprocessing)
    envs.reset(seed=0)
    return envs.step, envs.close


def rllib(lanes: int) -> tuple[Step, Callable[[], None]]:
    """What an env runner of RLlib steps: Gymnasium's vector env behind its own wrappers, without its connectors and its policy."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    config = PPOConfig().environment(ENV).env_runners(num_env_runners=0, num_envs_per_env_runner=lanes)
    runner = SingleAgentEnvRunner(config=config)
    runner.env.reset(seed=0)
    return runner.env.step, runner.stop


WAYS: list[tuple[str, str | None, Callable[[int], tuple[Step, Callable[[], None]]]]] = [
    ("Rollhouse, built-in env", "rollhouse", rollhouse_here),
    ("Rollhouse, built-in env, every episode recorded", "rollhouse", rollhouse_recorded),
    ("Rollhouse, Gymnasium's env in workers", "rollhouse", rollhouse_hosted),
    ("Gymnasium SyncVectorEnv", None, gymnasium_sync),
    ("Gymnasium AsyncVectorEnv", None, gymnasium_async),
    ("EnvPool", "envpool", envpool),
    ("PufferLib, Gymnasium's env in workers", "pufferlib", pufferlib),
    ("RLlib env runner, Gymnasium's env", "ray.rllib", rllib),
]


def is_installed(package: str | None) -> bool:
    try:
        return package is None or importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def rates(way: Callable[[int], tuple[Step, Callable[[], None]]], lanes: int, steps: int, repeats: int) -> list[float]:
    """Returns the steps a second of each repeat."""
    actions = np.random.default_rng(0).integers(0, 2, (16, lanes))
    step, close = way(lanes)
    found = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        for index in range(steps):
            step(actions[index % 16])
        found.append(lanes * steps / (time.perf_counter() - began))
    close()
    # The first warms up.
    return sorted(found[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1000, help="steps of the batch in a repeat")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    if not given.json:
        machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        print(f"{ENV}, {given.lanes} lanes, {machine}, Gymnasium {gymnasium.__version__}\n")
        print("| | steps/s | spread |\n|---|---:|---|")
    for name, package, way in WAYS:
        if not is_installed(package):
            row: dict[str, Any] = {"name": name, "skipped": f"{package} is not installed"}
        else:
            try:
                found = rates(way, given.lanes, given.steps, given.repeats)
            except Exception as error:  # A library of another version is no reason to leave the others out.
                row = {"name": name, "skipped": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
            else:
                row = {"name": name, "steps_per_second": statistics.median(found), "least": found[0], "most": found[-1]}
        if given.json:
            print(json.dumps(row), flush=True)
        elif "skipped" in row:
            print(f"| {name} | | skipped: {row['skipped']} |", flush=True)
        else:
            spread = f"{row['least']:,.0f} to {row['most']:,.0f}"
            print(f"| {name} | {row['steps_per_second']:,.0f} | {spread} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
