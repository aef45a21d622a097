"""Vector environments that run fast, anywhere, and record every episode.

Start at ``make_vec`` (built-in envs, in this process), ``connect`` (the same on a cluster) and ``vectorize`` (any
Python env, in worker processes); all give a ``VectorEnv``, which is a ``gymnasium.vector.VectorEnv``. ``replays`` reads what was recorded.

Not a goal: algorithms that learn. Importing it registers the built-in envs with Gymnasium under ``rollhouse/``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rollhouse import errors, registration
from rollhouse._native import VERSION as __version__
from rollhouse._native import env_ids, env_spec
from rollhouse.embedded import EmbeddedVectorEnv, make_vec
from rollhouse.events import Event
from rollhouse.recording import Recording, RecordingWarning
from rollhouse.registration import get_include, load_plugin
from rollhouse.vector import VectorEnv

if TYPE_CHECKING:
    from rollhouse import replays as replays
    from rollhouse.aio import AsyncCluster as AsyncCluster
    from rollhouse.aio import AsyncVectorEnv as AsyncVectorEnv
    from rollhouse.aio import LatestReader as LatestReader
    from rollhouse.aio import connect_async as connect_async
    from rollhouse.cluster import Cluster as Cluster
    from rollhouse.cluster import ClusterVectorEnv as ClusterVectorEnv
    from rollhouse.cluster import connect as connect
    from rollhouse.hosted import HostedVectorEnv as HostedVectorEnv
    from rollhouse.hosted import vectorize as vectorize
    from rollhouse.paced import LiveLanes as LiveLanes
    from rollhouse.policies import Policy as Policy
    from rollhouse.replay_session import ReplaySession as ReplaySession
    from rollhouse.score import Score as Score
    from rollhouse.evaluation import evaluate as evaluate
    from rollhouse.fragments import Batch as Batch
    from rollhouse.fragments import Rollouts as Rollouts
    from rollhouse.fragments import rollouts as rollouts

__all__ = [
    "AsyncCluster",
    "AsyncVectorEnv",
    "Batch",
    "Cluster",
    "ClusterVectorEnv",
    "EmbeddedVectorEnv",
    "Event",
    "HostedVectorEnv",
    "LatestReader",
    "LiveLanes",
    "Policy",
    "Recording",
    "RecordingWarning",
    "ReplaySession",
    "Rollouts",
    "Score",
    "VectorEnv",
    "__version__",
    "connect",
    "connect_async",
    "env_ids",
    "env_spec",
    "errors",
    "evaluate",
    "get_include",
    "load_plugin",
    "make_vec",
    "rollouts",
    "vectorize",
]

# Imported when they are asked for: what they need is slow to import, or not installed by everybody.
_LAZY = {
    "AsyncCluster": ("rollhouse.aio", "AsyncCluster"),
    "AsyncVectorEnv": ("rollhouse.aio", "AsyncVectorEnv"),
    "Batch": ("rollhouse.fragments", "Batch"),
    "Cluster": ("rollhouse.cluster", "Cluster"),
    "ClusterVectorEnv": ("rollhouse.cluster", "ClusterVectorEnv"),
    "HostedVectorEnv": ("rollhouse.hosted", "HostedVectorEnv"),
    "LatestReader": ("rollhouse.aio", "LatestReader"),
    "LiveLanes": ("rollhouse.paced", "LiveLanes"),
    "Policy": ("rollhouse.policies", "Policy"),
    "ReplaySession": ("rollhouse.replay_session", "ReplaySession"),
    "Score": ("rollhouse.score", "Score"),
    "Rollouts": ("rollhouse.fragments", "Rollouts"),
    "connect": ("rollhouse.cluster", "connect"),
    "connect_async": ("rollhouse.aio", "connect_async"),
    "evaluate": ("rollhouse.evaluation", "evaluate"),
    "replays": ("rollhouse.replays", None),
    "rollouts": ("rollhouse.fragments", "rollouts"),
    "vectorize": ("rollhouse.hosted", "vectorize"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'rollhouse' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value = importlib.import_module(module)
    if attribute is not None:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])


registration.register()
