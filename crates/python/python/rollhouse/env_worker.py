"""A process that steps lanes of a Python env for a host in Rust.

It is started by the host, never by hand, and finds no module in the folder that it is started in. All that it is told is JSON, or bytes whose meaning is fixed here; nothing is
ever unpickled. A lane whose env raises is lost alone; ``SystemExit`` ends the process, and with it all of its lanes. It
ends when its host does, whatever its envs are doing.

The host's first message is ``{"env", "kwargs", "deterministic", "lanes", "allow", "connect", "record", "action_mask", "infos", "frames_every",
"options", "draw", "picture"}``. The answer is
``{"made": {...}}``, which says what the env is, or ``{"refused": {"kind", "message"}}``. ``lanes`` is 0 where only the answer is
wanted; then the env is reset once to see whether it gives action masks, and ``action_mask`` of the messages that follow is what was said
of them; and once with each of the dicts of ``options``, which is refused if that raises.
Then, too, the host may have a step tried: the answer is ``{"step", "first"}``, the numbers in the infos of it and of the reset before
(``rollhouse.remarks``). ``infos`` of a worker with lanes has them, and under ``record`` those that are to be recorded.
With ``draw`` an env that can draw itself is made so, unless its arguments say how; with ``picture`` the answer has the size of a picture.

A command has a byte for each lane (``rollhouse.lane_words``) and then a seed of 8 bytes for each. Behind them stand, for lanes that begin
an episode of an env that declares options: the lane's number and a length, u32 each, and as many bytes of JSON. One that calls a method of a
lane's env is ``{"lane", "method", "payload"}``, and its answer what ``rollhouse.env_methods`` says. One that has it drawn is ``{"lane"}``; the answer is
columns and rows, u32 each, and three bytes a pixel, or words. Of every ``frames_every``-th step, of a reset and of a last step the worker keeps
a picture, which is told with the row and given when it is asked for, as a PNG file. Each lane has a record in the memory that the worker shares
with its host alone, at the places that ``record`` names: its answer's number, reward, what is said of its episode, action
and observation. A lane of an env that is declared deterministic has a place for its generator too, which the host writes
before a reset from there and the worker after every row.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import struct
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator

from rollhouse import env_methods, leaving_out, lookup, reports
from rollhouse._native import WorkerLink, pack_frame
from rollhouse.action_parts import ActionParts
from rollhouse.agents import adapted
from rollhouse.carried import kept
from rollhouse.connecting import UNREACHED, Connector
from rollhouse.env_methods import MAX_WORDS, words
from rollhouse.errors import NotConnectedError
from rollhouse.hosted.columns import write_array
from rollhouse.hosted.declared import declared_options, options_among
from rollhouse.hosted.layout import strided
from rollhouse.lane_words import (
    AGAIN,
    ANEW,
    LEARN_INFOS,
    LOST,
    NOTHING,
    PAINTED,
    PAINTED_LANE,
    PLACED,
    RENDER_LANE,
    RESET,
    SEEDED,
    STEP,
    TERMINATED,
    TRUNCATED,
)
from rollhouse.lookup import REGISTERED
from rollhouse.masks import choices_of, flat
from rollhouse.remarks import LaneInfos, learned
from rollhouse.said import info_of, reward_of
from rollhouse.worker_program import LaneWorker, Place, run
from rollhouse.worker_spaces import OBSERVED, TAKEN, Maxima, UnhostedSpace, WorkerColumns, space_of

OWNED = {name for name, given in inspect.signature(gymnasium.make).parameters.items() if given.kind is not given.VAR_KEYWORD}
"""Arguments of ``gymnasium.make`` itself are not the caller's: time limits are the engine's, wrappers the registry's."""

PETTINGZOO_NAMES = {"env", "parallel_env", "raw_env"}
"""Names of the functions of a module by which PettingZoo's envs are made; no other function is called."""

PETTINGZOO_MADE = "pettingzoo.utils.conversions"
"""The module whose wrapper such functions mostly are."""


class Refused(Exception):
    """The env cannot be hosted. ``kind`` is a word that the host knows."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def main(host: int) -> None:
    """Runs the worker until it is told to end. ``host`` is the process id of its parent."""
    link = WorkerLink(host)
    run(link, lambda hello: begin(link, json.loads(hello)))


def begin(link: WorkerLink, hello: dict[str, Any]) -> tuple[bytes, Worker | Describer | None]:
    """Makes the envs of a hello. Returns the answer, and what does the rest."""
    connector = Connector(link, hello["connect"]["retries"], hello["connect"]["within"])
    kind = kind_of(hello)
    try:
        envs = kind.envs_of(hello, connector)
        told = describe(envs, hello)
        declared = told.get("options", [])
        if not hello["lanes"] and (mask := connector.make(lambda: action_mask_of(envs[0], declared))) is not None:
            told["action_mask"] = mask
        if hello["picture"] and (picture := connector.make(lambda: picture_of(envs[0], declared))) is not None:
            told["picture"] = picture
        connector.make(lambda: try_options(envs[0], declared, hello["options"]))
        answer = json.dumps({"made": told}, sort_keys=True, separators=(",", ":"), default=str)
        worker = kind(link, hello, envs, connector) if hello["lanes"] else Describer(link, envs[0], declared)
    except Refused as error:
        return refusal(error.kind, str(error)), None
    except NotConnectedError as error:
        return refusal("connect_failed", str(error)), None
    except Exception as error:
        return refusal("make_failed", words(error)), None
    connector.rest()
    return answer.encode(), worker


class Describer:
    """A worker without lanes: its host has what it wanted to know, or wants more and ends this process then."""

    name = "rollhouse-env"

    def __init__(self, link: WorkerLink, env: gymnasium.Env, declared: list[dict[str, Any]]):
        self.link, self.env, self.declared = link, env, declared

    def serve(self, place: Place) -> None:
        """Has a step tried, if the host wants that."""
        code, _ = self.link.receive()
        if code & 0xFF == LEARN_INFOS:
            defaults = {option["name"]: option["default"] for option in self.declared}
            said = learned(self.env, lambda: begun(self.env, 0, defaults), reports.names(reports.declared(self.env)))
            self.link.reply(0, json.dumps(said).encode())
            self.link.receive()


def kind_of(hello: dict[str, Any]) -> type[Worker]:
    """Returns the class of a worker: whether its lanes are envs of their own, or step together."""
    if not lookup.is_vector(hello["env"]):
        return Worker
    from rollhouse.vector_worker import VectorWorker

    return VectorWorker


def refusal(kind: str, message: str) -> bytes:
    """Returns the answer of a worker that cannot host its env."""
    return json.dumps({"refused": {"kind": kind, "message": message}}).encode()


# Making


def make(hello: dict[str, Any]) -> gymnasium.Env:
    """Makes an env, without a time limit where Gymnasium would add one.

    Raises:
        Refused: The import is outside the list, or fails, or the env does not take the arguments.
    """
    env = made(hello, hello["kwargs"])
    if hello["draw"] and env.render_mode is None and "rgb_array" in (env.metadata or {}).get("render_modes", ()):
        env.close()
        env, hello["made_to_draw"] = made(hello, hello["kwargs"] | {"render_mode": "rgb_array"}), True
    return env


def made(hello: dict[str, Any], given: dict[str, Any]) -> gymnasium.Env:
    """Makes an env with these arguments, of which one is ours."""
    kwargs = dict(given)
    paths = kwargs.pop(leaving_out.ARGUMENT, None)
    env = made_whole(hello, kwargs)
    if paths is None:
        return env
    try:
        return leaving_out.PartialObservation(env, paths)
    except (ValueError, TypeError, AttributeError) as error:
        raise Refused("kwargs_refused", str(error)) from error


def made_whole(hello: dict[str, Any], kwargs: dict[str, Any]) -> gymnasium.Env:
    """Makes an env with these arguments of its own."""
    name, allow = hello["env"], hello["allow"]
    owned = sorted(OWNED & kwargs.keys())
    if owned:
        raise Refused("kwargs_refused", f"{', '.join(owned)}: not an argument that can be given")
    try:
        if name.startswith(REGISTERED):
            spec = registered(name, allow)
            entry = spec.entry_point
            kwargs = without_options(hello, kwargs, load_env_creator(entry) if isinstance(entry, str) else entry)
            return without_limit(gymnasium.make(spec, disable_env_checker=True, **kwargs), spec.max_episode_steps)
        maker = maker_of(name, allow)
        kwargs = without_options(hello, kwargs, maker)
        env = adapted(maker(**kwargs))
    except TypeError as error:
        # One without a frame below this one was raised by the call itself.
        by_call = error.__traceback__ is not None and error.__traceback__.tb_next is None
        if kwargs and (by_call or "unexpected keyword argument" in str(error)):
            raise Refused("kwargs_refused", f"{error}; given were {', '.join(kwargs)}") from error
        raise
    if not isinstance(env, gymnasium.Env):
        raise Refused("make_failed", f"{name} gives a {type(env).__name__}, which is neither a gymnasium.Env nor PettingZoo's")
    return env


def without_options(hello: dict[str, Any], kwargs: dict[str, Any], maker: Any) -> dict[str, Any]:
    """Returns the arguments without those that the env declares as options, which are noted as what these are by default."""
    hello["given_options"] = given = options_among(kwargs, maker)
    return {name: value for name, value in kwargs.items() if name not in given}


def without_limit(env: gymnasium.Env, limit: int | None) -> gymnasium.Env:
    """Takes out the time limit with which Gymnasium makes an env, for the engine has its own. Wrappers around it may know of it:
    one that shows the time does."""
    outer: Any = None
    wrapper: Any = env
    while limit is not None and isinstance(wrapper, gymnasium.Wrapper):
        if type(wrapper) is gymnasium.wrappers.TimeLimit and wrapper._max_episode_steps == limit:
            if outer is None:
                return wrapper.env
            outer.env = wrapper.env
            break
        outer, wrapper = wrapper, wrapper.env
    return env


def maker_of(name: str, allow: list[str]) -> Any:
    """Returns what makes the envs of a name, ``module:attribute``: the class of an env, or a function by which PettingZoo's
    are made. Nothing else is ever called, whatever a package has, and nothing of another package that it has imported.

    Raises:
        Refused: The package is not in the list, or the attribute is neither.
    """
    module, _, attribute = name.partition(":")
    check_allowed(module, allow)
    loaded = load(module)
    maker = getattr(loaded, attribute, None) if attribute.isidentifier() else None
    made_by = getattr(maker, "__module__", None)
    made_by = made_by if isinstance(made_by, str) else ""
    if inspect.isfunction(maker) and attribute in PETTINGZOO_NAMES:
        if made_by != PETTINGZOO_MADE:
            check_allowed(made_by, allow)
        return maker
    if not is_env_class(maker):
        raise Refused("import_failed", f"module {module!r} has no class of envs {attribute!r}, nor such a function of PettingZoo's")
    check_allowed(made_by, allow)
    return maker


def is_env_class(given: Any) -> bool:
    """Returns whether something is a class of envs: of Gymnasium's, but for its own wrappers, which are given an env; or what
    PettingZoo has, whose envs need no base."""
    if not isinstance(given, type):
        return False
    if issubclass(given, gymnasium.Env):
        return given is not gymnasium.Env and not (issubclass(given, gymnasium.Wrapper) and package_of(given.__module__) == "gymnasium")
    return all(callable(getattr(given, name, None)) for name in ("reset", "step", "observation_space", "action_space"))


def registered(name: str, allow: list[str]) -> gymnasium.envs.registration.EnvSpec:
    """Returns what is registered under an id, ``gymnasium:ID`` or ``gymnasium:module:ID``. What it is made by, and each wrapper
    that is registered with it, is of packages in the list."""
    check_allowed("gymnasium", allow)

    def load_allowed(module: str) -> Any:
        check_allowed(module, allow)
        return load(module)

    try:
        spec = lookup.find(name, load_allowed, (package for package in allow if package != "gymnasium"))
    except gymnasium.error.Error as error:
        if isinstance(error.__cause__, Refused):
            raise Refused(error.__cause__.kind, str(error)) from error
        raise Refused("import_failed", f"{type(error).__name__}: {error}") from error
    for entry in (spec.entry_point, *(wrapper.entry_point for wrapper in getattr(spec, "additional_wrappers", ()))):
        check_allowed(entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "") or "", allow)
    return spec


def load(module: str) -> Any:
    """Imports a module."""
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise Refused("import_failed", words(error)) from error


def check_allowed(module: str, allow: list[str]) -> None:
    """Refuses a module whose package is not in the list."""
    package = package_of(module)
    if package not in allow:
        raise Refused("not_allowed", f"package {package!r} is not in the list of those that may be imported: {allow}")
    if not all(part.isidentifier() and not part.startswith("__") for part in module.split(".")):
        raise Refused("import_failed", f"{module!r} is no module that envs are in")


def package_of(module: str) -> str:
    """Returns the package that a module belongs to."""
    return module.partition(".")[0]


# Describing


def describe(envs: list[gymnasium.Env], hello: dict[str, Any]) -> dict[str, Any]:
    """Says what the envs are, which has to be the same of all.

    Raises:
        Refused: A space cannot be hosted, or lanes differ.
    """
    first, *others = [description(env, hello) for env in envs]
    if any(other != first for other in others):
        raise Refused("lanes_differ", "envs that were made by the same call have different spaces")
    return first


def description(env: gymnasium.Env, hello: dict[str, Any]) -> dict[str, Any]:
    """Says what an env is."""
    name = hello["env"]
    limit = registered(name, hello["allow"]).max_episode_steps if name.startswith(REGISTERED) else None
    try:
        observation = space_of(env.observation_space, "observation", Maxima.of(env.metadata, OBSERVED))
        action = space_of(env.action_space, "action", Maxima.of(env.metadata, TAKEN))
    except UnhostedSpace as error:
        raise Refused("space_not_supported", str(error)) from error
    told: dict[str, Any] = {
        "observation": observation,
        "action": action,
        "max_episode_steps": limit,
        # What the caller's arguments give.
        "render_mode": None if hello.get("made_to_draw") else env.render_mode,
        "metadata": env.metadata,
        "gymnasium": gymnasium.__version__,
    }
    if is_declared(env, hello):
        told["deterministic"] = True
    if hello["lanes"] and hello["action_mask"] is not None:
        told["action_mask"] = hello["action_mask"]
    try:
        options = declared_options(env.metadata, given := hello.get("given_options"))
    except ValueError as error:
        raise Refused("kwargs_refused" if given else "make_failed", str(error)) from error
    if options:
        told["options"] = options
    try:
        methods = env_methods.methods_of(env)
    except ValueError as error:
        raise Refused("methods_refused", str(error)) from error
    if methods:
        told["methods"] = methods
    try:
        told.update(reports.declared(env))
    except (ValueError, TypeError) as error:
        raise Refused("make_failed", str(error)) from error
    if lookup.is_vector(name) and reports.names(told):
        raise Refused("make_failed", f"the lanes of {name} step together, and what each has done is not reported")
    return told


def try_options(env: gymnasium.Env, declared: list[dict[str, Any]], tried: list[dict[str, Any]]) -> None:
    """Begins an episode with each set of options.

    Raises:
        Refused: The env raised. The message has the options that are not as they are by default.
    """
    defaults = {option["name"]: option["default"] for option in declared}
    for options in tried:
        try:
            begun(env, 0, options)
        except UNREACHED:
            raise
        except Exception as error:
            others = [f"{name}={value!r}" for name, value in options.items() if value != defaults.get(name)]
            message = f"{', '.join(others)}: {type(error).__name__}: {error}"
            raise Refused("options_refused", message[:MAX_WORDS]) from error


def action_mask_of(env: gymnasium.Env, options: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Says how many booleans the env's action masks have and where it gives them; None if it gives none.

    Raises:
        Refused: A mask is not one of the action space's.
        ConnectionError, TimeoutError: The env cannot connect.
    """
    if not isinstance(env.action_space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return None
    try:
        _, given = begun(env, None, {option["name"]: option["default"] for option in options})
    except UNREACHED:
        raise
    except Exception:
        # Its lanes will tell.
        return None
    info = info_of(given)
    if "action_mask" in info:
        mask = flat(info["action_mask"])
        # What is no mask is an info like others.
        return None if mask is None or len(mask) != choices_of(env.action_space) else {"n": len(mask), "by": "info"}
    if not callable(method := getattr(env.unwrapped, "action_masks", None)):
        return None
    mask = flat(method())
    if mask is None:
        raise Refused("space_not_supported", "action_masks() gives no mask")
    return {"n": len(mask), "by": "method"}


def picture_of(env: gymnasium.Env, options: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Says how large the pictures are that an env draws of itself, and how many make up a second; None if it draws none."""
    if env.render_mode != "rgb_array":
        return None
    begun(env, None, {option["name"]: option["default"] for option in options})
    height, width, _ = drawn(env).shape
    fps = (env.metadata or {}).get("render_fps")
    return {"width": width, "height": height, "fps": round(fps) if isinstance(fps, (int, float)) and 1 <= fps < 2**31 else FPS}


def drawn(env: gymnasium.Env) -> np.ndarray:
    """Returns the picture of itself that an env draws.

    Raises:
        ValueError: It is none of three bytes a pixel.
    """
    picture: Any = env.render()
    if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        told = f"{picture.dtype} of shape {picture.shape}" if isinstance(picture, np.ndarray) else type(picture).__name__
        raise ValueError(f"render() with render_mode={env.render_mode!r} gave {told}, which is no picture")
    return picture


def begun(env: gymnasium.Env, seed: int | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Resets an env, with options if it declares some. It may keep and change what it is given."""
    return env.reset(seed=seed, options=copy.deepcopy(options)) if options else env.reset(seed=seed)


def is_declared(env: gymnasium.Env, hello: dict[str, Any]) -> bool:
    """Returns whether the env is declared deterministic: by who asks for it, else by the env's own ``metadata``.

    Raises:
        Refused: It is declared, and it is known not to be, or its generator is none that can be put back.
    """
    name, declared = hello["env"], hello["deterministic"]
    if declared and lookup.is_vector(name):
        raise Refused("not_deterministic", f"the lanes of {name} step together, and none begins an episode alone")
    if declared is None:
        declared = (env.metadata or {}).get("deterministic") is True
    if not declared:
        return False
    if name.startswith(REGISTERED) and registered(name, hello["allow"]).nondeterministic:
        raise Refused("not_deterministic", f"{name} is registered with nondeterministic=True")
    try:
        generator_of(env)
    except Exception as error:
        raise Refused("not_deterministic", str(error)) from error
    return True


# Generators

GENERATOR = struct.Struct("<5Q")
"""A generator's place: state and increment, each its low half first, and the buffered half of a word with bit 32."""

LOW = 2**64 - 1

OPTIONS = struct.Struct("<II")
"""What stands before a lane's options in a command: its number and their length."""

PICTURE = struct.Struct("<II")
"""What stands before a picture: its columns and rows."""

FPS = 30
"""Pictures that make up a second where an env does not say."""

SEED_BYTES = 8
"""Bytes of a lane's seed in a command."""


def generator_of(env: gymnasium.Env) -> np.random.PCG64:
    """Returns the bit generator that Gymnasium gives an env.

    Raises:
        TypeError: The env has another one.
    """
    np_random = env.unwrapped.np_random
    generator = getattr(np_random, "bit_generator", np_random)
    if type(generator) is not np.random.PCG64:
        raise TypeError(f"its np_random is a {type(generator).__name__}, and only a PCG64 can be put back")
    return generator


def packed(generator: np.random.PCG64) -> bytes:
    """Returns where a generator stands."""
    kept: Any = generator.state
    state, inc = kept["state"]["state"], kept["state"]["inc"]
    half = kept["uinteger"] | 1 << 32 if kept["has_uint32"] else 0
    return GENERATOR.pack(state & LOW, state >> 64, inc & LOW, inc >> 64, half)


def unpacked(place: bytes) -> dict[str, Any]:
    """Returns what ``packed`` made, as NumPy has it."""
    low, high, inc_low, inc_high, half = GENERATOR.unpack(place)
    return {
        "bit_generator": "PCG64",
        "state": {"state": low | high << 64, "inc": inc_low | inc_high << 64},
        "has_uint32": half >> 32,
        "uinteger": half & 0xFFFFFFFF,
    }


# Stepping


class Worker(LaneWorker):
    """The lanes of this process, counted from 0."""

    def __init__(self, link: WorkerLink, hello: dict[str, Any], envs: list[gymnasium.Env], connector: Connector):
        super().__init__(link, connector, len(envs), hello["frames_every"])
        self.hello = hello
        self.envs = envs
        self.played = [False] * self.count
        self.told = describe(envs, hello)
        # Pictures that are to be recorded, by lane.
        self.paintings: dict[int, bytes] = {}
        metadata, action_space = envs[0].metadata, envs[0].action_space
        self.columns = WorkerColumns(envs[0].observation_space, Maxima.of(metadata, OBSERVED).by_path)
        taken = Maxima.of(metadata, TAKEN).by_path
        self.parts = ActionParts(action_space, taken) if ActionParts.has(action_space) else None
        # A copy is of the env's own dtype; parts are cast each for itself.
        self.action_dtype = action_space.dtype if self.parts is None else self.parts.dtype
        told = reports.declared(envs[0])
        self.reports = bool(told)
        # Whether each env was told that it repeats, of those that may choose their actions.
        self.repeats: list[bool | None] | None = [None] * self.count if "reports_actions" in told else None
        self.mask_by: str | None = (hello["action_mask"] or {}).get("by")

    @classmethod
    def envs_of(cls, hello: dict[str, Any], connector: Connector) -> list[Any]:
        """Makes the envs of the lanes, or one to describe them."""
        return [connector.make(lambda: make(hello)) for _ in range(max(1, hello["lanes"]))]

    def placed(self) -> None:
        """Finds the lanes' records, of which the hello has the places."""
        self.set_up(self.hello["record"])

    def answer(self, command: int, number: int, payload: bytes) -> bytes | None:
        """Does a command, also one that is about a lane's pictures. Returns the answer; None if the host wants no more."""
        if command == RENDER_LANE:
            return self.render(**json.loads(payload))
        if command == PAINTED_LANE:
            return self.paintings.pop(json.loads(payload)["lane"], b"")
        return super().answer(command, number, payload)

    def set_up(self, record: dict[str, Any]) -> None:
        """Finds the lanes' records in the memory that the host shares with this process."""
        self.map(record)
        self.generator_at = record["generator"]

        def array(at: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
            return strided(self.memory, at, self.stride, self.count, dtype, shape)

        if self.parts is not None:
            self.actions = array(record["action"], self.parts.dtype, (self.parts.elements,))
        else:
            action_space = self.envs[0].action_space
            self.actions = array(record["action"], kept(action_space), action_space.shape or ())
        observations = [
            array(at, dtype, shape)
            for at, dtype, shape in zip(record["observation"], self.columns.stored, self.columns.shapes, strict=True)
        ]
        if self.mask_by is not None:
            self.masks = array(record["infos"][0], np.dtype("uint8"), (self.hello["action_mask"]["n"],))
        infos = self.hello["infos"]
        masks = 0 if self.mask_by is None else 1
        self.infos = None if infos is None else LaneInfos(infos, record["infos"][masks:], record["further"], array)
        self.batch_rows, self.rows = observations, self.rows_of(observations)

    def nothing_later(self) -> dict[int, str]:
        """Returns the words of lanes that are lost, of which there are none yet."""
        return {}

    def packed_later(self, later: dict[int, str]) -> bytes:
        """Returns them as bytes."""
        return json.dumps({"lost": later}).encode() if later else b""

    def do(self, lanes: Iterable[int], number: int, payload: bytes, later: dict[int, str]) -> list[int]:
        """Does what lanes are told. Returns those that are to try again to connect."""
        publish, told, again = self.link.publish, self.verdicts.told, []
        seeds, options = payload[self.count :], self.options_in(payload)
        # Copies: envs may keep them.
        actions = self.actions.astype(self.action_dtype)
        for lane in lanes:
            task = payload[lane]
            if task == NOTHING:
                continue
            steps = task == STEP or task == AGAIN
            try:
                if steps:
                    if self.repeats is not None:
                        self.tell_repeats(lane, task == AGAIN)
                    action: Any = actions[lane]
                    if self.parts is not None:
                        self.parts.check(action)
                        action = self.parts.action(action)
                    observation, given_reward, terminated, truncated, given = self.envs[lane].step(action)
                    reward, info = reward_of(given_reward), info_of(given)
                    if info or lane in told:
                        self.verdicts.tell(lane, info)
                    if self.infos is not None:
                        self.infos.step(lane, info)
                        if self.reports:
                            self.infos.report(lane, info, self.actions[lane], self.carried)
                    flags = (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)
                else:
                    seed = int.from_bytes(seeds[lane * SEED_BYTES : (lane + 1) * SEED_BYTES], "little")
                    (observation, given), reward, flags = self.begin(lane, task, seed, options.get(lane, {})), 0.0, 0
                    info = info_of(given)
                    if self.infos is not None:
                        self.infos.first(lane, info)
                    self.connector.settled(lane)
                self.rewards[lane] = reward
                if self.mask_by is not None:
                    self.mask(lane, info)
                if self.columns.single:
                    write_array(self.rows[lane][0], observation)
                else:
                    self.columns.write(self.rows[lane], [], observation)
                if self.frames_every:
                    flags |= self.paint(lane, steps, flags)
                if self.generator_at is not None:
                    self.memory[self.generator_place(lane)] = packed(generator_of(self.envs[lane]))
            except Exception as error:
                failure = error if steps else self.connector.failed(lane, error)
                if failure is None:
                    again.append(lane)
                    continue
                later[lane] = words(failure)
                self.lose(lane)
                flags = LOST
            publish(self.places[lane], number | flags)
        return again

    def tell_repeats(self, lane: int, repeats: bool) -> None:
        """Tells an env that may choose its actions whether it repeats what it did: then it takes those that it is given."""
        assert self.repeats is not None
        if self.repeats[lane] is not repeats:
            self.envs[lane].unwrapped.repeats = repeats
            self.repeats[lane] = repeats

    def carried(self, action: Any) -> Any:
        """Returns an action that was taken as the column has it.

        Raises:
            ValueError: It is none of a Dict or Tuple.
        """
        if self.parts is None:
            return action
        space = self.envs[0].action_space
        if not space.contains(action):
            raise ValueError(f"{action!r} is no action of {space}")
        return self.parts.loose([action])[0]

    def options_in(self, command: bytes) -> dict[int, dict[str, Any]]:
        """The options of lanes that begin an episode."""
        options, at = {}, self.count * (1 + SEED_BYTES)
        while at < len(command):
            lane, length = OPTIONS.unpack_from(command, at)
            at += OPTIONS.size
            options[lane] = json.loads(command[at : at + length])
            at += length
        return options

    def mask(self, lane: int, info: dict[str, Any]) -> None:
        """Writes which actions a lane may take next.

        Raises:
            ValueError: What the env gives is no mask.
        """
        place = self.masks[lane]
        if self.mask_by == "info" and "action_mask" not in info:
            # Nothing is forbidden.
            place[...] = 1
            return
        given = info["action_mask"] if self.mask_by == "info" else self.envs[lane].unwrapped.action_masks()
        mask = flat(given)
        if mask is None or mask.shape != place.shape:
            raise ValueError(f"action_mask: {given!r} is no mask of {len(place)} actions")
        place[...] = mask

    def begin(self, lane: int, task: int, seed: int, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in a lane, with a new env if it is told so. Returns the first observation and the info."""
        if task == ANEW or (task == PLACED and self.played[lane]):
            self.lose(lane)
            env = make(self.hello)
            if description(env, self.hello) != self.told:
                env.close()
                raise ValueError("an env that was made anew has other spaces than before")
            self.envs[lane] = env
        env, self.played[lane] = self.envs[lane], True
        if task == PLACED:
            # The seed chooses the sequence; the place is somewhere in it.
            begun(env, seed, options)
            generator_of(env).state = unpacked(self.memory[self.generator_place(lane)])  # type: ignore[assignment]
        return begun(env, seed if task in (SEEDED, ANEW) else None, options)

    def call_lane(self, lane: int, method: str, payload: str) -> dict[str, str]:
        """Calls a method of a lane's env, and tells where its generator stands then."""
        try:
            told = env_methods.call(self.envs[lane], method, payload)
            if self.generator_at is not None:
                self.memory[self.generator_place(lane)] = packed(generator_of(self.envs[lane]))
        except Exception as error:
            self.lose(lane)
            return {"lost": words(error)}
        return told

    def render(self, lane: int) -> bytes:
        """Returns the picture that a lane's env draws, as bytes, or words about why it draws none."""
        try:
            picture = drawn(self.envs[lane])
        except Exception as error:
            return words(error).encode()
        height, width, _ = picture.shape
        return PICTURE.pack(width, height) + picture.tobytes()

    def paint(self, lane: int, steps: bool, flags: int) -> int:
        """Makes a picture of a lane's row, if it is to be recorded. Returns the flag that says so; an env that gives none goes
        on without."""
        if not self.is_painted(lane, steps, bool(flags)):
            return 0
        try:
            self.paintings[lane] = pack_frame(drawn(self.envs[lane]))
        except Exception:
            return 0
        return PAINTED

    def generator_place(self, lane: int) -> slice:
        """The place of a lane's generator in the memory."""
        at = self.places[lane] + self.generator_at
        return slice(at, at + GENERATOR.size)

    def lose(self, lane: int) -> None:
        """Puts an env away."""
        if self.repeats is not None:
            self.repeats[lane] = None
        super().lose(lane)
