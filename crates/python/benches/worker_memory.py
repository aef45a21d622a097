"""Memory of worker processes: those of ``vectorize``, those of ``rollhouse.sb3``, and a process that imports PyTorch.

    python benches/worker_memory.py [--json] [--env CartPole-v1]

Each has one lane of Gymnasium's env, which has been reset. What a process has in memory (``VmRSS``) is told in MiB, and what it has to
itself (``RssAnon``). Workers of ``rollhouse.sb3`` do not import PyTorch: they have what those of ``vectorize`` have. What is not
installed is left out.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium

import rollhouse

FIGURES = ("VmRSS", "RssAnon")


def memory_of(process: int) -> dict[str, float]:
    """The figures of a process, in MiB."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return {name: round(int(status[name].split()[0]) / 1024, 1) for name in FIGURES}


def of_workers(envs: rollhouse.HostedVectorEnv) -> dict[str, float]:
    """The figures of the largest worker."""
    return max((memory_of(process) for process in envs._crew.workers.process_ids()), key=lambda figures: figures["VmRSS"])


def vectorized(env: str) -> dict[str, float]:
    """Those of a worker of ``vectorize``."""
    envs = rollhouse.vectorize([functools.partial(gymnasium.make, env)] * 2, workers=2)
    envs.reset(seed=0)
    figures = of_workers(envs)
    envs.close()
    return figures


def of_sb3(env: str) -> dict[str, float]:
    """Those of a worker of ``rollhouse.sb3``."""
    from rollhouse.sb3 import make_vec_env

    envs: Any = make_vec_env(f"gymnasium:{env}", 2, workers=2, monitor=False)
    envs.reset()
    figures = of_workers(envs.envs)
    envs.close()
    return figures


def with_torch(env: str) -> dict[str, float]:
    """Those of a process that imports PyTorch beside Gymnasium."""
    program = f"import torch, gymnasium; gymnasium.make({env!r}).reset(); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        figures = memory_of(process.pid)
        process.stdin.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--env", default="CartPole-v1")
    arguments = parser.parse_args()
    figures = {"a worker of vectorize": vectorized(arguments.env)}
    if importlib.util.find_spec("stable_baselines3"):
        figures["a worker of rollhouse.sb3"] = of_sb3(arguments.env)
    if importlib.util.find_spec("torch"):
        figures["a process with PyTorch"] = with_torch(arguments.env)
    if arguments.json:
        print(json.dumps(figures))
        return
    for what, told in figures.items():
        print(f"{what}: {', '.join(f'{name} {value} MiB' for name, value in told.items())}")


if __name__ == "__main__":
    main()
