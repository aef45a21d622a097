"""Any Python env as lanes of a vector env: ``vectorize``, ``make_vec("gymnasium:ID")`` and ``make_vec("module:Class")``."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse.agents import adapted
from rollhouse.hosted.crew import EnvFn
from rollhouse.hosted.env import CONNECT_RETRIES, CONNECT_TIMEOUT, LAUNCH_TIMEOUT, HostedVectorEnv
from rollhouse.hosted.script import STARTED
from rollhouse.step_columns import StepColumnSpecs
from rollhouse.vector import DEFAULT_TIMEOUT, InfoLayout, ShowValid

__all__ = ["HostedVectorEnv", "make_vec", "vectorize"]


def vectorize(
    env_fns: Sequence[EnvFn],
    *,
    workers: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    seed: int | Sequence[int] | None = None,
    on_loss: Literal["raise", "report"] | None = None,
    observation_mode: Any = "same",
    info_layout: InfoLayout = "default",
    valid: ShowValid = "needed",
    statistics: bool = False,
    step_timeout: float | None = DEFAULT_TIMEOUT,
    reset_timeout: float | None = DEFAULT_TIMEOUT,
    call_timeout: float | None = DEFAULT_TIMEOUT,
    launch_timeout: float | None = LAUNCH_TIMEOUT,
    connect_retries: int = CONNECT_RETRIES,
    connect_timeout: float | None = CONNECT_TIMEOUT,
    record: bool = False,
    record_infos: Mapping[str, Any] | None = None,
    record_frames: int | None = None,
    data: str | os.PathLike[str] | None = None,
    step_columns: StepColumnSpecs | None = None,
    options: Mapping[str, Any] | None = None,
    lane_options: Sequence[Mapping[str, Any]] | None = None,
) -> HostedVectorEnv:
    """Runs any Python envs in worker processes, as one vector env.

    Blocks until the envs are made; if all functions are one and the same, until the envs of the first worker are: the
    others start at the first ``reset`` or ``call``.

    Args:
        env_fns: One function without arguments per lane, which makes the lane's env; sent with cloudpickle. A PettingZoo env
            is one lane with all of its agents (``rollhouse.pettingzoo``).
        workers: Processes to spread the lanes over; None for one per core, at most one per lane.
        autoreset_mode: ``gymnasium.vector.AutoresetMode`` or its value.
        copy: False for observations that are views of the shared memory.
        seed: The seed of the first ``reset`` if that is given none.
        on_loss: ``"raise"`` (also None) or ``"report"``: what to do when an env is lost; see ``HostedVectorEnv``.
        observation_mode: ``"same"``, ``"different"`` (spaces that differ in their bounds only), or a tuple
            (batched space, single space).
        info_layout, valid, statistics: As ``VectorEnv`` has them.
        step_timeout, reset_timeout, call_timeout: Seconds a worker has for a batch of its lanes; None for ever.
        launch_timeout: Seconds a worker has from its start until all of its envs are made; None for ever.
        connect_retries: Times that an env tries again to connect whose function or ``reset`` raises ``ConnectionError`` or
            ``TimeoutError``, because it is a client of a game or simulator; 0 for none.
        connect_timeout: Seconds from the first such failure until it has connected; None for ever. They are added to
            ``launch_timeout``, and to the time of a reset.
        record: True to record every episode in full: observations, actions, rewards. Both spaces have to be made of Box,
            Discrete, MultiDiscrete and MultiBinary, alone or in Dict and Tuple.
        record_infos: Infos to record beside observations, actions and rewards, by name, each with a value of its dtype and
            shape, as in ``{"x_position": 0.0, "forces": np.zeros(6, np.float32)}``: ``Episode.infos`` has them, NaN or 0 where
            a step gave none. None for none.
        record_frames: An integer to record pictures too, of every reset, every ``record_frames``-th step and the last of
            each episode, as ``render`` gives them; the envs have to be made with ``render_mode="rgb_array"``. Workers
            draw and pack them, which takes milliseconds each. None for none.
        data: The data folder; None for ``ROLLHOUSE_DATA`` or ``./rollhouse-data``.
        step_columns: What ``note`` notes of each step, as ``rollhouse.make_vec`` has it.
        options: Values of options that the envs declare in ``metadata["options"]``, or distributions of which each episode has a
            value of its own (``{"uniform": [9, 10.5]}``); the others are as declared. Each ``reset`` of an env has all of them,
            ``envs.reset(options=...)`` takes them too, and recordings keep them. An env whose ``metadata`` has none is given
            none here, and by ``reset`` whatever that is given.
        lane_options: One dict of them per lane, over ``options``.

    Raises:
        TypeError: A function cannot be pickled; the message names its index.
        RuntimeError: The envs' spaces do not fit together.
        LaneLostError: A worker died or was not ready in time.
        NotConnectedError: An env could not connect, however often it tried.
        Exception: The exception that a function raised.
    """
    return HostedVectorEnv(
        env_fns,
        workers=workers,
        autoreset_mode=autoreset_mode,
        copy=copy,
        seed=seed,
        on_loss=on_loss,
        observation_mode=observation_mode,
        info_layout=info_layout,
        valid=valid,
        statistics=statistics,
        step_timeout=step_timeout,
        reset_timeout=reset_timeout,
        call_timeout=call_timeout,
        launch_timeout=launch_timeout,
        connect_retries=connect_retries,
        connect_timeout=connect_timeout,
        record=record,
        record_infos=record_infos,
        record_frames=record_frames,
        data=data,
        step_columns=step_columns,
        options=options,
        lane_options=lane_options,
    )


def make_vec(
    id: str,
    num_envs: int = 1,
    *,
    threads: None = None,
    max_episode_steps: int | None = None,
    **options: Any,
) -> HostedVectorEnv:
    """Makes N of Gymnasium's env ``gymnasium:ID``, or of ``package.module:Class``; ``rollhouse.make_vec`` calls this.

    ``options`` are those of ``vectorize`` and, under other names, arguments of the env: what ``gymnasium.make``
    takes.
    """
    if threads is not None:
        raise ValueError(f"threads={threads!r}: lanes in worker processes have `workers` instead")
    if isinstance(num_envs, bool) or not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
        raise ValueError(f"num_envs={num_envs!r} must be an integer of at least 1")
    ours = {name: options.pop(name) for name in _OPTIONS if name in options}
    if not id.startswith("gymnasium:"):
        return vectorize([of_class(id, options, max_episode_steps)] * num_envs, **ours)
    if max_episode_steps is not None:
        # Gymnasium's word for no limit.
        options["max_episode_steps"] = max_episode_steps or -1
    # The spec itself: a worker has not registered what this process has.
    spec = gymnasium.spec(id.removeprefix("gymnasium:"))
    envs = vectorize([functools.partial(gymnasium.make, spec, **options)] * num_envs, **ours)
    envs.spec = deepcopy(spec)
    return envs


def of_class(id: str, kwargs: Mapping[str, Any], max_episode_steps: int | None = None) -> EnvFn:
    """Returns a function that makes an env of a class or function ``package.module:name``."""
    module, _, name = id.partition(":")
    # What the program itself defines is sent; anything else is imported by the worker alone.
    maker = getattr(sys.modules[module], name) if module in STARTED else id
    return functools.partial(_made, maker, dict(kwargs), max_episode_steps)


def _made(maker: str | Callable[..., Any], kwargs: dict[str, Any], max_episode_steps: int | None) -> gymnasium.Env:
    if isinstance(maker, str):
        module, _, name = maker.partition(":")
        maker = getattr(importlib.import_module(module), name)
    env = adapted(maker(**kwargs))
    return gymnasium.wrappers.TimeLimit(env, max_episode_steps) if max_episode_steps else env


_OPTIONS = frozenset(vectorize.__kwdefaults__ or ())
