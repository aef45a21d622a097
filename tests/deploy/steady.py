"""A trainer for the tests of containers: whatever happens around it, what it sees has to stay the same.

It steps lanes with actions that follow from what it saw, digests every array it gets, and says in lines of JSON how far it
is. SIGTERM ends it behind the step it is in; the last line then has the digest. With --embedded it steps the same lanes in its
own process, for --steps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import time

import numpy as np

import rollhouse

SEED = 11


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--steps", type=int, default=sys.maxsize)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds that it learns between two steps")
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--label", action="append", default=[], help="NAME=VALUE that a node has to have")
    return parser.parse_args()


def made(args: argparse.Namespace) -> rollhouse.VectorEnv:
    if args.embedded:
        return rollhouse.make_vec("CartPole-v1", args.lanes, seed=SEED)
    cluster = rollhouse.connect(os.environ["ROLLHOUSE_CONNECT"])
    labels = dict(label.split("=") for label in args.label)
    return cluster.make_vec("CartPole-v1", args.lanes, seed=SEED, spread="even", on_loss="resume", labels=labels)


def main() -> None:
    args = parse_args()
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    envs = made(args)
    digest = hashlib.blake2b()
    steps = episodes = 0

    def say(**more: object) -> None:
        placed = sorted({place.node for place in getattr(envs, "placements", ())})
        said = {"steps": steps, "episodes": episodes, "nodes": placed, "transport": getattr(envs, "transport", None)}
        print(json.dumps(said | more), flush=True)

    observations, _ = envs.reset()
    digest.update(observations.tobytes())
    say(run=getattr(envs, "run", None))
    said = time.monotonic()
    while steps < args.steps and not ended:
        actions = (observations[:, 2] > 0).astype(np.int64)
        observations, rewards, terminations, truncations, infos = envs.step(actions)
        for array in (observations, rewards, terminations, truncations):
            digest.update(np.ascontiguousarray(array).tobytes())
        assert "lost" not in infos, infos
        steps += 1
        episodes += int((terminations | truncations).sum())
        if time.monotonic() - said > 0.2:
            say()
            said = time.monotonic()
        time.sleep(args.pace)
    say(run=getattr(envs, "run", None), digest=digest.hexdigest())
    envs.close()


if __name__ == "__main__":
    main()
