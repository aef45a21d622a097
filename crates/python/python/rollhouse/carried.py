"""The dtypes with which columns carry values of spaces, and those that are a space's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

WIDER = {
    "int8": "int32",
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int64",
    "float16": "float32",
}
"""The engine has fewer dtypes than NumPy: columns of these are kept as the next that has all their values."""


def kept(space: Any) -> np.dtype:
    """Returns the dtype with which a node's column of a space is kept."""
    dtype: np.dtype = np.dtype(space.dtype)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return np.promote_types(dtype, np.int64)
    return np.dtype(WIDER.get(dtype.name, dtype)) if isinstance(space, spaces.Box) else dtype


def own_dtype(space: Any, column: str) -> str | None:
    """Returns the name of a space's own dtype, if the column has a wider one; None also of choices that are not all of their
    space's dtype, as Gymnasium lets them be.
    """
    name = np.dtype(space.dtype).name
    if name in (column, "uint64") or isinstance(space, spaces.MultiBinary):
        return None
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
        last = np.asarray(space.start, np.int64) + np.asarray(counts, np.int64) - 1
        if last.max(initial=0) > np.iinfo(name).max:
            return None
    return name


def lacking(dtype: np.dtype, values: np.ndarray) -> np.ndarray:
    """Returns which of some numbers a dtype does not have. Floats are rounded, and those that are not finite stay so."""
    if dtype == values.dtype:
        return np.zeros(values.shape, np.bool_)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.isfinite(values) & ~np.isfinite(values.astype(dtype))
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    # A float has the number behind the greatest exactly.
    return ~((values >= least) & (values < most + 1)) | (np.rint(values) != values)
