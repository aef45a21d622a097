"""Every test of Gymnasium's ``tests/vector`` and ``tests/wrappers/vector`` that is not run against a class of ours, and why.

``ROWS`` is the table. What depends on the env a test makes is decided when it makes it: ``NOT_BUILT_IN``, ``COLLECTED``.
"""

from __future__ import annotations

from dataclasses import dataclass

EMBEDDED, HOSTED, CLUSTER, NODES = "embedded", "hosted", "cluster", "nodes"
BUILT_IN = (EMBEDDED, CLUSTER)
ALL = (EMBEDDED, HOSTED, CLUSTER, NODES)

NOT_BUILT_IN = "makes lanes of a Python env or of one that is not built in; the hosted class runs such, and this test"
"""Embedded and on a cluster."""

COLLECTED = "collects the frames of each lane in a wrapper around it; lanes of built-in envs are wrapped as a batch"
"""Embedded and on a cluster."""

ONE_SPACE = "lanes of a pool have one observation space; there is no observation_mode"
"""On nodes."""

SYNC = "its parameter is SyncVectorEnv, beside which ours is run"
"""Hosted."""

TWICE = "its parameter is AsyncVectorEnv beside SyncVectorEnv, in whose place stand the same lanes; the test runs with the first"
"""On nodes."""

UNSHARED = "its parameter is shared_memory=False, of which ours have no variant; the test runs with True"
"""All classes."""

SPACES = ("test_vector_obs_action_spaces", "test_same_step_final_obs")
"""Tests that are run with spaces of all kinds."""


@dataclass(frozen=True)
class Row:
    """Tests that are not run, or on nodes fail.

    Attributes:
        tests: Each a test's name, ``FILE::NAME``, a file, or a name with a kind of space that it is run with, ``NAME[Graph]``.
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
        (
            "test_reset_timeout_async_vector_env",
            "test_step_timeout_async_vector_env",
            "test_reset_out_of_order_async_vector_env",
            "test_step_out_of_order_async_vector_env",
        ),
        (NODES,),
        "tests reset_async, step_async and their like, which belong to workers of this process; lanes of a cluster have send and recv, "
        "and one timeout for all calls",
    ),
    Row(
        ("test_call_async_vector_env", "test_call_sync_vector_env", "test_human_rendering.py::test_render_modes"),
        (NODES,),
        "wants lists of frames (rgb_array_list); nodes give a picture of each lane as it is (rgb_array)",
    ),
    Row(
        ("test_set_attr_async_vector_env", "test_set_attr_sync_vector_env", "test_vector_env_wrapper_attributes"),
        (NODES,),
        "reads an attribute of the env, which lives on another machine: a node answers for the options that the env declares, and calls "
        "the methods that it lists",
    ),
    Row(
        ("test_check_spaces_async_vector_env", "test_check_spaces_sync_vector_env"),
        (NODES,),
        "gives lanes envs of other spaces: on nodes all lanes are one env, made with the same arguments, and a lane whose env has other "
        "spaces is lost",
    ),
    Row(("test_observation_mode.py",), (NODES,), ONE_SPACE),
    Row(
        (
            "test_custom_space_async_vector_env",
            "test_custom_space_async_vector_env_shared_memory",
            "test_custom_space_sync_vector_env",
        ),
        (NODES,),
        "has a space of a class of its own, which no node can host: observations and actions travel as columns, and nothing is unpickled",
    ),
    Row(
        tuple(f"{test}[{kind}]" for test in SPACES for kind in ("Graph", "OneOf")),
        (NODES,),
        "has a Graph or a OneOf, which nodes do not host: observations and actions travel as columns",
    ),
    Row(
        tuple(f"{test}[Sequence]" for test in SPACES),
        (NODES,),
        "has a Sequence of which the env does not declare how long it may be (metadata['max_lengths']); nodes host those that do",
    ),
    Row(
        ("test_autoreset_within_step",),
        (NODES,),
        "wants the env's own int in final_obs; what comes from a column has the type of the space, np.int64",
    ),
    Row(
        ("test_async_vector_subenv_error",),
        (NODES,),
        "wants the type of the exception that an env raised in a worker; nodes report its words, since nothing of theirs is unpickled",
    ),
    Row(
        ("test_equivalence_with_wrapper",),
        (NODES,),
        "looks into SyncVectorEnv.envs, and the envs of lanes live on nodes",
        only="1.4.",
    ),
    Row(
        ("test_record_episode_statistics.py::test_record_episode_statistics",),
        (NODES,),
        "wants the info `episode` of a wrapper around each lane's env; on nodes the name is the vector env's own (statistics=True)",
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
