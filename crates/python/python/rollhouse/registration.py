"""Registers the built-in envs with Gymnasium."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import gymnasium

from rollhouse import _native
from rollhouse.embedded import make_vec
from rollhouse.errors import InterpreterError, PluginError
from rollhouse.interpreter import COMMAND, interpreter
from rollhouse.native_env import NAMESPACE
from rollhouse.vector import VectorEnv


def register() -> None:
    """Registers every built-in env as ``rollhouse/ID``, for ``gymnasium.make`` and ``gymnasium.make_vec``.

    Where this package is not imported, ``gymnasium.make_vec("rollhouse:rollhouse/CartPole-v1")`` imports it. What the
    envs are made by is named by text and takes ``env_id``, so that specs are data and no keyword is one of Gymnasium's.
    """
    for id in _native.env_ids():
        # Gymnasium's ids have one namespace: an env of a plug-in that has one keeps it.
        name = id if "/" in id else NAMESPACE + id
        if name in gymnasium.registry or gymnasium.envs.registration.ENV_ID_RE.fullmatch(name) is None:
            continue
        gymnasium.register(
            id=name,
            entry_point="rollhouse.single:SingleEnv",
            vector_entry_point="rollhouse.registration:make_registered",
            max_episode_steps=_native.env_spec(id)["max_episode_steps"],
            kwargs={"env_id": id},
        )


def load_plugin(
    path: str | os.PathLike[str], *, trusted: bool = False, python: str | os.PathLike[str] | None = None
) -> list[str]:
    """Loads the envs of a plug-in, a shared object that rollhouse.h describes, and returns their ids.

    From then on they are envs like the built-in ones: for ``make_vec``, for ``gymnasium.make`` as ``rollhouse/ID``
    (under its own name if that has a namespace, as ``my/Maze-v0``), and where recordings are recomputed. It blocks while
    each of them is tried out for 2,000 steps. Loading the same file again does nothing.

    Args:
        path: The file. No other folder is searched.
        trusted: Whether it may run inside of this process, where it is faster and its faults are the process's.
            Otherwise it runs in processes of its own, where a crash or an endless loop costs their lanes.
        python: The interpreter of those processes, which has this package; None for this process's own.

    Raises:
        PluginError: Something is wrong with it, no process can be started for it, or an id is taken.
    """
    path = os.path.realpath(path)
    try:
        looks = os.stat(path)
    except OSError:
        # What is wrong with it the loading says.
        loading = Loaded(path, trusted, 0, 0)
    else:
        loading = Loaded(path, trusted, looks.st_mtime_ns, looks.st_size)
    if loading not in _LOADED:
        _LOADED[loading] = _native.load_plugin(path, trusted, None if trusted else _command(python))
        register()
    return list(_LOADED[loading])


def get_include() -> str:
    """Returns the folder of ``rollhouse.h``, which plug-ins in C and C++ include: ``cc -I"$(python -c 'import rollhouse;
    print(rollhouse.get_include())')"``."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


def _command(python: str | os.PathLike[str] | None) -> list[str]:
    """Returns the start of a command line that runs the ``rollhouse`` command."""
    way_out = "; python= names one that has the package rollhouse, and trusted=True needs none"
    try:
        return [interpreter(python, way_out), "-c", COMMAND]
    except InterpreterError as error:
        raise PluginError(str(error)) from error


class Loaded(NamedTuple):
    """A plug-in as it was when it was loaded."""

    path: str
    trusted: bool
    changed: int
    size: int


_LOADED: dict[Loaded, list[str]] = {}


def loaded_plugins() -> list[tuple[str, bool, list[str]]]:
    """Returns the plug-ins that were loaded: path, whether it is trusted, and the ids of its envs."""
    return [(loaded.path, loaded.trusted, ids) for loaded, ids in _LOADED.items()]


def make_registered(env_id: str, num_envs: int = 1, **arguments: Any) -> VectorEnv:
    """Makes a vector env as ``rollhouse.make_vec`` does, for ``gymnasium.make_vec``."""
    return make_vec(env_id, num_envs, **arguments)
