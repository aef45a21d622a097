"""The error of bringing nodes up."""

from __future__ import annotations


class LaunchError(RuntimeError):
    """A cluster could not be brought up, or not taken down in order; the message has the last lines of what failed."""

    def __init__(self, what: str, said: str = ""):
        super().__init__(f"{what}:\n{said}" if said else what)


COMMAND_PATIENCE = 120.0
"""Seconds within which a command of kubectl or rollhouse ends: longer than any of them waits by itself."""
