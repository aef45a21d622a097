"""Numbers in the infos of envs on nodes, as columns of their lanes.

A worker that describes an env tries a step, and tells which numbers were in the infos of it and of the reset before. The
workers that step lanes write those, and the infos that are to be recorded, beside each row. Numbers that come later, under other
keys, have no column: the workers write them as JSON, and a trainer asks for them where a boolean of the row says that there are
some.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rollhouse.carried import WIDER
from rollhouse.hosted.columns import write_array
from rollhouse.masks import choices_of, flat
from rollhouse.reports import ACTION_TAKEN
from rollhouse.said import at_path, info_of

MAX_INFOS, MAX_INFO_BYTES = 20, 4096
"""Most infos of a step, and of a reset, and most bytes of each of both; the host in Rust has the same."""

MAX_FURTHER_BYTES = 1024
"""Most bytes of the numbers of a lane that have no column; the host in Rust has the same."""

MAX_NAME_BYTES = 128
MAX_DEPTH = 4

KEPT = ("bool", "uint8", "int32", "int64", "float32", "float64")
"""The dtypes that columns have."""

OURS = ("action_mask", "env_id", "episode", "final_info", "final_obs", "final_observation", "lost", "valid")
"""Names that are a vector env's own, or columns already."""

Channel = dict[str, Any]
"""A path, a dtype and a shape, as the host has them."""


def learned(
    env: gymnasium.Env, begin: Callable[[], tuple[Any, Any]], reported: Collection[str] = ()
) -> dict[str, list[Channel]]:
    """Resets an env and tries a step. Returns the numbers in both infos: those of the step, and those of the reset.

    Args:
        begin: Resets it.
        reported: Names of infos that have columns anyway.
    """
    said: dict[str, list[Channel]] = {"step": [], "first": []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            info = info_of(begin()[1])
            said["first"] = channels(info, reported)
            said["step"] = channels(info_of(env.step(first_action(env, info))[4]), reported)
        except Exception:
            # Its lanes will tell.
            pass
    return said


def first_action(env: gymnasium.Env, info: Mapping[str, Any]) -> Any:
    """Returns the action that an env most likely has for doing nothing: the first one that it allows, and zeros."""
    given = info.get("action_mask")
    if given is None and callable(method := getattr(env.unwrapped, "action_masks", None)):
        given = method()
    return least(env.action_space, None if given is None else flat(given))


def least(space: gymnasium.Space, mask: np.ndarray | None = None) -> Any:
    """Returns a value of a space: of the first choices, of the first that a ``mask`` of a Discrete has, and of zeros."""
    if isinstance(space, spaces.Discrete):
        first = int(np.argmax(mask)) if mask is not None and len(mask) == choices_of(space) else 0
        return space.dtype.type(space.start + first)
    if isinstance(space, spaces.MultiDiscrete):
        return np.array(space.start, space.dtype)
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype)
    if isinstance(space, spaces.Dict):
        return {key: least(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(least(part) for part in space.spaces)
    space.seed(0)
    return space.sample()


def channels(info: Mapping[str, Any], reported: Collection[str] = ()) -> list[Channel]:
    """Returns the numbers of an info, as many as there is room for, but for those that are ``reported``."""
    found: list[Channel] = []
    size = 0
    for path, array in numbers(info):
        if path not in reported and size + array.nbytes <= MAX_INFO_BYTES and len(found) < MAX_INFOS and len(path.encode()) <= MAX_NAME_BYTES:
            size += array.nbytes
            found.append({"path": path, "dtype": array.dtype.name, "shape": list(array.shape)})
    return found


def numbers(info: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, np.ndarray]]:
    """Iterates over the numbers of an info by their paths. What Gymnasium's vector envs make objects of is none."""
    for key, value in info.items():
        if not isinstance(key, str) or not key or key.startswith("_") or (not depth and key in OURS):
            continue
        below = path + key.replace("~", "~0").replace("/", "~1")
        if isinstance(value, dict):
            if depth < MAX_DEPTH:
                yield from numbers(value, f"{below}/", depth + 1)
        elif isinstance(value, (bool, int, float, np.generic, np.ndarray)):
            array = np.asarray(value)
            name = WIDER.get(array.dtype.name, array.dtype.name)
            if name in KEPT:
                yield below, array.astype(name)


def keys_of(path: str) -> list[str]:
    """Returns the keys on the way to a number."""
    return [key.replace("~1", "/").replace("~0", "~") for key in path.split("/")]


class LaneInfos:
    """Writes the numbers of lanes' infos to their records.

    Args:
        infos: ``record``, ``reported``, ``step`` and ``first``: the channels, in the order of ``places``.
        places: Where each of them lies in a record; one more says which are there.
        further: Where numbers lie that have no column, and their bytes, if there is a place for them.
        array: Makes an array of a value of each lane, given its place, dtype and shape.
    """

    def __init__(
        self,
        infos: dict[str, list[Channel]],
        places: list[int],
        further: tuple[int, int] | None,
        array: Callable[[int, np.dtype, tuple[int, ...]], np.ndarray],
    ):
        self._of: dict[str, list[tuple[int, Any, list[np.ndarray], Any]]] = {}
        # By place, the rows of all lanes.
        self._rows: list[np.ndarray] = []
        at = 0
        for kind in ("record", "reported", "step", "first"):
            self._of[kind] = []
            for channel in infos[kind]:
                rows = array(places[at], np.dtype(channel["dtype"]), tuple(channel["shape"]))
                self._rows.append(rows)
                lanes = [rows[lane : lane + 1].reshape(rows.shape[1:]) for lane in range(len(rows))]
                path = channel["path"] if kind in ("record", "reported") else keys_of(channel["path"])
                self._of[kind].append((at, path, lanes, np.nan if rows.dtype.kind == "f" else 0))
                at += 1
        # Nobody is told of infos that are recorded only.
        there = at + int(further is not None)
        self._there = array(places[at], np.dtype("bool"), (there,)) if at < len(places) else None
        self._further = None if further is None else array(further[0], np.dtype("uint8"), (further[1],))
        reported = {channel["path"] for channel in infos["reported"]}
        self._known = {kind: {channel["path"] for channel in infos[kind]} | reported for kind in ("step", "first")}
        # What is neither a dict nor unknown needs no second look.
        self._usual = {kind: {path for path in known if "/" not in path} for kind, known in self._known.items()}
        self._parts: list[dict[str, list[Any]]] = [{} for _ in range(0 if self._further is None else len(self._further))]

    def step(self, lane: int, info: dict[str, Any]) -> None:
        """Writes what a step said: NaN, or 0, for what it did not.

        Raises:
            ValueError: A value that is to be recorded has another shape, or a dtype that does not become the one it was said
                to have.
        """
        for at, path, lanes, missing in self._of["record"]:
            there, value = at_path(info, path)
            if there:
                try:
                    write_array(lanes[lane], value)
                except (ValueError, TypeError, OverflowError) as error:
                    raise ValueError(f"info {path!r} is not as record_infos says: {error}") from error
            else:
                lanes[lane].fill(missing)
            if self._there is not None:
                self._there[lane, at] = there
        self._say("step", lane, info)
        if self._further is not None:
            self._put_further(lane, {"step": info})

    def report(self, lane: int, info: dict[str, Any], given: np.ndarray, carried: Callable[[Any], Any]) -> None:
        """Writes what an info reports of a step: the action that was taken, or the one that was ``given``; and what is noted of
        it, NaN or 0 where it is not.

        Args:
            carried: Returns an action as its column has it.

        Raises:
            ValueError: A value has another shape than was declared, or a dtype that does not become the declared one.
        """
        for at, path, lanes, missing in self._of["reported"]:
            there = path in info
            try:
                if there:
                    write_array(lanes[lane], carried(info[path]) if path == ACTION_TAKEN else info[path])
                elif path == ACTION_TAKEN:
                    lanes[lane][...] = given
                else:
                    lanes[lane].fill(missing)
            except (ValueError, TypeError, OverflowError) as error:
                raise ValueError(f"info {path!r} is not as the env declares it: {error}") from None
            if self._there is not None:
                self._there[lane, at] = there

    def step_all(self, infos: dict[str, Any], began: np.ndarray) -> None:
        """Writes what a step of lanes that step together said, of those that ``began`` an episode in it as ``first`` does, and of
        the others as ``step``: of each number an array of a row for each lane, and where not all say it a mask beside it.

        Raises:
            ValueError: As ``step``.
        """
        for kind, lanes in (("record", ~began), ("step", ~began), ("first", began)):
            if not lanes.any():
                continue
            for at, path, _, missing in self._of[kind]:
                rows = self._rows[at]
                keys = path.split("/") if kind == "record" else path
                values = value_at(infos, keys)
                given = isinstance(values, np.ndarray) and values.shape == rows.shape
                fits = given and np.can_cast(values.dtype, rows.dtype, "same_kind")
                if kind == "record" and values is not None and not fits:
                    raise ValueError(f"info {path!r} is not as record_infos says: {getattr(values, 'dtype', type(values))}")
                mask = value_at(infos, [*keys[:-1], f"_{keys[-1]}"])
                there = lanes & (mask if isinstance(mask, np.ndarray) else fits) if fits else np.zeros_like(lanes)
                rows[lanes & ~there] = missing
                if fits:
                    rows[there] = values[there]
                if self._there is not None:
                    self._there[lanes, at] = there[lanes]

    def first(self, lane: int, info: dict[str, Any]) -> None:
        """Writes what a reset said. What the step before said stays."""
        self._say("first", lane, info)
        if self._further is not None:
            self._put_further(lane, {"first": info}, beside=True)

    def _put_further(self, lane: int, said: dict[str, dict[str, Any]], *, beside: bool = False) -> None:
        """Writes the numbers that have no column, as many as there is room for.

        Args:
            beside: Whether what was written of the step before stays.
        """
        before = self._parts[lane]
        parts = {"step": before["step"]} if beside and "step" in before else {}
        for kind, info in said.items():
            if not info.keys() <= self._usual[kind] and (new := self._unknown(kind, info)):
                parts[kind] = new
        if not parts and not before:
            return
        assert self._further is not None and self._there is not None
        text = _fitting(parts)
        self._further[lane, 8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
        self._further[lane, :8] = np.frombuffer(len(text).to_bytes(8, "little"), np.uint8)
        self._there[lane, -1] = bool(text)
        self._parts[lane] = parts

    def _unknown(self, kind: str, info: dict[str, Any]) -> list[Any]:
        known = self._known[kind]
        found = (number for number in numbers(info) if number[0] not in known)
        return [[path, array.dtype.name, array.tolist()] for path, array in found if len(path.encode()) <= MAX_NAME_BYTES]

    def _say(self, kind: str, lane: int, info: dict[str, Any]) -> None:
        for at, keys, lanes, missing in self._of[kind]:
            there = put(lanes[lane], value_at(info, keys))
            if not there:
                lanes[lane].fill(missing)
            if self._there is not None:
                self._there[lane, at] = there


def _fitting(parts: dict[str, list[Any]]) -> bytes:
    """Returns numbers as JSON, without the last ones where all have no room; nothing of none."""
    left = {kind: list(entries) for kind, entries in parts.items()}
    while any(left.values()):
        text = json.dumps(left).encode()
        if len(text) <= MAX_FURTHER_BYTES:
            return text
        max(left.values(), key=len).pop()
    return b""


def add_further(infos: dict[str, Any], said: Iterable[tuple[int, str, bool]], count: int) -> None:
    """Adds numbers that have no column to infos, as Gymnasium's vector envs do.

    Args:
        infos: Added to; those of an episode's last step go to its ``final_info``, if that is there.
        said: Rows, what was written of each, and whether an episode has begun in it.
        count: Number of rows.
    """
    from rollhouse.hosted.infos import added

    adder = gymnasium.vector.VectorEnv()
    adder.num_envs = count
    for row, text, begins in said:
        parts = json.loads(text)
        final = infos.get("final_info")
        if begins and final is not None:
            added(adder, final, nested(parts.get("step", ())), row)
        added(adder, infos, nested(parts.get("first" if begins else "step", ())), row)


def nested(entries: Iterable[list[Any]]) -> dict[str, Any]:
    """Returns an info of numbers by their paths."""
    info: dict[str, Any] = {}
    for path, dtype, value in entries:
        *outer, last = keys_of(path)
        inner = info
        for key in outer:
            inner = inner.setdefault(key, {})
        array = np.array(value, dtype)
        native = dtype in ("bool", "int64", "float64")
        inner[last] = array if array.ndim else array.item() if native else array[()]
    return info


def value_at(info: Any, keys: list[str]) -> Any:
    """Returns what lies there in an info; None for nothing."""
    for key in keys:
        if not isinstance(info, dict):
            return None
        info = info.get(key)
    return info


def put(place: np.ndarray, value: Any) -> bool:
    """Writes a number to a place, if it is one of its shape that its dtype has."""
    if not isinstance(value, (bool, int, float, np.generic, np.ndarray)):
        return False
    try:
        write_array(place, value)
    except (ValueError, TypeError, OverflowError):
        return False
    return True
