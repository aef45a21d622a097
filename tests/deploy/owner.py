"""A trainer for the tests of alerts: steps lanes of a cluster over QUIC, whatever becomes of them, until it is killed."""

from __future__ import annotations

import argparse
import os

import numpy as np

import rollhouse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--option", action="append", default=[], help="NAME=NUMBER that the env takes")
    parser.add_argument("--record", action="store_true", help="have nodes record the episodes")
    args = parser.parse_args()
    cluster = rollhouse.connect(os.environ["ROLLHOUSE_CONNECT"])
    options = {name: int(number) for name, number in (option.split("=") for option in args.option)}
    envs = cluster.make_vec(args.env, args.lanes, seed=1, spread="even", transport="quic", on_loss="report", record=args.record,
                            **options)
    envs.reset()
    actions = np.zeros(args.lanes, np.int64)
    while True:
        envs.step(actions)


if __name__ == "__main__":
    main()
