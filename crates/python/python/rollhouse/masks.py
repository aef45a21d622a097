"""Action masks as envs give them: an array, Gymnasium's own form (a tuple of arrays, or tuples of those), or a board."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces


def choices_of(space: spaces.Space) -> int | None:
    """Returns how many choices a mask of an action space tells of; None if it has no masks."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return 2 * int(np.prod(space.shape))
    return None


def flat(mask: Any) -> np.ndarray | None:
    """Returns a mask as one array, int8 [n]: the choices of all elements one after the other. None if it is no mask."""
    try:
        given = np.concatenate(list(_parts(mask)))
    except (ValueError, TypeError):
        return None
    if given.dtype.kind not in "biuf" or not ((given == 0) | (given == 1)).all():
        return None
    return given.astype(np.int8)


def _parts(mask: Any) -> Iterator[np.ndarray]:
    if isinstance(mask, (tuple, list)) and any(isinstance(part, (tuple, list, np.ndarray)) for part in mask):
        for part in mask:
            yield from _parts(part)
    else:
        yield np.ravel(np.asarray(mask))
