"""Records what hosted lanes play: every step in full, since a Python env cannot be recomputed."""

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
from rollhouse.hosted.columns import Columns
from rollhouse.hosted.infos import Said

WIDER = {
    "bool": "uint8",
    "int8": "int32",
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int64",
    "float16": "float32",
}
"""Recordings have fewer dtypes than NumPy: columns of these are recorded as the next that has all their values."""

Picture = tuple[int, bool, bytes]
"""A lane, whether the picture is of what a reset gave, and the packed picture."""

RECORDED = ("uint8", "int32", "int64", "float32", "float64")
"""The dtypes that recordings have."""


class HostedRecorder:
    """Records the episodes of N lanes whose observations are columns and whose actions are one column.

    Attributes:
        recording: The place of the recording and, once it is closed, its figures.
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
        frames_every: int = 0,
    ):
        self._lanes = lanes
        self._next_step = autoreset == AutoresetMode.NEXT_STEP.value
        self._native = _native.HostedRecording(
            data,
            id,
            lanes,
            autoreset,
            max_episode_steps,
            _described("observation", observation),
            _plain("action", action),
            frames_every,
        )
        self._observation = Columns(observation, lanes)
        self._dtypes = [_dtype("observation", space) for space in _leaves(observation)]
        self._action_dtype = _dtype("action", action)
        path, run = self._native.place
        self.recording = Recording(Path(path), run)

    def begin(
        self,
        lanes: Sequence[int],
        seeds: Iterable[int | None],
        observations: Sequence[np.ndarray],
        frames: Sequence[Picture] = (),
    ) -> None:
        """Begins episodes; row i of the columns ``observations``, [N, ...] each, is lane i's first observation. Of
        ``frames`` those of resets are taken.
        """
        if lanes:
            self._native.begin(list(lanes), list(seeds), self._as_recorded(observations))
        if frames:
            self._native.first_frames([(lane, packed) for lane, began, packed in frames if began])

    def policy_version(self, version: int) -> None:
        """Says which version of the policy chooses the actions from now on."""
        self._native.policy_version(version)

    def step(
        self,
        stepped: np.ndarray,
        over: np.ndarray,
        finals: Mapping[int, Any],
        actions: np.ndarray,
        observations: Sequence[np.ndarray],
        rewards: np.ndarray,
        terminations: np.ndarray,
        truncations: np.ndarray,
        frames: Sequence[Picture] = (),
        fresh: Sequence[int] = (),
    ) -> None:
        """Records a step of lanes: arrays of N rows, ``observations`` one per column.

        Args:
            stepped: bool [N]: which lanes have an env that did something.
            over: bool [N]: whose episode was over before.
            finals: Terminal observations, by lane, that are not in ``observations``.
            frames: Pictures to be recorded.
            fresh: Lanes that were not stepped and began an episode.
        """
        begun = stepped & over if self._next_step else np.zeros_like(stepped)
        seen = observations
        if finals:
            seen = [column.copy() for column in observations]
            for lane, final in finals.items():
                row = [column[lane : lane + 1].reshape(column.shape[1:]) for column in seen]
                self._observation.write(row, [], final)
        ends = rewards, terminations, truncations
        recorded = _as(actions, self._action_dtype), self._as_recorded(seen)
        self._native.step(
            stepped & ~begun, *recorded, *ends, [(lane, packed) for lane, began, packed in frames if not began]
        )
        first = [*np.flatnonzero(begun).tolist(), *finals, *fresh]
        self.begin(first, [None] * len(first), observations, frames)

    def step_rows(
        self,
        lanes: list[int],
        how: list[str],
        said: Said,
        over: np.ndarray,
        actions: np.ndarray,
        observations: Sequence[np.ndarray],
        rewards: np.ndarray,
        terminations: np.ndarray,
        truncations: np.ndarray,
    ) -> None:
        """Records lanes that are done in any way: as ``step``, with rows of these lanes except in ``over`` and
        ``actions``.

        ``how`` it went is as ``HostedLanes.done`` has it.
        """
        seen = [self._spread(lanes, column) for column in observations]
        finals = {lane: final[0] for lane, (final, _) in said.items() if final is not None}
        stepped = self._spread(lanes, np.array([kind == "stepped" for kind in how], dtype=np.bool_))
        ends = [self._spread(lanes, rows) for rows in (rewards, terminations, truncations)]
        fresh = [lane for lane, kind in zip(lanes, how, strict=True) if kind == "began"]
        self.step(stepped, over, finals, actions, seen, *ends, said.frames, fresh)

    def lose(self, lost: Mapping[int, Any]) -> None:
        """Records that the episodes of lanes were interrupted."""
        for lane, loss in lost.items():
            self._native.interrupt(lane, loss.outcome)

    def _as_recorded(self, observations: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [_as(column, dtype) for column, dtype in zip(observations, self._dtypes, strict=True)]

    def _spread(self, lanes: list[int], rows: np.ndarray) -> np.ndarray:
        """Spreads rows of some lanes over N rows; those of the others are zero."""
        spread = np.zeros((self._lanes, *rows.shape[1:]), rows.dtype)
        spread[lanes] = rows
        return spread

    def close(self) -> None:
        """Ends open episodes as cancelled, and waits until everything is durable.

        Raises:
            RecordingError: The disk refused.
        """
        figures = self._native.close()
        if figures is not None:
            self.recording = Recording(self.recording.path, self.recording.run, figures)


def _as(column: np.ndarray, dtype: str) -> np.ndarray:
    if column.dtype == np.bool_:
        return column.view(np.uint8)
    return column.astype(dtype, copy=False)


def _leaves(space: gymnasium.Space) -> list[gymnasium.Space]:
    """Returns the spaces of the columns, in their order."""
    if isinstance(space, spaces.Dict):
        return [leaf for child in space.spaces.values() for leaf in _leaves(child)]
    if isinstance(space, spaces.Tuple):
        return [leaf for child in space.spaces for leaf in _leaves(child)]
    return [space]


def _described(name: str, space: gymnasium.Space) -> tuple[Any, ...]:
    """Describes a space of any number of columns as the native half takes it.

    Raises:
        ValueError: It cannot be recorded.
    """
    if isinstance(space, spaces.Dict):
        return "dict", [(str(key), _described(name, child)) for key, child in space.spaces.items()]
    if isinstance(space, spaces.Tuple):
        return "tuple", [_described(name, child) for child in space.spaces]
    return _plain(name, space)


def _dtype(name: str, space: gymnasium.Space) -> str:
    """Returns the dtype that a column is recorded with.

    Raises:
        ValueError: Recordings have none for it.
    """
    # Gymnasium's zeros and ones are int8.
    dtype = "uint8" if isinstance(space, spaces.MultiBinary) else np.dtype(space.dtype).name
    if isinstance(space, spaces.Discrete):
        dtype = "int64"
    dtype = WIDER.get(dtype, dtype)
    if dtype not in RECORDED:
        raise ValueError(f"record: the {name} space {space} has a dtype that recordings do not have")
    return dtype


def _plain(name: str, space: gymnasium.Space) -> tuple[str, str, list[int], list[float], list[float]]:
    """Describes a space of one column as the native half takes it.

    Raises:
        ValueError: It cannot be recorded.
    """
    if isinstance(space, spaces.Discrete):
        return "discrete", _dtype(name, space), [], [float(space.start)], [float(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        low = space.start.astype(np.float64)
        high = low + space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.zeros(space.shape), np.ones(space.shape)
    elif isinstance(space, spaces.Box):
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    else:
        raise ValueError(f"record: the {name} space {space} is not made of columns, so it cannot be recorded")
    return "box", _dtype(name, space), list(space.shape), low.ravel().tolist(), high.ravel().tolist()
