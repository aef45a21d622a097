"""A worker whose lanes step together: they are those of a vector env of another package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse.foreign_vector import ForeignVector, Rows, lane_of, tasks_of
from rollhouse.hosted.block_words import BLOCK, BlockPacker
from rollhouse.hosted.worker import AHEAD, NOTHING_GIVEN, Worker, check_same, dump, failure
from rollhouse.lane_words import LOST, NOTHING, TERMINATED, TRUNCATED
from rollhouse.said import info_of
from rollhouse.vector_maker import MAX_SEED, VectorMaker, limit_of

NOTHING_SAID = (4).to_bytes(8, "little") + bytes(4)
"""What a lane says that has begun an episode ahead, of which its first row says all: a picture of no bytes."""

SAID_HEAD = 8 + 4 + len(BLOCK)
"""Bytes of a lane's room for words that are no piece of an info: lengths, and the first byte."""


class TogetherWorker(Worker):
    """The lanes of this process, of one vector env."""

    def make(self, hello: dict[str, Any]) -> None:
        """Makes the vector env."""
        maker: Any = self.fns[0]
        assert isinstance(maker, VectorMaker)
        self.maker = maker
        mode = AutoresetMode(hello["autoreset_mode"])
        self.foreign = self.connector.make(
            lambda: ForeignVector(maker.env_id, lambda seeds: maker(self.count, mode, seeds), lambda: maker.seeded)
        )
        self.foreign.check_spaces()
        self.block_packer = BlockPacker()

    def describe(self) -> list[tuple[Any, ...]]:
        """Returns for each lane what ``Worker.describe`` does; what is to be known of the vector env is its autoreset mode and the
        greatest seed, None if there is none.
        """
        vector = self.foreign.vector
        metadata = {name: value for name, value in dict(vector.metadata).items() if name not in ("options", "methods")}
        facts = (self.foreign.mode, MAX_SEED if self.maker.seeded else None)
        spaces = vector.single_observation_space, vector.single_action_space
        mode = getattr(vector, "render_mode", None)
        return [(*spaces, metadata, mode, self.maker.env_id, limit_of(vector), [], facts)] * self.count

    def check_spaces(self, observation: gymnasium.Space, action: gymnasium.Space) -> None:
        """Raises ``ValueError`` for a vector env that has other spaces than the batch."""
        vector = self.foreign.vector
        check_same(self.first, (vector.single_observation_space, vector.single_action_space), (observation, action))

    def work(self, number: int, payload: bytes) -> bytes:
        """Does what the lanes are told, all at once. Returns what there was no room to say in their records."""
        later = bytearray()
        flags = [0] * self.count
        lanes: Any = range(self.count)
        if NOTHING in payload[: self.count]:
            lanes = [lane for lane in lanes if payload[lane] != NOTHING]
        try:
            given, _, _ = self.extras(payload) if len(payload) > 9 * self.count else (NOTHING_GIVEN, {}, {})
            tasks = tasks_of(payload, self.count, given.options)
            for lane, seed in given.seeds.items():
                if self.first <= lane < self.first + self.count:
                    tasks.seeds[lane - self.first] = seed
            rows, began = self.foreign.do(tasks, self.taken_together)
            flags = self.write_rows(rows, began)
            self.say_block(rows[4], lanes, flags, later)
        except Exception as error:
            why = dump(failure(error))
            self.foreign.put_away()
            for lane in lanes:
                flags[lane] = LOST | self.say(lane, b"", why, later)
        number <<= 8
        self.link.publish_all([(self.places[lane], number | flags[lane]) for lane in lanes])
        return bytes(later)

    def taken_together(self) -> Any:
        """Returns a batch of the lanes' actions: copies, for the vector env may keep them."""
        if self.action_columns.single:
            return self.actions[0].astype(self.action_columns.dtypes[0])
        arrays, parts = [a.copy() for a in self.actions], self.action_layout.parts
        return self.action_columns.batch(arrays if parts is None else parts.split(arrays[0]), ())

    def write_rows(self, rows: Rows, began: np.ndarray) -> list[int]:
        """Writes the rows of all lanes to their records. Returns how each answers."""
        observations, rewards, terminations, truncations, given = rows
        infos = info_of(given)
        self.rewards[...] = rewards
        arrays = self.foreign.columns.arrays_of(observations)
        self.write_batch(self.batch_rows, arrays, slice(None))
        if self.infos is not None and not began.all():
            self.infos.write_all(infos)
        if "result" in infos or "score" in infos or self.verdicts.told:
            for lane in np.flatnonzero(~began).tolist():
                self.verdicts.tell(lane, {name: infos[name][lane] for name in ("result", "score") if name in infos})
        if not (terminations | truncations).any():
            return [0] * self.count
        flags = np.where(terminations, TERMINATED, 0) | np.where(truncations, TRUNCATED, 0)
        if self.same_step:
            over = np.flatnonzero(flags)
            self.write_batch(self.ahead_batch_rows, [array[over] for array in arrays], over)
            self.write_last(infos, over.tolist())
            flags[over] = np.bitwise_or(flags[over], AHEAD)
        return flags.tolist()

    def write_last(self, infos: dict[str, Any], over: list[int]) -> None:
        """Writes the last observations of episodes, and that those which begin ahead say nothing by themselves."""
        if "final_obs" not in infos:
            raise KeyError(f"{self.maker.env_id}: the infos of a step in which episodes end have no final_obs")
        for lane in over:
            self.write(self.rows[lane], lane_of(infos["final_obs"], lane))
            at = self.places[lane] + self.said_at + self.ahead_at
            self.memory[at : at + len(NOTHING_SAID)] = NOTHING_SAID

    def write_batch(self, columns: list[np.ndarray], arrays: list[np.ndarray], lanes: Any) -> None:
        """Writes rows of a batch to the records of these lanes."""
        for column, array, narrow in zip(columns, arrays, self.narrow, strict=True):
            if narrow is not None:
                # As for one lane: as the dtype says first.
                array = array.astype(narrow, casting="same_kind", copy=False)
            if not np.can_cast(array.dtype, column.dtype, "same_kind"):
                raise TypeError(f"observations of dtype {array.dtype} do not become {column.dtype}")
            column[lanes] = array

    def say_block(self, infos: Any, lanes: Sequence[int], flags: list[int], later: bytearray) -> None:
        """Says the infos of all lanes in pieces, in the records of those that answer."""
        words = self.block_packer.pack(info_of(infos), dump)
        room, at = self.said_room - SAID_HEAD, 0
        # A lane that has begun ahead says something in any case, be it nothing.
        for lane in lanes if self.same_step else lanes[: -(-len(words) // room)]:
            if at >= len(words) and not flags[lane] & AHEAD:
                continue
            size = len(words) if lane == lanes[-1] else room
            flags[lane] |= self.say(lane, b"", BLOCK + words[at : at + size], later)
            at += size

    def call(self, kind: str, name: str, *given: Any) -> list[tuple[bool, Any]]:
        """Calls a method of the vector env with arguments, reads its attribute, or sets it (``"set"``). Of what is one for each lane,
        each has its own.
        """
        try:
            vector = self.foreign.vector
            if kind == "set":
                vector.set_attr(name, given[0])
                value: Any = None
            else:
                value = self.value_of(vector, name, *given)
        except Exception as error:
            return [(False, failure(error))] * self.count
        each = isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) != 0 and len(value) == self.count
        return [(True, value[lane] if each else value) for lane in range(self.count)]

    @staticmethod
    def value_of(vector: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls what the lanes have of a name, if the vector env knows their envs, else what it has itself."""
        call = getattr(vector, "call", None)
        if callable(call) and name != "render":
            return call(name, *args, **kwargs)
        value = getattr(vector, name)
        return value(*args, **kwargs) if callable(value) else value

    def close(self) -> None:
        """Closes the vector env."""
        self.foreign.put_away()
