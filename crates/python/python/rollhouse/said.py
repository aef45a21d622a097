"""What an env says beside its observations, made fit for what follows: nothing that it says there costs its lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

INFO = "info"
"""The key of an info that is none: no dict."""


def info_of(given: Any) -> dict[str, Any]:
    """Returns an info as a dict: of nothing an empty one."""
    if type(given) is dict:
        return given
    if given is None:
        return {}
    return dict(given) if isinstance(given, Mapping) else {INFO: given}


def reward_of(given: Any) -> Any:
    """Returns a reward that is an array or list of one number as that number.

    Raises:
        ValueError: It has another number of elements.
    """
    return np.asarray(given).item() if isinstance(given, (list, tuple)) or getattr(given, "shape", None) else given


def pickled_info(info: dict[str, Any], dump: Callable[[Any], bytes]) -> bytes:
    """Pickles an info. A value that cannot be pickled is replaced by words about why."""
    try:
        return dump(info)
    except Exception:
        return dump(dict(_fit(key, value, dump) for key, value in info.items()))


def _fit(key: Any, value: Any, dump: Callable[[Any], bytes]) -> tuple[Any, Any]:
    try:
        dump((key, value))
    except Exception as error:
        return str(key), f"a {type(value).__name__} that cannot be sent: {type(error).__name__}: {error}"
    return key, value


def at_path(info: Mapping[str, Any], path: str) -> tuple[bool, Any]:
    """Returns whether an info has a value under a name, or nested under a path such as ``arm/force``, and the value."""
    if path in info:
        return True, info[path]
    first, slash, rest = path.partition("/")
    inner = info.get(first) if slash else None
    return at_path(inner, rest) if isinstance(inner, Mapping) else (False, None)
