"""Sessions of OpenRA's bridge beside what is claimed for OpenRA-RL's own engine: 64 sessions, 10 calls each, 50 ticks a call.

    python benches/openra_bridge.py [--sessions 64] [--calls 10] [--ticks 50] [--program PATH]

Prints how many ticks a second all sessions pass together, how long a session takes from its creation until it plays, the memory of
the gate, and what a call of FastAdvance takes beyond its ticks: by the clock of this client, which is Python's and has its own
share, and less a call that does nothing (GetState of no session), which has that share, too. It needs grpcio and protobuf.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from openra_bridge import INTERRUPTS, PROGRAM, Bridge, gate  # noqa: E402

CLAIMS = {"ticks a second": 15_000, "ms a reset": 256, "MB": 6000}
"""Of OpenRA-RL's engine, 64 sessions on its authors' machine."""

CALLS = 2000
"""Calls by which what one takes is measured."""


def rss(process: int) -> float:
    """The memory of a process that is its own, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1000


def sessions(address: str, arguments: argparse.Namespace) -> tuple[float, list[float]]:
    """Plays all sessions; returns ticks a second, and the seconds that each reset took."""
    bridges = [Bridge(address) for _ in range(arguments.sessions)]

    def begin(place: int) -> tuple[str, float]:
        began = time.perf_counter()
        session = bridges[place].begin(seed=place + 1)
        return session, time.perf_counter() - began

    def play(place: int) -> int:
        session, ticks = begun[place][0], 0
        for _ in range(arguments.calls):
            ticks += bridges[place].advance(session, arguments.ticks, every=5, until=INTERRUPTS[:1]).actual_ticks_advanced
        return ticks

    with ThreadPoolExecutor(arguments.sessions) as pool:
        begun = list(pool.map(begin, range(arguments.sessions)))
        began = time.perf_counter()
        ticks = sum(pool.map(play, range(arguments.sessions)))
        rate = ticks / (time.perf_counter() - began)
    arguments.rss = rss(arguments.process)
    for bridge, (session, _) in zip(bridges, begun, strict=True):
        bridge.destroy(session)
        bridge.close()
    return rate, [seconds for _, seconds in begun]


def beyond_ticks(address: str) -> dict[str, float]:
    """The median microseconds of a call that does nothing, and of FastAdvance by one tick and by fifty."""
    bridge = Bridge(address)
    session = bridge.begin()

    def median(call) -> float:
        taken = []
        for _ in range(CALLS):
            began = time.perf_counter()
            call()
            taken.append(time.perf_counter() - began)
        return statistics.median(taken) * 1e6

    # A new session before the game is over.
    nothing = median(lambda: bridge.state("none"))
    one = median(lambda: bridge.advance(session))
    bridge.destroy(session)
    return {"nothing": nothing, "one": one}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--ticks", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--program", help="the command with gates, if it is not that of the installed package")
    arguments = parser.parse_args()
    if arguments.program:
        os.environ[PROGRAM] = arguments.program
    with gate("--sessions", str(arguments.sessions)) as (address, process):
        arguments.process = process.pid
        runs = [sessions(address, arguments) for _ in range(arguments.repeats)]
        rate = statistics.median(rate for rate, _ in runs)
        reset = statistics.median(seconds for _, resets in runs for seconds in resets) * 1e3
        print(f"{arguments.sessions} sessions x {arguments.calls} calls x {arguments.ticks} ticks, medians of {arguments.repeats}")
        for (name, claim), ours in zip(CLAIMS.items(), (rate, reset, arguments.rss), strict=True):
            print(f"{name:16} {ours:12,.1f}   OpenRA-RL claims {claim:,}")
        taken = beyond_ticks(address)
    print(f"microseconds of a call, by Python: {taken['nothing']:.0f} that does nothing, {taken['one']:.0f} of FastAdvance by one tick")
    print(f"FastAdvance beyond a call that does nothing: {taken['one'] - taken['nothing']:.0f} (150 are asked for)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
