"""The vector env whose lanes are Python envs in worker processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector import AutoresetMode

from rollhouse import worker
from rollhouse.actions import Actions
from rollhouse.columns import Columns
from rollhouse.crew import MAX_WORKERS, Crew, EnvFn, cores
from rollhouse.errors import (
    LaneLostError,
    NothingOutstandingError,
    OutstandingError,
    ResetNeededError,
)
from rollhouse.embedded import _RECORDING, Recording, _data_folder
from rollhouse.losses import Losses
from rollhouse.observation_modes import batch_observation_spaces, check_observation_mode
from rollhouse.vector import DEFAULT_TIMEOUT, InfoLayout, Step, VectorEnv, parse_autoreset_mode

if TYPE_CHECKING:
    from rollhouse.hosted_recording import HostedRecorder

LAUNCH_TIMEOUT = 120.0
"""Seconds from the start of a worker process until all of its envs are made."""

CLOSE_TIMEOUT = 10.0
"""Seconds that envs have to close themselves."""

MAX_LANES = 65_536
"""Most lanes of one vector env."""


class HostedVectorEnv(VectorEnv):
    """N Python envs in worker processes, stepped over one shared mapping.

    ``rollhouse.vectorize`` makes it. The functions are sent to new processes with cloudpickle and called there:
    nothing of an env runs in this process. Observations, actions, rewards and flags of fixed shape lie in memory
    that all share; whatever does not fit there travels pickled (infos that are not empty, Text, Graph, Sequence,
    OneOf and custom spaces, actions that are no array of exactly the action space's dtype and shape). Every env
    is given the same actions, of the same types, as ``gymnasium.vector.SyncVectorEnv`` gives them.

    Losses. An env that raises loses its lane, a worker that dies (or whose env calls ``sys.exit``) or misses its
    deadline loses its lanes; nothing blocks past a deadline. Lost envs are made again after 1 s, then 2 s, up to
    60 s; five times within five minutes, then they stay lost.

    * ``on_loss="raise"``, the default, raises when the batch is complete: what the env raised (its cause is a
      ``LaneLostError`` with the traceback of the worker), else ``LaneLostError``. The lane cannot be stepped
      until it has been reset; that waits for the new env.
    * ``on_loss="report"`` goes on. The lost row has terminated False, truncated True, reward 0, the last
      delivered observation, ``infos["lost"][i]`` (``"crashed"`` or ``"hung"``) and ``infos["valid"][i]`` False.
      Until the env is back its rows repeat that observation with reward 0, flags False, not valid and without
      ``lost``; then one more such row has the first observation of its new episode. In DISABLED mode too.
      If every lane is lost for good, ``LaneLostError`` is raised.

    ``copy=False`` hands out views of the shared memory for observations: they are overwritten by the second next
    step. Terminal observations are always copies.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        *,
        workers: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        seed: int | Sequence[int] | None = None,
        on_loss: Literal["raise", "report"] | None = None,
        observation_mode: Any = "same",
        info_layout: InfoLayout = "default",
        step_timeout: float | None = DEFAULT_TIMEOUT,
        reset_timeout: float | None = DEFAULT_TIMEOUT,
        call_timeout: float | None = DEFAULT_TIMEOUT,
        launch_timeout: float | None = LAUNCH_TIMEOUT,
        record: bool = False,
        data: str | os.PathLike[str] | None = None,
    ):
        env_fns = list(env_fns)
        if not 1 <= len(env_fns) <= MAX_LANES:
            raise ValueError(f"env_fns: {len(env_fns)} functions; 1 to {MAX_LANES} are possible")
        for index, fn in enumerate(env_fns):
            if not callable(fn):
                raise TypeError(f"env_fns[{index}]={fn!r} must be a function without arguments that makes an env")
        workers = min(len(env_fns), cores()) if workers is None else workers
        if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MAX_WORKERS:
            raise ValueError(f"workers={workers!r} must be an integer from 1 to {MAX_WORKERS}")
        for name, value in (
            ("step_timeout", step_timeout),
            ("reset_timeout", reset_timeout),
            ("call_timeout", call_timeout),
            ("launch_timeout", launch_timeout),
        ):
            if value is not None and not value > 0:
                raise ValueError(f"{name}={value!r} must be a positive number of seconds, or None for no limit")
        if record not in (False, True):
            raise ValueError(f"record={record!r} must be False or True")
        if data is not None and not record:
            raise ValueError(f"data={os.fspath(data)!r} is used only with record=True")
        self.step_timeout, self.reset_timeout = step_timeout, reset_timeout
        self.call_timeout, self.launch_timeout = call_timeout, launch_timeout
        mode = parse_autoreset_mode(autoreset_mode)
        check_observation_mode(observation_mode)
        # Lanes are spread evenly, so with fewer lanes than workers some would have none.
        self._crew = Crew(env_fns, min(workers, len(env_fns)), mode, launch_timeout)
        try:
            lanes = self._crew.launch()
            single, batched = batch_observation_spaces([lane[0] for lane in lanes], observation_mode)
            for lane, (_, action_space, *_) in enumerate(lanes):
                if action_space != lanes[0][1]:
                    raise RuntimeError(
                        f"env_fns[{lane}] has the action space {action_space} and env_fns[0] has {lanes[0][1]}; "
                        "in order to batch actions they must be equal"
                    )
            super().__init__(
                num_envs=len(env_fns),
                single_observation_space=single,
                single_action_space=lanes[0][1],
                observation_space=batched,
                autoreset_mode=mode,
                metadata=dict(lanes[0][2]),
                info_layout=info_layout,
                on_loss="raise" if on_loss is None else on_loss,
                render_mode=lanes[0][3],
            )
            self._first_seeds = None if seed is None else self._parse_seeds(seed)
            self._recorder = self._begin_recording(data, *lanes[0][4:]) if record else None
            self._mapping = self._crew.set_up(single, self.single_action_space, self.num_envs)
        except BaseException:
            self.closed = True
            self._crew.end(0.0)
            raise
        self.copy = bool(copy)
        self.observation_mode = observation_mode
        self._columns = Columns(single, self.num_envs)
        self._actions = Actions(self.single_action_space, self.action_space, self.num_envs)
        self._others: list[list[Any]] = [[None] * self._columns.others for _ in range(self.num_envs)]
        self._slot = 0
        self._lane_slot = [0] * self.num_envs
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        self._losses = Losses(self.num_envs)
        self._pending: str | None = None
        self._reset_done = False
        # Lanes that were sent and not received; per worker those it has not been given; lane -> how it went.
        self._outstanding: set[int] = set()
        self._queued: list[list[int]] = [[] for _ in self._crew.ranges]
        self._items: dict[int, Any] = {}
        self._done: dict[int, str] = {}
        self._infos: dict[int, tuple[tuple[Any, Any] | None, dict[str, Any]]] = {}
        self._results: dict[int, list[tuple[bool, Any]]] = {}

    def _begin_recording(
        self, data: str | os.PathLike[str] | None, id: str, max_episode_steps: int | None
    ) -> HostedRecorder:
        from rollhouse.hosted_recording import HostedRecorder

        recorder = HostedRecorder(
            _data_folder(data),
            id,
            self.num_envs,
            self.autoreset_mode.value,
            max_episode_steps,
            self.single_observation_space,
            self.single_action_space,
        )
        _RECORDING.add(self)
        return recorder

    @property
    def recording(self) -> Recording | None:
        """Where it records, if it does; once closed, with figures."""
        return None if self._recorder is None else self._recorder.recording

    # Stepping

    def step(self, actions: Any) -> Step:
        """As ``VectorEnv.step``; fastest with arrays of exactly the action space's dtype and shape."""
        if self._is_quiet():
            arrays = self._actions.match(actions, self._resetting_next())
            if arrays is not None:
                for column, array in zip(self._mapping.actions, arrays, strict=True):
                    np.copyto(column, array)
                slot = 1 - self._slot
                try:
                    events = self._crew.host.exchange(worker.STEP | slot << 8, self.step_timeout)
                except BaseException:
                    # As a rule KeyboardInterrupt: the step goes on, and step_wait has what comes of it.
                    self._asked_to_step()
                    raise
                if events is None:
                    return self._deliver_all(slot)
                if events is not False:
                    self._asked_to_step()
                    self._absorb(events)
                    return self.step_wait()
                self._absorb(self._crew.host.events())
        self._check_usable()
        self.step_async(actions)
        return self.step_wait()

    def _asked_to_step(self) -> None:
        for index, (first, end) in enumerate(self._crew.ranges):
            self._crew.asked[index] = (worker.STEP, list(range(first, end)))
        self._outstanding.update(range(self.num_envs))
        self._pending = "step"

    def _is_quiet(self) -> bool:
        """Whether all lanes can be stepped at once, with nothing to look after."""
        return (
            not self.closed
            and self._pending is None
            and self._reset_done
            and not self._outstanding
            and not self._losses.away
            and self._pid == os.getpid()
            and not (self.autoreset_mode is AutoresetMode.DISABLED and self._over.any())
        )

    def _deliver_all(self, slot: int) -> Step:
        """The whole batch, every lane of which was stepped into ``slot`` and has nothing else to say."""
        mapping = self._mapping
        self._slot = slot
        self._lane_slot = [slot] * self.num_envs
        rewards, terminations, truncations = (
            mapping.rewards.copy(),
            mapping.terminations.copy(),
            mapping.truncations.copy(),
        )
        infos: dict[str, Any] = {}
        if self.info_layout == "default":
            valid = ~self._over if self.autoreset_mode is AutoresetMode.NEXT_STEP else _ones(self.num_envs)
            infos["valid"], infos["_valid"] = valid, _ones(self.num_envs)
        if self._recorder is not None:
            lanes = list(range(self.num_envs))
            observations = mapping.observations[slot][0]
            self._record(lanes, _ones(self.num_envs), {}, observations, rewards, terminations, truncations)
        self._over = terminations | truncations
        return self._frame(), rewards, terminations, truncations, infos

    def _frame(self) -> Any:
        """The current observations of all lanes."""
        arrays = self._mapping.observations[self._slot]
        if self.copy:
            arrays = [array.copy() for array in arrays]
        return self._columns.batch(arrays, self._others)

    def step_async(self, actions: Any) -> None:
        """Hands in actions for all lanes; ``step_wait`` gives what came of them.

        Raises:
            AlreadyPendingCallError: Another call is pending.
        """
        self._begin_call("step")
        if self._outstanding:
            raise OutstandingError(f"{len(self._outstanding)} lanes have been sent and not received")
        self._check_reset(range(self.num_envs))
        self._take_actions(actions, list(range(self.num_envs)))
        self._pending = "step"
        self._pump()

    def step_wait(self, timeout: float | None = None) -> Step:
        """What came of ``step_async``; blocks until all lanes are done.

        Args:
            timeout: Seconds to wait at most. The call stays pending when they are over. None for as long as it
                takes, which is bounded by ``step_timeout``.

        Raises:
            NoAsyncCallError: ``step_async`` was not called.
            multiprocessing.TimeoutError: The lanes are not done.
        """
        self._end_call("step")
        if not self._work_until(lambda: len(self._done) == self.num_envs, timeout):
            raise self._timed_out("step", timeout)
        self._pending = None
        lanes = list(range(self.num_envs))
        return self._deliver(lanes, self._gather_frame)

    def _gather_frame(self, lanes: list[int]) -> Any:
        """The next frame: every lane's last row in one slot."""
        target = 1 - self._slot
        stale = [lane for lane in lanes if self._lane_slot[lane] != target]
        if stale:
            for to, source in zip(
                self._mapping.observations[target], self._mapping.observations[1 - target], strict=True
            ):
                to[stale] = source[stale]
            for lane in stale:
                self._lane_slot[lane] = target
        self._slot = target
        return self._frame()

    def _gather_rows(self, lanes: list[int]) -> Any:
        """Copies of the last rows of some lanes."""
        return self._columns.batch(self._gather_columns(lanes), [self._others[lane] for lane in lanes])

    def _gather_columns(self, lanes: list[int]) -> list[np.ndarray]:
        arrays = []
        slots = np.array([self._lane_slot[lane] for lane in lanes])[:, None]
        for zero, one in zip(*self._mapping.observations, strict=True):
            choose = slots.reshape((-1,) + (1,) * (zero.ndim - 1))
            arrays.append(np.where(choose == 0, zero[lanes], one[lanes]))
        return arrays

    def _deliver(self, lanes: list[int], gather: Callable[[list[int]], Any]) -> Step:
        """The rows of lanes that are done, in this order; raises for lanes that were lost if it is to.

        What became of a lane is one of: stepped; began (an episode, after a loss); absent (its env is not back);
        lost (just now).
        """
        how = [self._done.pop(lane) for lane in lanes]
        said = {lane: self._infos.pop(lane) for lane in lanes if lane in self._infos}
        self._outstanding.difference_update(lanes)
        observations = gather(lanes)
        index = np.array(lanes, dtype=np.intp)
        stepped = np.array([kind == "stepped" for kind in how], dtype=np.bool_)
        rewards = np.where(stepped, self._mapping.rewards[index], 0.0)
        terminations = self._mapping.terminations[index] & stepped
        truncations = self._mapping.truncations[index] & stepped
        valid = stepped & ~self._over[index] if self.autoreset_mode is AutoresetMode.NEXT_STEP else stepped.copy()
        if self._recorder is not None:
            self._record_rows(lanes, how, said, rewards, terminations, truncations)
        self._over[index] = terminations | truncations
        infos = self._add_infos(lanes, said)
        if self.info_layout == "default":
            infos["valid"], infos["_valid"] = valid, _ones(len(lanes))
        lost = self._losses.take_told(lane for lane, kind in zip(lanes, how, strict=True) if kind == "lost")
        if lost:
            if self._recorder is not None:
                self._recorder.lose(lost)
            if self.on_loss == "raise":
                raise self._losses.error(lost)
            row_of = {lane: row for row, lane in enumerate(lanes)}
            rows = [row_of[lane] for lane in lost]
            truncations[rows] = True
            self._add_lost(infos, rows, [loss.outcome for loss in lost.values()], len(lanes))
            if self.info_layout != "default":
                infos["valid"], infos["_valid"] = valid, _ones(len(lanes))
        if not stepped.any() and self._losses.all_failed():
            raise LaneLostError("every lane is lost for good", tuple(range(self.num_envs)))
        if self.info_layout == "0.29":
            from rollhouse.info_layout import infos_of_029

            infos = infos_of_029(infos, len(lanes))
        return observations, rewards, terminations, truncations, infos

    @staticmethod
    def _add_lost(infos: dict[str, Any], rows: list[int], outcomes: list[str], count: int) -> None:
        told, mask = np.full(count, None, dtype=object), np.zeros(count, dtype=np.bool_)
        for row, outcome in zip(rows, outcomes, strict=True):
            told[row], mask[row] = outcome, True
        infos["lost"], infos["_lost"] = told, mask

    def _add_infos(self, lanes: list[int], said: dict[int, Any]) -> dict[str, Any]:
        """Infos of some lanes in the layout of the installed Gymnasium."""
        infos: dict[str, Any] = {}
        if said:
            # Its own `_add_info`, for as many rows as there are.
            adder: gymnasium.vector.VectorEnv = self
            if len(lanes) != self.num_envs:
                adder = gymnasium.vector.VectorEnv()
                adder.num_envs = len(lanes)
            for row, lane in enumerate(lanes):
                final, info = said.get(lane, (None, None))
                if final is not None:
                    infos = adder._add_info(infos, {"final_obs": final[0], "final_info": final[1]}, row)
                if info:
                    infos = adder._add_info(infos, info, row)
        return infos

    # Recording

    def _record(
        self,
        lanes: list[int],
        stepped: np.ndarray,
        finals: dict[int, Any],
        observations: np.ndarray,
        rewards: np.ndarray,
        terminations: np.ndarray,
        truncations: np.ndarray,
    ) -> None:
        """Records a step of ``lanes``. All arrays have N rows; ``stepped`` says which lanes have an env that did
        something, ``finals`` has terminal observations that are not in ``observations``."""
        recorder = self._recorder
        assert recorder is not None
        begun = stepped & self._over if self.autoreset_mode is AutoresetMode.NEXT_STEP else np.zeros_like(stepped)
        seen = observations
        if finals:
            seen = observations.copy()
            for lane, final in finals.items():
                seen[lane] = final
        recorder.step(stepped & ~begun, self._mapping.actions[0], seen, rewards, terminations, truncations)
        first = [*np.flatnonzero(begun).tolist(), *finals]
        recorder.begin(first, [None] * len(first), observations)

    def _record_rows(
        self,
        lanes: list[int],
        how: list[str],
        said: dict[int, Any],
        rewards: np.ndarray,
        terminations: np.ndarray,
        truncations: np.ndarray,
    ) -> None:
        """Records rows of lanes of any fate."""
        recorder = self._recorder
        assert recorder is not None
        observations = recorder.spread(lanes, self._gather_columns(lanes)[0])
        finals = {lane: final[0] for lane, (final, _) in said.items() if final is not None}
        stepped = recorder.spread(lanes, np.array([kind == "stepped" for kind in how], dtype=np.bool_))
        spread = [recorder.spread(lanes, rows) for rows in (rewards, terminations, truncations)]
        self._record(lanes, stepped, finals, observations, *spread)
        first = [lane for lane, kind in zip(lanes, how, strict=True) if kind == "began"]
        recorder.begin(first, [None] * len(first), observations)

    # Actions

    def _take_actions(self, actions: Any, lanes: list[int]) -> None:
        """Checks actions and puts them where the workers find them, one per lane of ``lanes``."""
        arrays, items = self._actions.take(actions, lanes, self._resetting_next())
        if arrays is None:
            if self._recorder is not None:
                self._mapping.actions[0][lanes] = np.asarray(items)
            self._items.update(zip(lanes, items, strict=True))
        else:
            for column, array in zip(self._mapping.actions, arrays, strict=True):
                column[lanes] = array
        for lane in lanes:
            self._queued[self._crew.worker_of[lane]].append(lane)
        self._outstanding.update(lanes)

    def _resetting_next(self) -> np.ndarray | None:
        """The lanes that the next step resets, whatever their action is."""
        return self._over if self.autoreset_mode is AutoresetMode.NEXT_STEP else None

    # Work

    def _pump(self) -> None:
        """Gives every idle worker what is queued for it; lanes without an env are done at once."""
        for index, queued in enumerate(self._queued):
            if queued and (not self._crew.up[index] or self._crew.asked[index] is None):
                self._queued[index] = []
                self._dispatch(index, sorted(queued))

    def _dispatch(self, index: int, lanes: list[int]) -> None:
        first, up = self._crew.ranges[index][0], self._crew.up[index]
        fresh = self._losses.begin(lanes, time.monotonic()) if up and self._losses.away else {}
        absent = [lane for lane in lanes if lane in self._losses.away and lane not in fresh]
        for lane in absent:
            self._done[lane] = "lost" if self._losses.is_untold(lane) else "absent"
            self._items.pop(lane, None)
        if absent:
            lanes = [lane for lane in lanes if lane not in self._done]
        if lanes:
            items = {lane - first: self._items.pop(lane) for lane in lanes if lane in self._items}
            entries = [(lane - first, 1 - self._lane_slot[lane]) for lane in lanes]
            local = {lane - first: (None, None, anew) for lane, anew in fresh.items()}
            anew = any(fresh.values())
            timeout = _longest(self.step_timeout, self.launch_timeout) if anew else self.step_timeout
            self._crew.post(index, worker.BATCH, lanes, (entries, items, local), timeout)

    def _work_until(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Looks after the workers until ``done``; whether that was within ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not done():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._crew.host.wait("event", left):
                return False
            self._absorb(self._crew.host.events())
            self._pump()
        return True

    def _absorb(self, events: Iterable[tuple[Any, ...]]) -> None:
        """Takes note of what happened to workers."""
        for kind, index, *rest in events:
            asked, self._crew.asked[index] = self._crew.asked[index], None
            if kind == "ready":
                made, _ = pickle.loads(rest[0])
                if made == "made":
                    self._crew.greet(index)
                else:
                    # It ends now, which counts as another failure.
                    self._crew.post(index, worker.CLOSE, [], None, self.launch_timeout)
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
                self._done[lane] = "lost" if self._losses.is_untold(lane) else "absent"
        elif command in (worker.CALL, worker.SET):
            self._results[index] = [(False, (error, ""))] * len(lanes)

    def _take_reply(self, index: int, command: int, lanes: list[int], payload: bytes) -> None:
        first = self._crew.ranges[index][0]
        if command == worker.SETUP:
            self._crew.up[index] = True
            self._losses.worker_back(range(*self._crew.ranges[index]))
        elif command in (worker.CALL, worker.SET):
            self._results[index] = pickle.loads(payload)
        elif command in (worker.STEP, worker.BATCH, worker.RESET):
            said = pickle.loads(payload) if payload else {}
            lost = said.get("lost", {})
            for lane in lanes:
                if lane - first in lost:
                    error, trace = lost[lane - first]
                    self._losses.lane_lost(lane, error, trace, time.monotonic())
                    self._done[lane] = "lost" if self._losses.is_untold(lane) else "absent"
                else:
                    self._done[lane] = "began" if self._losses.has_begun(lane) else "stepped"
                    self._lane_slot[lane] = 1 - self._lane_slot[lane]
            for local, others in said.get("others", {}).items():
                self._others[first + local] = others
            for local, final, info in said.get("infos", ()):
                self._infos[first + local] = (final, info)

    # First-done

    def _send(self, actions: Any, env_ids: Any) -> None:
        if self._pending is not None:
            raise AlreadyPendingCallError(
                f"Calling `send` while waiting for a pending call to `{self._pending}` to complete.", self._pending
            )
        ids = np.arange(self.num_envs) if env_ids is None else np.asarray(env_ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise TypeError(f"env_ids={env_ids!r} must be a sequence of lane indices")
        lanes = ids.tolist()
        for lane in lanes:
            if not 0 <= lane < self.num_envs:
                raise IndexError(f"env_ids: lane {lane} of a batch of {self.num_envs}")
            if lane in self._outstanding:
                raise OutstandingError(f"lane {lane} has been sent and not received")
        if len(set(lanes)) != len(lanes):
            raise OutstandingError(f"env_ids={env_ids!r} names a lane twice")
        self._check_reset(lanes)
        if lanes:
            self._take_actions(actions, lanes)
            self._pump()

    def _recv(self, min_envs: int | None, timeout: float | None) -> Step:
        if self._pending is not None:
            raise AlreadyPendingCallError(
                f"Calling `recv` while waiting for a pending call to `{self._pending}` to complete.", self._pending
            )
        wanted = len(self._outstanding) if min_envs is None else min_envs
        if not 0 < wanted <= len(self._outstanding):
            raise NothingOutstandingError(f"{len(self._outstanding)} lanes are outstanding; {max(wanted, 1)} are wanted")
        if not self._work_until(lambda: len(self._done) >= wanted, timeout):
            raise TimeoutError(f"recv: {len(self._done)} of {wanted} lanes were done within timeout={timeout} s")
        lanes = sorted(self._done)
        step = self._deliver(lanes, self._gather_rows)
        step[4]["env_id"] = np.array(lanes, dtype=np.int64)
        return step

    # Resetting

    def _reset(
        self, seeds: list[int | None], mask: np.ndarray | None, options: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any]]:
        self._begin_reset(seeds, mask, options)
        return self.reset_wait()

    def reset_async(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Begins what ``reset`` does; ``reset_wait`` gives what came of it. Waits for lost envs that are to be reset.

        Raises:
            AlreadyPendingCallError: Another call is pending.
        """
        self._check_usable()
        seeds = self._parse_seeds(seed)
        self._begin_reset(seeds, *self._split_options(options))

    def _begin_reset(
        self, seeds: list[int | None], mask: np.ndarray | None, options: dict[str, Any] | None
    ) -> None:
        self._begin_call("reset")
        lanes = list(range(self.num_envs)) if mask is None else np.flatnonzero(mask).tolist()
        if self._first_seeds is not None:
            if all(seed is None for seed in seeds):
                seeds = self._first_seeds
            self._first_seeds = None
        if mask is None:
            # Results of lanes that were sent are not wanted any more.
            self._work_until(lambda: self._outstanding <= self._done.keys(), None)
            for lane in self._outstanding:
                self._done.pop(lane)
                self._infos.pop(lane, None)
            self._outstanding.clear()
        elif self._outstanding:
            raise OutstandingError(f"{len(self._outstanding)} lanes have been sent and not received")
        anew = self._recover(lanes) if self._losses.away else {}
        self._resetting, self._reset_seeds = lanes, seeds
        for index, (first, end) in enumerate(self._crew.ranges):
            own = [lane for lane in lanes if first <= lane < end]
            here = [lane for lane in own if lane not in self._losses.away or lane in anew]
            for lane in own:
                if lane not in here:
                    self._done[lane] = "absent"
            if here:
                entries = [(lane - first, 1 - self._lane_slot[lane], seeds[lane], anew.get(lane, False)) for lane in here]
                timeout = self.reset_timeout
                if any(anew.get(lane, False) for lane in here):
                    timeout = _longest(timeout, self.launch_timeout)
                self._crew.post(index, worker.RESET, here, (entries, options), timeout)
        self._outstanding.update(lanes)
        self._pending = "reset"

    def _recover(self, lanes: list[int]) -> dict[int, bool]:
        """Waits until the lost envs of these lanes can be reset, for at most ``reset_timeout``. Returns those that
        can be, and whether their env has to be made anew first."""
        deadline = None if self.reset_timeout is None else time.monotonic() + self.reset_timeout

        def left() -> float | None:
            return None if deadline is None else max(0.0, deadline - time.monotonic())

        wanted = {self._crew.worker_of[lane] for lane in lanes if lane in self._losses.away}
        while any(not self._crew.up[w] and self._crew.host.state(w) != "failed" for w in wanted):
            in_time = self._crew.host.wait("back", left())
            self._absorb(self._crew.host.events())
            in_time = in_time and self._crew.host.wait("replies", left())
            self._absorb(self._crew.host.events())
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

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """What came of ``reset_async``; blocks until all lanes have been reset.

        Raises:
            NoAsyncCallError: ``reset_async`` was not called.
            multiprocessing.TimeoutError: ``timeout`` seconds are over; the call stays pending.
        """
        self._end_call("reset")
        lanes = self._resetting
        if not self._work_until(lambda: len(self._done) == len(lanes), timeout):
            raise self._timed_out("reset", timeout)
        self._pending = None
        missing = [lane for lane in lanes if self._done[lane] in ("lost", "absent")]
        for lane in lanes:
            del self._done[lane]
        self._outstanding.clear()
        self._over[lanes] = False
        self._reset_done = True
        observations = self._gather_frame(list(range(self.num_envs)))
        said = {lane: self._infos.pop(lane) for lane in lanes if lane in self._infos}
        infos = self._add_infos(list(range(self.num_envs)), said)
        lost = self._losses.take_told(missing)
        if self._recorder is not None:
            self._recorder.lose(lost)
            begun = [lane for lane in lanes if lane not in missing]
            seeds = [self._reset_seeds[lane] for lane in begun]
            self._recorder.begin(begun, seeds, self._mapping.observations[self._slot][0])
        if missing:
            if self.on_loss == "raise" or self._losses.all_failed():
                raise self._losses.error(lost) if lost else self._losses.absence(missing)
            self._add_lost(infos, list(lost), [loss.outcome for loss in lost.values()], self.num_envs)
            infos["valid"], infos["_valid"] = _ones(self.num_envs), _ones(self.num_envs)
            infos["valid"][missing] = False
        return observations, infos

    # Calls

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begins what ``call`` does; ``call_wait`` gives the results.

        Raises:
            AlreadyPendingCallError: Another call is pending.
            LaneLostError: A lane has no env.
        """
        self._check_usable()
        if name in ("reset", "step", "close"):
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        self._begin_calls(worker.CALL, [(name, args, kwargs)] * len(self._crew.ranges))

    def _begin_calls(self, command: int, payloads: Sequence[Any]) -> None:
        self._begin_call("call")
        if self._outstanding:
            raise OutstandingError(f"{len(self._outstanding)} lanes have been sent and not received")
        if self._losses.away:
            raise self._losses.absence(sorted(self._losses.away))
        self._results = {}
        for index, ((first, end), payload) in enumerate(zip(self._crew.ranges, payloads, strict=True)):
            self._crew.post(index, command, list(range(first, end)), payload, self.call_timeout)
        self._pending = "call"

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """The results of ``call_async``, one per lane; blocks until all envs have answered.

        Raises:
            NoAsyncCallError: ``call_async`` was not called.
            multiprocessing.TimeoutError: ``timeout`` seconds are over; the call stays pending.
            Exception: What the env of the first lane that failed raised. No lane is lost by that.
        """
        self._end_call("call")
        if not self._work_until(lambda: len(self._results) == len(self._crew.ranges), timeout):
            raise self._timed_out("call", timeout)
        self._pending = None
        results = [result for index in range(len(self._crew.ranges)) for result in self._results[index]]
        for lane, (worked, value) in enumerate(results):
            if not worked:
                error, text = value
                if isinstance(error, LaneLostError):
                    raise error
                raise error from LaneLostError(f"the call of lane {lane} raised\n{text}", (lane,))
        return tuple(value for _, value in results)

    def _set_attr(self, name: str, values: list[Any]) -> None:
        self._begin_calls(worker.SET, [(name, values[first:end]) for first, end in self._crew.ranges])
        self.call_wait()

    def render(self) -> tuple[Any, ...] | None:
        """The rendered frames of all lanes, as their envs' ``render`` returns them."""
        return self.call("render")

    @property  # type: ignore[misc]
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every lane's generator, asked of its env."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy of every lane's generator."""
        return self.get_attr("np_random")

    # Checks

    def _check_reset(self, lanes: Iterable[int]) -> None:
        if not self._reset_done:
            raise ResetNeededError("the lanes have not been reset")
        if self.autoreset_mode is AutoresetMode.DISABLED:
            for lane in lanes:
                if self._over[lane]:
                    raise ResetNeededError(f"the episode of lane {lane} is over, and autoreset_mode is DISABLED")
        if self.on_loss == "raise" and self._losses.away:
            lost = [lane for lane in lanes if lane in self._losses.away and not self._losses.is_untold(lane)]
            if lost:
                raise self._losses.absence(lost)

    def _begin_call(self, name: str) -> None:
        self._check_usable()
        if self._pending is not None:
            raise AlreadyPendingCallError(
                f"Calling `{name}_async` while waiting for a pending call to `{self._pending}` to complete.",
                self._pending,
            )

    def _end_call(self, name: str) -> None:
        self._check_usable()
        if self._pending != name:
            raise NoAsyncCallError(f"Calling `{name}_wait` without any prior call to `{name}_async`.", name)

    @staticmethod
    def _timed_out(name: str, timeout: float | None) -> Exception:
        return multiprocessing.TimeoutError(f"The call to `{name}_wait` has timed out after {timeout} second(s).")

    def _close(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """``timeout``: seconds for a pending call and for the envs to close; ``terminate``: kill them at once."""
        if self._pending is not None:
            gymnasium.logger.warn(
                f"Calling `close` while waiting for a pending call to `{self._pending}` to complete."
            )
        host = self._crew.host
        if self._recorder is not None:
            _RECORDING.discard(self)
            self._recorder.close()
        try:
            if not terminate:
                host.wait("replies", timeout)
                host.events()
                for index in range(len(self._crew.ranges)):
                    if host.state(index) == "idle":
                        host.post(index, worker.CLOSE, b"", timeout or CLOSE_TIMEOUT)
                host.wait("replies", timeout or CLOSE_TIMEOUT)
        finally:
            self._crew.end(0.0 if terminate else 1.0)
            # Views of the shared memory that were handed out keep it; nothing else does.
            del self._mapping


def _ones(count: int) -> np.ndarray:
    return np.ones(count, dtype=np.bool_)


def _longest(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)
