"""What is asked of a cluster for lanes: the arguments of ``Cluster.make_vec``, checked, and as the native half reads them."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from rollhouse import _native
from rollhouse.errors import RefusedError, UnknownEnvError, UnknownOptionError
from rollhouse.hosted.layout import check_frames, info_channels
from rollhouse.hosted.together_lanes import Together
from rollhouse.leaving_out import ARGUMENT
from rollhouse.lookup import is_learned, is_vector
from rollhouse.native_env import NAMESPACE, lane_options_of, merged_options, option_of, plain, positive, render_size_of
from rollhouse.paced import pace_of
from rollhouse.record_rule import record_rule
from rollhouse.step_columns import StepColumns, StepColumnSpecs
from rollhouse.vector import InfoLayout, Mode, ShowValid, parse_autoreset_mode, show_valid

Transport = Literal["auto", "shm", "quic"]
P = ParamSpec("P")
R = TypeVar("R")

DISTRIBUTIONS = {"uniform", "integers", "choice"}
"""Words of the distributions of options."""


@dataclass(kw_only=True)
class PoolOptions:
    """The arguments of ``Cluster.make_vec``, by the same names: ``options`` are those of its ``**options``.

    Raises:
        TypeError: One is of another type; the message names it, its value and the types.
        OptionsError, ValueError: One has another value.
    """

    id: str
    num_envs: int
    env_kwargs: Mapping[str, Any] | None
    deterministic: bool | None
    seed: int | Sequence[int | None] | None
    autoreset_mode: Mode
    record: bool | str
    copy: bool
    max_episode_steps: int | None
    transport: Transport | None
    labels: Mapping[str, str] | None
    spread: Literal["pack", "even", "single"]
    info_layout: InfoLayout
    valid: ShowValid
    on_loss: Literal["resume", "raise", "report"] | None
    render_mode: str | None
    render_size: Sequence[int] | None
    statistics: bool
    step_columns: StepColumnSpecs | None
    record_infos: Mapping[str, Any] | None
    record_frames: int | None
    leave_out: Sequence[str]
    lane_options: Sequence[Mapping[str, Any]] | None
    pace: int | float | Mapping[str, Any] | None
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_types(self)
        self.id = self.id.removeprefix(NAMESPACE)
        self.num_envs = positive("num_envs", self.num_envs)
        if self.max_episode_steps is not None and not 0 <= self.max_episode_steps < 2**32:
            raise ValueError(f"max_episode_steps={self.max_episode_steps!r} must be 0 (no limit) to {2**32 - 1}")
        self.together = Together(self.id) if is_vector(self.id) else None
        if self.together is not None:
            self.together.check("same", self.record_frames)
            self.together.check_mode(parse_autoreset_mode(self.autoreset_mode))
            self.together.check_limit(self.max_episode_steps)
        self._take_options()
        self.env_kwargs = self._arguments()
        self.world_pace = pace_of(self.pace)
        if self.world_pace is not None and self.statistics:
            raise ValueError("statistics=True counts steps of lanes that wait; live lanes have none")
        self._check_recording()
        self.size = render_size_of(self.render_mode, self.render_size)
        self.columns = StepColumns(self.step_columns)

    def _take_options(self) -> None:
        """Parts what was given by name to a Python env into options and arguments: an argument is what neither is ``options`` nor
        has a distribution, of which episodes draw. Those of the arguments that the env declares as options are so on the node.
        """
        given, named = dict(self.options), {}
        for name in ("threads", "data"):
            if given.pop(name, None) is not None:
                raise ValueError(f"{name} cannot be given for lanes of a cluster")
        if is_learned(self.id):
            named = {name: value for name, value in given.items() if name != "options" and not _is_distribution(value)}
        if twice := sorted(named.keys() & (self.env_kwargs or {}).keys()):
            raise TypeError(f"env_kwargs: {', '.join(twice)} stands there and by name")
        self.env_kwargs, self.named = {**(self.env_kwargs or {}), **named}, [*named]
        self.options = merged_options({name: value for name, value in given.items() if name not in named})
        try:
            spec = _native.env_spec(self.id)
        except UnknownEnvError:
            # The nodes may have it.
            self.options = {name: option_of(value) for name, value in self.options.items()}
        else:
            # Checked here, so that mistakes are reported as everywhere else.
            self.options = lane_options_of(spec, self.options, None, self.num_envs, _names())[0]

    def _arguments(self) -> dict[str, Any]:
        """Returns the arguments of a Python env, with those that are arguments of ``make_vec``, too."""
        drawn = {} if self.render_mode is None or ":" not in self.id else {"render_mode": self.render_mode}
        left = [self.leave_out] if isinstance(self.leave_out, str) else list(self.leave_out)
        return {**drawn, **(self.env_kwargs or {}), **({ARGUMENT: left} if left else {})}

    def _check_recording(self) -> None:
        self.rule = record_rule(self.record)
        check_frames(self.record_frames)
        self.infos = info_channels(self.record_infos or {})
        for name in ("record_infos", "record_frames"):
            if value := getattr(self, name):
                if not self.record:
                    raise ValueError(f"{name}={value!r} is used only with record=True")
                if ":" not in self.id:
                    raise ValueError(f"{name}={value!r} is for Python envs, gymnasium:ID or package.module:Class, and {self.id!r} is none")
        if self.record_frames and (self.env_kwargs or {}).get("render_mode") != "rgb_array":
            raise ValueError(f"record_frames={self.record_frames!r} needs render_mode='rgb_array'")

    def request(self) -> str:
        """Returns what is asked for, as the native half reads it: JSON. The env's options are not in it."""
        asked = {
            "lanes": self.num_envs,
            "python": {
                "arguments": self._json_arguments(),
                "deterministic": self.deterministic,
                "record": self.infos,
                "frames_every": self.record_frames or 0,
            },
            "autoreset": parse_autoreset_mode(self.autoreset_mode).value,
            "max_episode_steps": self.max_episode_steps,
            "record": self.rule,
            "labels": dict(self.labels or {}),
            "spread": self.spread,
            "transport": self.transport,
            "on_loss": self.on_loss,
            "step_columns": self.columns.declared,
            "copy": self.copy,
            "show_valid": show_valid(self.info_layout, self.valid),
            "statistics": self.statistics,
            "pace": self.world_pace,
        }
        return json.dumps(asked, default=plain)

    def check_refusal(self, refused: RefusedError) -> None:
        """Raises ``UnknownOptionError``, a ``TypeError``, if an env was refused for an argument that it does not know, where one of
        these may have been meant."""
        for name in self.named:
            if f"unexpected keyword argument '{name}'" in str(refused):
                if nearest := difflib.get_close_matches(name, _names(), n=1):
                    raise UnknownOptionError(f"{refused}; did you mean {nearest[0]!r}?", name) from refused

    def _json_arguments(self) -> str:
        """Returns arguments of an env as the nodes are told them, which give them to the env as JSON has them."""
        try:
            return json.dumps(self.env_kwargs, allow_nan=False) if self.env_kwargs else ""
        except (TypeError, ValueError) as error:
            raise ValueError(f"env_kwargs={self.env_kwargs!r} is more than JSON has: {error}") from error


def _names() -> list[str]:
    return [field.name for field in fields(PoolOptions)]


def check_types(given: Any) -> None:
    """Checks the fields of a dataclass by their annotations.

    Raises:
        TypeError: One is of another type.
        ValueError: One is a word, and none of those that it may be.
    """
    hints = get_type_hints(type(given))
    for field in fields(given):
        value, kind = getattr(given, field.name), hints[field.name]
        if not _is_of(value, kind):
            raise TypeError(f"{field.name}={value!r} must be of type {field.type}")
        words = [word for one in (kind, *get_args(kind)) if get_origin(one) is Literal for word in get_args(one)]
        if words and isinstance(value, str) and value not in words:
            raise ValueError(f"{field.name}={value!r} is not one of {', '.join(words)}")


def _is_of(value: Any, kind: Any) -> bool:
    """Returns whether a value is of a type. A word is of each ``Literal``; NumPy's scalars and arrays are numbers and sequences."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(_is_of(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_is_of(one, parts[0]) and _is_of(of, parts[1]) for one, of in value.items())
    if origin is Sequence:
        return isinstance(value, (Sequence, np.ndarray)) and all(isinstance(value, str) or _is_of(one, parts[0]) for one in value)
    if kind is int:
        return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return isinstance(value, (bool, np.bool_) if kind is bool else kind)


def _is_distribution(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and value.keys() <= DISTRIBUTIONS


def arguments_of(model: Callable[Concatenate[Any, P], Any]) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Gives a method that hands all on to another one that one's arguments: for help and for type checkers."""

    def give(method: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        returns = inspect.signature(method).return_annotation
        method.__signature__ = inspect.signature(model).replace(return_annotation=returns)  # type: ignore[attr-defined]
        return method

    return give
