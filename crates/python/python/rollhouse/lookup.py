"""Finds what Gymnasium's registry has under an id, for all who take ids: ``make_vec``, ``vectorize``, adapters, and workers of
nodes and of the command.

An id is ``gymnasium:ID``, or ``gymnasium:module:ID`` for a module that registers it when it is imported. Of packages whose ids are
known, the module need not be named. A vector env of a package, whose lanes step together, is ``vector:package:ID``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, parse_env_id, registry

REGISTERED = "gymnasium:"
"""How names of envs begin that are looked up in Gymnasium's registry; others are a module and a class."""

VECTOR = "vector:"
"""How names of vector envs of other packages begin; a package and a name follow."""

REGISTERING = {
    "ALE/": "ale_py",
    "BabyAI-": "minigrid",
    "MiniGrid-": "minigrid",
    "NetHack": "nle",
    "MiniHack-": "minihack",
    "Vizdoom": "vizdoom.gymnasium_wrapper",
    "Adroit": "gymnasium_robotics",
    "AntMaze_": "gymnasium_robotics",
    "Fetch": "gymnasium_robotics",
    "FrankaKitchen": "gymnasium_robotics",
    "HandManipulate": "gymnasium_robotics",
    "HandReach": "gymnasium_robotics",
    "PointMaze_": "gymnasium_robotics",
    "exit-": "highway_env",
    "highway-": "highway_env",
    "intersection-": "highway_env",
    "lane-keeping-": "highway_env",
    "merge-": "highway_env",
    "parking-": "highway_env",
    "racetrack-": "highway_env",
    "roundabout-": "highway_env",
    "two-way-": "highway_env",
    "u-turn-": "highway_env",
    "MinAtar/": "minatar.gym",
    "rollhouse/": "rollhouse",
}
"""Modules that register envs when they are imported, by how the ids of these begin."""


def is_learned(name: str) -> bool:
    """Returns whether a name is one of an env that is made elsewhere than in Rollhouse or a plug-in: by Python in worker processes, or by
    nodes that learn it. Ids of others have no colon."""
    return ":" in name


def is_vector(name: str) -> bool:
    """Returns whether a name is one of a vector env: ``vector:package:ID``. A package that is called vector has one colon less."""
    return name.startswith(VECTOR) and is_learned(name.removeprefix(VECTOR))


def find(name: str, load: Callable[[str], Any] = importlib.import_module, packages: Iterable[str] = ()) -> EnvSpec:
    """Returns what is registered under ``gymnasium:ID`` or ``gymnasium:module:ID``; of an ID without a version the newest.

    Args:
        name: The id.
        load: Imports a module, or raises.
        packages: Packages that are imported too, one after the other, where nothing else has the ID.

    Raises:
        gymnasium.error.Error: Nothing is registered under it. The message has what kept a module from being imported.
        Exception: Whatever ``load`` raises for the module of the id.
    """
    module, _, id = name.removeprefix(REGISTERED).rpartition(":")
    if module:
        load(module)
    known = next((registering for start, registering in REGISTERING.items() if id.startswith(start)), None)
    failed: Exception | None = None
    why = ""
    for more in (None, *([known] if known else []), *packages):
        if more is not None:
            try:
                load(more)
            except Exception as error:
                if failed is None:
                    failed = error
                    why = "The module that registers it" if more == known else f"Package {more!r}, which may register it,"
                continue
        try:
            return gymnasium.spec(_newest(id))
        except gymnasium.error.Error as error:
            missing = error
    if failed is None:
        raise missing
    raise type(missing)(f"{missing} {why} cannot be imported: {failed}") from failed


def _newest(id: str) -> str:
    """Returns the id of the newest version of an env whose id has none."""
    if id in registry:
        return id
    space, name, version = parse_env_id(id)
    newest = find_highest_version(space, name) if version is None else None
    return id if newest is None else get_env_id(space, name, newest)
