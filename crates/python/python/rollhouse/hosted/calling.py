"""Calls of a ``HostedVectorEnv`` that wait for its workers, and those of its envs' methods and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rollhouse import _native
from rollhouse.errors import LaneLostError
from rollhouse.hosted.crew import Crew
from rollhouse.hosted.losses import Losses
from rollhouse.hosted.pending_call import PendingCall
from rollhouse.hosted.worker import dump
from rollhouse.vector import VectorEnv


class Calling(VectorEnv):
    """A vector env whose calls are begun, pending and waited for, of which one at a time is. What it steps and resets is its
    subclass's.
    """

    call_timeout: float | None
    _crew: Crew
    _native: _native.NativeLanes
    _losses: Losses
    _pending: PendingCall
    _methods: list[dict[str, Any]]
    _all_lanes: list[int]
    _abandoned: bool

    def _launch_rest(self) -> None:
        raise NotImplementedError

    def _settle(self) -> None:
        raise NotImplementedError

    def _check_none_outstanding(self) -> None:
        raise NotImplementedError

    def _begin_call(self, name: str) -> None:
        self._check_usable()
        self._pending.check_none(f"{name}_async")

    def _end_call(self, name: str) -> None:
        self._check_usable()
        self._pending.check(name)

    def _whole(self, wait: Callable[[], Any]) -> Any:
        """Returns the result of ``wait``; after an interruption the call is no longer pending."""
        try:
            return wait()
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Gives up the call that is pending, if one is: as a rule Ctrl-C was pressed. Its result is dropped: the next
        reset waits until it is over, and ``close`` does not.
        """
        if self._pending.name is not None:
            self._abandoned = True
            self._reset_done = self._reset_done and self._pending.name == "call"
            self._pending.name = None

    @property
    def methods(self) -> Mapping[str, Mapping[str, Any]]:
        """The methods that ``call_method`` knows, from ``metadata["methods"]`` of lane 0; see ``VectorEnv.methods``."""
        told = {method["name"]: {"params": None, "max_per_second": None, **method} for method in self._methods}
        for method in told.values():
            del method["name"]
        return told

    def _call_method(self, lane: int, method: str, payload: str) -> str:
        self._begin_call("call")
        self._settle()
        self._check_none_outstanding()
        return self._native.call(lane, method, payload)

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        self.call_async(name, *args, **kwargs)
        return self._whole(self.call_wait)

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begins what ``call`` does; ``call_wait`` returns the results.

        Raises:
            AlreadyPendingCallError: Another call is pending.
            LaneLostError: A lane has no env.
        """
        self._check_usable()
        if name in ("reset", "step", "close"):
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        self._begin_calls([dump(("call", name, args, kwargs))] * len(self._crew.ranges))

    def _begin_calls(self, payloads: Sequence[bytes]) -> None:
        self._begin_call("call")
        self._settle()
        self._check_none_outstanding()
        self._launch_rest()
        # Rows are taken before their worker has answered.
        self._crew.workers.quiet(self.call_timeout)
        # A worker may have ended since it was last asked for anything.
        self._losses.still_away(())
        self._losses.look(self._all_lanes)
        if self._losses.away:
            raise self._losses.absence(sorted(self._losses.away))
        self._crew.workers.call(list(payloads), self.call_timeout)
        self._pending.name = "call"

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Returns the results of ``call_async``, one per lane; blocks until all envs have answered.

        Raises:
            NoAsyncCallError: ``call_async`` was not called.
            multiprocessing.TimeoutError: ``timeout`` seconds are over; the call stays pending.
            Exception: The exception of the first lane whose env failed. No lane is lost by that.
        """
        self._end_call("call")
        answers = self._crew.workers.answers(timeout)
        if answers is None:
            raise self._pending.timed_out(timeout)
        self._pending.name = None
        results = self._crew.results(answers)
        for lane, (worked, value) in enumerate(results):
            if not worked:
                error, text = value
                if isinstance(error, LaneLostError):
                    raise error
                raise error from LaneLostError(f"the call of lane {lane} raised\n{text}", (lane,))
        return tuple(value for _, value in results)

    def _set_attr(self, name: str, values: list[Any]) -> None:
        self._begin_calls([dump(("set", name, values[first:end])) for first, end in self._crew.ranges])
        self._whole(self.call_wait)

    def render(self) -> tuple[Any, ...] | None:
        """Returns the rendered frames of all lanes, as their envs' ``render`` returns them."""
        return self.call("render")

    @property  # type: ignore[misc]
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every lane's generator, asked of its env."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy of every lane's generator."""
        return self.get_attr("np_random")
