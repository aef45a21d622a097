"""What a ``HostedVectorEnv`` can be told: limits, defaults, and the checks of its arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rollhouse.hosted.crew import MAX_WORKERS, Connect, EnvFn, cores
from rollhouse.hosted.layout import check_frames, info_channels

LAUNCH_TIMEOUT = 120.0
"""Seconds from the start of a worker process until all of its envs are made."""

CONNECT_RETRIES = 120
"""Times that an env tries again to connect. Pauses grow to a second."""

CONNECT_TIMEOUT = 120.0
"""Seconds in which an env has to connect."""

MAX_CONNECT_RETRIES = 10_000
"""Most times that an env may be told to try again."""

MAX_LANES = 65_536
"""Most lanes of one vector env."""


class Timeouts(NamedTuple):
    """Seconds that each may take, None for ever; the names are those of arguments."""

    step_timeout: float | None
    reset_timeout: float | None
    call_timeout: float | None
    launch_timeout: float | None
    connect_timeout: float | None

    def check(self) -> None:
        """Raises ``ValueError`` for one that is no time."""
        for name, value in self._asdict().items():
            if value is not None and not value > 0:
                raise ValueError(f"{name}={value!r} must be a positive number of seconds, or None for no limit")


def checked_functions(env_fns: Sequence[EnvFn]) -> list[EnvFn]:
    """Returns the functions, if there are as many as lanes may be."""
    env_fns = list(env_fns)
    if not 1 <= len(env_fns) <= MAX_LANES:
        raise ValueError(f"env_fns: {len(env_fns)} functions; 1 to {MAX_LANES} are possible")
    for index, fn in enumerate(env_fns):
        if not callable(fn):
            raise TypeError(f"env_fns[{index}]={fn!r} must be a function without arguments that makes an env")
    return env_fns


def checked_workers(workers: int | None, lanes: int) -> int:
    """Returns the number of workers of so many lanes, which are spread evenly: with fewer lanes some would have none."""
    workers = min(lanes, cores()) if workers is None else workers
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MAX_WORKERS:
        raise ValueError(f"workers={workers!r} must be an integer from 1 to {MAX_WORKERS}")
    return min(workers, lanes)


def checked_connect(retries: int, timeout: float | None) -> Connect:
    """Returns how envs connect."""
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= MAX_CONNECT_RETRIES:
        raise ValueError(f"connect_retries={retries!r} must be an integer from 0 to {MAX_CONNECT_RETRIES}")
    return Connect(retries, timeout)


def checked_recording(
    record: Any, data: str | os.PathLike[str] | None, infos: Mapping[str, Any] | None, frames: int | None
) -> list[tuple[str, str, list[int]]]:
    """Returns the infos that are recorded, by name, dtype and shape."""
    if data is not None and not record:
        raise ValueError(f"data={os.fspath(data)!r} is used only with record=True")
    if infos and not record:
        raise ValueError(f"record_infos={infos!r} is used only with record=True")
    check_frames(frames)
    if frames is not None and not record:
        raise ValueError(f"record_frames={frames!r} is used only with record=True")
    return info_channels(infos or {})
