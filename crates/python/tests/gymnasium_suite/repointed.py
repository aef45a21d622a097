"""A pytest plugin that points Gymnasium's own tests of vector envs at ``HostedVectorEnv``.

Loaded by ``test_gymnasium_suite.py`` into a pytest run over Gymnasium's source tree. The tables say which of those
tests are not run, and why.
"""

from __future__ import annotations

import functools
import importlib.util

import gymnasium.vector
import gymnasium.vector.async_vector_env
import pytest

import rollhouse

NOT_RUN = {
    "test_custom_space_async_vector_env_shared_memory": (
        "wants an error for a custom space in shared memory; ours travels serialised beside it"
    ),
    "test_async_vector_subenv_error": (
        "wants the log lines of AsyncVectorEnv's own workers; test_hosted_losses.py tests that the type of what an "
        "env raised arrives, with its traceback"
    ),
    "test_metadata_sync_vector_env": "looks into SyncVectorEnv.envs; the metadata of ours is tested in test_hosted.py",
    "test_check_spaces_sync_vector_env": "wants the name SyncVectorEnv in the message",
    "test_vector_add_info": "tests the base class alone",
}
"""By name."""

NOT_RUN_1_2 = {
    "test_partial_reset_failure": "1.2 raised AssertionError for bad masks; ours are 1.4's ValueError and TypeError",
}
"""By name, on Gymnasium 1.2."""

SYNC = "tests SyncVectorEnv itself"
UNSHARED = "shared_memory=False: the hosted class has no such variant"

MADE_OURS = ("test_same_step_final_obs", "test_sync_vector_env.py")
"""Tests and files in which SyncVectorEnv is ours too."""


class HostedAsAsync(rollhouse.HostedVectorEnv):
    """Takes the arguments of ``AsyncVectorEnv``. Few workers, since most of these tests' time is their start."""

    def __init__(
        self,
        env_fns,
        shared_memory=True,
        copy=True,
        observation_mode="same",
        autoreset_mode="NextStep",
    ):
        env_fns = list(env_fns)
        super().__init__(
            env_fns,
            workers=1 if len(env_fns) < 8 else 2,
            copy=copy,
            observation_mode=observation_mode,
            autoreset_mode=autoreset_mode,
            # These tests compare whole infos, so that `valid` would be one key too many.
            info_layout="gymnasium",
        )
        # Gymnasium's classes leave it to the env whether it can be stepped before a reset.
        self._reset_done = True


Sync = gymnasium.vector.SyncVectorEnv
gymnasium.vector.AsyncVectorEnv = HostedAsAsync
gymnasium.vector.async_vector_env.AsyncVectorEnv = HostedAsAsync


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Applies the tables."""
    for item in items:
        name = getattr(item, "originalname", item.name)
        reason = NOT_RUN.get(name)
        if gymnasium.__version__.startswith("1.2."):
            reason = reason or NOT_RUN_1_2.get(name)
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        for key, value in parameters.items():
            if value is Sync or str(value) == "VectorizeMode.SYNC":
                reason = reason or SYNC
            elif (key, value) == ("shared_memory", False) or (
                isinstance(value, functools.partial) and value.keywords.get("shared_memory") is False
            ):
                reason = reason or UNSHARED
        if name == "test_sync_vector_env_seed" and importlib.util.find_spec("Box2D") is None:
            reason = reason or "Box2D is not installed"
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def ours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points SyncVectorEnv at ours where that is what a test makes."""
    name = getattr(request.node, "originalname", request.node.name)
    if name in MADE_OURS or request.node.path.name in MADE_OURS:
        monkeypatch.setattr(request.node.module, "SyncVectorEnv", HostedAsAsync)
