"""The built-in envs in Gymnasium's registry."""

from __future__ import annotations

import gymnasium

from rollhouse import _native
from rollhouse.native_env import NAMESPACE


def register() -> None:
    """Registers every built-in env as ``rollhouse/ID``, for ``gymnasium.make`` and ``gymnasium.make_vec``.

    Where this package is not imported, ``gymnasium.make_vec("rollhouse:rollhouse/CartPole-v1")`` imports it.
    """
    for id in _native.env_ids():
        if NAMESPACE + id in gymnasium.registry:
            continue
        gymnasium.register(
            id=NAMESPACE + id,
            entry_point="rollhouse.single:SingleEnv",
            vector_entry_point="rollhouse.embedded:make_vec",
            max_episode_steps=_native.env_spec(id)["max_episode_steps"],
            kwargs={"id": id},
        )
