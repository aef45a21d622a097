"""How a worker connects: an env that is a client of a game or simulator which is not there yet tries again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import Protocol, TypeVar

from rollhouse.errors import NotConnectedError

T = TypeVar("T")

UNREACHED = (ConnectionError, TimeoutError)
"""What an env raises, in its constructor or ``reset``, that cannot connect."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds before the first retry, which double up to the longest. A tenth of it is chance, so that many workers do not
come together."""

START = -1
"""Stands for the env that is being made, which has no lane yet."""


class Host(Protocol):
    """Whoever is told how often was tried again."""

    def connecting(self, retries: int) -> None: ...


class Connector:
    """The retries of what a worker is doing: making its envs, then one command after the other."""

    def __init__(self, host: Host, retries: int, within: float | None):
        """``retries`` is for each env, 0 for none; ``within`` the seconds from the first failure, None for ever."""
        # How often each lane has tried again that has not connected.
        self._tries: dict[int, int] = {}
        self._host, self._retries, self._within = host, retries, within
        self._since: float | None = None
        self._chance = SystemRandom()

    def failed(self, lane: int, error: Exception) -> Exception | None:
        """Returns None if the lane is to try again after ``pause``, else what is to be told of its failure: ``error``
        itself if that is of another kind.
        """
        if not isinstance(error, UNREACHED) or not self._retries:
            self.settled(lane)
            return error
        now, tried = time.monotonic(), self._tries.get(lane, 0)
        since = self._since = now if self._since is None else self._since
        late = self._within is not None and now + _pause(tried) > since + self._within
        if tried >= self._retries or late:
            last = f"{type(error).__name__}: {error}"
            told = f"could not connect: {tried} retries in {now - since:.1f} s; the last one failed with {last}"
            gone = NotConnectedError(told, tried)
            gone.__cause__ = error
            self.settled(lane)
            return gone
        self._tries[lane] = tried + 1
        return None

    def settled(self, lane: int) -> None:
        """Notes that a lane has connected or given up, before its row can be seen. Its neighbours may still try."""
        if self._tries.pop(lane, None) is not None and not self._tries:
            # The time goes on: all envs of a worker have it together.
            self._host.connecting(0)

    def pause(self, lanes: Sequence[int]) -> None:
        """Tells the host how often ``lanes``, which are to try again, do so, and waits. Those that are not among them have
        connected or given up.
        """
        self._tries = {lane: self._tries[lane] for lane in lanes}
        tried = max(self._tries.values())
        self._host.connecting(tried)
        time.sleep(_pause(tried - 1) * self._chance.uniform(0.9, 1.0))

    def make(self, make: Callable[[], T]) -> T:
        """Returns what ``make`` returns, which is called again while it cannot connect.

        Raises:
            NotConnectedError: It was called often or long enough.
            Exception: What it raises otherwise.
        """
        while True:
            try:
                made = make()
            except Exception as error:
                told = self.failed(START, error)
                if told is error:
                    raise
                if told is not None:
                    raise told from error
                self.pause([START])
            else:
                self.settled(START)
                return made

    def rest(self) -> None:
        """Ends what the worker was doing: what comes next has its own retries and time."""
        if self._tries:
            self._host.connecting(0)
        self._tries, self._since = {}, None


def _pause(tried: int) -> float:
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tried, 10))
