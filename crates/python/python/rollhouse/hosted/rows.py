"""The places of hosted lanes' observations between steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from rollhouse.hosted.columns import Columns, Mapping


class Rows:
    """The last observation of each of N lanes.

    The mapping has two slots of N rows. A lane's next observation is written to the slot that does not have its last
    one, so that this one can still be delivered if the env fails halfway.

    Attributes:
        others: Per lane, the leaves of its observation that are no columns.
    """

    def __init__(self, mapping: Mapping, columns: Columns, lanes: int):
        self.others: list[list[Any]] = [[None] * columns.others for _ in range(lanes)]
        self._mapping = mapping
        self._columns = columns
        self._slot = 0
        self._slot_of = [0] * lanes

    @property
    def next_slot(self) -> int:
        """Returns the slot for the next observations of all lanes, if all last ones lie in the current slot."""
        return 1 - self._slot

    def next_slot_of(self, lane: int) -> int:
        """Returns the slot for a lane's next observation."""
        return 1 - self._slot_of[lane]

    def written(self, lane: int) -> None:
        """Notes that a lane's next observation is there."""
        self._slot_of[lane] = 1 - self._slot_of[lane]

    def all_written(self, slot: int) -> None:
        """Notes that the next observations of all lanes are there, in ``slot``."""
        self._slot = slot
        self._slot_of = [slot] * len(self._slot_of)

    def current(self) -> list[np.ndarray]:
        """Returns the columns of the current slot: views [N, ...]. They have the last observations of all lanes after
        ``all_written`` and ``join``.
        """
        return self._mapping.observations[self._slot]

    def frame(self, copy: bool) -> Any:
        """Returns the current slot as a batch of the observation space; without ``copy``, views of it."""
        arrays = self.current()
        if copy:
            arrays = [array.copy() for array in arrays]
        return self._columns.batch(arrays, self.others)

    def join(self, copy: bool) -> Any:
        """Brings the last observations of all lanes together in the next slot, and returns that as ``frame`` does."""
        target = 1 - self._slot
        stale = [lane for lane, slot in enumerate(self._slot_of) if slot != target]
        if stale:
            for to, source in zip(
                self._mapping.observations[target], self._mapping.observations[1 - target], strict=True
            ):
                to[stale] = source[stale]
        self.all_written(target)
        return self.frame(copy)

    def gather(self, lanes: list[int]) -> Any:
        """Copies the last observations of some lanes, as a batch of as many rows."""
        return self._columns.batch(self.gather_columns(lanes), [self.others[lane] for lane in lanes])

    def gather_columns(self, lanes: list[int]) -> list[np.ndarray]:
        """Copies the columns of the last observations of some lanes: fresh arrays [k, ...]."""
        arrays = []
        slots = np.array([self._slot_of[lane] for lane in lanes])[:, None]
        for zero, one in zip(*self._mapping.observations, strict=True):
            choose = slots.reshape((-1,) + (1,) * (zero.ndim - 1))
            arrays.append(np.where(choose == 0, zero[lanes], one[lanes]))
        return arrays

    def release(self) -> None:
        """Releases the mapping; nothing else can be called after that."""
        del self._mapping
