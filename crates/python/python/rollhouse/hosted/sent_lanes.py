"""The lanes of a ``HostedVectorEnv`` that were sent and not received."""

from __future__ import annotations

from typing import Any

import numpy as np

from rollhouse.errors import NothingOutstandingError, OutstandingError

Frame = tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Columns, rewards, and the flags for terminated, truncated and reset."""


class SentLanes:
    """The lanes that were sent, of which those without an env need no worker to be done.

    Attributes:
        lanes: The lanes.
        absent: Those without an env.
    """

    def __init__(self, num_envs: int):
        self.lanes: set[int] = set()
        self.absent: set[int] = set()
        self._num_envs = num_envs

    def __bool__(self) -> bool:
        return bool(self.lanes)

    @property
    def under_way(self) -> int:
        """The number of those that a worker steps."""
        return len(self.lanes) - len(self.absent)

    def clear(self) -> None:
        """Forgets all."""
        self.lanes.clear()
        self.absent.clear()

    def check_none(self) -> None:
        """Raises ``OutstandingError`` if there are some."""
        if self.lanes:
            raise OutstandingError(f"{len(self.lanes)} lanes have been sent and not received")

    def parse(self, env_ids: Any) -> list[int]:
        """Returns the lanes that are meant by an argument, which are to be sent.

        Raises:
            TypeError, IndexError: They are none.
            OutstandingError: One has been sent, or is named twice.
        """
        ids = np.arange(self._num_envs) if env_ids is None else np.asarray(env_ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise TypeError(f"env_ids={env_ids!r} must be a sequence of lane indices")
        lanes = ids.tolist()
        for lane in lanes:
            if not 0 <= lane < self._num_envs:
                raise IndexError(f"env_ids: lane {lane} of a batch of {self._num_envs}")
            if lane in self.lanes:
                raise OutstandingError(f"lane {lane} has been sent and not received")
        if len(set(lanes)) != len(lanes):
            raise OutstandingError(f"env_ids={env_ids!r} names a lane twice")
        return lanes

    def wanted(self, min_envs: int | None) -> int:
        """Returns how many are to be received.

        Raises:
            NothingOutstandingError: Fewer were sent.
        """
        wanted = len(self.lanes) if min_envs is None else min_envs
        if not 0 < wanted <= len(self.lanes):
            raise NothingOutstandingError(f"{len(self.lanes)} lanes are outstanding; {max(wanted, 1)} are wanted")
        return wanted

    def take(self, lanes: list[int]) -> None:
        """Takes lanes out that were received, and all without an env."""
        self.lanes.difference_update(lanes)
        self.absent.clear()

    def rows(self, lanes: list[int], ids: list[int], received: tuple[Any, ...] | None, frame: Frame) -> Frame:
        """Returns columns, rewards and flags of lanes in their order: of ``ids``, whose rows were received, and of lanes that
        have no env, which repeat the observation of the last ``frame``.
        """
        at = np.zeros(self._num_envs, dtype=np.intp)
        at[ids] = np.arange(len(ids))
        absent = np.array([lane not in ids for lane in lanes], dtype=np.bool_)
        if received is None:
            # Nothing of them is of use but their observations.
            received = (None, [column[:0] for column in frame[0]], *(part[:0] for part in frame[1:]))
        index = np.array(lanes, dtype=np.intp)

        def gather(mine: np.ndarray, last: np.ndarray | None = None) -> np.ndarray:
            gathered = np.zeros((len(lanes), *mine.shape[1:]), mine.dtype)
            gathered[~absent] = mine[at[index[~absent]]]
            if last is not None:
                gathered[absent] = last[index[absent]]
            return gathered

        _, columns, rewards, terminations, truncations, reset = received
        gathered = [gather(mine, last) for mine, last in zip(columns, frame[0], strict=True)]
        return gathered, gather(rewards), gather(terminations), gather(truncations), gather(reset)
