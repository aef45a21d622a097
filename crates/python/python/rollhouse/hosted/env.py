"""The vector env whose lanes are Python envs in worker processes."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import create_empty_array

from rollhouse import _native
from rollhouse.embedded import _RECORDING, _data_folder
from rollhouse.errors import LaneLostError, ResetNeededError
from rollhouse.events import Events
from rollhouse.hosted.actions import Actions
from rollhouse.hosted.block_words import BlockReader
from rollhouse.hosted.calling import Calling
from rollhouse.hosted.crew import Crew, EnvFn
from rollhouse.hosted.declared import declared_options
from rollhouse.hosted.infos import OURS, Said, add_lost, batch_infos, drop_own, say_valid
from rollhouse.hosted.layout import Layout
from rollhouse.hosted.losses import Loss, Losses
from rollhouse.hosted.notices import Notices
from rollhouse.hosted.observation_modes import (
    batch_observation_spaces,
    check_action_space,
    check_observation_mode,
    check_observation_space,
)
from rollhouse.hosted.pending_call import PendingCall
from rollhouse.hosted.sent_lanes import Frame, SentLanes
from rollhouse.hosted.settings import (
    CONNECT_RETRIES,
    CONNECT_TIMEOUT,
    LAUNCH_TIMEOUT,
    Timeouts,
    checked_connect,
    checked_functions,
    checked_recording,
    checked_workers,
)
from rollhouse.hosted.together_lanes import Together
from rollhouse.hosted.words import Reader
from rollhouse.hosted.worker import dump
from rollhouse.native_env import lane_options_of, reset_options, statistics_of
from rollhouse.record_rule import record_rule
from rollhouse.recording import Recording
from rollhouse.step_columns import StepColumns, StepColumnSpecs
from rollhouse.vector import DEFAULT_TIMEOUT, MAX_SEED, InfoLayout, Mode, ShowValid, Step, parse_autoreset_mode, show_valid

CLOSE_TIMEOUT = 10.0
"""Seconds that envs have to close themselves."""


class HostedVectorEnv(Calling, gymnasium.vector.VectorEnv):
    """N Python envs in worker processes, as lanes of the engine that steps the built-in envs.

    ``rollhouse.vectorize`` makes it. A worker has ``launch_timeout`` from its start until its envs are made. Workers
    start with the vector env if the functions differ, whose spaces then have to be compared; if all lanes have the
    same function, one starts and the others follow at the first ``reset`` or ``call``. The functions are sent to new processes with cloudpickle and called there:
    nothing of an env runs in this process. Observations, actions, rewards and flags of fixed shape lie in memory
    that all share; whatever does not fit there travels beside it, numbers in infos packed and all else pickled (Text, Graph, Sequence,
    OneOf and custom spaces, actions that are no array of exactly the action space's dtype and shape). Every env
    is given the same actions, of the same types, as ``gymnasium.vector.SyncVectorEnv`` gives them.

    Losses. An env that raises loses its lane, a worker that dies (or whose env calls ``sys.exit``) or misses its
    deadline loses its lanes; nothing blocks past a deadline. A lane whose row was complete by then has that row, and is lost
    with its next one. Lost envs are made again after 1 s, then 2 s, up to
    60 s; five times within five minutes, then they stay lost.

    * ``on_loss="raise"``, the default, raises when the batch is complete: what the env raised (its cause is a
      ``LaneLostError`` with the traceback of the worker), else ``LaneLostError``. The lane cannot be stepped
      until it has been reset; that waits for the new env.
    * ``on_loss="report"`` goes on. The lost row has terminated False, truncated True, reward 0, the last
      delivered observation, ``infos["lost"][i]`` (``"crashed"`` or ``"hung"``) and ``infos["valid"][i]`` False.
      Until the env is back its rows repeat that observation with reward 0, flags False, not valid and without
      ``lost``; then one more such row has the first observation of its new episode. In DISABLED mode too.
      If every lane is lost for good, ``LaneLostError`` is raised.

    ``copy=False`` hands out views of the engine's memory for observations: they are overwritten by the second next
    step. Terminal observations are always copies.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        *,
        workers: int | None = None,
        python: str | os.PathLike[str] | None = None,
        listen: str | os.PathLike[str] | None = None,
        autoreset_mode: Mode = AutoresetMode.NEXT_STEP,
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
        connect_retries: int = CONNECT_RETRIES,
        connect_timeout: float | None = CONNECT_TIMEOUT,
        record: bool | str = False,
        record_infos: Mapping[str, Any] | None = None,
        record_frames: int | None = None,
        data: str | os.PathLike[str] | None = None,
        step_columns: StepColumnSpecs | None = None,
        options: Mapping[str, Any] | None = None,
        lane_options: Sequence[Mapping[str, Any]] | None = None,
    ):
        self._step_columns = StepColumns(step_columns)
        env_fns = checked_functions(env_fns)
        self._together = Together.of(env_fns)
        if self._together is not None:
            self._together.check(observation_mode, record_frames)
            workers = 1 if workers is None else workers
        workers = checked_workers(workers, len(env_fns))
        if listen is not None and python is not None:
            raise ValueError(f"python={os.fspath(python)!r} is of workers that are started here, and those of listen={os.fspath(listen)!r} are not")
        Timeouts(step_timeout, reset_timeout, call_timeout, launch_timeout, connect_timeout).check()
        connect = checked_connect(connect_retries, connect_timeout)
        self._rule = record_rule(record, trace=False)
        infos = checked_recording(record, data, record_infos, record_frames)
        self.reset_timeout, self.call_timeout, self.step_timeout = reset_timeout, call_timeout, step_timeout
        mode = parse_autoreset_mode(autoreset_mode)
        check_observation_mode(observation_mode)
        alike = observation_mode == "same" and all(fn is env_fns[0] for fn in env_fns)
        every = record_frames or 0
        self._crew = Crew(
            env_fns,
            workers,
            mode,
            launch_timeout,
            connect=connect,
            alike=alike,
            frames_every=every,
            python=python,
            together=self._together is not None,
            listen=listen,
        )
        try:
            lanes = self._crew.describe()
            if self._together is not None:
                self._together.learn(lanes[0][7], mode)
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
            # Gymnasium's generators take any; a recording has 64 bits for one.
            self._max_seed = MAX_SEED if record else None
            if self._together is not None and self._together.max_seed is not None:
                self._max_seed = self._together.max_seed
            self._first_seeds = None if seed is None else self._parse_seeds(seed)
            self._layout, self._action_layout = Layout(single), Layout(self.single_action_space, 1)
            self._methods: list[dict[str, Any]] = lanes[0][6]
            self._declared = declared_options(self.metadata)
            declared = {option["name"]: (option["default"], option["summary"]) for option in self._declared}
            id = getattr(env_fns[0], "env_id", None) or lanes[0][4]
            self._option_spec = {"id": id, "options": declared}
            given = lane_options_of(self._option_spec, options or {}, lane_options, len(env_fns))
            self._set_up(id, lanes[0][5], _data_folder(data) if record else None, every, infos, given)
        except BaseException:
            self.closed = True
            if hasattr(self, "_native"):
                self._native.close()
            self._crew.workers.close(None)
            raise
        self.copy = bool(copy)
        self._show_valid = show_valid(info_layout, valid)
        self.observation_mode = observation_mode
        self._actions = Actions(self.single_action_space, self.action_space, self.num_envs)
        # Lanes of workers always have it; those of a cluster may not.
        self._action_column: np.ndarray = cast(np.ndarray, self._native.actions)
        self._losses = Losses(self._crew, self._native)
        self._pending = PendingCall()
        self._reader = Reader() if self._together is None else BlockReader(self._crew.ranges)
        self._others: list[list[Any]] = [[None] * self._layout.columns.others for _ in range(self.num_envs)]
        self._all_lanes = list(range(self.num_envs))
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        self._sent = SentLanes(self.num_envs)
        self._abandoned = False
        self._notices = Notices(infos)
        self._own_actions: Any = None
        self._episodes = _native.EpisodeStatistics(self.num_envs) if self.episode_statistics else None

    def _set_up(
        self,
        id: str,
        max_episode_steps: int | None,
        data: str | None,
        frames_every: int,
        infos: list[tuple[str, str, list[int]]],
        options: list[dict[str, Any]],
    ) -> None:
        """Makes the lanes' memory and engine, and begins to record."""
        if data is not None:
            for name, layout in (("observation", self._layout), ("action", self._action_layout)):
                refusal = layout.refusal()
                if refusal is not None:
                    raise ValueError(f"record: the {name} space {refusal}")
        self._deadline = self.step_timeout
        self._native = self._crew.set_up(
            self._layout,
            self._action_layout,
            infos,
            id=id,
            autoreset=self.autoreset_mode.value,
            max_episode_steps=max_episode_steps,
            deadline=self._deadline,
            data=data,
            record=self._rule,
            frames_every=frames_every,
            step_columns=self._step_columns.declared,
            methods=json.dumps(self._methods),
            declared=json.dumps(self._declared),
            options=options,
        )
        place = self._native.recording
        self._events = Events(self._native, None if place is None else place[0])
        if place is not None:
            folder, run, watch = place
            self.recording = Recording(Path(folder), run, watch.figures)
            _RECORDING.add(self)

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

    @property
    def launch_timeout(self) -> float | None:
        """Seconds a worker has from its start until all of its envs are made; None for ever."""
        return self._crew.launch_timeout

    # Stepping

    def step(self, actions: Any) -> Step:
        """Steps as ``VectorEnv.step`` does; fastest with arrays of exactly the action space's dtype and shape."""
        self._report_events()
        if self._is_quiet():
            arrays = self._actions.match(actions, self._resetting_next())
            if arrays is not None:
                self._action_layout.put(self._action_column, arrays)
                self._use_deadline(self.step_timeout)
                self._native.begin_step()
                self._pending.name = "step"
                return self._whole(self.step_wait)
        self._check_usable()
        self.step_async(actions)
        return self._whole(self.step_wait)

    @property
    def transport(self) -> str:
        """``"workers"``: lanes are stepped by processes that this one has started."""
        return "workers"

    @property
    def actions(self) -> Any:
        """An array of actions to fill in and hand to ``step``, or arrays in the structure of the action space."""
        if self._own_actions is None:
            self._own_actions = create_empty_array(self.single_action_space, self.num_envs, np.zeros)
        return self._own_actions

    def _use_deadline(self, seconds: float | None) -> None:
        if seconds != self._deadline:
            self._native.set_deadline(seconds)
            self._deadline = seconds

    def _is_quiet(self) -> bool:
        """Returns whether all lanes can be stepped at once, with nothing to look after."""
        return (
            not self.closed
            and self._pending.name is None
            and self._reset_done
            and not self._sent
            and not self._losses.away
            and self._pid == os.getpid()
            and not (self.autoreset_mode is AutoresetMode.DISABLED and self._over.any())
        )

    def _infos_of(self, lanes: list[int], said: Said) -> dict[str, Any]:
        """Returns what lanes said. Names of ours stay ours, unless the layout is Gymnasium's own."""
        infos = batch_infos(self, lanes, said)
        if self.info_layout != "gymnasium" and not infos.keys().isdisjoint(OURS):
            self._notices.own_names(set(drop_own(infos)))
        if self.recording is not None:
            self._notices.left_out(infos)
        return infos

    def _set_policy_version(self, version: int) -> None:
        self._native.set_policy_version(version)

    def _note(self, lanes: list[int] | None, columns: list[tuple[int, np.ndarray]]) -> None:
        self._native.note(lanes, columns)

    def statistics(self) -> dict[str, Any]:
        """Returns what the lanes have done and how the time of their batches was spent: ``steps``, ``episodes``
        (finished), and ``sessions``, a list of one dict of ``steps``, ``outcomes``, ``results``, ``returns``,
        ``lengths``, ``restarts``, ``lost`` and ``timings``.

        Raises:
            OutstandingError: Lanes have been sent and not received.
        """
        self._check_usable()
        self._check_none_outstanding()
        return statistics_of(self._native.statistics())

    def step_async(self, actions: Any) -> None:
        """Begins a step with actions for all lanes; ``step_wait`` returns its result.

        Raises:
            AlreadyPendingCallError: Another call is pending.
        """
        self._begin_call("step")
        self._check_reset(range(self.num_envs))
        self._check_none_outstanding()
        self._settle()
        arrays, items = self._actions.take(actions, self._all_lanes, self._resetting_next())
        if arrays is not None:
            self._action_layout.put(self._action_column, arrays)
        elif self._together is not None:
            self._action_layout.put(self._action_column, self._actions.cast(actions))
        else:
            np.copyto(self._action_column, self._action_layout.loose(items))
            self._give_items(self._all_lanes, items)
        self._use_deadline(self.step_timeout)
        self._native.begin_step()
        self._pending.name = "step"

    def _give_items(self, lanes: list[int], items: list[Any]) -> None:
        """Gives lanes actions that are no columns."""
        for lane, item in zip(lanes, items, strict=True):
            self._crew.workers.set_item(lane, dump(item))

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
        if not self._native.finish(timeout):
            raise self._pending.timed_out(timeout)
        self._pending.name = None
        self._frame = columns, rewards, terminations, truncations, reset = self._native.frame()
        said = self._heard(None)
        observations = self._batch(columns, self._all_lanes, self.copy)
        flags = terminations.copy(), truncations.copy(), reset
        return self._deliver(self._all_lanes, observations, rewards.copy(), *flags, said)

    def _heard(self, lanes: list[int] | None) -> Said:
        """Returns what lanes said of their last rows, those of ``lanes`` or all."""
        told = self._crew.workers.said(lanes)
        said = self._reader.read(told) if isinstance(self._reader, BlockReader) else self._reader.read(told, self._others)
        self._notices.unpainted(said)
        return said

    def _batch(self, columns: list[np.ndarray], lanes: list[int], copy: bool) -> Any:
        """Returns the observations of lanes as a batch of the observation space."""
        others = self._others if len(lanes) == self.num_envs else [self._others[lane] for lane in lanes]
        return self._layout.columns.batch(self._layout.read(columns, copy), others)

    def _deliver(
        self,
        lanes: list[int],
        observations: Any,
        rewards: np.ndarray,
        terminations: np.ndarray,
        truncations: np.ndarray,
        reset: np.ndarray,
        said: Said,
    ) -> Step:
        """Returns the rows of lanes that are done, in this order. Raises for lanes that were lost, if ``on_loss`` says
        so.
        """
        whole = len(lanes) == self.num_envs
        told: dict[int, Loss] = {}
        valid = ~reset
        if self._native.lost_count or self._losses.away:
            told = self._losses.look(lanes)
            valid &= np.array([lane not in self._losses.away for lane in lanes], dtype=np.bool_)
        self._notices.not_finite(lanes, rewards)
        over = terminations | truncations
        if whole:
            self._over = over
        else:
            self._over[lanes] = over
        infos = self._infos_of(lanes, said)
        say_valid(infos, valid, self._show_valid, are_lost=bool(self._losses.away))
        if self._episodes is not None:
            self._episodes.step(infos, lanes, rewards, terminations, truncations, ~valid)
        if told:
            self._lose(told)
            if self.on_loss == "raise":
                raise self._losses.error(told)
            rows = [row for row, lane in enumerate(lanes) if lane in told]
            truncations[rows] = True
            add_lost(infos, rows, [told[lanes[row]].outcome for row in rows], len(lanes))
        elif self._losses.away and not valid.any() and self._losses.all_failed():
            raise LaneLostError("every lane is lost for good", tuple(self._all_lanes))
        if self.info_layout == "0.29" and infos:
            from rollhouse.info_layout import infos_of_029

            infos = infos_of_029(infos, len(lanes))
        return observations, rewards, terminations, truncations, infos

    def _lose(self, lost: dict[int, Loss]) -> None:
        """Notes lanes that were lost, by the reason."""
        for reason in dict.fromkeys(loss.reason for loss in lost.values()):
            self._events.lose([lane for lane, loss in lost.items() if loss.reason == reason], reason)

    def _resetting_next(self) -> np.ndarray | None:
        """Returns the lanes that the next step resets, whatever their action is."""
        return self._over if self.autoreset_mode is AutoresetMode.NEXT_STEP else None

    # First-done

    def _send(self, actions: Any, env_ids: Any) -> None:
        self._pending.check_none("send")
        lanes = self._sent.parse(env_ids)
        if self._together is not None:
            self._together.check_sent(lanes, self.num_envs)
        self._check_reset(lanes)
        if not lanes:
            return
        self._settle()
        arrays, items = self._actions.take(actions, lanes, self._resetting_next())
        if arrays is None and self._together is not None:
            arrays = self._actions.cast(actions)
        rows = self._action_layout.loose(items) if arrays is None else self._action_layout.rows(arrays, len(lanes))
        if not self._sent:
            self._use_deadline(self.step_timeout)
        away = self._losses.still_away(lanes) if self._losses.away else set()
        here = [row for row, lane in enumerate(lanes) if lane not in away]
        if here:
            if arrays is None:
                self._give_items([lanes[row] for row in here], [items[row] for row in here])
            self._native.send(rows[here], [lanes[row] for row in here])
        self._sent.lanes.update(lanes)
        self._sent.absent.update(away)

    def _recv(self, min_envs: int | None, timeout: float | None) -> Step:
        self._pending.check_none("recv")
        # Lanes that step together are done together.
        wanted = self._sent.wanted(min_envs if self._together is None else None)
        absent = self._sent.absent
        rows = None
        if self._sent.under_way:
            enough = wanted <= len(absent)
            rows = self._native.recv_columns(max(1, wanted - len(absent)), 0.0 if enough else timeout)
            if rows is None and not enough:
                raise TimeoutError(f"recv: fewer than {wanted} lanes were done within timeout={timeout} s")
        ids = [] if rows is None else rows[0].tolist()
        lanes = sorted([*ids, *absent])
        said = self._heard(ids)
        columns, rewards, terminations, truncations, reset = self._sent.rows(lanes, ids, rows, self._frame)
        self._sent.take(lanes)
        observations = self._batch(columns, lanes, False)
        step = self._deliver(lanes, observations, rewards, terminations, truncations, reset, said)
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
        if self._together is not None:
            self._together.check_reset(seeds, mask)
        declared: dict[str, list[Any]] = {}
        if self._declared and options is not None:
            declared, options = reset_options(self._option_spec, options, self.num_envs), None
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
            self._drop()
        else:
            self._check_none_outstanding()
        self._losses.recover(lanes, self.reset_timeout)
        self._use_deadline(self.reset_timeout)
        self._crew.workers.said()
        flags = [] if mask is None else mask.tolist()
        large = {lane: seed for lane, seed in enumerate(seeds) if seed is not None and seed > MAX_SEED}
        small = [None if lane in large else seed for lane, seed in enumerate(seeds)]
        given = dump((options, large)) if options is not None or large else b""
        self._native.begin_reset(small, flags, given, declared)
        self._resetting = lanes
        self._pending.name = "reset"

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Returns the result of ``reset_async``; blocks until all lanes have been reset.

        Raises:
            NoAsyncCallError: ``reset_async`` was not called.
            multiprocessing.TimeoutError: ``timeout`` seconds are over; the call stays pending.
        """
        self._end_call("reset")
        lanes = self._resetting
        if not self._native.finish(timeout):
            raise self._pending.timed_out(timeout)
        self._pending.name = None
        self._frame = self._native.frame()
        lost = self._losses.look(lanes)
        missing = [lane for lane in lanes if lane in self._losses.away]
        self._over[lanes] = False
        self._reset_done = True
        if self._episodes is not None:
            self._episodes.begin(lanes)
        said = self._heard(None)
        observations = self._batch(self._frame[0], self._all_lanes, self.copy)
        infos = self._infos_of(self._all_lanes, said)
        self._lose(lost)
        if missing:
            if self.on_loss == "raise" or self._losses.all_failed():
                raise self._losses.error(lost) if lost else self._losses.absence(missing)
            add_lost(infos, list(lost), [loss.outcome for loss in lost.values()], self.num_envs)
            valid = _ones(self.num_envs)
            valid[missing] = False
            say_valid(infos, valid, self._show_valid, are_lost=True)
        return observations, infos

    # Checks

    def _settle(self) -> None:
        """Waits until a call that was given up is over in the workers."""
        if self._abandoned:
            self._native.finish()
            self._drop()
            self._crew.workers.quiet()
            self._abandoned = False

    def _drop(self) -> None:
        """Waits until all lanes that were sent are done, and drops their results."""
        if self._sent.under_way:
            self._native.recv_columns(self._sent.under_way)
        self._sent.clear()

    def _check_reset(self, lanes: Iterable[int]) -> None:
        if not self._reset_done:
            raise ResetNeededError("the lanes have not been reset, or not since a call was interrupted")
        if self.autoreset_mode is AutoresetMode.DISABLED:
            for lane in lanes:
                if self._over[lane]:
                    raise ResetNeededError(f"the episode of lane {lane} is over, and autoreset_mode is DISABLED")
        if self.on_loss == "raise" and self._losses.away:
            lost = [lane for lane in lanes if lane in self._losses.away]
            if lost:
                raise self._losses.absence(lost)

    def _check_none_outstanding(self) -> None:
        self._sent.check_none()

    def _close(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """Closes the lanes. ``timeout``: seconds for a pending call and for the envs to close; ``terminate``: kill them
        at once.
        """
        if self._pending.name is not None:
            gymnasium.logger.warn(
                f"Calling `close` while waiting for a pending call to `{self._pending.name}` to complete."
            )
        _RECORDING.discard(self)
        terminate = terminate or self._abandoned
        try:
            if not terminate:
                self._native.finish(timeout)
                left = self._sent.under_way
                over = left == 0 or self._native.recv_columns(left, timeout) is not None
                terminate = not (over and self._crew.workers.quiet(timeout))
        finally:
            try:
                self._native.close(None if terminate else timeout or CLOSE_TIMEOUT)
            finally:
                if self.recording is not None:
                    self.recording._close()
            # Views of the memory that were handed out keep it; nothing else does.
            del self._native, self._crew.workers, self._losses, self._action_column
            self.__dict__.pop("_frame", None)


def _ones(count: int) -> np.ndarray:
    return np.ones(count, dtype=np.bool_)
