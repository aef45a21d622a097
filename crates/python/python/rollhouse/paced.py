"""Live lanes: worlds that tick by a pace, whatever their owner does."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from rollhouse import _native
    from rollhouse.vector import Step

Clock = Literal["realtime", "agent", "charged"]
LONGEST_PLAN = 3600.0
"""Seconds for which an owner plans at most."""
LONGEST_TEXT = 16384
"""Bytes of the text with which planning ends."""


def pace_of(pace: Any) -> dict[str, Any] | None:
    """Returns a pace as nodes read it: ``25``, or ``{"hz": 25, "clock": "charged"}``.

    Raises:
        TypeError, ValueError: It is none.
    """
    if pace is None:
        return None
    wanted = f"pace={pace!r} must be a number of ticks a second, or a dict of hz and clock"
    given = dict(pace) if isinstance(pace, Mapping) else {"hz": pace}
    if isinstance(given.get("hz"), bool) or not isinstance(given.get("hz"), (int, float, np.number)) or given.keys() - {"hz", "clock"}:
        raise TypeError(wanted)
    clock = given.get("clock", "realtime")
    if clock not in ("realtime", "agent", "charged"):
        raise ValueError(f"pace: clock={clock!r} is not one of realtime, agent, charged")
    if not 0.01 <= given["hz"] <= 1000:
        raise ValueError(f"pace: hz={given['hz']!r} must be 0.01 to 1000 ticks a second")
    return {"hz": float(given["hz"]), "clock": clock}


class LiveLanes:
    """What owners of live lanes do beside ``reset``, ``step``, ``send`` and ``recv``. A part of ``ClusterVectorEnv``.

    ``lanes`` are lane indices, or None for all of them.
    """

    num_envs: int
    _native: _native.NativeLanes

    def _check_usable(self) -> None:
        raise NotImplementedError

    def latest(self) -> Step:
        """Returns the newest rows of all lanes, without waiting for a tick: what ``step`` returns. It takes nothing away: rewards,
        ``infos["ticks"]`` and ``infos["dropped"]`` go on adding up until a step is answered. One round trip.

        Raises:
            RefusedError: The lanes have no pace.
            ResetNeededError: Before the first reset.
        """
        self._check_usable()
        return self._native.latest()

    def act(self, actions: Any, env_ids: Sequence[int] | np.ndarray | None = None) -> Step:
        """Puts an action for each lane of ``env_ids`` into its queue, and returns what ``latest`` returns. All that waits for a
        tick goes into it: lists of orders one after the other, of anything else the newest. Of more than 16 the oldest go, and
        ``infos["dropped"]`` counts them.

        Args:
            actions: One row per lane of ``env_ids``.
            env_ids: Lane indices, none twice; None for all lanes in order.

        Raises:
            InvalidActionError, ActionTypeError: Nothing is put anywhere then.
            RefusedError: A lane is paused or planned for, or the lanes have no pace.
        """
        self._check_usable()
        return self._native.act(actions, self._lanes(env_ids) or list(range(self.num_envs)))

    def pause(self, lanes: Any = None) -> tuple[str, ...]:
        """Has worlds stand still. Returns the state of each of the lanes, as all of these do: ``"playing"``, ``"paused"``,
        ``"planning"``, ``"over"`` or ``"standing"``.

        Raises:
            RefusedError: A lane cannot do that as it stands; those of other nodes may have done it.
        """
        return self._control("pause", lanes)

    def resume(self, lanes: Any = None) -> tuple[str, ...]:
        """Has worlds go on that are paused or planned for."""
        return self._control("resume", lanes)

    def tick(self, ticks: int = 1, lanes: Any = None) -> tuple[str, ...]:
        """Has worlds play so many ticks at once, 1 to 5,000, also while they are paused."""
        if not 1 <= operator.index(ticks) <= 5000:
            raise ValueError(f"ticks={ticks!r} must be an integer from 1 to 5000")
        return self._control("tick", lanes, operator.index(ticks))

    def plan(self, seconds: float, lanes: Any = None) -> tuple[str, ...]:
        """Has worlds stand still for so long at most while their owner plans: methods that change nothing may be called.
        ``end_plan`` ends it sooner."""
        if not 0 < seconds <= LONGEST_PLAN:
            raise ValueError(f"seconds={seconds!r} must be a number of seconds above 0, at most {LONGEST_PLAN:g}")
        return self._control("plan", lanes, max(1, round(seconds * 1000)))

    def end_plan(self, lanes: Any = None, text: str = "") -> tuple[str, ...]:
        """Has worlds go on that are planned for. The text, of at most 16,384 bytes, says what was planned: recordings have it
        beside the next tick, as a call of ``:plan`` (``Episode.calls``)."""
        if len(text.encode()) > LONGEST_TEXT:
            raise ValueError(f"text: it has {len(text.encode())} bytes, at most {LONGEST_TEXT} allowed")
        return self._control("end_plan", lanes, text=text)

    def states(self, lanes: Any = None) -> tuple[str, ...]:
        """Returns the state of each of the lanes."""
        return self._control("look", lanes)

    def _control(self, what: str, lanes: Any, number: int = 0, text: str = "") -> tuple[str, ...]:
        self._check_usable()
        return tuple(self._native.pace(self._lanes(lanes), what, number, text))

    def _lanes(self, lanes: Any) -> list[int]:
        if lanes is None:
            return []
        named = [operator.index(lane) for lane in np.atleast_1d(lanes)]
        for lane in named:
            if not 0 <= lane < self.num_envs:
                raise IndexError(f"lane {lane!r} of a batch of {self.num_envs}")
        if not named:
            raise ValueError("lanes: there are none; None means all of them")
        return named
