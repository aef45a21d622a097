"""A pytest plugin that points Gymnasium's own tests of vector envs and their wrappers at one of our classes.

Loaded by ``test_gymnasium_suite.py`` into a pytest run over Gymnasium's source tree. ``ROLLHOUSE_SUITE_CLASS`` says which
class; ``ROLLHOUSE_SUITE_CONNECT`` is the cluster's connection string. What is not run stands in ``skips.py``. A test that
passes without having made an env of ours fails: it would show nothing. On nodes all is run: what the table names has to fail.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import gymnasium.vector
import gymnasium.vector.async_vector_env
import numpy as np
import pytest
import sent_functions
import skips
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

import rollhouse
import rollhouse.cluster

CLASS = os.environ["ROLLHOUSE_SUITE_CLASS"]

Async, Sync = gymnasium.vector.AsyncVectorEnv, gymnasium.vector.SyncVectorEnv

PLAIN = (OrderEnforcing, PassiveEnvChecker, TimeLimit)
"""Wrappers of ``gymnasium.make``, which ours do the work of."""

asked: list[str] = []
"""What a test has asked of ours since it began."""


class HostedAsAsync(rollhouse.HostedVectorEnv):
    """Takes the arguments of ``AsyncVectorEnv``. Few workers, since most of these tests' time is their start."""

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gymnasium.Env]],
        shared_memory: bool = True,
        copy: bool = True,
        observation_mode: Any = "same",
        autoreset_mode: Any = "NextStep",
    ):
        env_fns = list(env_fns)
        asked.append("hosted")
        super().__init__(
            env_fns,
            workers=1 if len(env_fns) < 8 else 2,
            copy=copy,
            observation_mode=observation_mode,
            autoreset_mode=autoreset_mode,
            # These tests compare whole infos.
            info_layout="gymnasium",
        )
        # Gymnasium's classes leave it to the env whether it can be stepped before a reset.
        self._reset_done = True


@functools.cache
def cluster() -> rollhouse.Cluster:
    """The cluster whose lanes are tested."""
    return rollhouse.connect(os.environ["ROLLHOUSE_SUITE_CONNECT"], timeout=300)


def built_in(
    env_fns: Sequence[Callable[[], gymnasium.Env]],
    shared_memory: bool = True,
    copy: bool = True,
    observation_mode: Any = "same",
    autoreset_mode: Any = "NextStep",
) -> gymnasium.vector.VectorEnv:
    """Lanes of the built-in env that the functions make; skips the test if they make another one.

    Where the functions wrap it, what is compared with ours is meant: that is Gymnasium's own class.
    """
    made = [env_fn() for env_fn in env_fns]
    ids = {env.spec.id if env.spec else None for env in made}
    env = made[0]
    if not ids <= set(rollhouse.env_ids()) or len(ids) != 1:
        pytest.skip(skips.NOT_BUILT_IN)
    if env.render_mode not in (None, "rgb_array"):
        pytest.skip(skips.COLLECTED)
    if any(type(wrapper) not in PLAIN for wrapper in wrappers_of(env)):
        return Sync(env_fns, copy=copy, observation_mode=observation_mode, autoreset_mode=autoreset_mode)
    # A function may have seeded its env.
    seeds = [one.unwrapped._np_random_seed for one in made]
    where = cluster() if CLASS == skips.CLUSTER else rollhouse
    asked.append(CLASS)
    envs = where.make_vec(
        env.spec.id,
        len(made),
        seed=None if None in seeds else seeds,
        record=False,
        copy=copy,
        autoreset_mode=autoreset_mode,
        render_mode=env.render_mode,
        # These tests compare whole infos.
        info_layout="gymnasium",
    )
    return drawing_as(made, envs)


def drawing_as(made: Sequence[gymnasium.Env], envs: gymnasium.vector.VectorEnv) -> gymnasium.vector.VectorEnv:
    """Has a vector env draw actions as Gymnasium's would, whose functions may have seeded the space of actions. Closes the envs that
    they made."""
    envs.single_action_space._np_random = deepcopy(made[0].action_space.np_random)
    envs.action_space = gymnasium.vector.utils.batch_space(envs.single_action_space, len(made))
    for env in made:
        env.close()
    return envs


class SentVectorEnv(rollhouse.ClusterVectorEnv):
    """Lanes of sent functions. What a test sets is an option of the next episode, as nodes give lanes what differs: attributes, and
    whether a lane is seeded."""

    def _set_attr(self, name: str, values: list[Any]) -> None:
        told = self._first_options.setdefault("attributes", ["{}"] * self.num_envs)
        self._first_options["attributes"] = [
            json.dumps({**json.loads(one), name: value}) for one, value in zip(told, values, strict=True)
        ]

    def _reset(
        self, seeds: list[int | None], mask: np.ndarray | None, options: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any]]:
        self._first_options["seeded"] = [seed is not None for seed in seeds]
        return super()._reset(seeds, mask, options)


def sent(
    env_fns: Sequence[Callable[[], gymnasium.Env]],
    shared_memory: bool = True,
    copy: bool = True,
    observation_mode: Any = "same",
    autoreset_mode: Any = "NextStep",
) -> gymnasium.vector.VectorEnv:
    """Lanes on the nodes of a cluster, whose workers make the envs of the functions."""
    env_fns = list(env_fns)
    if observation_mode != "same":
        raise TypeError(skips.ONE_SPACE)
    made = [env_fn() for env_fn in env_fns]
    seeds = [env.unwrapped._np_random_seed for env in made]
    asked.append(CLASS)
    envs = cluster().make_vec(
        "sent_functions:SentEnv",
        len(env_fns),
        env_kwargs={"functions": sent_functions.pack(env_fns)},
        lane_options=[{"lane": lane} for lane in range(len(env_fns))],
        seed=None if None in seeds else seeds,
        record=False,
        copy=copy,
        autoreset_mode=autoreset_mode,
        render_mode=made[0].render_mode,
        # These tests compare whole infos.
        info_layout="gymnasium",
    )
    return drawing_as(made, envs)


def wrappers_of(env: gymnasium.Env) -> Generator[gymnasium.Wrapper]:
    """The wrappers around an env."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


# Without it `make_vec` gives a class for CartPole alone.
gymnasium.spec("CartPole-v1").vector_entry_point = None
ours: Any = {skips.HOSTED: HostedAsAsync, skips.NODES: sent}.get(CLASS, built_in)
if CLASS == skips.NODES:
    rollhouse.cluster.ClusterVectorEnv = SentVectorEnv  # type: ignore[misc]
gymnasium.vector.AsyncVectorEnv = ours
gymnasium.vector.async_vector_env.AsyncVectorEnv = ours
if CLASS != skips.HOSTED:
    gymnasium.vector.SyncVectorEnv = ours

BESIDE_SYNC = ("test_autoreset_mode.py", "test_observation_mode.py", "test_vector_env.py", "test_vector_env_info.py")
"""Files in which the hosted class stands beside SyncVectorEnv; in others it is made in its place."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Applies the table, and refuses rows of it that no test has."""
    rows = [row for row in skips.ROWS if CLASS in row.classes and gymnasium.__version__.startswith(row.only)]
    # A file may skip itself before it is collected.
    stale = {test for row in rows for test in row.tests if not test.endswith(".py")}
    for item in items:
        names = names_of(item)
        reasons = [row.reason for row in rows if names.intersection(row.tests)]
        stale -= names
        if CLASS == skips.NODES and reasons:
            # It is run: the table may not name what has come to pass.
            item.add_marker(pytest.mark.xfail(reason=reasons.pop(0), strict=True))
            reasons.clear()
        for tests, packages in skips.PACKAGES:
            missing = [name for name in packages if importlib.util.find_spec(name) is None]
            if names.intersection(tests) and missing:
                reasons.append(f"Gymnasium needs {', '.join(missing)} for it, not installed here")
        if not reasons and not all(draws(env_id) for env_id in names.intersection(skips.PICTURES)):
            reasons.append("takes pictures that need OpenGL, which does not work here")
        for key, value in parameters_of(item).items():
            if CLASS == skips.HOSTED and (value is Sync or str(value) == "VectorizeMode.SYNC"):
                reasons.append(skips.SYNC)
            elif (key, value) == ("shared_memory", False) or (
                isinstance(value, functools.partial) and value.keywords.get("shared_memory") is False
            ):
                reasons.append(skips.UNSHARED)
            elif CLASS == skips.NODES and stands_twice(item, key, value):
                reasons.append(skips.TWICE)
        if reasons:
            item.add_marker(pytest.mark.skip(reason=reasons[0]))
    if stale:
        raise pytest.UsageError(f"skips.py names what is not there: {', '.join(sorted(stale))}")


@functools.cache
def draws(env_id: str) -> bool:
    """Whether an env gives pictures here. A process of its own finds out: without OpenGL, MuJoCo ends it."""
    code = f"import gymnasium; env = gymnasium.make({env_id!r}, render_mode='rgb_array'); env.reset(); env.render()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300).returncode == 0


def parameters_of(item: pytest.Item) -> dict[str, Any]:
    """The parameters of a test, by name."""
    return item.callspec.params if hasattr(item, "callspec") else {}


def stands_twice(item: pytest.Item, key: str, value: Any) -> bool:
    """Whether a parameter of a test is Gymnasium's other class, for which ours stands as for the first."""
    made = value.func if isinstance(value, functools.partial) else value
    return (made is ours and item.callspec.indices[key] > 0) or str(value) == "VectorizeMode.ASYNC"


def names_of(item: pytest.Item) -> set[str]:
    """What a row can call a test: its name, its file, both, the env it is run with, its name with the parameters, or with a kind of
    space that is in them."""
    name, file = getattr(item, "originalname", item.name), item.path.name
    spaces = [value for value in parameters_of(item).values() if isinstance(value, gymnasium.Space)]
    kinds = {f"{name}[{kind}]" for space in spaces for kind in kinds_of(space)}
    return {name, file, f"{file}::{name}", item.name, str(parameters_of(item).get("env_id")), *kinds}


def kinds_of(space: gymnasium.Space) -> Generator[str]:
    """The kinds of a space and of its parts."""
    yield type(space).__name__
    parts: Any = getattr(space, "spaces", ())
    for part in parts.values() if isinstance(parts, Mapping) else parts:
        yield from kinds_of(part)


@pytest.fixture(autouse=True)
def in_the_place_of_sync(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the hosted class in the place of SyncVectorEnv where that is what a test makes."""
    name = getattr(request.node, "originalname", request.node.name)
    if CLASS == skips.HOSTED and (request.path.name not in BESIDE_SYNC or name == "test_same_step_final_obs"):
        monkeypatch.setattr(gymnasium.vector, "SyncVectorEnv", ours)
        if hasattr(request.node.module, "SyncVectorEnv"):
            monkeypatch.setattr(request.node.module, "SyncVectorEnv", ours)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Fails a test that passed without ours."""
    asked.clear()
    result = yield
    assert asked, "no env of ours was made: this test shows nothing, and belongs to the table in skips.py"
    return result
