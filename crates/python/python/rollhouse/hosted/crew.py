"""The worker processes of a ``HostedVectorEnv``: how they are started, and what they are told at first."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector import AutoresetMode

from rollhouse import _native
from rollhouse.errors import LaneLostError
from rollhouse.hosted.layout import Layout
from rollhouse.hosted.script import pack
from rollhouse.hosted.worker import dump
from rollhouse.interpreter import NOWHERE, folders_of, interpreter, search_path

EnvFn = Callable[[], gymnasium.Env]

MAX_WORKERS = 1024
"""Most worker processes of one vector env."""

_BOOT = f"""{NOWHERE}
import json
told, host = sys.argv[1:]
sys.argv[1:] = []
told = json.loads(told)
more = [path for path in told["path"] if path not in sys.path]
if told["foreign"]:
    # Its own packages come first.
    sys.path += more
else:
    # What a worker itself needs comes from where its parent has it, and before that from the interpreter's own library.
    at = next((at for at, path in enumerate(sys.path) if "-packages" in path), len(sys.path))
    sys.path[at:at] = told["folders"]
from rollhouse._native import WorkerLink
from rollhouse.hosted.worker import main
if not told["foreign"]:
    sys.path[:] = told["path"]
main(WorkerLink(int(host)))
"""
"""The program of a worker: its arguments are what it is told (JSON) and the process id of its parent."""


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _program(python: str | os.PathLike[str] | None) -> list[str]:
    """Returns the program that workers run, and its arguments."""
    executable = interpreter(python, "; python= names one that has the package rollhouse")
    told = {
        "foreign": python is not None and os.path.abspath(executable) != os.path.abspath(sys.executable or os.devnull),
        "path": search_path(),
        "folders": folders_of("rollhouse", "gymnasium", "numpy", "cloudpickle"),
    }
    return [executable, "-c", _BOOT, json.dumps(told), str(os.getpid())]


class Connect(NamedTuple):
    """How often an env that is a client of something tries again to connect, and for how many seconds."""

    retries: int
    timeout: float | None


class Crew:
    """The workers, and the lanes that each of them has: ranges of nearly equal length, in order.

    Attributes:
        workers: The native half of the processes.
        ranges: Per worker, (first lane, lane after the last).
        launched: Number of workers that have been started, which are the first ones.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        workers: int,
        mode: AutoresetMode,
        launch_timeout: float | None,
        *,
        connect: Connect,
        alike: bool,
        frames_every: int = 0,
        python: str | os.PathLike[str] | None = None,
        together: bool = False,
        listen: str | os.PathLike[str] | None = None,
    ):
        """Starts workers. ``connect``: how their envs try again to connect. ``alike``: all lanes have the spaces of the first, so that its worker can speak for the
        others, which are started when they are needed. ``frames_every``: steps between two pictures that workers take
        of lanes, 0 for none. ``python``: the interpreter of the workers, None for this process's own. ``together``: the functions are one
        ``VectorMaker``, of which each worker makes a vector env of its lanes. ``listen``: the folder in which workers connect that others
        start, all at once; None to start them.
        """
        lanes = len(env_fns)
        self.ranges = [(lanes * w // workers, lanes * (w + 1) // workers) for w in range(workers)]
        self.launch_timeout, self.connect = launch_timeout, connect
        pickled, script = pack(env_fns)
        hellos = [
            pickle.dumps(
                {
                    "script": script,
                    "first": first,
                    "env_fns": pickled[first:end],
                    "autoreset_mode": mode.value,
                    "frames_every": frames_every,
                    "connect": tuple(connect),
                    "together": together,
                    "version": sys.version_info[:2],
                }
            )
            for first, end in self.ranges
        ]
        self._given_up = "was killed" if listen is None else "was disconnected"
        self.launched = 1 if alike and listen is None else workers
        self.workers = _native.NativeWorkers(
            _program(python) if listen is None else os.fspath(listen),
            hellos,
            self.ranges,
            (self.launched, max(2, cores())),
            (launch_timeout, connect.timeout),
            together,
        )
        self._setups: list[bytes] = []

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
        self.workers.launch_all()
        for lane, made in enumerate(self._made(rest), self.ranges[rest.start][0]):
            check(lane, made)
        self._greet(rest)

    def _made(self, workers: range) -> list[tuple[Any, ...]]:
        lost = self.workers.made()
        if lost is not None:
            raise self.loss(*lost)
        lanes = []
        for index in workers:
            made, value = pickle.loads(self.workers.answer(index))
            if made == "raised":
                error, text = value
                mine = tuple(range(*self.ranges[index]))
                raise error from LaneLostError(f"an env_fn of lanes {mine[0]} to {mine[-1]} raised\n{text}", mine)
            lanes += value
        return lanes

    def loss(self, index: int, cause: str, detail: str) -> LaneLostError:
        """Makes the exception for a lost worker."""
        what = {
            "died": f"died: {detail}",
            "hung": f"did not answer within its deadline and {self._given_up}",
            "connect": f"did not connect within connect_timeout={self.connect.timeout} s and was {detail}",
            "launch": f"did not make its envs within launch_timeout={self.launch_timeout} s and {self._given_up}",
        }[cause]
        lanes = tuple(range(*self.ranges[index]))
        return LaneLostError(
            f"the worker of lanes {', '.join(map(str, lanes))} {what}", lanes, "crashed" if cause == "died" else "hung"
        )

    def results(self, answers: Sequence[Any]) -> list[tuple[bool, Any]]:
        """Returns the results of a call, by lane, out of the workers' answers: whether it worked, and what it gave."""
        results: list[tuple[bool, Any]] = []
        for (first, end), answer in zip(self.ranges, answers, strict=True):
            if isinstance(answer, bytes):
                results += pickle.loads(answer)
            else:
                results += [(False, (self.loss(*answer), ""))] * (end - first)
        return results

    def set_up(
        self, observation: Layout, action: Layout, infos: list[tuple[str, str, list[int]]], **options: Any
    ) -> _native.NativeLanes:
        """Makes the lanes, whose records it gives to the workers that are launched; blocks until those have them. Returns them.

        Args:
            observation, action: The layouts of the spaces.
            infos: Name, dtype and shape of the infos that are recorded.
            **options: Further arguments of ``NativeWorkers.lay_out``.

        Raises:
            LaneLostError: A worker died over it.
        """
        lanes, places = self.workers.lay_out(
            observation=observation.described(), action=action.described(), infos=infos, **options
        )
        told = {"observation": observation.space, "action": action.space, "infos": infos}
        self._setups = [dump({**told, "record": record}) for record in places]
        try:
            self._greet(range(self.launched))
        except BaseException:
            lanes.close()
            raise
        return lanes

    def _greet(self, workers: range) -> None:
        lost = self.workers.greet([(index, self._setups[index]) for index in workers])
        if lost is not None:
            raise self.loss(*lost)
