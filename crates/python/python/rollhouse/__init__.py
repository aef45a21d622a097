"""Vector environments that run fast, anywhere, and record every episode.

Start at ``make_vec`` (built-in envs, in this process) and ``vectorize`` (any Python env, in worker processes);
both give a ``VectorEnv``, which is a ``gymnasium.vector.VectorEnv``. ``replays`` reads what was recorded.

Not a goal: algorithms that learn. Importing it registers the built-in envs with Gymnasium under ``rollhouse/``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rollhouse import errors, registration
from rollhouse._native import VERSION as __version__
from rollhouse._native import env_ids, env_spec
from rollhouse.embedded import EmbeddedVectorEnv, make_vec
from rollhouse.vector import VectorEnv

if TYPE_CHECKING:
    from rollhouse import replays as replays
    from rollhouse.hosted import HostedVectorEnv as HostedVectorEnv
    from rollhouse.hosted import vectorize as vectorize

__all__ = [
    "EmbeddedVectorEnv",
    "HostedVectorEnv",
    "VectorEnv",
    "__version__",
    "env_ids",
    "env_spec",
    "errors",
    "make_vec",
    "vectorize",
]

# Imported when they are asked for: what they need is slow to import, or not installed by everybody.
_LAZY = {
    "HostedVectorEnv": ("rollhouse.hosted", "HostedVectorEnv"),
    "replays": ("rollhouse.replays", None),
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
