"""The state of a ``HostedVectorEnv``'s lanes: the commands to them, and their results."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rollhouse.hosted import worker
from rollhouse.hosted.crew import Crew
from rollhouse.hosted.infos import Said
from rollhouse.hosted.losses import Losses
from rollhouse.hosted.rows import Rows


class HostedLanes:
    """Lanes under way between a vector env and its workers.

        queued --> told to its worker --> done --> taken
          +--> done at once, if the lane has no env

    Attributes:
        step_timeout: Seconds a worker has for a batch of its lanes; None for ever.
        outstanding: Lanes that were told something of which nobody has taken the result.
        done: Those whose result is there: stepped (or reset); began (an episode, after a loss); absent (its env is
            not back); lost (just now).
        results: Per worker that has answered a call: per lane, whether it worked, and its value or (error, trace).
    """

    def __init__(self, crew: Crew, losses: Losses, rows: Rows, step_timeout: float | None):
        self.step_timeout = step_timeout
        self.outstanding: set[int] = set()
        self.done: dict[int, str] = {}
        self.results: dict[int, list[tuple[bool, Any]]] = {}
        self._crew, self._losses, self._rows = crew, losses, rows
        # Per worker, lanes that it has not been given; lane -> its action, if that is no array.
        self._queued: list[list[int]] = [[] for _ in crew.ranges]
        self._items: dict[int, Any] = {}
        self._said = Said()

    # Telling

    def all_told_to_step(self) -> None:
        """Notes that all lanes were told to step by other means."""
        for index, (first, end) in enumerate(self._crew.ranges):
            self._crew.asked[index] = (worker.STEP, list(range(first, end)))
            self.outstanding.update(range(first, end))

    def queue(self, lanes: list[int], items: Sequence[Any] | None) -> None:
        """Queues a step of lanes, with the actions that lie in the mapping or with ``items``, one per lane."""
        if items is not None:
            self._items.update(zip(lanes, items, strict=True))
        for lane in lanes:
            self._queued[self._crew.worker_of[lane]].append(lane)
        self.outstanding.update(lanes)

    def pump(self) -> None:
        """Gives every idle worker its queued commands; lanes without an env are done at once."""
        for index, queued in enumerate(self._queued):
            if queued and (not self._crew.up[index] or self._crew.asked[index] is None):
                self._queued[index] = []
                self._dispatch(index, sorted(queued))

    def _dispatch(self, index: int, lanes: list[int]) -> None:
        first, up = self._crew.ranges[index][0], self._crew.up[index]
        fresh = self._losses.begin(lanes, time.monotonic()) if up and self._losses.away else {}
        absent = [lane for lane in lanes if lane in self._losses.away and lane not in fresh]
        for lane in absent:
            self.done[lane] = "lost" if self._losses.is_untold(lane) else "absent"
            self._items.pop(lane, None)
        if absent:
            lanes = [lane for lane in lanes if lane not in self.done]
        if lanes:
            items = {lane - first: self._items.pop(lane) for lane in lanes if lane in self._items}
            entries = [(lane - first, self._rows.next_slot_of(lane)) for lane in lanes]
            local = {lane - first: (None, None, anew) for lane, anew in fresh.items()}
            anew = any(fresh.values())
            timeout = _longest(self.step_timeout, self._crew.launch_timeout) if anew else self.step_timeout
            self._crew.post(index, worker.BATCH, lanes, (entries, items, local), timeout)

    def reset(
        self,
        lanes: list[int],
        seeds: list[int | None],
        options: dict[str, Any] | None,
        anew: dict[int, bool],
        timeout: float | None,
    ) -> None:
        """Tells lanes to reset. Lanes that are away and not in ``anew`` are done at once; the values of ``anew`` say
        whether an env has to be made first.
        """
        for index, (first, end) in enumerate(self._crew.ranges):
            own = [lane for lane in lanes if first <= lane < end]
            here = [lane for lane in own if lane not in self._losses.away or lane in anew]
            for lane in own:
                if lane not in here:
                    self.done[lane] = "absent"
            if here:
                entries = [
                    (lane - first, self._rows.next_slot_of(lane), seeds[lane], anew.get(lane, False)) for lane in here
                ]
                making = any(anew.get(lane, False) for lane in here)
                limit = _longest(timeout, self._crew.launch_timeout) if making else timeout
                self._crew.post(index, worker.RESET, here, (entries, options), limit)
        self.outstanding.update(lanes)

    def call(self, command: int, payloads: Sequence[Any], timeout: float | None) -> None:
        """Gives every worker a call; ``results`` is emptied first."""
        self.results = {}
        for index, ((first, end), payload) in enumerate(zip(self._crew.ranges, payloads, strict=True)):
            self._crew.post(index, command, list(range(first, end)), payload, timeout)

    # Taking

    def plain(self, events: Iterable[tuple[Any, ...]]) -> Said | None:
        """Returns the infos, if workers that were told to step all lanes have all done so and returned nothing but
        infos.
        """
        all_said = Said()
        for kind, index, *rest in events:
            said = pickle.loads(rest[1]) if kind == "replied" and rest[1] else {} if kind == "replied" else {"lost": {}}
            if "lost" in said or "others" in said:
                return None
            first, end = self._crew.ranges[index]
            all_said.add(first, end - first, said)
        return all_said

    def take(self, lanes: list[int]) -> tuple[list[str], Said]:
        """Returns the results of lanes that are done, with their infos; the lanes are no longer outstanding."""
        how = [self.done.pop(lane) for lane in lanes]
        # All that are done are taken together.
        said, self._said = self._said, Said()
        self.outstanding.difference_update(lanes)
        return how, said

    def settle(self) -> None:
        """Waits until no worker has anything to do, and drops results that nobody wants."""
        self.drop()
        self.work_until(lambda: all(asked is None for asked in self._crew.asked), None)

    def drop(self) -> None:
        """Waits until all outstanding lanes are done, and drops results that nobody wants."""
        self.work_until(lambda: self.outstanding <= self.done.keys(), None)
        for lane in self.outstanding:
            self.done.pop(lane)
        self._said = Said()
        self.outstanding.clear()

    # Work

    def work_until(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Looks after the workers until ``done``. Returns whether that was within ``timeout`` seconds. Blocks."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not done():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._crew.host.wait("event", left):
                return False
            self.absorb(self._crew.host.events())
            self.pump()
        return True

    def recover(self, lanes: list[int], timeout: float | None) -> dict[int, bool]:
        """Waits until the lost envs of these lanes can be reset, for at most ``timeout`` seconds. Returns those that
        can be, and whether their env has to be made anew first."""
        deadline = None if timeout is None else time.monotonic() + timeout

        def left() -> float | None:
            return None if deadline is None else max(0.0, deadline - time.monotonic())

        wanted = {self._crew.worker_of[lane] for lane in lanes if lane in self._losses.away}
        while any(not self._crew.up[w] and self._crew.host.state(w) != "failed" for w in wanted):
            in_time = self._crew.host.wait("back", left())
            self.absorb(self._crew.host.events())
            in_time = in_time and self._crew.host.wait("replies", left())
            self.absorb(self._crew.host.events())
            if not in_time:
                break
        due = self._losses.latest_due(lanes)
        if due is not None:
            wait = max(0.0, due - time.monotonic())
            time.sleep(wait if deadline is None else min(wait, left() or 0.0))
        can = [lane for lane in lanes if self._crew.up[self._crew.worker_of[lane]]]
        # Whoever resets a lane gives up the episode it had: a loss that was not told is not told any more.
        self._losses.take_told(lanes)
        return self._losses.begin(can, time.monotonic())

    def absorb(self, events: Iterable[tuple[Any, ...]]) -> None:
        """Takes note of the events of workers."""
        for kind, index, *rest in events:
            asked, self._crew.asked[index] = self._crew.asked[index], None
            if kind == "ready":
                made, _ = pickle.loads(rest[0])
                if made == "made":
                    self._crew.greet(index)
                else:
                    # It ends now, which counts as another failure.
                    self._crew.post(index, worker.CLOSE, [], None, self._crew.launch_timeout)
            elif kind == "lost":
                self._lose_worker(index, asked, *rest)
            elif asked is not None:
                command, concerned = asked
                self._take_reply(index, command, concerned, rest[1])

    def _lose_worker(
        self, index: int, asked: tuple[int, list[int]] | None, cause: str, wait: float | None, detail: str
    ) -> None:
        lanes = range(*self._crew.ranges[index])
        self._crew.up[index] = False
        error = self._crew.loss(index, cause, detail, tuple(lanes))
        self._losses.worker_lost(lanes, error, wait)
        command, concerned = asked or (None, [])
        if command in (worker.STEP, worker.BATCH, worker.RESET):
            for lane in concerned:
                self.done[lane] = "lost" if self._losses.is_untold(lane) else "absent"
        elif command in (worker.CALL, worker.SET):
            self.results[index] = [(False, (error, ""))] * len(lanes)

    def _take_reply(self, index: int, command: int, lanes: list[int], payload: bytes) -> None:
        first = self._crew.ranges[index][0]
        if command == worker.SETUP:
            self._crew.up[index] = True
            self._losses.worker_back(range(*self._crew.ranges[index]))
        elif command in (worker.CALL, worker.SET):
            self.results[index] = pickle.loads(payload)
        elif command in (worker.STEP, worker.BATCH, worker.RESET):
            said = pickle.loads(payload) if payload else {}
            lost = said.get("lost", {})
            for lane in lanes:
                if lane - first in lost:
                    error, trace = lost[lane - first]
                    self._losses.lane_lost(lane, error, trace, time.monotonic())
                    self.done[lane] = "lost" if self._losses.is_untold(lane) else "absent"
                else:
                    self.done[lane] = "began" if self._losses.has_begun(lane) else "stepped"
                    self._rows.written(lane)
            for local, others in said.get("others", {}).items():
                self._rows.others[first + local] = others
            self._said.add(first, self._crew.ranges[index][1] - first, said)


def _longest(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)
