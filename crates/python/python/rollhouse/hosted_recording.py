"""What hosted lanes play, as replays: every step in full, since a Python env cannot be lived through again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rollhouse import _native
from rollhouse.embedded import Recording
from rollhouse.hosted_infos import Said

AS_BYTES = {"int8": np.uint8, "bool": np.uint8}
"""Columns of these dtypes are recorded as bytes."""


class HostedRecorder:
    """Records the episodes of N lanes whose observation and action are one column each.

    Attributes:
        recording: Where; and, once closed, what.
    """

    def __init__(
        self,
        data: str,
        id: str,
        lanes: int,
        autoreset: str,
        max_episode_steps: int | None,
        observation: gymnasium.Space,
        action: gymnasium.Space,
    ):
        self._lanes = lanes
        self._next_step = autoreset == AutoresetMode.NEXT_STEP.value
        self._native = _native.HostedRecording(
            data,
            id,
            lanes,
            autoreset,
            max_episode_steps,
            _plain("observation", observation),
            _plain("action", action),
        )
        path, run = self._native.place
        self.recording = Recording(Path(path), run)

    def begin(self, lanes: Sequence[int], seeds: Iterable[int | None], observations: np.ndarray) -> None:
        """Episodes begin; row i of ``observations`` [N, ...] is lane i's first observation."""
        if lanes:
            self._native.begin(list(lanes), list(seeds), _bytes(observations))

    def step(
        self,
        stepped: np.ndarray,
        over: np.ndarray,
        finals: Mapping[int, np.ndarray],
        actions: np.ndarray,
        observations: np.ndarray,
        rewards: np.ndarray,
        terminations: np.ndarray,
        truncations: np.ndarray,
    ) -> None:
        """Lanes were stepped: arrays of N rows.

        Args:
            stepped: bool [N]: which lanes have an env that did something.
            over: bool [N]: whose episode was over before.
            finals: By lane, terminal observations that are not in ``observations``.
        """
        begun = stepped & over if self._next_step else np.zeros_like(stepped)
        seen = observations
        if finals:
            seen = observations.copy()
            for lane, final in finals.items():
                seen[lane] = final
        ends = rewards, terminations, truncations
        self._native.step(stepped & ~begun, _bytes(actions), _bytes(seen), *ends)
        first = [*np.flatnonzero(begun).tolist(), *finals]
        self.begin(first, [None] * len(first), observations)

    def step_rows(
        self,
        lanes: list[int],
        how: list[str],
        said: Said,
        over: np.ndarray,
        actions: np.ndarray,
        observations: np.ndarray,
        rewards: np.ndarray,
        terminations: np.ndarray,
        truncations: np.ndarray,
    ) -> None:
        """Lanes of any fate are done: as ``step``, with rows of these lanes except in ``over`` and ``actions``.

        ``how`` it went is as ``HostedLanes.done`` has it.
        """
        seen = self._spread(lanes, observations)
        finals = {lane: final[0] for lane, (final, _) in said.items() if final is not None}
        stepped = self._spread(lanes, np.array([kind == "stepped" for kind in how], dtype=np.bool_))
        ends = [self._spread(lanes, rows) for rows in (rewards, terminations, truncations)]
        self.step(stepped, over, finals, actions, seen, *ends)
        first = [lane for lane, kind in zip(lanes, how, strict=True) if kind == "began"]
        self.begin(first, [None] * len(first), seen)

    def lose(self, lost: Mapping[int, Any]) -> None:
        """The episodes of lanes were interrupted."""
        for lane, loss in lost.items():
            self._native.interrupt(lane, loss.outcome)

    def _spread(self, lanes: list[int], rows: np.ndarray) -> np.ndarray:
        """Rows of some lanes as N rows; those of the others are zero."""
        spread = np.zeros((self._lanes, *rows.shape[1:]), rows.dtype)
        spread[lanes] = rows
        return spread

    def close(self) -> None:
        """Ends open episodes as cancelled; returns when everything is durable.

        Raises:
            RecordingError: The disk refused.
        """
        figures = self._native.close()
        if figures is not None:
            self.recording = Recording(self.recording.path, self.recording.run, figures)


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8) if array.dtype.name in AS_BYTES else array


def _plain(name: str, space: gymnasium.Space) -> tuple[str, str, list[int], list[float], list[float]]:
    """A space as the native half takes it.

    Raises:
        ValueError: It cannot be recorded.
    """
    if isinstance(space, spaces.Discrete) and space.dtype == np.int64:
        return "discrete", "int64", [], [float(space.start)], [float(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        low = space.start.astype(np.float64)
        high = low + space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.zeros(space.shape), np.ones(space.shape)
    elif isinstance(space, spaces.Box):
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    else:
        raise ValueError(f"record: the {name} space {space} is not a single column, so it cannot be recorded")
    dtype = "uint8" if np.dtype(space.dtype).name in AS_BYTES else np.dtype(space.dtype).name
    if dtype not in ("uint8", "int32", "int64", "float32", "float64"):
        raise ValueError(f"record: the {name} space {space} has a dtype that recordings do not have")
    return "box", dtype, list(space.shape), low.ravel().tolist(), high.ravel().tolist()
