"""The lanes of a ``HostedVectorEnv`` that have no env: why, and what the caller is told of it. When they get one again the
engine decides.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable
from dataclasses import dataclass

from rollhouse import _native
from rollhouse.errors import LaneLostError
from rollhouse.hosted.crew import Crew


@dataclass(frozen=True)
class Loss:
    """The reason for which a lane was lost.

    Attributes:
        outcome: ``"crashed"`` or ``"hung"``.
        reason: For people.
        raised: The exception that its env raised, if it raised one.
        trace: The traceback in the worker.
    """

    outcome: str
    reason: str
    raised: BaseException | None = None
    trace: str = ""


class Losses:
    """The lanes that are away.

    Attributes:
        away: The reason for each lane that had no env when rows were last delivered.
    """

    def __init__(self, crew: Crew, lanes: _native.NativeLanes):
        self.away: dict[int, Loss] = {}
        self._lanes, self._processes = lanes, crew.workers
        self._workers = {lane: range(*lanes) for lanes in crew.ranges for lane in range(*lanes)}

    def look(self, lanes: Iterable[int]) -> dict[int, Loss]:
        """Finds out which of the lanes, whose rows are delivered, are away. Returns those that were not before."""
        lost = set(self._lanes.lost()).intersection(lanes)
        for lane in self.away.keys() & set(lanes) - lost:
            del self.away[lane]
        told = {lane: self._why(lane) for lane in sorted(lost) if lane not in self.away}
        self.away.update(told)
        return told

    def _why(self, lane: int) -> Loss:
        hung, detail, said = self._processes.why(lane)
        if said:
            error, trace = pickle.loads(said)
            return Loss("crashed", f"its env raised {type(error).__name__}: {error}", error, trace)
        what = f"was killed: {detail or 'it did not answer in time'}" if hung else f"died: {detail}"
        worker = ", ".join(map(str, self._workers[lane]))
        return Loss("hung" if hung else "crashed", f"the worker of lanes {worker} {what}")

    def still_away(self, lanes: Iterable[int]) -> set[int]:
        """Makes lost lanes anew whose back-off is over. Returns those of the lanes that are still lost."""
        self._lanes.restart_lost()
        return set(self._lanes.lost()).intersection(lanes)

    def recover(self, lanes: list[int], timeout: float | None) -> None:
        """Waits until the lost envs of these lanes can be reset, for at most ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while missing := self.still_away(lanes):
            if missing <= set(self._lanes.failed()) or (deadline is not None and time.monotonic() >= deadline):
                break
            self._processes.look_after()
        # Whoever resets a lane gives up the episode it had: a loss that was not told is not told any more.
        for lane in missing:
            self.away.setdefault(lane, self._why(lane))

    def all_failed(self) -> bool:
        """Returns whether every lane is away for good."""
        return len(self.away) == len(self._workers) and len(self._lanes.failed()) == len(self._workers)

    @staticmethod
    def error(lost: dict[int, Loss]) -> BaseException:
        """Makes the exception for losses: the one that an env raised if one did, with the rest as its cause."""
        outcome = next(iter(lost.values())).outcome
        reasons = {loss.reason: loss for loss in lost.values()}
        text = "; ".join(
            f"lane {', '.join(str(lane) for lane, loss in lost.items() if loss.reason == reason)}: {reason}"
            for reason in reasons
        )
        traces = "".join(f"\n{loss.trace}" for loss in reasons.values() if loss.trace)
        error = LaneLostError(f"{text}{traces}", tuple(lost), outcome)
        raised = next((loss.raised for loss in lost.values() if loss.raised is not None), None)
        if raised is None:
            return error
        raised.__cause__ = error
        return raised

    def absence(self, lanes: Iterable[int]) -> LaneLostError:
        """Makes the exception for lanes that are needed and are away."""
        lanes = tuple(lanes)
        first = lanes[0]
        loss = self.away[first]
        future = "its env is made again, unless it fails too often; reset it to go on"
        return LaneLostError(
            f"lanes {', '.join(map(str, lanes))} are lost, lane {first} because: {loss.reason}; {future}",
            lanes,
            loss.outcome,
        )
