"""Envs without some parts of their observations: those of spaces that are not recorded, or not hosted on nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
from gymnasium import spaces

ARGUMENT = "leave_out"
"""The argument of envs on nodes and of the command that names the parts."""


class PartialObservation(gymnasium.ObservationWrapper):
    """An env whose Dict or Tuple observations lack the parts at some paths, such as ``mission`` or ``arm/camera``."""

    def __init__(self, env: gymnasium.Env, paths: Iterable[str]):
        """Wraps an env.

        Raises:
            ValueError: Its observations have no such part, or would have nothing left.
        """
        super().__init__(env)
        self._paths = [path.split("/") for path in ([paths] if isinstance(paths, str) else paths)]
        self.observation_space = env.observation_space
        for path in self._paths:
            self.observation_space = _space_without(self.observation_space, path, "/".join(path))

    def observation(self, observation: Any) -> Any:
        for path in self._paths:
            observation = _without(observation, path)
        return observation


def leaving_out(fn: Callable[[], Any], paths: Iterable[str]) -> gymnasium.Env:
    """Makes an env without the parts at these paths."""
    return PartialObservation(fn(), paths)


def _space_without(space: spaces.Space, path: list[str], whole: str) -> spaces.Space:
    keys = list(space.spaces) if isinstance(space, spaces.Dict) else list(range(len(space.spaces))) if isinstance(space, spaces.Tuple) else []
    found = next((key for key in keys if str(key) == path[0]), None)
    if found is None:
        raise ValueError(f"{ARGUMENT}: observations have no part {whole!r}")
    parts: dict[Any, spaces.Space] = {key: space[key] for key in keys}  # type: ignore[index]
    if path[1:]:
        parts[found] = _space_without(parts[found], path[1:], whole)
    else:
        del parts[found]
    if not parts:
        raise ValueError(f"{ARGUMENT}: without {whole!r} nothing is left")
    return spaces.Dict(list(parts.items())) if isinstance(space, spaces.Dict) else spaces.Tuple(list(parts.values()))


def _without(value: Any, path: list[str]) -> Any:
    if isinstance(value, dict):
        parts = dict(value)
        key = next(key for key in parts if str(key) == path[0])
        if path[1:]:
            parts[key] = _without(parts[key], path[1:])
        else:
            del parts[key]
        return parts
    at = int(path[0])
    return (*value[:at], *([_without(value[at], path[1:])] if path[1:] else []), *value[at + 1 :])
