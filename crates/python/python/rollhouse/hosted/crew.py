"""The worker processes of a ``HostedVectorEnv``, and the commands to them."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from rollhouse import _native
from rollhouse.errors import LaneLostError
from rollhouse.hosted import worker
from rollhouse.hosted.columns import Columns, Mapping

EnvFn = Callable[[], gymnasium.Env]

MAX_WORKERS = 1024
"""Most worker processes of one vector env."""

_BOOT = (
    "import sys, json; path, host = sys.argv[1:]; sys.argv[1:] = []; sys.path[:] = json.loads(path); "
    "from rollhouse.hosted.worker import main; main(int(host))"
)


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Crew:
    """The workers, and the lanes that each of them has: ranges of nearly equal length, in order.

    Attributes:
        ranges: Per worker, (first lane, lane after the last).
        asked: Per worker, what it has been told to do and has not answered: (command, lanes), else None.
        up: Per worker, whether its envs are there and have their columns.
        launched: Number of workers that have been started, which are the first ones.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        workers: int,
        mode: AutoresetMode,
        launch_timeout: float | None,
        *,
        alike: bool,
        frames_every: int = 0,
    ):
        """Starts workers. ``alike``: all lanes have the spaces of the first, so that its worker can speak for the
        others, which are started when they are needed. ``frames_every``: steps between two pictures that workers take
        of lanes, 0 for none.
        """
        lanes = len(env_fns)
        self.ranges = [(lanes * w // workers, lanes * (w + 1) // workers) for w in range(workers)]
        self.worker_of = [w for w, (first, end) in enumerate(self.ranges) for _ in range(first, end)]
        self.asked: list[tuple[int, list[int]] | None] = [None] * workers
        self.up = [False] * workers
        self.launch_timeout = launch_timeout
        pickled = [_pickle_fn(index, fn) for index, fn in enumerate(env_fns)]
        hellos = [
            pickle.dumps(
                {
                    "first": first,
                    "env_fns": pickled[first:end],
                    "autoreset_mode": mode.value,
                    "frames_every": frames_every,
                }
            )
            for first, end in self.ranges
        ]
        program = [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(os.getpid())]
        self.launched = 1 if alike else workers
        self.host = _native.Host(program, hellos, self.launched, launch_timeout, max(2, cores()))
        self.spaces: tuple[gymnasium.Space, gymnasium.Space, int] | None = None

    def describe(self) -> list[tuple[Any, ...]]:
        """Waits until the workers that are launched at once have made their envs. Returns the description of each
        lane's env.

        Raises:
            Exception: The exception that an ``env_fn`` raised.
            LaneLostError: A worker died or was not ready in time.
        """
        return self._made(range(self.launched))

    def launch_rest(self, check: Callable[[int, tuple[Any, ...]], None]) -> None:
        """Launches the workers that have not been needed so far, waits until they have made their envs, has
        ``check(lane, what it is)`` refuse those that do not fit, and gives the workers their columns. Blocks and
        raises as ``describe``; called once."""
        rest = range(self.launched, len(self.ranges))
        self.launched = len(self.ranges)
        self.host.launch_all()
        for lane, made in enumerate(self._made(rest), self.ranges[rest.start][0]):
            check(lane, made)
        self._greet_all(rest)

    def _made(self, workers: range) -> list[tuple[Any, ...]]:
        answers: dict[int, list[tuple[Any, ...]]] = {}
        while len(answers) < len(workers):
            self.host.wait("event", None)
            for kind, index, *rest in self.host.events():
                lanes = tuple(range(*self.ranges[index]))
                if kind == "lost":
                    raise self.loss(index, rest[0], rest[2], lanes)
                made, value = pickle.loads(rest[0])
                if made == "raised":
                    error, text = value
                    raise error from LaneLostError(
                        f"an env_fn of lanes {lanes[0]} to {lanes[-1]} raised\n{text}", lanes
                    )
                answers[index] = value
        return [lane for index in workers for lane in answers[index]]

    def loss(self, index: int, cause: str, detail: str, lanes: tuple[int, ...]) -> LaneLostError:
        """Makes the exception for a lost worker."""
        what = {
            "died": f"died: {detail}",
            "hung": "did not answer within its deadline and was killed",
            "launch": f"did not make its envs within launch_timeout={self.launch_timeout} s and was killed",
        }[cause]
        return LaneLostError(
            f"the worker of lanes {', '.join(map(str, lanes))} {what}", lanes, "crashed" if cause == "died" else "hung"
        )

    def set_up(self, observation: gymnasium.Space, action: gymnasium.Space, lanes: int) -> Mapping:
        """Lays out the columns of the batch and gives them to the workers that are launched; blocks until those
        have them.

        Raises:
            LaneLostError: A worker died or hung over it.
        """
        columns = Columns(observation, lanes), Columns(action, lanes)
        place = self.host.share(Mapping.nbytes(*columns))
        self.spaces = (observation, action, lanes)
        self._greet_all(range(self.launched))
        return Mapping(*columns, *place)

    def _greet_all(self, workers: range) -> None:
        for index in workers:
            self.greet(index)
        self.host.wait("replies", None)
        for kind, index, *rest in self.host.events():
            if kind == "lost":
                raise self.loss(index, rest[0], rest[2], tuple(range(*self.ranges[index])))
            self.asked[index], self.up[index] = None, True

    def greet(self, index: int) -> None:
        """Has a worker find its columns."""
        self.post(index, worker.SETUP, [], self.spaces, self.launch_timeout)

    def post(self, index: int, command: int, lanes: list[int], payload: Any, timeout: float | None) -> None:
        """Gives an idle worker a command that concerns ``lanes``; does not block."""
        self.host.post(index, command, b"" if payload is None else worker.dump(payload), timeout)
        self.asked[index] = (command, lanes)

    def end(self, grace: float) -> None:
        """Ends all workers. Those without a command have ``grace`` seconds to do so themselves."""
        self.host.end(grace)


def _pickle_fn(index: int, fn: EnvFn) -> bytes:
    # Not at the top: only those who host envs need it.
    import cloudpickle

    try:
        return cloudpickle.dumps(fn)
    except Exception as error:
        raise TypeError(
            f"env_fns[{index}]={fn!r} cannot be pickled, so it cannot be sent to a worker process: {error}"
        ) from error
