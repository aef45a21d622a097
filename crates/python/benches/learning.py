"""What updates of a policy cost its learner on a cluster of this machine.

    python benches/learning.py publishing [--nodes 8] [--repeats 50]
    python benches/learning.py strict [--repeats 5]

``publishing``: milliseconds from ``update`` of a net of 1 MB to the first step that it has played on all nodes, with a lane on each.
``strict``: steps per second of PPO on 64 lanes of CartPole-v1 that learns ten passes from each batch, strictly on-policy (staleness 0)
beside staleness 1, in turns. Medians with the least and the greatest. The wheel and ``ROLLHOUSE_PROGRAM`` have to be release builds.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

import rollhouse

PYTHON = Path(__file__).parent.parent


def module(path: Path) -> ModuleType:
    """A module that is no part of the package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@contextlib.contextmanager
def cluster_of(nodes: int) -> Iterator[rollhouse.Cluster]:
    """A cluster of so many nodes, each a process."""
    local = module(PYTHON / "tests" / "local_cluster.py")
    names = [f"node-{number}" for number in range(nodes)]
    with tempfile.TemporaryDirectory() as folder:
        started = local.LocalCluster(Path(folder), Path(os.environ["ROLLHOUSE_PROGRAM"]), names=names)
        try:
            with rollhouse.connect(started.url) as cluster:
                yield cluster
        finally:
            started.close()


def net_of(inner: int, seed: int) -> dict[str, np.ndarray]:
    """A net of two hidden layers: of 500, it has 1.02 MB."""
    rng = np.random.default_rng(seed)
    net = {}
    for at, (inputs, to) in enumerate(((4, inner), (inner, inner), (inner, 2))):
        net[f"policy.{at}.weight"] = rng.normal(0, 0.05, (to, inputs)).astype(np.float32)
        net[f"policy.{at}.bias"] = np.zeros(to, np.float32)
    return net


def publishing(nodes: int, repeats: int) -> None:
    nets = [net_of(500, seed) for seed in range(2)]
    size = sum(tensor.nbytes for tensor in nets[0].values())
    with cluster_of(nodes) as cluster:
        options = {"fragment": 1, "staleness": 0, "spread": "even"}
        with cluster.rollouts("CartPole-v1", nodes, policy=nets[0], **options) as rollouts:
            next(rollouts)
            times, steps = [], []
            for number in range(repeats):
                began = time.perf_counter()
                version = rollouts.update(nets[(number + 1) % 2])
                batch = next(rollouts)
                times.append((time.perf_counter() - began) * 1e3)
                assert (batch.versions == version).all()
                began = time.perf_counter()
                next(rollouts)
                steps.append((time.perf_counter() - began) * 1e3)
    shown(f"update of {size / 1e6:.2f} MB to the first step with it on {nodes} nodes", times, "ms")
    shown("a step without an update", steps, "ms")


def strict(repeats: int, batches: int = 30) -> None:
    import torch

    torch.set_num_threads(1)
    ppo = module(PYTHON / "examples" / "ppo_rollouts.py")
    rates: dict[int, list[float]] = {0: [], 1: []}
    with cluster_of(1) as cluster:
        for _ in range(repeats):
            for staleness, found in rates.items():
                torch.manual_seed(1)
                agent = ppo.Agent(4, 2)
                optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
                options = {"fragment": 32, "staleness": staleness, "seed": 1}
                with cluster.rollouts("CartPole-v1", 64, policy=agent, **options) as rollouts:
                    next(rollouts)
                    began = time.perf_counter()
                    for _ in range(batches):
                        ppo.update(agent, optimizer, next(rollouts), clip=0.2)
                        rollouts.update(agent)
                    found.append(batches * 32 * 64 / (time.perf_counter() - began))
    for staleness, found in rates.items():
        shown(f"PPO with staleness {staleness}", found, "steps/s")
    shown("staleness 0 over 1", [own / other for own, other in zip(rates[0], rates[1], strict=True)], "")


def shown(name: str, figures: list[float], unit: str) -> None:
    least, most = min(figures), max(figures)
    print(f"{name:60} {statistics.median(figures):>10,.2f} {unit} ({least:,.2f} to {most:,.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["publishing", "strict"])
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--repeats", type=int)
    arguments = parser.parse_args()
    if arguments.what == "publishing":
        publishing(arguments.nodes, arguments.repeats or 50)
    else:
        strict(arguments.repeats or 5)


if __name__ == "__main__":
    main()
