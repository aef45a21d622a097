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

from rollhouse import lookup
from rollhouse.agents import adapted
from rollhouse.errors import UnsupportedError
from rollhouse.hosted.crew import EnvFn
from rollhouse.hosted.env import HostedVectorEnv
from rollhouse.hosted.script import STARTED
from rollhouse.hosted.settings import CONNECT_RETRIES, CONNECT_TIMEOUT, LAUNCH_TIMEOUT
from rollhouse.leaving_out import leaving_out
from rollhouse.lookup import REGISTERED
from rollhouse.step_columns import StepColumnSpecs
from rollhouse.vector import DEFAULT_TIMEOUT, InfoLayout, Mode, ShowValid
from rollhouse.vector_maker import VectorMaker

__all__ = ["HostedVectorEnv", "make_vec", "vectorize"]


def vectorize(
    env_fns: Sequence[EnvFn | str],
    *,
    workers: int | None = None,
    python: str | os.PathLike[str] | None = None,
    listen: str | os.PathLike[str] | None = None,
    autoreset_mode: Mode = AutoresetMode.NEXT_STEP,
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
    record: bool | str = False,
    record_infos: Mapping[str, Any] | None = None,
    record_frames: int | None = None,
    data: str | os.PathLike[str] | None = None,
    step_columns: StepColumnSpecs | None = None,
    options: Mapping[str, Any] | None = None,
    lane_options: Sequence[Mapping[str, Any]] | None = None,
    leave_out: Sequence[str] = (),
) -> HostedVectorEnv:
    """Runs any Python envs in worker processes, as one vector env.

    Blocks until the envs are made; if all functions are one and the same, until the envs of the first worker are: the
    others start at the first ``reset`` or ``call``.

    Args:
        env_fns: One function without arguments per lane, which makes the lane's env; sent with cloudpickle. Or an id, as
            ``make_vec`` takes it (``gymnasium:ID``), the same for all lanes if it is one of a vector env. A PettingZoo env is one lane with all of its agents (``rollhouse.pettingzoo``).
        workers: Processes to spread the lanes over; None for one per core, at most one per lane. Of a vector env, each has one of
            its lanes; None for one.
        python: The interpreter that runs them, a path; None for this process's own. It has the package ``rollhouse`` and the same
            version of Python. A frozen program has to name one.
        listen: A folder, to have the workers be processes that others start, one for each place: ``python -m rollhouse.hosted.join FOLDER``,
            under the same user, with the same version of Python and the packages of the envs, in a container or under a debugger. The folder is
            made, or is one that nobody else can enter; only a program that can read the key in it is let in. Until all places are taken and
            the envs made, the vector env waits for ``launch_timeout``. It ends no such process; one whose lanes are lost is disconnected,
            and its place is free for another. None to start the workers here.
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
        record: True to record every episode in full: observations, actions, rewards; ``"sample:0.01"`` to record each with
            that probability. Both spaces have to be made of Box,
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
        leave_out: Paths of parts of Dict or Tuple observations that the lanes do without, such as ``("mission",)``: of spaces that are
            not recorded, or that no learner uses.

    Raises:
        TypeError: A function cannot be pickled; the message names its index.
        RuntimeError: The envs' spaces do not fit together.
        InterpreterError: This process has no interpreter that could be started, or ``python`` is of another version.
        LaneLostError: A worker died or was not ready in time.
        NotConnectedError: An env could not connect, however often it tried.
        Exception: The exception that a function raised.
    """
    env_fns = list(env_fns)
    # One function stays one: lanes of the same are alike.
    made = {id(fn): _taken(fn, leave_out) for fn in env_fns}
    return HostedVectorEnv(
        [made[id(fn)] for fn in env_fns],
        workers=workers,
        python=python,
        listen=listen,
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
    env_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> HostedVectorEnv:
    """Makes N of Gymnasium's env ``gymnasium:ID``, of ``package.module:Class``, or a vector env of N lanes ``vector:package:ID``;
    ``rollhouse.make_vec`` calls this.

    ``env_kwargs`` are arguments of the env, as on a cluster. ``options`` are those of ``vectorize`` and, under other names, arguments of the env: what ``gymnasium.make``
    takes.
    """
    if threads is not None:
        raise ValueError(f"threads={threads!r}: lanes in worker processes have `workers` instead")
    if isinstance(num_envs, bool) or not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
        raise ValueError(f"num_envs={num_envs!r} must be an integer of at least 1")
    ours = {name: options.pop(name) for name in _OPTIONS if name in options}
    twice = options.keys() & (env_kwargs or {}).keys()
    if twice:
        raise TypeError(f"env_kwargs: {', '.join(sorted(twice))} stands there and by name")
    options.update(env_kwargs or {})
    envs = vectorize([of_id(id, options, max_episode_steps)] * num_envs, **ours)
    if id.startswith(REGISTERED):
        envs.spec = deepcopy(lookup.find(id))
    return envs


def of_id(id: str, kwargs: Mapping[str, Any], max_episode_steps: int | None = None) -> EnvFn:
    """Returns a function that makes an env of an id: ``gymnasium:ID``, ``gymnasium:module:ID``, or a class or function
    ``package.module:name``; of ``vector:package:ID`` a ``VectorMaker``.

    Raises:
        ValueError: It is no such id.
        gymnasium.error.Error: Nothing is registered under it.
    """
    if not lookup.is_learned(id):
        raise ValueError(f"{id!r} is no id of a Python env: those are gymnasium:ID, gymnasium:module:ID and package.module:name")
    kwargs = dict(kwargs)
    if lookup.is_vector(id):
        module, _, name = id.removeprefix(lookup.VECTOR).partition(":")
        own = getattr(sys.modules[module], name) if module in STARTED else None
        vector_maker: Any = VectorMaker(id, kwargs, max_episode_steps, own)
        return vector_maker
    if not id.startswith(REGISTERED):
        module, _, name = id.partition(":")
        # What the program itself defines is sent; anything else is imported by the worker alone.
        maker = getattr(sys.modules[module], name) if module in STARTED else id
        return _named(id, functools.partial(_made, maker, kwargs, max_episode_steps))
    if max_episode_steps is not None:
        # Gymnasium's word for no limit.
        kwargs["max_episode_steps"] = max_episode_steps or -1
    return _named(id, functools.partial(gymnasium.make, lookup.find(id), **kwargs))


def _taken(fn: EnvFn | str, leave_out: Sequence[str]) -> EnvFn:
    """Returns the function of a lane, of an id too, with the parts of its observations left out."""
    whole = of_id(fn, {}) if isinstance(fn, str) else fn
    if not leave_out:
        return whole
    if isinstance(whole, VectorMaker):
        raise UnsupportedError(f"leave_out={leave_out!r}: the lanes of {whole.env_id} step together, and have all that it observes")
    return _named(getattr(whole, "env_id", None), functools.partial(leaving_out, whole, leave_out))


def _named(id: str | None, fn: Any) -> EnvFn:
    """Returns the function with the id that recordings of its lanes have."""
    fn.env_id = id
    return fn


def _made(maker: str | Callable[..., Any], kwargs: dict[str, Any], max_episode_steps: int | None) -> gymnasium.Env:
    make: Any = maker
    if isinstance(maker, str):
        module, _, name = maker.partition(":")
        make = getattr(importlib.import_module(module), name)
    env = adapted(make(**kwargs))
    return gymnasium.wrappers.TimeLimit(env, max_episode_steps) if max_episode_steps else env


_OPTIONS = frozenset(vectorize.__kwdefaults__ or ())
