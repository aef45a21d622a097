"""The vector env whose lanes are Python envs in worker processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse import _native
from rollhouse.embedded import _RECORDING, Recording, _data_folder
from rollhouse.errors import (
    LaneLostError,
    NothingOutstandingError,
    OutstandingError,
    ResetNeededError,
)
from rollhouse.hosted import worker
from rollhouse.hosted.actions import Actions
from rollhouse.hosted.columns import Columns
from rollhouse.hosted.crew import MAX_WORKERS, Crew, EnvFn, cores
from rollhouse.hosted.infos import Said, add_lost, batch_infos, say_valid
from rollhouse.hosted.lanes import HostedLanes
from rollhouse.hosted.losses import Losses
from rollhouse.hosted.observation_modes import (
    batch_observation_spaces,
    check_action_space,
    check_observation_mode,
    check_observation_space,
)
from rollhouse.hosted.pending_call import PendingCall
from rollhouse.hosted.rows import Rows
from rollhouse.vector import DEFAULT_TIMEOUT, InfoLayout, ShowValid, Step, VectorEnv, parse_autoreset_mode, show_valid

if TYPE_CHECKING:
    from rollhouse.hosted.recording import HostedRecorder

LAUNCH_TIMEOUT = 120.0
"""Seconds from the start of a worker process until all of its envs are made."""

CLOSE_TIMEOUT = 10.0
"""Seconds that envs have to close themselves."""

MAX_LANES = 65_536
"""Most lanes of one vector env."""


class HostedVectorEnv(VectorEnv, gymnasium.vector.VectorEnv):
    """N Python envs in worker processes, stepped over one shared mapping.

    ``rollhouse.vectorize`` makes it. A worker has ``launch_timeout`` from its start until its envs are made. Workers
    start with the vector env if the functions differ, whose spaces then have to be compared; if all lanes have the
    same function, one starts and the others follow at the first ``reset`` or ``call``. The functions are sent to new processes with cloudpickle and called there:
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
        valid: ShowValid = "needed",
        statistics: bool = False,
        step_timeout: float | None = DEFAULT_TIMEOUT,
        reset_timeout: float | None = DEFAULT_TIMEOUT,
        call_timeout: float | None = DEFAULT_TIMEOUT,
        launch_timeout: float | None = LAUNCH_TIMEOUT,
        record: bool = False,
        record_frames: int | None = None,
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
        if record_frames is not None:
            if isinstance(record_frames, bool) or not isinstance(record_frames, int) or record_frames < 1:
                raise ValueError(f"record_frames={record_frames!r} must be an integer of at least 1, or None")
            if not record:
                raise ValueError(f"record_frames={record_frames!r} is used only with record=True")
        self.reset_timeout, self.call_timeout = reset_timeout, call_timeout
        mode = parse_autoreset_mode(autoreset_mode)
        check_observation_mode(observation_mode)
        # Lanes are spread evenly, so with fewer lanes than workers some would have none.
        alike = observation_mode == "same" and all(fn is env_fns[0] for fn in env_fns)
        every = record_frames or 0
        self._crew = Crew(
            env_fns, min(workers, len(env_fns)), mode, launch_timeout, alike=alike, frames_every=every
        )
        try:
            lanes = self._crew.describe()
            observation_spaces = [lane[0] for lane in lanes]
            # Lanes that are not made yet are like the first.
            observation_spaces += observation_spaces[:1] * (len(env_fns) - len(lanes))
            single, batched = batch_observation_spaces(observation_spaces, observation_mode)
            for lane, (_, action_space, *_) in enumerate(lanes):
                check_action_space(lane, action_space, lanes[0][1])
            super().__init__(
                num_envs=len(env_fns),
                single_observation_space=single,
                single_action_space=lanes[0][1],
                observation_space=batched,
                autoreset_mode=mode,
                metadata=dict(lanes[0][2]),
                info_layout=info_layout,
                valid=valid,
                on_loss="raise" if on_loss is None else on_loss,
                render_mode=lanes[0][3],
                statistics=statistics,
            )
            if every and self.render_mode != "rgb_array":
                message = f"record_frames={every}: the envs were made with render_mode={self.render_mode!r}"
                raise ValueError(f"{message}, so that they give no pictures; 'rgb_array' is needed")
            self._first_seeds = None if seed is None else self._parse_seeds(seed)
            self._recorder = self._begin_recording(data, *lanes[0][4:], every) if record else None
            self._mapping = self._crew.set_up(single, self.single_action_space, self.num_envs)
        except BaseException:
            self.closed = True
            self._crew.end(0.0)
            raise
        self.copy = bool(copy)
        self._show_valid = show_valid(info_layout, valid)
        self.observation_mode = observation_mode
        self._rows = Rows(self._mapping, Columns(single, self.num_envs), self.num_envs)
        self._actions = Actions(self.single_action_space, self.action_space, self.num_envs)
        self._losses = Losses(self.num_envs)
        self._lanes = HostedLanes(self._crew, self._losses, self._rows, step_timeout)
        self._pending = PendingCall()
        self._all_lanes = list(range(self.num_envs))
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        self._abandoned = False
        self._warned_unpainted = False
        self._episodes = _native.EpisodeStatistics(self.num_envs) if self.episode_statistics else None

    def _launch_rest(self) -> None:
        """Starts the workers that were not needed so far. If that fails, the vector env is closed."""
        if self._crew.launched == len(self._crew.ranges):
            return
        try:
            self._crew.launch_rest(self._check_late_lane)
        except BaseException:
            self.close(terminate=True)
            raise

    def _check_late_lane(self, lane: int, made: tuple[Any, ...]) -> None:
        observation_space, action_space, *_ = made
        check_observation_space(lane, observation_space, self.single_observation_space, self.observation_mode)
        check_action_space(lane, action_space, self.single_action_space)

    def _begin_recording(
        self, data: str | os.PathLike[str] | None, id: str, max_episode_steps: int | None, frames_every: int
    ) -> HostedRecorder:
        from rollhouse.hosted.recording import HostedRecorder

        recorder = HostedRecorder(
            _data_folder(data),
            id,
            self.num_envs,
            self.autoreset_mode.value,
            max_episode_steps,
            self.single_observation_space,
            self.single_action_space,
            frames_every,
        )
        _RECORDING.add(self)
        return recorder

    @property
    def recording(self) -> Recording | None:  # type: ignore[override]
        """The place where it records, if it does; once closed, with figures."""
        return None if self._recorder is None else self._recorder.recording

    @property
    def step_timeout(self) -> float | None:
        """Seconds a worker has for a batch of its lanes; None for ever."""
        return self._lanes.step_timeout

    @step_timeout.setter
    def step_timeout(self, seconds: float | None) -> None:
        self._lanes.step_timeout = seconds

    @property
    def launch_timeout(self) -> float | None:
        """Seconds a worker has from its start until all of its envs are made; None for ever."""
        return self._crew.launch_timeout

    # Stepping

    def step(self, actions: Any) -> Step:
        """Steps as ``VectorEnv.step`` does; fastest with arrays of exactly the action space's dtype and shape."""
        if self._is_quiet():
            arrays = self._actions.match(actions, self._resetting_next())
            if arrays is not None:
                for column, array in zip(self._mapping.actions, arrays, strict=True):
                    np.copyto(column, array)
                slot = self._rows.next_slot
                self._pending.name = "step"
                try:
                    events = self._crew.host.exchange(worker.STEP | slot << 8, self._lanes.step_timeout)
                except BaseException:
                    # As a rule KeyboardInterrupt.
                    self._lanes.all_told_to_step()
                    self._abandon()
                    raise
                self._pending.name = None
                if events is None:
                    return self._deliver_all(slot, Said())
                if events is not False:
                    said = self._lanes.plain(events)
                    if said is not None:
                        return self._deliver_all(slot, said)
                    self._lanes.all_told_to_step()
                    self._pending.name = "step"
                    self._lanes.absorb(events)
                    return self._whole(self.step_wait)
                self._lanes.absorb(self._crew.host.events())
        self._check_usable()
        self.step_async(actions)
        return self._whole(self.step_wait)

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

    def _is_quiet(self) -> bool:
        """Returns whether all lanes can be stepped at once, with nothing to look after."""
        return (
            not self.closed
            and self._pending.name is None
            and self._reset_done
            and not self._lanes.outstanding
            and not self._losses.away
            and self._pid == os.getpid()
            and not (self.autoreset_mode is AutoresetMode.DISABLED and self._over.any())
        )

    def _deliver_all(self, slot: int, said: Said) -> Step:
        """Returns the result of a whole batch, every lane of which was stepped into ``slot``."""
        mapping = self._mapping
        self._rows.all_written(slot)
        rewards, terminations, truncations = (
            mapping.rewards.copy(),
            mapping.terminations.copy(),
            mapping.truncations.copy(),
        )
        infos = batch_infos(self, self._all_lanes, said)
        valid = ~self._over if self.autoreset_mode is AutoresetMode.NEXT_STEP else _ones(self.num_envs)
        say_valid(infos, valid, self._show_valid)
        if self._episodes is not None:
            self._episodes.step(infos, range(self.num_envs), rewards, terminations, truncations, ~valid)
        if self._recorder is not None:
            stepped, ends = _ones(self.num_envs), (rewards, terminations, truncations)
            finals = {lane: final[0] for lane, (final, _) in said.items() if final is not None}
            columns = mapping.actions[0], self._rows.current(), *ends
            self._recorder.step(stepped, self._over, finals, *columns, said.frames)
            self._warn_unpainted(said)
        self._over = terminations | truncations
        if self.info_layout == "0.29" and infos:
            from rollhouse.info_layout import infos_of_029

            infos = infos_of_029(infos, self.num_envs)
        return self._rows.frame(self.copy), rewards, terminations, truncations, infos

    def _warn_unpainted(self, said: Said) -> None:
        """Warns once that an env gave no picture that was to be recorded."""
        if said.unpainted is not None and not self._warned_unpainted:
            self._warned_unpainted = True
            message = f"record_frames: a picture is missing in the recording, and others may be: {said.unpainted}"
            gymnasium.logger.warn(message)

    def _set_policy_version(self, version: int) -> None:
        if self._recorder is not None:
            self._recorder.policy_version(version)

    def step_async(self, actions: Any) -> None:
        """Begins a step with actions for all lanes; ``step_wait`` returns its result.

        Raises:
            AlreadyPendingCallError: Another call is pending.
        """
        self._begin_call("step")
        self._check_reset(range(self.num_envs))
        self._check_none_outstanding()
        self._take_actions(actions, list(range(self.num_envs)))
        self._pending.name = "step"
        self._lanes.pump()

    def step_wait(self, timeout: float | None = None) -> Step:
        """Returns the result of ``step_async``; blocks until all lanes are done.

        Args:
            timeout: Seconds to wait at most. The call stays pending when they are over. None for as long as it
                takes, which is bounded by ``step_timeout``.

        Raises:
            NoAsyncCallError: ``step_async`` was not called.
            multiprocessing.TimeoutError: The lanes are not done.
        """
        self._end_call("step")
        if not self._lanes.work_until(lambda: len(self._lanes.done) == self.num_envs, timeout):
            raise self._pending.timed_out(timeout)
        self._pending.name = None
        return self._deliver(list(range(self.num_envs)), lambda: self._rows.join(self.copy))

    def _deliver(self, lanes: list[int], gather: Callable[[], Any]) -> Step:
        """Returns the rows of lanes that are done, in this order. Raises for lanes that were lost, if ``on_loss`` says
        so.

        ``gather`` gives their observations.
        """
        how, said = self._lanes.take(lanes)
        observations = gather()
        index = np.array(lanes, dtype=np.intp)
        stepped = np.array([kind == "stepped" for kind in how], dtype=np.bool_)
        rewards = np.where(stepped, self._mapping.rewards[index], 0.0)
        terminations = self._mapping.terminations[index] & stepped
        truncations = self._mapping.truncations[index] & stepped
        valid = stepped & ~self._over[index] if self.autoreset_mode is AutoresetMode.NEXT_STEP else stepped.copy()
        if self._recorder is not None:
            columns = self._mapping.actions[0], self._rows.gather_columns(lanes), rewards, terminations, truncations
            self._recorder.step_rows(lanes, how, said, self._over, *columns)
            self._warn_unpainted(said)
        self._over[index] = terminations | truncations
        infos = batch_infos(self, lanes, said)
        say_valid(infos, valid, self._show_valid, are_lost=not stepped.all())
        if self._episodes is not None:
            self._episodes.step(infos, lanes, rewards, terminations, truncations, ~valid)
        lost = self._losses.take_told(lane for lane, kind in zip(lanes, how, strict=True) if kind == "lost")
        if lost:
            if self._recorder is not None:
                self._recorder.lose(lost)
            if self.on_loss == "raise":
                raise self._losses.error(lost)
            row_of = {lane: row for row, lane in enumerate(lanes)}
            rows = [row_of[lane] for lane in lost]
            truncations[rows] = True
            add_lost(infos, rows, [loss.outcome for loss in lost.values()], len(lanes))
        if not stepped.any() and self._losses.all_failed():
            raise LaneLostError("every lane is lost for good", tuple(range(self.num_envs)))
        if self.info_layout == "0.29":
            from rollhouse.info_layout import infos_of_029

            infos = infos_of_029(infos, len(lanes))
        return observations, rewards, terminations, truncations, infos

    # Actions

    def _take_actions(self, actions: Any, lanes: list[int]) -> None:
        """Checks actions and puts them where the workers find them, one per lane of ``lanes``."""
        arrays, items = self._actions.take(actions, lanes, self._resetting_next())
        if arrays is None:
            if self._recorder is not None:
                self._mapping.actions[0][lanes] = np.asarray(items)
        else:
            for column, array in zip(self._mapping.actions, arrays, strict=True):
                column[lanes] = array
        self._lanes.queue(lanes, items if arrays is None else None)

    def _resetting_next(self) -> np.ndarray | None:
        """Returns the lanes that the next step resets, whatever their action is."""
        return self._over if self.autoreset_mode is AutoresetMode.NEXT_STEP else None

    # First-done

    def _send(self, actions: Any, env_ids: Any) -> None:
        self._pending.check_none("send")
        ids = np.arange(self.num_envs) if env_ids is None else np.asarray(env_ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise TypeError(f"env_ids={env_ids!r} must be a sequence of lane indices")
        lanes = ids.tolist()
        for lane in lanes:
            if not 0 <= lane < self.num_envs:
                raise IndexError(f"env_ids: lane {lane} of a batch of {self.num_envs}")
            if lane in self._lanes.outstanding:
                raise OutstandingError(f"lane {lane} has been sent and not received")
        if len(set(lanes)) != len(lanes):
            raise OutstandingError(f"env_ids={env_ids!r} names a lane twice")
        self._check_reset(lanes)
        if lanes:
            self._take_actions(actions, lanes)
            self._lanes.pump()

    def _recv(self, min_envs: int | None, timeout: float | None) -> Step:
        self._pending.check_none("recv")
        outstanding, done = self._lanes.outstanding, self._lanes.done
        wanted = len(outstanding) if min_envs is None else min_envs
        if not 0 < wanted <= len(outstanding):
            raise NothingOutstandingError(f"{len(outstanding)} lanes are outstanding; {max(wanted, 1)} are wanted")
        if not self._lanes.work_until(lambda: len(done) >= wanted, timeout):
            raise TimeoutError(f"recv: {len(done)} of {wanted} lanes were done within timeout={timeout} s")
        lanes = sorted(done)
        step = self._deliver(lanes, lambda: self._rows.gather(lanes))
        step[4]["env_id"] = np.array(lanes, dtype=np.int64)
        return step

    # Resetting

    def _reset(
        self, seeds: list[int | None], mask: np.ndarray | None, options: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any]]:
        self._begin_reset(seeds, mask, options)
        return self._whole(self.reset_wait)

    def reset_async(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Begins what ``reset`` does; ``reset_wait`` returns its result. Waits for lost envs that are to be reset.

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
        self._launch_rest()
        lanes = list(range(self.num_envs)) if mask is None else np.flatnonzero(mask).tolist()
        if self._first_seeds is not None:
            if all(seed is None for seed in seeds):
                seeds = self._first_seeds
            self._first_seeds = None
        self._settle()
        if mask is None:
            # Results of lanes that were sent are not wanted any more.
            self._lanes.drop()
        else:
            self._check_none_outstanding()
        anew = self._lanes.recover(lanes, self.reset_timeout) if self._losses.away else {}
        self._resetting, self._reset_seeds = lanes, seeds
        self._lanes.reset(lanes, seeds, options, anew, self.reset_timeout)
        self._pending.name = "reset"

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Returns the result of ``reset_async``; blocks until all lanes have been reset.

        Raises:
            NoAsyncCallError: ``reset_async`` was not called.
            multiprocessing.TimeoutError: ``timeout`` seconds are over; the call stays pending.
        """
        self._end_call("reset")
        lanes = self._resetting
        if not self._lanes.work_until(lambda: len(self._lanes.done) == len(lanes), timeout):
            raise self._pending.timed_out(timeout)
        self._pending.name = None
        how, said = self._lanes.take(lanes)
        missing = [lane for lane, kind in zip(lanes, how, strict=True) if kind in ("lost", "absent")]
        self._over[lanes] = False
        self._reset_done = True
        if self._episodes is not None:
            self._episodes.begin(lanes)
        observations = self._rows.join(self.copy)
        infos = batch_infos(self, list(range(self.num_envs)), said)
        lost = self._losses.take_told(missing)
        if self._recorder is not None:
            self._recorder.lose(lost)
            begun = [lane for lane in lanes if lane not in missing]
            seeds = [self._reset_seeds[lane] for lane in begun]
            self._recorder.begin(begun, seeds, self._rows.current(), said.frames)
            self._warn_unpainted(said)
        if missing:
            if self.on_loss == "raise" or self._losses.all_failed():
                raise self._losses.error(lost) if lost else self._losses.absence(missing)
            add_lost(infos, list(lost), [loss.outcome for loss in lost.values()], self.num_envs)
            valid = _ones(self.num_envs)
            valid[missing] = False
            say_valid(infos, valid, self._show_valid, are_lost=True)
        return observations, infos

    # Calls

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
        self._begin_calls(worker.CALL, [(name, args, kwargs)] * len(self._crew.ranges))

    def _begin_calls(self, command: int, payloads: Sequence[Any]) -> None:
        self._begin_call("call")
        self._settle()
        self._check_none_outstanding()
        self._launch_rest()
        if self._losses.away:
            raise self._losses.absence(sorted(self._losses.away))
        self._lanes.call(command, payloads, self.call_timeout)
        self._pending.name = "call"

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Returns the results of ``call_async``, one per lane; blocks until all envs have answered.

        Raises:
            NoAsyncCallError: ``call_async`` was not called.
            multiprocessing.TimeoutError: ``timeout`` seconds are over; the call stays pending.
            Exception: The exception of the first lane whose env failed. No lane is lost by that.
        """
        self._end_call("call")
        workers = range(len(self._crew.ranges))
        if not self._lanes.work_until(lambda: len(self._lanes.results) == len(workers), timeout):
            raise self._pending.timed_out(timeout)
        self._pending.name = None
        results = [result for index in workers for result in self._lanes.results[index]]
        for lane, (worked, value) in enumerate(results):
            if not worked:
                error, text = value
                if isinstance(error, LaneLostError):
                    raise error
                raise error from LaneLostError(f"the call of lane {lane} raised\n{text}", (lane,))
        return tuple(value for _, value in results)

    def _set_attr(self, name: str, values: list[Any]) -> None:
        self._begin_calls(worker.SET, [(name, values[first:end]) for first, end in self._crew.ranges])
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

    # Checks

    def _settle(self) -> None:
        """Waits until a call that was given up is over in the workers."""
        if self._abandoned:
            self._lanes.settle()
            self._abandoned = False

    def _check_reset(self, lanes: Iterable[int]) -> None:
        if not self._reset_done:
            raise ResetNeededError("the lanes have not been reset, or not since a call was interrupted")
        if self.autoreset_mode is AutoresetMode.DISABLED:
            for lane in lanes:
                if self._over[lane]:
                    raise ResetNeededError(f"the episode of lane {lane} is over, and autoreset_mode is DISABLED")
        if self.on_loss == "raise" and self._losses.away:
            lost = [lane for lane in lanes if lane in self._losses.away and not self._losses.is_untold(lane)]
            if lost:
                raise self._losses.absence(lost)

    def _check_none_outstanding(self) -> None:
        if self._lanes.outstanding:
            raise OutstandingError(f"{len(self._lanes.outstanding)} lanes have been sent and not received")

    def _begin_call(self, name: str) -> None:
        self._check_usable()
        self._pending.check_none(f"{name}_async")

    def _end_call(self, name: str) -> None:
        self._check_usable()
        self._pending.check(name)

    def _close(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """Closes the lanes. ``timeout``: seconds for a pending call and for the envs to close; ``terminate``: kill them
        at once.
        """
        if self._pending.name is not None:
            gymnasium.logger.warn(
                f"Calling `close` while waiting for a pending call to `{self._pending.name}` to complete."
            )
        host = self._crew.host
        if self._recorder is not None:
            _RECORDING.discard(self)
            self._recorder.close()
        try:
            terminate = terminate or self._abandoned
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
            self._rows.release()


def _ones(count: int) -> np.ndarray:
    return np.ones(count, dtype=np.bool_)
