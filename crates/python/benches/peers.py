"""Ours beside its peers in one table: stepping built-in lanes here, and Python envs in worker processes, on a machine that is
idle and beside a busy core.

    python benches/peers.py [--lanes 16 64] [--repeats 9] [--workers 2]

What is measured, and how, stands in step.py (one thread) and hosted.py (worker processes), which it runs one after the other. It
ends with exit code 1 if hosted lanes are slower than `SyncVectorEnv`, and names where. The wheel has to be a release build.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import hosted
import step

PEERS = ("Gymnasium SyncVectorEnv", "Gymnasium AsyncVectorEnv", "EnvPool", "PufferLib Ocean")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--env", default=step.ENV, help="the env of hosted lanes")
    arguments = parser.parse_args()
    slower = []
    for busy in (0, 1):
        beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            for lanes in arguments.lanes:
                where = f"{lanes} lanes, {busy} busy cores beside"
                for line in over_peers(lanes, arguments.repeats):
                    print(f"{where:32} {line}", flush=True)
                asked = argparse.Namespace(
                    env=arguments.env, lanes=lanes, workers=arguments.workers, keys=0, mode="NextStep", repeats=arguments.repeats, busy=busy
                )
                for name, ratio in hosted.contest(asked, None)["hosted_over"].items():
                    print(f"{where:32} hosted lanes are {ratio:.2f} times {name}", flush=True)
                    if name == "SyncVectorEnv" and ratio < 1:
                        slower.append(f"{where}: {ratio:.2f} times {name}")
        finally:
            for process in beside:
                process.kill()
                process.wait()
    for line in slower:
        print(f"hosted lanes are slower, {line}", file=sys.stderr)
    return 1 if slower else 0


def over_peers(lanes: int, repeats: int) -> list[str]:
    """How many times as fast as each peer ours are, and why some are not measured."""
    report = step.report(lanes, repeats)
    ratios = {name: row["times_ours"] for name, row in report["contestants"].items() if name in PEERS}
    measured = [f"built-in lanes are {ratio:.2f} times {name}" for name, ratio in ratios.items()]
    return measured + [f"{name} is left out: {why}" for name, why in report["missing"].items() if name in PEERS]


if __name__ == "__main__":
    sys.exit(main())
