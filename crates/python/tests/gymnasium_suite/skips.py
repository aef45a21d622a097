"""Every test of Gymnasium's ``tests/vector`` and ``tests/wrappers/vector`` that is not run against a class of ours, and why.

``ROWS`` is the table. What depends on the env a test makes is decided when it makes it: ``NOT_BUILT_IN``, ``COLLECTED``.
"""

from __future__ import annotations

from dataclasses import dataclass

EMBEDDED, HOSTED, CLUSTER = "embedded", "hosted", "cluster"
BUILT_IN = (EMBEDDED, CLUSTER)
ALL = (EMBEDDED, HOSTED, CLUSTER)

NOT_BUILT_IN = "makes lanes of a Python env or of one that is not built in; the hosted class runs such, and this test"
"""Embedded and on a cluster."""

COLLECTED = "collects the frames of each lane in a wrapper around it; lanes of built-in envs are wrapped as a batch"
"""Embedded and on a cluster."""

SYNC = "its parameter is SyncVectorEnv, beside which ours is run"
"""Hosted."""

UNSHARED = "its parameter is shared_memory=False, of which ours have no variant; the test runs with True"
"""All classes."""


@dataclass(frozen=True)
class Row:
    """Tests that are not run.

    Attributes:
        tests: Each a test's name, ``FILE::NAME``, or a file.
        classes: Of ours, against which they are not run.
        reason: Why.
        only: The beginning of the versions of Gymnasium for which that holds; all if empty.
    """

    tests: tuple[str, ...]
    classes: tuple[str, ...]
    reason: str
    only: str = ""


ROWS = (
    Row(
        (
            "test_vector_add_info",
            "test_shared_memory.py",
            "test_space_utils.py",
            "test_array_conversion.py",
            "test_update_info",
            "test_dict_info_to_list.py::test_errors",
        ),
        ALL,
        "tests functions and base classes of Gymnasium's own, and makes no vector env that ours could stand for",
    ),
    Row(
        ("test_partial_reset_failure",),
        ALL,
        "Gymnasium 1.2 raised AssertionError for bad masks; ours are the ValueError and TypeError of 1.4",
        only="1.2.",
    ),
    Row(
        ("test_equivalence_with_wrapper",),
        (HOSTED,),
        "looks into SyncVectorEnv.envs, and the envs of workers live in other processes; get_attr and call ask them",
        only="1.4.",
    ),
    Row(
        ("test_metadata_sync_vector_env",),
        ALL,
        "looks into SyncVectorEnv.envs; test_hosted.py and test_embedded_contract.py test the metadata of ours",
        only="1.4.",
    ),
    Row(
        ("test_custom_space_async_vector_env_shared_memory",),
        (HOSTED,),
        "wants an error for a custom space in shared memory; ours travels serialised beside it",
    ),
    Row(
        ("test_async_vector_subenv_error",),
        (HOSTED,),
        "wants the log lines of AsyncVectorEnv's own workers; test_hosted_losses.py tests that the type of what an env "
        "raised arrives, with its traceback",
    ),
    Row(
        ("test_human_rendering.py::test_render_modes",),
        (HOSTED,),
        "shows lanes that give lists of frames, of which the wrapper takes none; it passes for CartPole's own vector class, "
        "and not for SyncVectorEnv either",
        only="1.4.",
    ),
    Row(("test_check_spaces_sync_vector_env",), (HOSTED,), "wants the name SyncVectorEnv in the message"),
    Row(
        ("test_set_attr_async_vector_env", "test_set_attr_sync_vector_env", "test_vector_env_wrapper_attributes"),
        BUILT_IN,
        "sets the gravity of CartPole, which its dynamics are compiled with, so that recordings can be recomputed; it can "
        "be read, and set in `gymnasium:CartPole-v1`",
    ),
    Row(
        ("test_reset_out_of_order_async_vector_env", "test_step_out_of_order_async_vector_env"),
        BUILT_IN,
        "tests reset_async, step_async and their like, which belong to workers; lanes of built-in envs have send and recv",
    ),
    Row(
        ("test_no_copy_async_vector_env",),
        ALL,
        "writes to an observation; with copy=False that is a read-only view of the memory from which lanes are stepped and "
        "recorded",
    ),
    Row(
        ("test_vectorize_dict_to_box_obs",),
        BUILT_IN,
        "wraps the env of each lane in Python; lanes of built-in envs are wrapped as a batch",
    ),
)
"""The table."""

PACKAGES = (
    (("test_record_video.py",), ("moviepy", "pygame")),
    (("test_human_rendering.py",), ("cv2", "pygame")),
    (
        (
            "test_render_async_vector",
            "test_render_sync_vector",
            "test_call_async_vector_env",
            "test_call_sync_vector_env",
        ),
        ("pygame",),
    ),
    (("test_sync_vector_env_seed", "CarRacing-v3"), ("Box2D",)),
    (("Ant-v4",), ("mujoco",)),
)
"""Tests, files and env ids, and the packages that Gymnasium needs for them: not run where one is not installed."""

PICTURES = ("Ant-v4",)
"""Env ids of which a test takes pictures that need OpenGL, which needs a display or a driver: not run where one fails."""
