"""Checks batches of actions, and turns them into one action per lane."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from rollhouse.errors import ActionTypeError, InvalidActionError
from rollhouse.hosted.columns import Columns

Bounds = tuple[Any, Any]


class Actions:
    """Actions of N lanes of a space.

    Arrays of exactly the space's dtype and shape go through shared memory; anything else becomes what
    ``gymnasium.vector.SyncVectorEnv`` would hand to each env. Integers out of range and numbers that are not
    finite are refused, except for lanes that are about to be reset, where the action is ignored. Finite numbers
    outside of a Box go to the env, as in Gymnasium.
    """

    def __init__(self, single: gymnasium.Space, batched: gymnasium.Space, lanes: int):
        self.single, self.batched, self.lanes = single, batched, lanes
        self.columns = Columns(single, lanes)
        self.bounds = _bounds(single)

    def match(self, actions: Any, ignored: np.ndarray | None) -> list[np.ndarray] | None:
        """Returns the columns of a batch for all lanes if it is made of exact arrays, else None.

        Args:
            actions: The batch that the caller handed in.
            ignored: bool [N], the lanes whose action does not matter.

        Raises:
            InvalidActionError: A value is out of range or not finite.
        """
        arrays = self.columns.match(actions)
        if arrays is not None:
            self._check(arrays, None, ignored)
        return arrays

    def take(
        self, actions: Any, lanes: list[int], ignored: np.ndarray | None
    ) -> tuple[list[np.ndarray] | None, list[Any]]:
        """Returns the columns of a batch for some lanes, or, with None, one action per lane.

        Raises:
            InvalidActionError: The wrong number of actions, or a value that is out of range or not finite.
            ActionTypeError: No batch of this space.
        """
        columns, batched = self.columns, self.batched
        if len(lanes) != self.lanes:
            columns, batched = Columns(self.single, len(lanes)), batch_space(self.single, len(lanes))
        if not isinstance(actions, (np.ndarray, list, tuple, dict)) and hasattr(actions, "__array__"):
            # Tensors, for example.
            actions = np.asarray(actions)
        arrays = columns.match(actions)
        if arrays is not None:
            self._check(arrays, lanes, ignored)
            return arrays, []
        items = _iterate(batched, actions, len(lanes))
        if self.columns.single:
            self._check_loose(actions, lanes, ignored)
        return None, items

    def cast(self, actions: Any) -> list[np.ndarray]:
        """Returns the columns of a batch for all lanes, each in the dtype of the space, as lanes need them that step together.

        Raises:
            ActionTypeError: An array does not become that without loss of kind.
            InvalidActionError: It is no batch of the space.
        """
        try:
            arrays = self.columns.arrays_of(actions)
            cast = zip(arrays, self.columns.dtypes, strict=True)
            return [array.astype(dtype, casting="same_kind", copy=False) for array, dtype in cast]
        except TypeError as error:
            raise ActionTypeError(f"actions={actions!r} are no batch of {self.batched}: {error}") from error
        except (ValueError, KeyError, IndexError) as error:
            raise InvalidActionError(f"actions={actions!r} are no batch of {self.batched}: {error}") from error

    def _check_loose(self, actions: Any, lanes: list[int], ignored: np.ndarray | None) -> None:
        try:
            array = np.asarray(actions)
        except ValueError:
            # Ragged: the env sees what it is given.
            return
        if self.bounds[0] is not None and array.dtype.kind not in "iub":
            raise ActionTypeError(f"actions of dtype {array.dtype} are not the integers that {self.single} wants")
        if array.shape == (len(lanes), *self.columns.shapes[0]) and array.dtype.kind in "iubf":
            self._check([array], lanes, ignored)

    def _check(self, arrays: list[np.ndarray], lanes: list[int] | None, ignored: np.ndarray | None) -> None:
        for bounds, array in zip(self.bounds, arrays, strict=True):
            if bounds is None:
                # A sum is not finite if a summand is not; that it can overflow is found by the second look.
                fine = array.dtype.kind != "f" or bool(np.isfinite(array.sum()))
            elif type(bounds[0]) is int and bounds[0] == 0 and array.dtype == np.int64:
                # Negative numbers become great ones: one pass instead of two.
                fine = int(array.view(np.uint64).max(initial=0)) <= bounds[1]
            else:
                low, high = bounds
                fine = bool((array >= low).all()) and bool((array <= high).all())
            if not fine:
                self._refuse(bounds, array, lanes, ignored)

    def _refuse(
        self, bounds: Bounds | None, array: np.ndarray, lanes: list[int] | None, ignored: np.ndarray | None
    ) -> None:
        for row, lane in enumerate(range(self.lanes) if lanes is None else lanes):
            if ignored is not None and ignored[lane]:
                continue
            value = array[row]
            if bounds is None:
                if not np.isfinite(value).all():
                    raise InvalidActionError(f"actions: lane {lane} is given {value!r}, which is not finite")
            elif ((value < bounds[0]) | (value > bounds[1])).any():
                raise InvalidActionError(
                    f"actions: lane {lane} is given {value!r}, which is not from {bounds[0]} to {bounds[1]}"
                )


def _bounds(space: gymnasium.Space) -> list[Bounds | None]:
    """Returns the least and the greatest integer of an element for each column of the space; None for a column of a
    Box.
    """
    if isinstance(space, spaces.Tuple):
        return [bounds for child in space.spaces for bounds in _bounds(child)]
    if isinstance(space, spaces.Dict):
        return [bounds for child in space.spaces.values() for bounds in _bounds(child)]
    if isinstance(space, spaces.Discrete):
        return [(int(space.start), int(space.start) + int(space.n) - 1)]
    if isinstance(space, spaces.MultiDiscrete):
        # As wide as can be: the bounds of a narrow dtype may not fit into it.
        start, count = space.start.astype(np.int64), space.nvec.astype(np.int64)
        return [(start, start + count - 1)]
    if isinstance(space, spaces.MultiBinary):
        return [(0, 1)]
    return [None] if isinstance(space, spaces.Box) else []


def _iterate(space: gymnasium.Space, actions: Any, count: int) -> list[Any]:
    """Iterates over a batch, one action per lane, as ``SyncVectorEnv`` hands them to its envs."""
    try:
        items = list(iterate(space, actions))
    except (TypeError, KeyError, gymnasium.error.CustomSpaceError) as error:
        raise ActionTypeError(f"actions={actions!r} are not a batch of {space}: {error}") from error
    except (ValueError, IndexError) as error:
        raise InvalidActionError(f"actions={actions!r} are not a batch of {space}: {error}") from error
    if len(items) != count:
        raise InvalidActionError(f"actions: {len(items)} were given for {count} lanes")
    return items
