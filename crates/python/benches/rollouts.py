"""Rollouts of CartPole by a net of two hidden layers of 64, sampled: steps per second and CPU microseconds a step, by who chooses.

    python benches/rollouts.py [--lanes 64 256 1024] [--fragment 128] [--repeats 7] [--connect URL]

``rollouts`` has the net chosen by where the lanes are, unrecorded and recorded; with ``--connect`` on that cluster's nodes, too. ``PyTorch`` is the
loop that it takes the place of: the same net chooses in Python, on one thread, for ``make_vec``; ``PyTorch alone`` is that without an
env. Contestants take turns, and medians are printed with the least and the greatest. The wheel has to be a release build, and the CPU time of a
cluster's processes is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import rollhouse

Play = Callable[[], int]


def net_of(seed: int = 0) -> dict[str, np.ndarray]:
    """A net as a file of ours names it: two hidden layers of 64 to the actions, and as many to the value."""
    rng = np.random.default_rng(seed)
    net = {}
    for head, outputs in (("policy", 2), ("value", 1)):
        for at, (inputs, to) in enumerate(((4, 64), (64, 64), (64, outputs))):
            net[f"{head}.{at}.weight"] = rng.normal(0, 0.3, (to, inputs)).astype(np.float32)
            net[f"{head}.{at}.bias"] = np.zeros(to, np.float32)
    return net


@contextlib.contextmanager
def played(begin: Callable[..., Any], lanes: int, fragment: int, **options: Any) -> Iterator[Play]:
    """Plays one fragment a call; it returns the steps of all lanes."""
    with begin("CartPole-v1", lanes, policy=net_of(), fragment=fragment, staleness=1, **options) as rollouts:

        def play() -> int:
            return next(rollouts).rewards.size

        yield play


@contextlib.contextmanager
def in_python(lanes: int, fragment: int, stepping: bool) -> Iterator[Play]:
    """The net in PyTorch, over ``make_vec`` or over observations that stay as they are."""
    import torch

    torch.set_num_threads(1)
    heads = {}
    for head in ("policy", "value"):
        layers: list[Any] = []
        for at in range(3):
            weight = torch.from_numpy(net_of()[f"{head}.{at}.weight"])
            linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
            linear.weight.data = weight
            layers += [linear, torch.nn.Tanh()]
        heads[head] = torch.nn.Sequential(*layers[:-1])
    envs = rollhouse.make_vec("CartPole-v1", lanes, autoreset_mode="SameStep", threads=1)
    observations, _ = envs.reset(seed=1)

    @torch.no_grad()
    def play() -> int:
        nonlocal observations
        for _ in range(fragment):
            seen = torch.from_numpy(observations)
            drawn = torch.distributions.Categorical(logits=heads["policy"](seen), validate_args=False)
            actions = drawn.sample()
            drawn.log_prob(actions), heads["value"](seen)
            if stepping:
                observations, *_ = envs.step(actions.numpy())
        return fragment * lanes

    yield play
    envs.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--fragment", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--connect", metavar="URL")
    arguments = parser.parse_args()
    for lanes in arguments.lanes:
        with contextlib.ExitStack() as stack:
            data = stack.enter_context(tempfile.TemporaryDirectory())
            size = (lanes, arguments.fragment)
            here = partial(played, rollhouse.rollouts, *size, threads=1)
            begin = {"rollouts": here, "rollouts, recorded": partial(here, record=True, data=data)}
            if arguments.connect:
                cluster = stack.enter_context(rollhouse.connect(arguments.connect))
                begin["rollouts over QUIC"] = partial(played, cluster.rollouts, *size)
            if importlib.util.find_spec("torch") is None:
                print("PyTorch is left out: it is not installed")
            else:
                begin["PyTorch"] = partial(in_python, *size, stepping=True)
                begin["PyTorch alone"] = partial(in_python, *size, stepping=False)
            contestants = {name: stack.enter_context(make()) for name, make in begin.items()}
            compare(f"{lanes} lanes", contestants, arguments.repeats)


def compare(where: str, contestants: dict[str, Play], repeats: int) -> None:
    """Has contestants play for a third of a second each, in turns, and prints what they came to."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    costs: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, play in contestants.items():
            play()
            began, cpu, steps = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - began < 0.33:
                steps += play()
            rates[name].append(steps / (time.perf_counter() - began))
            costs[name].append((time.process_time() - cpu) / steps * 1e6)
    for name in contestants:
        rate, cost = rates[name], costs[name]
        print(
            f"{where:12} {name:20} {statistics.median(rate):>11,.0f} steps/s ({min(rate):,.0f} to {max(rate):,.0f}), "
            f"{statistics.median(cost):.3f} us of CPU a step",
            flush=True,
        )


if __name__ == "__main__":
    main()
