"""Versions of a learner's policy that are stored at its cluster, beside its rollouts.

| thread | on close | on error |
|---|---|---|
| ``rollhouse-keeping``, one for each rollouts that keep versions | ends when all that were taken are stored | keeps it for the learner's next call |
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from rollhouse.policies import Policy


class Keeping:
    """Stores the first version and every k-th after it. One thread at a time may use it.

    Args:
        name: The name of the policy at the cluster.
        every: Number of updates, k.
        put: Stores a policy under a name, and returns its version there.
    """

    def __init__(self, name: str, every: int, put: Callable[[str, Policy], int]):
        if every < 1:
            raise ValueError(f"keep_every={every!r} is below 1")
        self._name, self._every, self._put = name, every, put
        self._given = 0
        self._on_the_way: collections.deque[tuple[int, Future[int]]] = collections.deque()
        self._kept: dict[int, str] = {}
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="rollhouse-keeping")

    def take(self, policy: Policy, version: int) -> None:
        """Takes the next version of the learner's. While ``WAITING`` are on their way it waits until one is stored."""
        if self._given % self._every == 0 and policy.file:
            self._look(WAITING - 1)
            self._on_the_way.append((version, self._executor.submit(self._put, self._name, policy)))
        self._given += 1

    @property
    def kept(self) -> dict[int, str]:
        """The policies of the cluster that were stored so far, by the learner's version, as ``{10: "pong@3"}``."""
        self._look(WAITING)
        return dict(self._kept)

    def close(self) -> None:
        """Waits until all that were taken are stored. Raises why one could not be."""
        self._executor.shutdown()
        self._look(0)

    def _look(self, most: int) -> None:
        """Takes in what is stored, and waits until at most so many are on their way."""
        while self._on_the_way and (len(self._on_the_way) > most or self._on_the_way[0][1].done()):
            version, stored = self._on_the_way.popleft()
            self._kept[version] = f"{self._name}@{stored.result()}"


WAITING = 4
"""Versions that are on their way at a time; a learner that is faster waits."""
