"""A worker of a vector env that listens: ``python -m rollhouse.hosted.join FOLDER [PLACE]``, started by whoever wants it.

It connects in the folder that ``rollhouse.vectorize`` was given as ``listen``, runs the lanes of that place, or of any that is free, and
ends when the vector env is closed, ends or gives it up. It makes the envs with what this interpreter has, in this folder and environment.
"""

from __future__ import annotations

import signal
import sys

from rollhouse._native import WorkerLink
from rollhouse.hosted.worker import main


def join(folder: str, place: str | None = None) -> None:
    """Connects, and runs the worker until its lanes are not wanted any more."""
    # Connecting may wait for a minute, in which Python looks after no signal.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    link = WorkerLink.connect(folder, None if place is None else int(place))
    signal.signal(signal.SIGINT, handler)
    main(link)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3 or not all(place.isdecimal() for place in sys.argv[2:]):
        sys.exit("usage: python -m rollhouse.hosted.join FOLDER [PLACE]")
    try:
        join(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"rollhouse.hosted.join: {error}")
