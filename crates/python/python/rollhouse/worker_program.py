"""The program of a process that steps lanes of Python envs for its host: how it begins, its loop, and what all lanes have.

It makes its envs one by one, then does what it is told until it is told to end. A lane whose env raises is lost alone; ``SystemExit``
ends the process, and with it all of its lanes. It ends when its host does, whatever its envs are doing.

What hosts of nodes and ``vectorize`` send and are answered beside commands and rows is different: their workers are subclasses
(``rollhouse.env_worker``, ``rollhouse.hosted.worker``). Each lane has a record in the memory that the worker shares with its host alone, at
places that it is told. A command has a byte for each lane (``rollhouse.lane_words``), a seed of 8 bytes for each, and more behind them.
"""

from __future__ import annotations

import json
import mmap
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from rollhouse._native import WorkerLink
from rollhouse.connecting import Connector
from rollhouse.hosted.verdicts import Verdicts
from rollhouse.lane_words import CALL_LANE, WORK
from rollhouse.process_name import name_process

Place = tuple[int, int, int]
"""The memory of a worker: its descriptor, the byte at which the lanes' records begin, and its length."""


class Serves(Protocol):
    """What does the host's commands once it has answered the hello."""

    name: str

    def serve(self, place: Place) -> None:
        """Does what the host says until that wants no more."""


def run(link: WorkerLink, begin: Callable[[bytes], tuple[bytes, Serves | None]]) -> None:
    """Runs a worker until it is told to end. ``begin`` is given the host's hello, and returns the answer to it and what does the rest;
    None if nothing more is wanted."""
    answer, worker = begin(link.hello())
    if worker is not None:
        name_process(worker.name)
    place = link.ready(answer)
    if worker is not None:
        worker.serve(place)


class LaneWorker:
    """The lanes of this process, counted from 0."""

    name = "rollhouse-env"

    def __init__(self, link: WorkerLink, connector: Connector, count: int, frames_every: int):
        self.link, self.connector, self.count = link, connector, count
        # An env of each lane, None of one that is lost.
        self.envs: list[Any] = []
        # Steps between two pictures that are recorded, 0 for none; and the steps of each lane's episode.
        self.frames_every = frames_every
        self.ages = [0] * count

    def serve(self, place: Place) -> None:
        """Does what the host says until that wants no more."""
        self.place = place
        self.placed()
        while True:
            code, payload = self.link.receive()
            answer = self.answer(code & 0xFF, code >> 8, payload)
            if answer is None:
                break
            self.link.reply(0, answer)
        self.close()
        self.link.reply(0, b"")

    def placed(self) -> None:
        """Notes that the process has been given its memory."""

    def answer(self, command: int, number: int, payload: bytes) -> bytes | None:
        """Does a command. Returns the answer; None if the host wants no more."""
        if command == WORK:
            return self.work(number, payload)
        if command == CALL_LANE:
            return json.dumps(self.call_lane(**json.loads(payload))).encode()
        return None

    def map(self, record: dict[str, Any]) -> None:
        """Finds in the shared memory what every lane's record has."""
        descriptor, offset, length = self.place
        self.memory, self.stride = mmap.mmap(descriptor, length - offset, offset=offset), record["stride"]
        self.places = [lane * self.stride for lane in range(self.count)]
        self.rewards = np.ndarray((self.count,), np.float64, self.memory, record["reward"], (self.stride,))
        self.verdicts = Verdicts(self.memory, record["verdict"], self.stride, self.count)

    def rows_of(self, arrays: list[np.ndarray]) -> list[list[np.ndarray]]:
        """Returns for each lane one writable array per column, of no dimensions where a value is a scalar."""
        return [[a[lane : lane + 1].reshape(a.shape[1:]) for a in arrays] for lane in range(self.count)]

    def work(self, number: int, payload: bytes) -> bytes:
        """Does what each lane is told, one lane after the other; those that cannot connect try again after the others.
        Returns what goes with the answer.
        """
        later = self.nothing_later()
        again = self.do(range(self.count), number << 8, payload, later)
        while again:
            self.connector.pause(again)
            again = self.do(again, number << 8, payload, later)
        self.connector.rest()
        return self.packed_later(later)

    def nothing_later(self) -> Any:
        """Returns what ``do`` fills with what goes with the answer."""
        return bytearray()

    def packed_later(self, later: Any) -> bytes:
        """Returns it as bytes."""
        return bytes(later)

    def do(self, lanes: Iterable[int], number: int, payload: bytes, later: Any) -> list[int]:
        """Does what these lanes are told. Returns those that are to try again to connect."""
        raise NotImplementedError

    def call_lane(self, lane: int, method: str, payload: str) -> dict[str, str]:
        """Calls a method that a lane's env lists."""
        raise NotImplementedError

    def is_painted(self, lane: int, steps: bool, over: bool) -> bool:
        """Returns whether the lane's row is one of which a picture is recorded: a reset's, that of every so many-th step, or the
        last."""
        self.ages[lane] = self.ages[lane] + 1 if steps else 0
        return over or self.ages[lane] % self.frames_every == 0

    def lose(self, lane: int) -> None:
        """Puts an env away."""
        env, self.envs[lane] = self.envs[lane], None
        try:
            if env is not None:
                env.close()
        except Exception:
            # It is broken already, which is being reported.
            pass

    def close(self) -> None:
        """Closes the envs; an env that fails to close does not keep the others from it."""
        for env in self.envs:
            try:
                if env is not None:
                    env.close()
            except Exception:
                traceback.print_exc(file=sys.stderr)
