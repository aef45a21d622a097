"""Options that an env declares in its ``metadata``, of which each episode is given values."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

LARGEST = sys.float_info.max

FIELDS = {"default", "summary"}
"""What an option may have that is declared with more than its default."""


def options_among(arguments: Mapping[str, Any], maker: Any) -> dict[str, Any]:
    """Returns those of an env's arguments that its class declares as options and does not take itself."""
    metadata = getattr(maker, "metadata", None)
    # That of a wrapper is a property of its class.
    declared = metadata.get("options") if isinstance(metadata, Mapping) else None
    names = arguments.keys() & declared.keys() if isinstance(declared, Mapping) else set()
    if names:
        names -= inspect.signature(maker).parameters.keys()
    return {name: value for name, value in arguments.items() if name in names}


def declared_options(
    metadata: Mapping[str, Any] | None, given: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Returns name, default and summary of each option, in the env's order. ``given`` are values that take the place of
    defaults, which are of the same type.

    Raises:
        ValueError: They are no options. The message names the one.
    """
    options = (metadata or {}).get("options")
    if options is None:
        return []
    if not isinstance(options, Mapping):
        raise ValueError(f"metadata['options'] is a {type(options).__name__}, must be a dict of names and defaults")
    declared = [_declared(name, told) for name, told in options.items()]
    for option in declared:
        name, default = option["name"], option["default"]
        if given and name in given:
            value = _default(name, given[name])
            if isinstance(default, float) and type(value) is int:
                value = float(value)
            if type(value) is not type(default):
                raise ValueError(f"option {name!r} is given {value!r}, must be of the type of its default {default!r}")
            option["default"] = value
    return declared


def _declared(name: Any, told: Any) -> dict[str, Any]:
    if not isinstance(name, str):
        raise ValueError(f"metadata['options']: {name!r} is no name")
    summary = ""
    if isinstance(told, Mapping):
        if "default" not in told or told.keys() - FIELDS:
            raise ValueError(f"metadata['options'][{name!r}]: a dict has a default, and may have a summary")
        told, summary = told["default"], str(told.get("summary", ""))
    return {"name": name, "default": _default(name, told), "summary": summary}


def _default(name: str, value: Any) -> bool | int | float | str | list[float]:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, (list, tuple)) and all(_is_number(number) for number in value):
        return [float(number) for number in value]
    raise ValueError(
        f"metadata['options'][{name!r}] is {value!r}, must be a bool, an integer of 64 bits, a finite float, a text "
        "or a list of finite numbers"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST
