"""Combines the observation spaces of single envs into the space of a batch."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space


def check_observation_mode(mode: Any) -> None:
    """Raises unless the observation mode is a valid one.

    Raises:
        ValueError, TypeError: With Gymnasium's own words.
    """
    if isinstance(mode, tuple) and len(mode) == 2:
        for space in mode:
            if not isinstance(space, gymnasium.Space):
                raise TypeError(f"observation_mode: both elements must be spaces, got {space!r}")
    elif mode not in ("same", "different"):
        raise ValueError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch "
            f"observation space, actual got {mode}"
        )


def batch_observation_spaces(
    spaces: list[gymnasium.Space], mode: Any
) -> tuple[gymnasium.Space, gymnasium.Space]:
    """Returns the single and the batched space.

    Raises:
        RuntimeError: The lanes' spaces do not fit together.
        ValueError, TypeError: They cannot be batched.
    """
    if isinstance(mode, tuple):
        batched, single = mode
    elif mode == "same":
        single = spaces[0]
        batched = batch_space(single, len(spaces))
    else:
        single = spaces[0]
        batched = batch_differing_spaces(spaces)
    for lane, space in enumerate(spaces):
        check_observation_space(lane, space, single, mode)
    return single, batched


def check_observation_space(lane: int, space: gymnasium.Space, single: gymnasium.Space, mode: Any) -> None:
    """Raises for a lane whose observation space does not fit the batch's.

    Raises:
        RuntimeError: The spaces do not fit, in Gymnasium's own words.
    """
    if mode == "same":
        if space != single:
            raise RuntimeError(
                "observation_mode='same' however the sub-environments observation spaces are not equivalent. "
                f"env_fns[0] has {single} and env_fns[{lane}] has {space}. "
                "If this is intentional, use `observation_mode='different'` instead."
            )
    elif not is_space_dtype_shape_equiv(space, single):
        raise RuntimeError(
            "observation_mode='different' or custom space however the sub-environments observation spaces do "
            f"not share a common shape and dtype: single space {single}, env_fns[{lane}] has {space}"
        )


def check_action_space(lane: int, space: gymnasium.Space, single: gymnasium.Space) -> None:
    """Raises for a lane whose action space is not the batch's.

    Raises:
        RuntimeError: It names the lane.
    """
    if space != single:
        raise RuntimeError(
            f"env_fns[{lane}] has the action space {space} and env_fns[0] has {single}; "
            "in order to batch actions they must be equal"
        )
