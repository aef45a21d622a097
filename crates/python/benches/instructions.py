"""Instructions that a call of ``step`` takes, counted by callgrind: figures that do not depend on what else a machine does.

    python benches/instructions.py [--json] [--lanes 64 4096]

Each way of stepping CartPole is run twice in a process of its own under `valgrind --tool=callgrind`, with few calls and
with many; what the many take more, by call, is its figure, the loop of Python around it included. Times are what
`step.py` measures; this one tells whether a change made a call cheaper. Valgrind has no AVX-512 and counts every
repetition of a string instruction, by which clearing large arrays looks dearer than it is. The wheel has to be a release build.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WAYS: dict[str, dict[str, Any]] = {
    "NEXT_STEP": {},
    "SAME_STEP": {"autoreset_mode": "SameStep"},
    "NEXT_STEP statistics": {"statistics": True},
    "SAME_STEP statistics": {"autoreset_mode": "SameStep", "statistics": True},
}

BATCHES_OF_ACTIONS = 64


def play(arguments: dict[str, Any], lanes: int, calls: int) -> None:
    import numpy as np

    import rollhouse

    envs = rollhouse.make_vec("CartPole-v1", lanes, threads=1, seed=0, **arguments)
    envs.reset()
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 2, lanes) for _ in range(BATCHES_OF_ACTIONS)]
    step = envs.step
    for _ in range(calls // BATCHES_OF_ACTIONS):
        for batch in actions:
            step(batch)
    envs.close()


def instructions(arguments: dict[str, Any], lanes: int, calls: int) -> int:
    """What a process takes that makes so many calls."""
    with tempfile.TemporaryDirectory(prefix="rollhouse-bench-") as folder:
        out = Path(folder) / "counted"
        line = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, __file__, "--play"]
        # The same hashes in every process, and no threads that wait by counting.
        alike = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*line, json.dumps([arguments, lanes, calls])], env=os.environ | alike, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise SystemExit(f"valgrind: {done.stderr.strip()}")
        found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(errors="replace"), re.MULTILINE)
        if found is None:
            raise SystemExit("callgrind has written no total")
        return int(found[1])


def per_call(arguments: dict[str, Any], lanes: int) -> float:
    few, many = (64, 320) if lanes > 1000 else (1280, 5120)
    return (instructions(arguments, lanes, many) - instructions(arguments, lanes, few)) / (many - few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--lanes", type=int, nargs="+", default=[64, 4096])
    parser.add_argument("--play", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        play(*json.loads(given.play))
        return
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed, which counts the instructions")
    rows = []
    for lanes in given.lanes:
        for copy in (False, True):
            first = None
            for name, arguments in WAYS.items():
                count = per_call(arguments | {"copy": copy}, lanes)
                first = first or count
                rows.append({"lanes": lanes, "copy": copy, "way": name, "instructions": count, "times_next_step": count / first})
                if not given.json:
                    print(
                        f"{lanes:>6} lanes  copy={copy!s:<5}  {name:<20} {count:>10.0f} instructions a call"
                        f" {count / first:6.2f} x NEXT_STEP {count - first:+9.0f}",
                        flush=True,
                    )
    if given.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
