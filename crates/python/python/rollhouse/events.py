"""What happens to lanes and their recording beside what steps show: lanes and episodes that are lost, sessions that move, disks
that fail."""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rollhouse.recording import RecordingWarning

MAX_WAITING = 256
"""Events that wait for one vector env's next call; of more the oldest go."""


@dataclass(frozen=True)
class Event:
    """Something that has happened to the lanes of a vector env or to their recording. ``VectorEnv.on_event`` reports it.

    Attributes:
        kind: ``"lost"`` (lanes, or episodes that a recording lacks), ``"moved"`` (a session of a cluster goes on on another
            node) or ``"disk"`` (of a recording on this machine).
        message: For people, in one sentence.
        lanes: The lanes that were lost or moved; none where episodes were lost.
        episodes: Number of episodes that the recording lost.
        why: The reason: of lanes that are lost the outcome, such as ``"crashed"``.
        source: The node on which lanes that moved were before.
        target: The node on which they are now.
        state: Of a disk ``"failed"``, ``"nearly full"`` or ``"recovered"``.
    """

    kind: Literal["lost", "moved", "disk"]
    message: str
    lanes: tuple[int, ...] = ()
    episodes: int = 0
    why: str | None = None
    source: str | None = None
    target: str | None = None
    state: Literal["failed", "nearly full", "recovered"] | None = None


class Native(Protocol):
    """What notes the news of lanes."""

    @property
    def has_news(self) -> bool: ...
    def take_news(self) -> Iterable[Mapping[str, Any]]: ...


class Events:
    """The events of one vector env, until its caller gets them.

    Args:
        native: The native half, which notes most of them.
        place: The folder that is recorded into, for messages.
    """

    def __init__(self, native: Native | None = None, place: Any = None):
        self._native, self._place = native, place
        self._callbacks: list[Callable[[Event], object]] = []
        self._waiting: deque[Event] = deque(maxlen=MAX_WAITING)
        self._has_failed = False

    @property
    def waits(self) -> bool:
        """Whether there is something for the caller."""
        return bool(self._waiting) or (self._native is not None and self._native.has_news)

    def add(self, callback: Callable[[Event], object]) -> None:
        """Has a callback called for each event from now on."""
        if not callable(callback):
            raise TypeError(f"callback={callback!r} must be a function of an event")
        self._callbacks.append(callback)

    def lose(self, lanes: Iterable[int], why: str) -> None:
        """Notes that lanes were lost."""
        self._waiting.append(self._event({"kind": "lost", "lanes": list(lanes), "why": why}))

    def report(self) -> None:
        """Warns of what a recording loses, and calls the callbacks. What they raise is the caller's; events that wait behind it
        come with the next call."""
        if self._native is not None:
            self._waiting.extend(map(self._event, self._native.take_news()))
        while self._waiting:
            event = self._waiting.popleft()
            try:
                # A warning may be an exception.
                self._warn(event)
            finally:
                for callback in tuple(self._callbacks):
                    callback(event)

    def close(self) -> None:
        """Reports what is left, and lets go of the native half."""
        try:
            self.report()
        finally:
            self._native = None

    def _event(self, item: Mapping[str, Any]) -> Event:
        fields = {"episodes": 0, **item, "lanes": tuple(item.get("lanes", ()))}
        return Event(message=self._message(fields), **fields)

    def _message(self, item: Mapping[str, Any]) -> str:
        why = item.get("why")
        if item["kind"] == "moved":
            return f"{len(item['lanes'])} lanes went from node {item['source']} to node {item['target']}"
        if item["lanes"]:
            are = "lane {} is lost: {}" if len(item["lanes"]) == 1 else "lanes {} are lost: {}"
            return are.format(_short(item["lanes"]), why)
        if item["kind"] == "lost":
            lost = "parts of open episodes" if not item["episodes"] else f"{item['episodes']} episodes"
            return f"the recording in {self._place} has lost {lost}: {why}"
        return {
            "failed": f"the recording in {self._place} fails, and what is played is lost until its disk takes something: {why}",
            "nearly full": f"the disk of the recording in {self._place} is nearly full: {why}; make room before episodes are lost",
            "recovered": f"the disk of the recording in {self._place} takes something again",
        }[item["state"]]

    def _warn(self, event: Event) -> None:
        """Warns of a disk that fails or is nearly full. Of episodes that were lost only if no disk has failed: some are counted
        when they end, long after the outage that has cost their beginning."""
        if event.state == "failed":
            self._has_failed = True
        is_loss = event.kind == "lost" and not event.lanes and not self._has_failed
        if not is_loss and event.state not in ("failed", "nearly full"):
            return
        frame, level = sys._getframe(), 1
        while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "rollhouse":
            frame, level = frame.f_back, level + 1
        warnings.warn(event.message, RecordingWarning, stacklevel=level)


def _short(lanes: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, lanes[:8]))
    return f"{shown} and {len(lanes) - 8} more" if len(lanes) > 8 else shown
