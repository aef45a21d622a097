"""What a worker of a ``HostedVectorEnv`` does: it is sent functions that make its envs, and sends more than rows.

What a lane says beside its row is in its record or, where there is no room, goes with the answer to the command. Behind the bytes of lanes
and their seeds a command has, where there are any, the options of resets and actions that are no columns.
"""

from __future__ import annotations

import functools
import json
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, iterate

from rollhouse import env_methods
from rollhouse._native import WorkerLink, pack_frame
from rollhouse.agents import adapted, name_of
from rollhouse.connecting import UNREACHED, Connector
from rollhouse.errors import InterpreterError
from rollhouse.hosted.columns import write_array
from rollhouse.hosted.declared import declared_options
from rollhouse.hosted.layout import InfoRows, Layout
from rollhouse.hosted.script import unpack
from rollhouse.hosted.words import Packer, pickled
from rollhouse.lane_words import (
    ANEW,
    LOST,
    NOTHING,
    RESET,
    STEP,
    TERMINATED,
    TRUNCATED,
)
from rollhouse.lookup import REGISTERED
from rollhouse.said import info_of, reward_of
from rollhouse.worker_program import LaneWorker, Place, run

# Commands beside those that all workers have: the low byte of the code, the rest its number.
SETUP, CALL = 3, 4

# How a lane answered, beside what all workers say: it says more, in its record or with the answer to the command.
SPEAKS, SPEAKS_LATER = 8, 16

# And: its episode has ended, and it has begun the next one as a reset without a seed does.
AHEAD = 32


def main(link: WorkerLink) -> None:
    """Runs the worker until it is told to end."""
    run(link, lambda hello: begin(link, pickle.loads(hello)))


def join() -> None:
    """Connects in the folder that is the program's first argument, for the place that is the second or for any, and runs the worker. Ends the
    process with 1 and a message if it is refused or disconnected."""
    if not 2 <= len(sys.argv) <= 3 or not all(place.isdecimal() for place in sys.argv[2:]):
        sys.exit("usage: python -m rollhouse.hosted.join FOLDER [PLACE]")
    # Connecting may wait for a minute, in which Python looks after no signal.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        link = WorkerLink.connect(sys.argv[1], *map(int, sys.argv[2:]))
        signal.signal(signal.SIGINT, handler)
        main(link)
    except OSError as error:
        sys.exit(f"rollhouse.hosted.join: {error}")


class Raised:
    """A worker whose functions raised. Its parent has been told why; that this process ends would count as another failure."""

    name = "rollhouse-env"

    def __init__(self, link: WorkerLink):
        self.link = link

    def serve(self, place: Place) -> None:
        """Waits until the parent wants no more."""
        self.link.receive()


def begin(link: WorkerLink, hello: dict[str, Any]) -> tuple[bytes, Worker | Raised]:
    """Makes the envs of a hello. Returns the answer, and the worker."""
    try:
        if sys.version_info[:2] != hello["version"]:
            theirs, ours = (".".join(map(str, numbers)) for numbers in (hello["version"], sys.version_info[:2]))
            raise InterpreterError(f"python={sys.executable!r} is Python {ours}, and functions of Python {theirs} cannot be sent to it")
        worker = kind_of(hello)(link, hello)
        worker.connector.rest()
        return dump(("made", worker.describe())), worker
    except Exception as error:
        return dump(("raised", failure(error))), Raised(link)


def kind_of(hello: dict[str, Any]) -> type[Worker]:
    """Returns the class of a worker: whether its lanes are envs of their own, or step together."""
    if not hello["together"]:
        return Worker
    from rollhouse.hosted.together import TogetherWorker

    return TogetherWorker


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


class Given(NamedTuple):
    """What resets are given beside their command: options, and by lane of the batch seeds that take more than its 8 bytes."""

    options: dict[str, Any] | None
    seeds: Mapping[int, int]


NOTHING_GIVEN = Given(None, {})


def check_same(lane: int, seen: tuple[Any, Any], wanted: tuple[gymnasium.Space, gymnasium.Space]) -> None:
    """Raises ``ValueError`` for a lane whose spaces, of observations and actions, are not those of the batch."""
    same = gymnasium.spaces.utils.is_space_dtype_shape_equiv
    if not ((seen[0] == wanted[0] or same(seen[0], wanted[0])) and seen[1] == wanted[1]):
        raise ValueError(f"lane {lane} has other spaces than before")


def _adapted(fn: Callable[[], Any]) -> gymnasium.Env:
    return adapted(fn())


class Worker(LaneWorker):
    """The lanes of this process: the first is ``first`` of the whole batch, here they count from 0."""

    def __init__(self, link: WorkerLink, hello: dict[str, Any]):
        unpack(hello["script"])
        self.first: int = hello["first"]
        self.fns: list[Callable[[], gymnasium.Env]] = [pickle.loads(fn) for fn in hello["env_fns"]]
        super().__init__(link, Connector(link, *hello["connect"]), len(self.fns), hello["frames_every"])
        self.name = f"rollhouse {self.first}-{self.first + self.count - 1}"
        self.same_step = AutoresetMode(hello["autoreset_mode"]) is AutoresetMode.SAME_STEP
        self.packer = Packer()
        # What resets that were made ahead gave, or the exceptions that they raised, where that is not in memory.
        self.begun: dict[int, Any] = {}
        self.make(hello)

    def make(self, hello: dict[str, Any]) -> None:
        """Makes the envs."""
        self.envs = [self.connector.make(functools.partial(_adapted, fn)) for fn in self.fns]
        # Whether each episode has options, which are known as it begins.
        self.declares = bool(declared_options(self.envs[0].metadata))

    def answer(self, command: int, number: int, payload: bytes) -> bytes | None:
        """Does a command, also the first one, and one for all envs. Returns the answer; None if the host wants no more."""
        if command == SETUP:
            self.set_up(pickle.loads(payload))
            return b""
        if command == CALL:
            return self.dump_results(self.call(*pickle.loads(payload)))
        return super().answer(command, number, payload)

    def describe(self) -> list[tuple[Any, ...]]:
        """Returns for each lane: spaces, metadata, render mode, id, time limit, methods, and what is to be known of one of a
        vector env."""
        lanes: list[tuple[Any, ...]] = []
        for env in self.envs:
            spec = env.spec
            name = REGISTERED + spec.id if spec is not None else name_of(env.unwrapped)
            limit = spec.max_episode_steps if spec is not None else None
            methods = env_methods.methods_of(env)
            metadata = dict(env.metadata) if isinstance(env.metadata, Mapping) else {}
            lanes.append((env.observation_space, env.action_space, metadata, env.render_mode, name, limit, methods, None))
        return lanes

    def check_spaces(self, observation: gymnasium.Space, action: gymnasium.Space) -> None:
        """Raises ``ValueError`` for an env that has other spaces than the batch."""
        for lane, env in enumerate(self.envs):
            check_same(self.first + lane, (env.observation_space, env.action_space), (observation, action))

    def set_up(self, told: dict[str, Any]) -> None:
        """Finds the lanes' records in its memory. ``told`` are the spaces of the batch, and the places."""
        observation, action, record = told["observation"], told["action"], told["record"]
        self.check_spaces(observation, action)
        self.map(record)
        self.said_at, self.said_room = record["said"]
        self.ahead_at: int = record["ahead"]

        def columns(layout: Layout, places: Sequence[int]) -> list[np.ndarray]:
            return layout.records(self.memory, places, self.stride, self.count)

        self.layout, self.action_layout = Layout(observation), Layout(action, 1)
        self.columns, self.action_columns = self.layout.columns, self.action_layout.columns
        self.batch_rows = columns(self.layout, record["observation"])
        self.ahead_batch_rows = columns(self.layout, [at + self.ahead_at for at in record["observation"]])
        self.rows, self.ahead_rows = self.rows_of(self.batch_rows), self.rows_of(self.ahead_batch_rows)
        # The dtypes of columns that are kept as wider ones.
        self.narrow = [
            None if kept == dtype else dtype
            for kept, dtype in zip(self.layout.stored, self.columns.dtypes, strict=True)
        ]
        self.plain = self.columns.single and self.narrow == [None]
        self.actions = columns(self.action_layout, [record["action"]])
        self.infos = InfoRows(self.memory, record, told["infos"], self.count) if told["infos"] else None
        self.batched_action_space = batch_space(action, 1)

    # Lanes

    def do(self, lanes: Iterable[int], number: int, payload: bytes, later: bytearray) -> list[int]:
        """Does what these lanes are told. Returns those that are to try again to connect."""
        envs, places, rewards, rows, publish = self.envs, self.places, self.rewards, self.rows, self.link.publish
        count, plain, frames, same_step = self.count, self.plain, self.frames_every, self.same_step
        dtype, shape = (self.columns.dtypes[0], self.columns.shapes[0]) if plain else (None, None)
        ndarray, numbers = np.ndarray, self.packer.numbers
        tell, told, infos = self.verdicts.tell, self.verdicts.told, self.infos
        given, items, options = self.extras(payload) if len(payload) > 9 * count else (NOTHING_GIVEN, {}, {})
        actions = self.taken(items, payload)
        again: list[int] = []
        for lane in lanes:
            task = payload[lane]
            if task == NOTHING:
                continue
            picture, words, flags = b"", None, 0
            try:
                others = unpainted = final = None
                if task == STEP:
                    observation, reward, terminated, truncated, info = envs[lane].step(actions[lane])
                    rewards[lane] = reward if type(reward) is float else reward_of(reward)
                    if type(info) is not dict:
                        info = info_of(info)
                    if info or lane in told:
                        tell(lane, info)
                    if infos is not None:
                        infos.write(lane, info)
                    if terminated or truncated:
                        flags = (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)
                        if same_step:
                            final = (observation,)
                elif task == RESET and lane in self.begun and self.first + lane not in given.seeds:
                    observation, given_info = self.take_begun(lane)
                    info = info_of(given_info)
                    rewards[lane] = 0.0
                else:
                    seed: int | None = int.from_bytes(payload[count + lane * 8 : count + lane * 8 + 8], "little")
                    seed = given.seeds.get(self.first + lane, None if task == RESET else seed)
                    observation, given_info = self.begin(lane, task, seed, options.get(lane, given.options))
                    info = info_of(given_info)
                    rewards[lane] = 0.0
                if plain and type(observation) is ndarray and observation.dtype is dtype and observation.shape == shape:
                    rows[lane][0][...] = observation
                else:
                    others = self.write(rows[lane], observation)
                if frames:
                    picture, unpainted = self.picture(lane, task != STEP, bool(flags))
                if final is None and others is None and unpainted is None:
                    words = (numbers(info) or pickled(None, info, None, None, dump)) if info else None
                else:
                    words = pickled(final, info, others, unpainted, dump)
                    if final is not None and not self.declares and self.begin_ahead(lane):
                        flags |= AHEAD
            except Exception as error:
                told_of = error if task == STEP else self.connector.failed(lane, error)
                if told_of is None:
                    again.append(lane)
                    continue
                picture, words, flags = b"", dump(failure(told_of)), LOST
                self.lose(lane)
            if words is not None or picture:
                flags |= self.say(lane, picture, words or b"", later)
            publish(places[lane], number | flags)
        return again

    def begin_ahead(self, lane: int) -> bool:
        """Begins the lane's next episode, and writes what that gives beside the row of the one that has ended. Returns false
        if it does not fit there, or failed: it is told when the reset is asked for.
        """
        try:
            observation, info = self.envs[lane].reset()
            info = info_of(info)
            self.begun[lane] = (observation, info)
            if self.frames_every:
                return False
            others = self.write(self.ahead_rows[lane], observation)
            words = pickled(None, info, others, None, dump) if info or others else b""
        except UNREACHED:
            # It tries again when the reset is asked for.
            self.begun.pop(lane, None)
            return False
        except Exception as error:
            self.begun[lane] = error
            return False
        if 12 + len(words) > self.said_room:
            return False
        at = self.places[lane] + self.said_at + self.ahead_at
        said = bytes(4) + words
        self.memory[at : at + 8 + len(said)] = len(said).to_bytes(8, "little") + said
        del self.begun[lane]
        return True

    def take_begun(self, lane: int) -> Any:
        """Returns what the reset gave that was made ahead."""
        begun = self.begun.pop(lane)
        if isinstance(begun, Exception):
            raise begun
        return begun

    def say(self, lane: int, picture: bytes, words: bytes, later: bytearray) -> int:
        """Writes what a lane says to its record, or keeps it for the answer. Returns the flag that says where it is."""
        said = len(picture).to_bytes(4, "little") + picture + words
        size = len(said)
        if size + 8 <= self.said_room:
            at = self.places[lane] + self.said_at
            self.memory[at : at + 8 + size] = size.to_bytes(8, "little") + said
            return SPEAKS
        later += lane.to_bytes(4, "little") + size.to_bytes(4, "little") + said
        return SPEAKS_LATER

    def extras(self, payload: bytes) -> tuple[Given, dict[int, Any], dict[int, dict[str, Any]]]:
        """Returns what resets are given, by lane the actions that are no columns, and by lane the options that an episode has
        of those that its env declares."""
        at = 9 * self.count

        def take() -> bytes:
            nonlocal at
            size = int.from_bytes(payload[at : at + 4], "little")
            at += 4 + size
            return payload[at - size : at]

        framed = take()
        given = Given(*pickle.loads(framed)) if framed else NOTHING_GIVEN
        items, declared = {}, {}
        while at < len(payload):
            lane = int.from_bytes(payload[at : at + 4], "little")
            at += 4
            if payload[lane] == STEP:
                items[lane] = pickle.loads(take())
            else:
                declared[lane] = json.loads(take())
        return given, items, declared

    def taken(self, items: dict[int, Any], payload: bytes) -> Sequence[Any]:
        """Returns the lanes' actions. Those in memory are copies: envs may keep them."""
        if self.action_columns.single:
            actions: Any = self.actions[0].astype(self.action_columns.dtypes[0])
            if not items:
                return actions
            actions = list(actions)
        else:
            lanes = [lane for lane in range(self.count) if payload[lane] == STEP and lane not in items]
            arrays, parts = [a[lanes] for a in self.actions], self.action_layout.parts
            if parts is not None:
                arrays = parts.split(arrays[0])
            stored = iterate(self.batched_action_space, self.action_columns.batch(arrays, ())) if lanes else ()
            actions = [None] * self.count
            for lane, action in zip(lanes, stored, strict=True):
                actions[lane] = action
        for lane, action in items.items():
            actions[lane] = action
        return actions

    def begin(self, lane: int, task: int, seed: int | None, options: dict[str, Any] | None) -> Any:
        """Begins an episode in a lane, with a new env if it is told so. Returns what its reset gives."""
        if task == ANEW or self.envs[lane] is None:
            self.lose(lane)
            self.envs[lane] = adapted(self.fns[lane]())
        self.begun.pop(lane, None)
        return self.envs[lane].reset(seed=seed, options=options)

    def write(self, kept_row: list[np.ndarray], observation: Any) -> list[Any] | None:
        """Writes an observation to a lane's record, and returns the parts that cannot be written there, if there are
        any.
        """
        row, others = kept_row, [None] * self.columns.others
        if any(self.narrow):
            # As the dtype says first: a number that it rounds must not be rounded otherwise by the wider one.
            row = [r if dtype is None else np.zeros(r.shape, dtype) for r, dtype in zip(row, self.narrow, strict=True)]
        if self.columns.single:
            write_array(row[0], observation)
        else:
            self.columns.write(row, others, observation)
        for kept, narrow, dtype in zip(kept_row, row, self.narrow, strict=True):
            if dtype is not None:
                kept[...] = narrow
        return others or None

    def lose(self, lane: int) -> None:
        """Puts an env away."""
        self.begun.pop(lane, None)
        super().lose(lane)

    def picture(self, lane: int, began: bool, over: bool) -> tuple[bytes, str | None]:
        """Takes a picture of the lane as it looks now, if that is to be recorded: at the reset (``began``), at every
        ``frames_every``-th step and at the last. An env that gives no such picture goes on without; then why.
        """
        if not self.is_painted(lane, not began, over):
            return b"", None
        try:
            return pack_frame(np.asarray(self.envs[lane].render())), None
        except Exception as error:
            return b"", f"{type(error).__name__}: {error}"

    # Calls

    def call(self, kind: str, name: str, *given: Any) -> list[tuple[bool, Any]]:
        """Calls a method of every env with arguments (``"call"``), or sets an attribute of each (``"set"``). Returns for
        each lane: whether it worked, and the result or the failure.
        """
        results: list[tuple[bool, Any]] = []
        for lane, env in enumerate(self.envs):
            try:
                if kind == "set":
                    env.set_wrapper_attr(name, given[0][lane])
                    results.append((True, None))
                else:
                    args, kwargs = given
                    value = env.get_wrapper_attr(name)
                    results.append((True, value(*args, **kwargs) if callable(value) else value))
            except Exception as error:
                results.append((False, failure(error)))
        return results

    def call_lane(self, lane: int, method: str, payload: str) -> dict[str, str]:
        """Calls a method that a lane's env lists."""
        try:
            return env_methods.call(self.envs[lane], method, payload)
        except env_methods.FailedError as failed:
            self.lose(lane)
            return {"lost": dump(failure(failed.__cause__ or failed)).hex()}

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
