"""The methods that a Python env lists in ``metadata["methods"]``, and how the process that steps it calls them.

``{"spawn": {"summary": "...", "params": {...}, "changes": True, "max_per_second": 2}}``; all of it may be left out. A method
that is not said to change nothing changes its lane. It is called with what JSON gave, or without an argument if that is null,
and answers with what JSON can say. What it refuses, having changed nothing, it refuses by a ``ValueError``. After any other
exception nobody knows what it has changed: the lane is lost, unless the method is said to change nothing.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

import gymnasium

KNOWN = {"summary", "params", "changes", "max_per_second"}
"""What is said of a method."""

MAX_WORDS = 4000
"""Most characters that are told of a failure: its end, where the reason stands."""


class FailedError(Exception):
    """An env failed in a call, by the exception that is its cause. Nobody knows what it has changed."""


def methods_of(env: gymnasium.Env) -> list[dict[str, Any]]:
    """Returns the methods that an env lists, as the host reads them.

    Raises:
        ValueError: The list is none, or the env lacks one of them.
    """
    listed = (env.metadata or {}).get("methods")
    if listed is None:
        return []
    if not isinstance(listed, Mapping):
        raise ValueError(f"metadata['methods'] is a {type(listed).__name__}, must be a dict")
    return [described(env, name, what) for name, what in listed.items()]


def described(env: gymnasium.Env, name: Any, what: Any) -> dict[str, Any]:
    """Describes one method."""
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise ValueError(f"metadata['methods']: {name!r} is no name of a method")
    if not env.has_wrapper_attr(name) or not callable(env.get_wrapper_attr(name)):
        raise ValueError(f"metadata['methods']: the env has no method {name!r}")
    if not isinstance(what, Mapping) or what.keys() - KNOWN:
        raise ValueError(f"metadata['methods'][{name!r}] must be a dict with some of {', '.join(sorted(KNOWN))}")
    told: dict[str, Any] = {"name": name, "summary": str(what.get("summary", "")), "changes": what.get("changes", True) is not False}
    if what.get("params") is not None:
        told["params"] = json.dumps(what["params"])
    limit = what.get("max_per_second")
    if limit is not None:
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit < 2**32:
            raise ValueError(f"metadata['methods'][{name!r}]: max_per_second={limit!r} must be an integer of at least 1")
        told["max_per_second"] = limit
    return told


def call(env: gymnasium.Env, name: str, payload: str) -> dict[str, str]:
    """Calls a method that the env lists. Returns ``{"answer": JSON}`` or ``{"refused": why}``.

    Raises:
        FailedError: The env is of no use any more.
    """
    changes = env.metadata["methods"][name].get("changes", True) is not False
    try:
        given = json.loads(payload) if payload else None
    except ValueError as error:
        return {"refused": f"the payload is no JSON: {error}"}
    try:
        method = env.get_wrapper_attr(name)
        answer = method() if given is None else method(given)
    except Exception as error:
        if changes and not isinstance(error, ValueError):
            raise FailedError from error
        return {"refused": f"{type(error).__name__}: {error}"[:MAX_WORDS]}
    try:
        return {"answer": json.dumps(answer, allow_nan=False, separators=(",", ":"))}
    except (TypeError, ValueError) as error:
        if changes:
            raise FailedError from error
        return {"refused": f"what {name!r} answers is not JSON: {error}"}


def words(error: BaseException) -> str:
    """Returns an exception with the end of its traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__)).strip()
    return text[-MAX_WORDS:]
