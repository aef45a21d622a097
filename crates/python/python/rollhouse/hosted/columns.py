"""The columns of a space's values.

A space is a tree. Its leaves of fixed shape (Box, Discrete, MultiDiscrete, MultiBinary) are columns: arrays [N, ...].
Every other leaf (Text, Graph, Sequence, OneOf, spaces of your own) travels serialised. Both the process that steps lanes
and the one that asks for it find the same columns in the same space.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Fixed = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Columns:
    """The columns of N values of a space.

    Attributes:
        dtypes: The dtype of each column.
        shapes: The shape of one value in each column.
        others: Number of leaves that are not columns.
        single: Whether the space is one column and nothing else.
    """

    def __init__(self, space: gymnasium.Space, rows: int):
        self.space = space
        self.rows = rows
        self.dtypes: list[np.dtype] = []
        self.shapes: list[tuple[int, ...]] = []
        self.others = 0
        self._tree = self._plant(space)
        self.single = self._tree == ("column", 0)

    def _plant(self, space: gymnasium.Space, path: str = "") -> tuple[str, Any]:
        if isinstance(space, Fixed):
            # By name: NumPy's own object for it, so that arrays' dtypes can be compared by identity.
            self.dtypes.append(np.dtype(np.dtype(space.dtype).str))
            self.shapes.append(tuple(space.shape or ()))
            return "column", len(self.dtypes) - 1
        if isinstance(space, spaces.Tuple):
            return "tuple", [self._plant(child, below(path, at)) for at, child in enumerate(space.spaces)]
        if isinstance(space, spaces.Dict):
            return "dict", [(key, self._plant(child, below(path, key))) for key, child in space.spaces.items()]
        self.others += 1
        return "other", self.others - 1

    def write(self, row: Sequence[np.ndarray], others: list[Any], value: Any) -> None:
        """Writes one value: its columns to ``row`` (one array per column), its other leaves to ``others``.

        Casts as ``gymnasium.vector.utils.concatenate`` does.

        Raises:
            ValueError, TypeError, KeyError, IndexError: The value is not of the space's structure, shape or dtype.
        """
        self._write(self._tree, row, others, value)

    def _write(self, node: tuple[str, Any], row: Sequence[np.ndarray], others: list[Any], value: Any) -> None:
        kind, children = node
        if kind == "column":
            write_array(row[children], value)
        elif kind == "other":
            others[children] = value
        elif kind == "tuple":
            for index, child in enumerate(children):
                self._write(child, row, others, value[index])
        else:
            for key, child in children:
                self._write(child, row, others, value[key])

    def batch(self, arrays: Sequence[np.ndarray], others: Sequence[Sequence[Any]]) -> Any:
        """Makes a batch in Gymnasium's structure: ``arrays`` for the columns, per other leaf a tuple of all values.

        Args:
            arrays: One per column, k rows each.
            others: Per lane of the batch, the values of its other leaves.
        """
        return self._batch(self._tree, arrays, others)

    def _batch(self, node: tuple[str, Any], arrays: Sequence[np.ndarray], others: Sequence[Sequence[Any]]) -> Any:
        kind, children = node
        if kind == "column":
            return arrays[children]
        if kind == "other":
            return tuple(lane[children] for lane in others)
        if kind == "tuple":
            return tuple(self._batch(child, arrays, others) for child in children)
        return {key: self._batch(child, arrays, others) for key, child in children}

    def match(self, batch: Any) -> list[np.ndarray] | None:
        """Returns the arrays of a batch that is made of columns only, each of exactly the column's dtype and shape, in
        the order of the columns; None for any other batch.
        """
        arrays: list[np.ndarray] = []
        return arrays if self._match(self._tree, batch, arrays) else None

    def _match(self, node: tuple[str, Any], batch: Any, arrays: list[np.ndarray]) -> bool:
        kind, children = node
        if kind == "column":
            arrays.append(batch)
            return (
                isinstance(batch, np.ndarray)
                and batch.dtype == self.dtypes[children]
                and batch.shape == (self.rows, *self.shapes[children])
            )
        if kind == "tuple":
            return (
                isinstance(batch, tuple)
                and len(batch) == len(children)
                and all(self._match(child, part, arrays) for child, part in zip(children, batch, strict=True))
            )
        if kind == "dict":
            return isinstance(batch, dict) and all(
                key in batch and self._match(child, batch[key], arrays) for key, child in children
            )
        return False


    def arrays_of(self, batch: Any) -> list[np.ndarray]:
        """Returns the arrays of a batch that is made of columns only, in the order of the columns, as they are.

        Raises:
            ValueError, TypeError, KeyError: The batch is not of the space's structure, or an array has another shape.
        """
        arrays: list[np.ndarray] = []
        if not self._match(self._tree, batch, arrays):
            arrays.clear()
            self._gather(self._tree, batch, arrays)
        return arrays

    def _gather(self, node: tuple[str, Any], batch: Any, arrays: list[np.ndarray]) -> None:
        kind, children = node
        if kind == "column":
            array, shape = np.asarray(batch), (self.rows, *self.shapes[children])
            if array.shape != shape:
                raise ValueError(f"a batch has shape {array.shape} instead of {shape}")
            arrays.append(array)
        elif kind == "tuple":
            for child, part in zip(children, batch, strict=True):
                self._gather(child, part, arrays)
        elif kind == "dict":
            for key, child in children:
                self._gather(child, batch[key], arrays)
        else:
            raise TypeError(f"a batch of {self.space} is not made of columns")


def below(path: str, part: Any) -> str:
    """Returns the path of a part of the space at ``path``, which is empty for the whole."""
    return f"{path}/{part}" if path else str(part)


def write_array(row: np.ndarray, value: Any) -> None:
    """Writes a value of exactly the row's shape, as ``np.stack(..., out=...)`` does, without unsafe casts.

    Raises:
        ValueError: Another shape.
        TypeError: A dtype that does not become the row's without loss of kind.
    """
    value = np.asanyarray(value)
    if value.shape != row.shape:
        raise ValueError(f"an observation has shape {value.shape} instead of {row.shape}")
    np.copyto(row, value, casting="same_kind")
