"""The lanes of a ``HostedVectorEnv`` that have no env: why, and when they get one again.

    playing --> away --> playing
                 |  its worker died or hung: the host restarts that; then the lane is fresh
                 |  its env raised: the worker goes on and makes it anew when its back-off is over
                 +--> for good, after too many failures
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rollhouse._native import BackOff
from rollhouse.errors import LaneLostError


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
        away: Lanes that have no env, or one that has not begun an episode.
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        self.away: set[int] = set()
        self._why: dict[int, Loss] = {}
        self._untold: set[int] = set()
        self._beginning: set[int] = set()
        self._fresh: set[int] = set()
        # When the env of a lane whose worker is there is made anew; None: never.
        self._due: dict[int, float | None] = {}
        self._down: set[int] = set()
        self._failed: set[int] = set()
        self._back_offs: dict[int, BackOff] = {}

    # What happens

    def worker_lost(self, lanes: Iterable[int], error: LaneLostError, wait: float | None) -> None:
        """Notes that all lanes of a worker are lost; it is started again after ``wait`` seconds, or never."""
        for lane in lanes:
            self._leave(lane, Loss(error.outcome, str(error)))
            self._fresh.discard(lane)
            self._due.pop(lane, None)
            self._down.add(lane)
            if wait is None:
                self._failed.add(lane)

    def worker_back(self, lanes: Iterable[int]) -> None:
        """Notes that a worker has made the envs of its lanes again."""
        for lane in self.away.intersection(lanes):
            self._down.discard(lane)
            self._fresh.add(lane)

    def lane_lost(self, lane: int, error: BaseException, trace: str, now: float) -> None:
        """Notes that a lane's env raised, or could not be made or reset."""
        self._leave(lane, Loss("crashed", f"its env raised {type(error).__name__}: {error}", error, trace))
        self._fresh.discard(lane)
        wait = self._back_offs.setdefault(lane, BackOff(lane)).failed(now)
        self._due[lane] = None if wait is None else now + wait
        if wait is None:
            self._failed.add(lane)

    def _leave(self, lane: int, loss: Loss) -> None:
        # Who was away had no episode that could be lost; its newest reason counts.
        if lane not in self.away:
            self._untold.add(lane)
        self._why[lane] = loss
        self._beginning.discard(lane)
        self.away.add(lane)

    # Coming back

    def begin(self, lanes: Iterable[int], now: float, tell_first: bool = True) -> dict[int, bool]:
        """Returns those of the lanes that can begin an episode now, and whether their env has to be made anew for it.

        With ``tell_first`` not those whose loss has not been told.
        """
        can: dict[int, bool] = {}
        for lane in self.away.intersection(lanes):
            if tell_first and lane in self._untold:
                continue
            due = self._due.get(lane)
            if lane in self._fresh:
                can[lane] = False
            elif due is not None and due <= now:
                can[lane] = True
        self._beginning.update(can)
        return can

    def has_begun(self, lane: int) -> bool:
        """Notes that a lane was stepped or reset. Returns whether that was the beginning after a loss."""
        if lane not in self._beginning:
            return False
        self._beginning.discard(lane)
        self._fresh.discard(lane)
        self._due.pop(lane, None)
        self.away.discard(lane)
        return True

    def latest_due(self, lanes: Iterable[int]) -> float | None:
        """Returns when the last of the lanes that wait for a new env gets it; None if none waits."""
        return max((due for lane in lanes if (due := self._due.get(lane)) is not None), default=None)

    # Telling

    def is_untold(self, lane: int) -> bool:
        """Returns whether a lane was lost and the caller has not been told yet."""
        return lane in self._untold

    def take_told(self, lanes: Iterable[int]) -> dict[int, Loss]:
        """Returns the losses among the lanes of which the caller has not been told yet, and counts them as told."""
        told = {lane: self._why[lane] for lane in lanes if lane in self._untold}
        self._untold.difference_update(told)
        return told

    def all_failed(self) -> bool:
        """Returns whether every lane is away for good."""
        return len(self._failed) == self.lanes

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
        loss = self._why[first]
        future = "it stays so" if first in self._failed else "its env is made again; reset it to go on"
        return LaneLostError(
            f"lanes {', '.join(map(str, lanes))} are lost, lane {first} because: {loss.reason}; {future}",
            lanes,
            loss.outcome,
        )
