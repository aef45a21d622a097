"""A process that steps lanes for a ``HostedVectorEnv``; started by it, never by hand.

It makes its envs one by one, then does what it is told until it is told to end. A lane whose env raises is lost
alone; ``SystemExit`` ends the process, and with it all of its lanes. It ends when its parent does, whatever its
envs are doing.
"""

from __future__ import annotations

import copy
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, iterate

from rollhouse._native import WorkerLink, pack_frame
from rollhouse.hosted.columns import Columns, Mapping, rows_of, write_array
from rollhouse.hosted.info_columns import pack

# Commands: the low byte of the code, the rest its number.
SETUP, STEP, BATCH, RESET, CALL, SET, CLOSE = range(1, 8)

# How a worker answers: nothing more to say, or with a payload.
DONE, SAYS = 0, 1

Info = dict[str, Any]


def main(host: int) -> None:
    """Runs the worker until it is told to end. ``host`` is the process id of its parent."""
    link = WorkerLink(host)
    hello = pickle.loads(link.hello())
    try:
        worker = Worker(hello)
        answer: tuple[str, Any] = ("made", worker.describe())
    except Exception as error:
        worker, answer = None, ("raised", failure(error))
    place = link.ready(dump(answer))
    while True:
        code, payload = link.receive()
        if worker is None:
            # The parent has been told why; it ends this process.
            break
        command = code & 0xFF
        if command == STEP:
            said = worker.step(code >> 8)
            link.reply(SAYS if said else DONE, worker.dump(said) if said else b"")
        elif command == CLOSE:
            worker.close()
            link.reply(DONE, b"")
            break
        elif command == SETUP:
            worker.set_up(place, *pickle.loads(payload))
            link.reply(DONE, b"")
        elif command in (BATCH, RESET):
            act = worker.batch if command == BATCH else worker.reset
            link.reply(SAYS, worker.dump(act(*pickle.loads(payload))))
        else:
            call = worker.call if command == CALL else worker.set_attr
            link.reply(SAYS, worker.dump_results(call(*pickle.loads(payload))))


def dump(value: Any) -> bytes:
    """Pickles an object, by value where a reference would not do."""
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        import cloudpickle

        return cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def failure(error: BaseException) -> tuple[BaseException, str]:
    """Makes an exception fit to travel: itself if it survives pickling, else its words; and its traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickle.loads(dump(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error, text


class Worker:
    """The lanes of this process: the first is ``first`` of the whole batch, here they count from 0."""

    def __init__(self, hello: dict[str, Any]):
        self.first: int = hello["first"]
        self.fns: list[Callable[[], gymnasium.Env]] = [pickle.loads(fn) for fn in hello["env_fns"]]
        self.mode = AutoresetMode(hello["autoreset_mode"])
        self.envs: list[Any] = [fn() for fn in self.fns]
        self.count = len(self.envs)
        self.over = [False] * self.count
        # Pictures are recorded of every so many-th step, of none if it is 0; and the steps of each lane's episode.
        self.frames_every: int = hello.get("frames_every", 0)
        self.ages = [0] * self.count
        self.mapping: Mapping | None = None

    def describe(self) -> list[tuple[Any, ...]]:
        """Returns for each lane: spaces, metadata, render mode, id and time limit."""
        lanes: list[tuple[Any, ...]] = []
        for env in self.envs:
            spec = env.spec
            name = spec.id if spec is not None else type(env.unwrapped).__name__
            limit = spec.max_episode_steps if spec is not None else None
            lanes.append((env.observation_space, env.action_space, env.metadata, env.render_mode, name, limit))
        return lanes

    def set_up(
        self, place: tuple[int, int, int], observation: gymnasium.Space, action: gymnasium.Space, lanes: int
    ) -> None:
        """Finds the columns of the batch in the shared memory."""
        same = gymnasium.spaces.utils.is_space_dtype_shape_equiv
        for lane, env in enumerate(self.envs):
            seen = env.observation_space
            if not ((seen == observation or same(seen, observation)) and env.action_space == action):
                raise ValueError(f"lane {self.first + lane} has other spaces than before")
        end = self.first + self.count
        self.columns, self.action_columns = Columns(observation, lanes), Columns(action, lanes)
        mapping = Mapping(self.columns, self.action_columns, *place)
        self.mapping = mapping
        # Per slot and lane: the row to write to, or one per column if there are several.
        self.rows: list[list[Any]] = [
            rows_of([a[self.first : end] for a in slot], self.count) for slot in mapping.observations
        ]
        if self.columns.single:
            self.rows = [[row for (row,) in slot] for slot in self.rows]
        self.actions = [a[self.first : end] for a in mapping.actions]
        self.rewards = mapping.rewards[self.first : end]
        self.terminations = mapping.terminations[self.first : end]
        self.truncations = mapping.truncations[self.first : end]
        self.batched_action_space = batch_space(action, 1)
        self.others: list[list[Any]] = [[None] * self.columns.others for _ in range(self.count)]

    # Stepping

    def step(self, slot: int) -> dict[str, Any] | None:
        """Steps every lane by the actions in memory. Returns the infos and failures, if there are any."""
        step_lanes = self.step_same if self.mode is AutoresetMode.SAME_STEP else self.step_next
        return step_lanes(range(self.count), self.taken(None), self.rows[slot])

    def batch(
        self, entries: list[tuple[int, int]], items: dict[int, Any], fresh: dict[int, tuple[Any, Any, bool]]
    ) -> dict[str, Any]:
        """Steps some lanes, and begins an episode in those that are ``fresh``.

        Args:
            entries: (lane, slot) of each lane, ascending.
            items: The actions that are not in memory, by lane.
            fresh: For each lane that is not to be stepped but reset: (seed, options, whether to make its env anew).
        """
        rows: list[Any] = [None] * self.count
        for lane, slot in entries:
            rows[lane] = self.rows[slot][lane]
        lanes = [lane for lane, _ in entries if lane not in fresh]
        stored = self.taken([lane for lane in lanes if lane not in items])
        actions = [items[lane] if lane in items else next(stored) for lane in lanes]
        step_lanes = self.step_same if self.mode is AutoresetMode.SAME_STEP else self.step_next
        said = step_lanes(lanes, actions, rows) or {}
        for lane, (seed, options, anew) in fresh.items():
            self.begin(lane, rows[lane], seed, options, anew, said)
        return said

    def taken(self, lanes: list[int] | None) -> Iterator[Any]:
        """Iterates over the actions in memory, of all or some lanes, as ``iterate`` does. They are copies: envs may
        keep them.
        """
        if lanes is None:
            arrays = [array.copy() for array in self.actions]
        else:
            arrays = [array[lanes] for array in self.actions]
        if self.action_columns.single:
            return iter(arrays[0])
        return iterate(self.batched_action_space, self.action_columns.batch(arrays, ()))

    def step_next(self, lanes: Iterable[int], actions: Iterable[Any], rows: list[Any]) -> dict[str, Any] | None:
        """Steps a lane in NEXT_STEP or DISABLED mode: a lane whose episode is over is reset instead."""
        envs, over, rewards = self.envs, self.over, self.rewards
        # Written twice as fast as arrays, and any truth value will do for both.
        terminations, truncations = memoryview(self.terminations), memoryview(self.truncations)
        single, ndarray = self.columns.single, np.ndarray
        dtype, shape = (self.columns.dtypes[0], self.columns.shapes[0]) if single else (None, None)
        infos: list[tuple[int, tuple[Any, Info] | None, Info]] = []
        said: dict[str, Any] = {}
        lane = 0
        for lane, action in zip(lanes, actions):  # noqa: B905 - the parent has counted
            try:
                if over[lane]:
                    observation, info = envs[lane].reset()
                    rewards[lane], terminations[lane], truncations[lane] = 0.0, False, False
                    over[lane] = False
                    began = True
                else:
                    observation, reward, terminated, truncated, info = envs[lane].step(action)
                    rewards[lane], terminations[lane], truncations[lane] = reward, terminated, truncated
                    if terminated or truncated:
                        over[lane] = True
                    began = False
                if type(observation) is ndarray and observation.dtype is dtype and observation.shape == shape:
                    rows[lane][...] = observation
                else:
                    self.write(lane, rows[lane], observation, said)
                if info:
                    infos.append((lane, None, info))
                if self.frames_every:
                    self.picture(lane, began, over[lane], said)
            except Exception as error:
                self.lose(lane, error, said)
        if infos:
            said["infos"] = infos
        return said or None

    def step_same(self, lanes: Iterable[int], actions: Iterable[Any], rows: list[Any]) -> dict[str, Any] | None:
        """Steps a lane in SAME_STEP mode: a lane whose episode ends is reset in the same step."""
        infos: list[tuple[int, tuple[Any, Info] | None, Info]] = []
        said: dict[str, Any] = {}
        for lane, action in zip(lanes, actions):  # noqa: B905 - the parent has counted
            try:
                env = self.envs[lane]
                observation, reward, terminated, truncated, info = env.step(action)
                self.rewards[lane], self.terminations[lane] = reward, terminated
                self.truncations[lane] = truncated
                if self.frames_every:
                    self.picture(lane, False, terminated or truncated, said)
                if terminated or truncated:
                    # Envs may reuse what they returned.
                    final_observation, final_info = copy.deepcopy(observation), copy.deepcopy(info)
                    observation, info = env.reset()
                    infos.append((lane, (final_observation, final_info), info))
                    if self.frames_every:
                        self.picture(lane, True, False, said)
                elif info:
                    infos.append((lane, None, info))
                self.write(lane, rows[lane], observation, said)
            except Exception as error:
                self.lose(lane, error, said)
        if infos:
            said["infos"] = infos
        return said or None

    def write(self, lane: int, row: Any, observation: Any, said: dict[str, Any]) -> None:
        """Writes an observation to its row, and keeps for the answer the parts that cannot be written there."""
        if self.columns.single:
            write_array(row, observation)
        elif self.columns.others:
            others: list[Any] = [None] * self.columns.others
            self.columns.write(row, others, observation)
            said.setdefault("others", {})[lane] = others
        else:
            self.columns.write(row, [], observation)

    def lose(self, lane: int, error: Exception, said: dict[str, Any]) -> None:
        """Puts a failed env away."""
        said.setdefault("lost", {})[lane] = failure(error)
        said.get("others", {}).pop(lane, None)
        if "frames" in said:
            said["frames"] = [frame for frame in said["frames"] if frame[0] != lane]
        env, self.envs[lane] = self.envs[lane], None
        self.over[lane] = False
        try:
            if env is not None:
                env.close()
        except Exception:
            # It is broken already, which is being reported.
            pass

    # Resetting

    def begin(self, lane: int, row: Any, seed: Any, options: Any, anew: bool, said: dict[str, Any]) -> None:
        """Begins an episode in a lane, with a new env if it is told so."""
        try:
            if anew:
                self.envs[lane] = None
                self.envs[lane] = self.fns[lane]()
            observation, info = self.envs[lane].reset(seed=seed, options=options)
            self.over[lane] = False
            self.rewards[lane], self.terminations[lane], self.truncations[lane] = 0.0, False, False
            self.write(lane, row, observation, said)
            if info:
                said.setdefault("infos", []).append((lane, None, info))
            if self.frames_every:
                self.picture(lane, True, False, said)
        except Exception as error:
            self.lose(lane, error, said)

    def picture(self, lane: int, began: bool, over: bool, said: dict[str, Any]) -> None:
        """Takes a picture of the lane as it looks now, if that is to be recorded: at the reset (``began``), at every
        ``frames_every``-th step and at the last. An env that gives no such picture goes on without.
        """
        self.ages[lane] = 0 if began else self.ages[lane] + 1
        if not (began or over or self.ages[lane] % self.frames_every == 0):
            return
        try:
            packed = pack_frame(np.asarray(self.envs[lane].render()))
        except Exception as error:
            said.setdefault("unpainted", f"{type(error).__name__}: {error}")
        else:
            said.setdefault("frames", []).append((lane, began, packed))

    def reset(self, entries: list[tuple[int, int, Any, bool]], options: Any) -> dict[str, Any]:
        """Resets lanes. Each entry is (lane, slot, seed, whether to make its env anew)."""
        said: dict[str, Any] = {}
        for lane, slot, seed, anew in entries:
            self.begin(lane, self.rows[slot][lane], seed, options, anew, said)
        return said

    # Everything else

    def dump(self, said: dict[str, Any]) -> bytes:
        """Pickles the answer, numbers as columns. A lane whose info cannot be pickled is lost."""
        infos = said.get("infos")
        if infos:
            said["columns"], said["infos"], said["keys"] = pack(infos, self.count)
        try:
            return dump(said)
        except Exception:
            culprits: dict[int, Exception] = {}
            entries = [*said.get("infos", ()), *said.get("others", {}).items()]
            for lane, *rest in entries:
                try:
                    dump(rest)
                except Exception as error:
                    culprits[lane] = error
            left = [entry for entry in infos or () if entry[0] not in culprits]
            said["columns"], said["infos"], said["keys"] = pack(left, self.count)
            for lane, culprit in culprits.items():
                self.lose(lane, culprit, said)
            return dump(said)

    def dump_results(self, results: list[tuple[bool, Any]]) -> bytes:
        """Pickles results; those that cannot be pickled become failures."""
        try:
            return dump(results)
        except Exception:
            for lane, result in enumerate(results):
                try:
                    dump(result)
                except Exception as error:
                    results[lane] = (False, failure(error))
            return dump(results)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[bool, Any]]:
        """Calls a method of every env. Returns for each lane: whether it worked, and the result or the failure."""
        results: list[tuple[bool, Any]] = []
        for env in self.envs:
            try:
                value = env.get_wrapper_attr(name)
                results.append((True, value(*args, **kwargs) if callable(value) else value))
            except Exception as error:
                results.append((False, failure(error)))
        return results

    def set_attr(self, name: str, values: list[Any]) -> list[tuple[bool, Any]]:
        """Sets an attribute of every env. Returns for each lane: whether it worked, and None or the failure."""
        results: list[tuple[bool, Any]] = []
        for env, value in zip(self.envs, values, strict=True):
            try:
                env.set_wrapper_attr(name, value)
                results.append((True, None))
            except Exception as error:
                results.append((False, failure(error)))
        return results

    def close(self) -> None:
        """Closes the envs; an env that fails to close does not keep the others from it."""
        for env in self.envs:
            try:
                if env is not None:
                    env.close()
            except Exception:
                traceback.print_exc(file=sys.stderr)
