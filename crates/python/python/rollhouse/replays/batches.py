"""Batches of recorded steps or sequences, for training."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rollhouse._native import EpisodeInfo, in_reading_order, read_episodes
from rollhouse.action_parts import recorded_actions

if TYPE_CHECKING:
    from rollhouse.replays import Replays

DEFAULT_BUFFER_BYTES = 64 << 20
"""Bytes of observations that are mixed with each other, unless told otherwise."""

GROUP_EPISODES = 256
"""Most episodes that are neighbours in a shuffled order."""

GROUPS_MIXED = 64
"""Least groups of neighbours whose rows are mixed with each other."""

_Rows = dict[str, Any]


class Batches:
    """An iterable of batches: dicts of contiguous NumPy arrays that ``torch.from_numpy`` takes as they are.

    Single steps (``sequence_length`` None), B rows each:

    * ``observations`` and ``next_observations`` [B, ...], dicts of arrays where there are several columns;
    * ``actions`` [B, ...], likewise, ``rewards`` float64 [B], ``terminations`` and ``truncations`` bool [B].

    Sequences of L steps: every episode is cut into windows from its beginning, the last of which may be shorter
    and is padded with zeros.

    * ``observations`` [B, L + 1, ...]; ``actions`` [B, L, ...], ``rewards``, ``terminations``, ``truncations`` [B, L];
    * ``mask`` bool [B, L]: False where padded;
    * ``starts`` bool [B]: whether the window begins an episode.

    The last step of an interrupted episode has neither flag: its value is to be bootstrapped, as of any step in the
    middle. Every pass yields every step exactly once (but for ``drop_last``).

    Memory: the listing of the episodes, and steps whose observations take about ``buffer_bytes``; at least a batch
    and the longest episode. A worker process of a PyTorch ``DataLoader`` yields its share of the episodes.
    """

    def __init__(
        self,
        replays: Replays,
        batch_size: int,
        sequence_length: int | None,
        shuffle: bool,
        seed: int | None,
        drop_last: bool,
        buffer_bytes: int,
    ):
        for name, value in (
            ("batch_size", batch_size),
            ("sequence_length", sequence_length),
            ("buffer_bytes", buffer_bytes),
        ):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        self._batch_size, self._length = batch_size, sequence_length
        self._shuffle, self._drop_last = shuffle, drop_last
        self._seed = secrets.randbits(64) if seed is None else seed
        self._pass = 0
        self._replays = replays
        self._infos: list[EpisodeInfo] | None = None
        fitting = steps_in(buffer_bytes, only_env(self._episodes()))
        self._buffer_steps = max(batch_size * (sequence_length or 1), fitting)

    def __iter__(self) -> Iterator[_Rows]:
        worker, workers, epoch = _torch_worker() or (0, 1, self._pass)
        self._pass += 1
        # All workers of a pass draw the same order, of which each takes its share.
        rng = np.random.default_rng([self._seed, epoch])
        groups = self._groups()
        if self._shuffle:
            groups = [groups[at] for at in rng.permutation(len(groups))]
        infos = [info for group in groups[worker::workers] for info in group]
        left: _Rows | None = None
        for block in self._blocks(infos):
            rows = _steps(block) if self._length is None else _windows(block, self._length)
            rows = rows if left is None else _concatenate(left, rows)
            count = len(rows["rewards"])
            order = rng.permutation(count) if self._shuffle else np.arange(count)
            whole = count - count % self._batch_size
            for at in range(0, whole, self._batch_size):
                yield _take(rows, order[at : at + self._batch_size])
            left = _take(rows, order[whole:]) if whole < count else None
        if left is not None and not self._drop_last:
            yield left

    def to_torch(self) -> Any:
        """Returns a ``torch.utils.data.IterableDataset`` of these batches as tensors.

        Give it to a ``DataLoader`` with ``batch_size=None``: it batches already.

        Raises:
            ImportError: PyTorch is not installed.
        """
        from rollhouse.replays.torch_dataset import BatchDataset

        return BatchDataset(self)

    def _episodes(self) -> list[EpisodeInfo]:
        if self._infos is None:
            self._infos = [info for info in self._replays.list() if info.length > 0]
        return self._infos

    def _groups(self) -> list[list[EpisodeInfo]]:
        """Groups episodes that are read together: single ones, or neighbours on the disk when the order is random.

        Neighbours share what has to be decoded. A group is a small part of the buffer in which rows are mixed.
        """
        if not self._shuffle:
            return [[info] for info in self._episodes()]
        groups: list[list[EpisodeInfo]] = [[]]
        steps = 0
        for info in in_reading_order(self._episodes()):
            if len(groups[-1]) >= GROUP_EPISODES or steps >= self._buffer_steps // GROUPS_MIXED:
                groups.append([])
                steps = 0
            groups[-1].append(info)
            steps += info.length
        return groups

    def _blocks(self, infos: list[EpisodeInfo]) -> Iterator[list[EpisodeInfo]]:
        """Yields runs of episodes that fill the buffer."""
        block, steps = [], 0
        for info in infos:
            block.append(info)
            steps += info.length
            if steps >= self._buffer_steps:
                yield block
                block, steps = [], 0
        if block:
            yield block

    def __getstate__(self) -> dict[str, Any]:
        # The listing holds the open folder; the other side lists again.
        return {**self.__dict__, "_infos": None}


def steps_in(memory: int, info: EpisodeInfo) -> int:
    """Returns how many steps of an episode's env have observations of so many bytes; at least 1."""
    space = info.observation_space
    row_bytes = np.dtype(space.dtype).itemsize * int(np.prod(space.shape or ()))
    return max(1, memory // max(1, row_bytes))


def only_env(infos: list[EpisodeInfo]) -> EpisodeInfo:
    """Returns the first of episodes that must all be of one env."""
    envs = sorted({info.env for info in infos})
    if not envs:
        raise ValueError("there is no such episode with a step in it")
    if len(envs) > 1:
        raise ValueError(f"env=None: there are episodes of {', '.join(envs)}; choose one by env=")
    return infos[0]


def _torch_worker() -> tuple[int, int, int] | None:
    """Returns, in a worker process of a DataLoader, its number, the number of workers, and a number that all share in a
    pass.
    """
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return None if info is None else (info.id, info.num_workers, info.seed - info.id)


def _read(block: list[EpisodeInfo]) -> tuple[np.ndarray, _Rows]:
    """Returns lengths, and the columns of the episodes one after another; observations have one row more per episode.
    """
    lengths, observations, actions, rewards, *_ = read_episodes(block)
    ends = np.cumsum(lengths) - 1
    terminations, truncations = np.zeros(len(rewards), np.bool_), np.zeros(len(rewards), np.bool_)
    terminations[ends] = [info.terminated for info in block]
    truncations[ends] = [info.truncated for info in block]
    columns = {
        "observations": observations[""] if list(observations) == [""] else observations,
        "actions": recorded_actions(block[0].action_space, actions),
        "rewards": rewards,
        "terminations": terminations,
        "truncations": truncations,
    }
    return lengths, columns


def _steps(block: list[EpisodeInfo]) -> _Rows:
    lengths, columns = _read(block)
    # Step t of the episode e stands behind e observations more than steps.
    at = np.arange(len(columns["rewards"])) + np.repeat(np.arange(len(lengths)), lengths)
    observations = columns.pop("observations")
    return {
        "observations": _take(observations, at),
        "next_observations": _take(observations, at + 1),
        **columns,
    }


def _windows(block: list[EpisodeInfo], length: int) -> _Rows:
    lengths, columns = _read(block)
    counts = -(-lengths // length)
    episode = np.repeat(np.arange(len(lengths)), counts)
    first = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    start = first * length
    steps_before = (np.cumsum(lengths) - lengths)[episode]
    left = lengths[episode] - start
    offset = np.arange(length + 1)
    there = offset <= left[:, None]
    mask = offset[:-1] < left[:, None]
    step = (steps_before + start)[:, None] + np.minimum(offset[:-1], left[:, None] - 1)
    # Observations of the episode e stand e rows further than its steps.
    observation = (steps_before + start + episode)[:, None] + np.minimum(offset, left[:, None])
    observations = columns.pop("observations")
    rows = {"observations": _padded(observations, observation, there)}
    rows.update((key, _padded(column, step, mask)) for key, column in columns.items())
    return {**rows, "mask": mask, "starts": start == 0}


def _padded(column: Any, at: np.ndarray, there: np.ndarray) -> Any:
    if isinstance(column, dict):
        return {key: _padded(part, at, there) for key, part in column.items()}
    taken = np.take(column, at, axis=0)
    taken[~there] = 0
    return taken


def _take(column: Any, at: np.ndarray) -> Any:
    if isinstance(column, dict):
        return {key: _take(part, at) for key, part in column.items()}
    return np.take(column, at, axis=0)


def _concatenate(a: Any, b: Any) -> Any:
    if isinstance(a, dict):
        return {key: _concatenate(a[key], b[key]) for key in a}
    return np.concatenate((a, b))
