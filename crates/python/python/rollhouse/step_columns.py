"""Step columns: what whoever chooses the actions notes of each step, for recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

StepColumnSpecs = Mapping[str, Any]
"""For each name a dtype, or a dtype and the shape of one row."""

_TAKEN = {"f": "fiub", "i": "iub", "u": "iub", "b": "b"}
"""Kinds of dtypes that a column of each kind takes."""

_DTYPES = ("bool", "uint8", "int32", "int64", "float32", "float64")


class StepColumns:
    """Declared columns.

    Attributes:
        declared: Name, dtype and shape of each column, in their order.
    """

    def __init__(self, specs: StepColumnSpecs | None):
        self.declared = [(name, *_parsed(name, spec)) for name, spec in (specs or {}).items()]
        self._columns = {
            name: (place, np.dtype(dtype), shape) for place, (name, dtype, shape) in enumerate(self.declared)
        }

    def lanes(self, lanes: Any, count: int) -> tuple[list[int] | None, int]:
        """Returns which lanes are meant, None for all of ``count``, and how many they are."""
        if lanes is None:
            return None, count
        array = np.asarray(lanes)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TypeError(f"lanes={lanes!r} must be a sequence of lane indices")
        if array.size and not 0 <= array.min() <= array.max() < count:
            bad = next(int(lane) for lane in array if not 0 <= lane < count)
            raise IndexError(f"lanes: lane {bad} of a batch of {count}")
        return array.tolist(), array.size

    def arrays(self, columns: Mapping[str, Any], rows: int) -> list[tuple[int, np.ndarray]]:
        """Returns the place and the rows of each column that is noted."""
        return [self._array(name, values, rows) for name, values in columns.items()]

    def _array(self, name: str, values: Any, rows: int) -> tuple[int, np.ndarray]:
        if name not in self._columns:
            known = ", ".join(self._columns) or "none"
            raise ValueError(f"step column {name!r} was not declared; step_columns has {known}")
        place, dtype, shape = self._columns[name]
        array = np.asarray(values)
        # Python's own numbers and arrays of another width are taken; a float is no integer, and a number no boolean.
        if array.dtype.kind not in _TAKEN[dtype.kind]:
            raise TypeError(f"step column {name!r} of {array.dtype} must be of {dtype}")
        if dtype.kind in "iu" and array.size and array.dtype != dtype:
            least, most, range_of = int(array.min()), int(array.max()), np.iinfo(dtype)
            if least < range_of.min or most > range_of.max:
                raise ValueError(f"step column {name!r} of {dtype} cannot have {least} to {most}")
        if array.ndim == 0:
            array = np.broadcast_to(array, (rows, *shape))
        if array.shape != (rows, *shape):
            raise ValueError(f"step column {name!r} has the shape {array.shape}, must have {(rows, *shape)}")
        return place, np.ascontiguousarray(array, dtype)


def _parsed(name: str, spec: Any) -> tuple[str, tuple[int, ...]]:
    dtype, shape = spec if isinstance(spec, tuple) else (spec, ())
    try:
        known = np.dtype(dtype).name
    except TypeError:
        known = ""
    if known not in _DTYPES:
        raise ValueError(f"step_columns: {name!r} has the dtype {dtype!r}, must have one of {', '.join(_DTYPES)}")
    shape = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
    if any(extent < 1 for extent in shape):
        raise ValueError(f"step_columns: {name!r} has the shape {shape}")
    return known, shape
