"""Registers the built-in envs with Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium

from rollhouse import _native
from rollhouse.embedded import make_vec
from rollhouse.native_env import NAMESPACE
from rollhouse.vector import VectorEnv


def register() -> None:
    """Registers every built-in env as ``rollhouse/ID``, for ``gymnasium.make`` and ``gymnasium.make_vec``.

    Where this package is not imported, ``gymnasium.make_vec("rollhouse:rollhouse/CartPole-v1")`` imports it. What the
    envs are made by is named by text and takes ``env_id``, so that specs are data and no keyword is one of Gymnasium's.
    """
    for id in _native.env_ids():
        if NAMESPACE + id in gymnasium.registry:
            continue
        gymnasium.register(
            id=NAMESPACE + id,
            entry_point="rollhouse.single:SingleEnv",
            vector_entry_point="rollhouse.registration:make_registered",
            max_episode_steps=_native.env_spec(id)["max_episode_steps"],
            kwargs={"env_id": id},
        )


def make_registered(env_id: str, num_envs: int = 1, **arguments: Any) -> VectorEnv:
    """Makes a vector env as ``rollhouse.make_vec`` does, for ``gymnasium.make_vec``."""
    return make_vec(env_id, num_envs, **arguments)
