"""The name of a worker process, by which ``ps`` and ``top`` show what it is."""

from __future__ import annotations

MAX_NAME_BYTES = 15
"""Most bytes that Linux shows."""


def name_process(name: str) -> None:
    """Names this process, where the system lets it; a name that is too long is cut."""
    try:
        with open("/proc/self/comm", "w") as comm:
            comm.write(name[:MAX_NAME_BYTES])
    except OSError:
        # It is shown as an interpreter.
        pass
