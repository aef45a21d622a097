"""What a Python env in a worker reports of its steps, in their infos.

An env whose ``metadata["reports_actions"]`` is True may choose its actions itself: because it has a default for when none comes
in time, or applies another one than it was given. ``info["action_taken"]`` is the action that it took, where that is another, and
``info["policy_version"]`` the version of the policy that chose it, an integer that does not go back. These are what is recorded,
and what other nodes repeat: then the env's attribute ``repeats`` is True, and it has to take what it is given.

``metadata["step_columns"]`` declares infos that are recorded beside the actions, as step columns:
``{"margin": "float32", "forces": ("float32", (4,))}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from rollhouse.action_parts import ActionParts
from rollhouse.counted import Counted
from rollhouse.step_columns import StepColumns

ACTION_TAKEN, POLICY_VERSION = "action_taken", "policy_version"


def declared(env: gymnasium.Env) -> dict[str, Any]:
    """Returns what an env declares that it reports, as the host is told: nothing of most.

    Raises:
        ValueError: It is none, or an action that is not reported.
    """
    metadata = env.metadata or {}
    told: dict[str, Any] = {}
    if metadata.get("reports_actions") is True:
        if has_counted(env.action_space):
            raise ValueError('metadata["reports_actions"]: an action that is a Text or a Sequence, or has one, is not reported')
        told["reports_actions"] = True
    columns = metadata.get("step_columns")
    if columns:
        if not isinstance(columns, Mapping):
            raise ValueError(f'metadata["step_columns"] is {columns!r}, must be a dict from name to dtype')
        parsed = StepColumns(columns).declared
        told["step_columns"] = [{"name": name, "dtype": dtype, "shape": list(shape)} for name, dtype, shape in parsed]
    return told


def names(told: Mapping[str, Any]) -> set[str]:
    """Returns the names of infos that are reported, of what ``declared`` returns."""
    actions = {ACTION_TAKEN, POLICY_VERSION} if told.get("reports_actions") else set()
    return actions | {column["name"] for column in told.get("step_columns", ())}


def has_counted(space: gymnasium.Space) -> bool:
    """Returns whether a space is a Text or a Sequence, or has one."""
    inner = space.spaces if ActionParts.has(space) and hasattr(space, "spaces") else ()
    inner = inner.values() if isinstance(inner, Mapping) else inner
    return isinstance(space, Counted) or any(has_counted(part) for part in inner)
