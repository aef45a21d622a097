"""Recordings: list, filter and read episodes as NumPy arrays, and train on them.

    from rollhouse import replays

    recorded = replays.open("rollhouse-data")
    best = recorded.list(sort="-return", limit=10)
    episode = recorded.read(best[0])
    for batch in recorded.filter(min_return=100).batches(256, seed=0):
        ...

A folder may be read while a run writes to it: what is opened is the folder as it was then. Nothing here writes. What the
nodes of a cluster record is read from its store in the same way: ``replays.open(cluster)``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple

import numpy as np

from rollhouse._native import EpisodeInfo, NativeCluster, Recordings, read_episodes, read_frames, unpack_frame
from rollhouse.action_parts import ActionParts, recorded_actions
from rollhouse.cluster import Cluster
from rollhouse.errors import (
    AmbiguousEpisodeError,
    DamagedRecordingError,
    EpisodeNotFoundError,
    RecomputeError,
    RecordingsNotFoundError,
    ReplayDiskError,
    ReplayError,
)
from rollhouse.native_env import option_of
from rollhouse.replays.batches import DEFAULT_BUFFER_BYTES, Batches, steps_in

__all__ = [
    "AmbiguousEpisodeError",
    "Batches",
    "DamagedRecordingError",
    "Divergence",
    "Episode",
    "EpisodeInfo",
    "EpisodeNotFoundError",
    "RecomputeError",
    "RecordingsNotFoundError",
    "ReplayDiskError",
    "ReplayError",
    "Replays",
    "Verification",
    "VerificationReport",
    "open",
    "to_lerobot",
    "to_minari",
]


WINDOW_EPISODES = 4096
"""Most episodes that ``Replays.read_many`` reads together; their observations fill ``DEFAULT_BUFFER_BYTES`` at most,
or are those of one episode."""


def open(path: str | os.PathLike[str] | Cluster | None = None) -> Replays:
    """Opens a folder of recordings, and with it those directly inside it (Python processes write into one each), or
    the store of a cluster.

    Args:
        path: The folder; None for ``$ROLLHOUSE_DATA``, else ``./rollhouse-data``. Or a cluster: what ``connect`` gave, or
            the ``rollhouse://...`` that it takes. Blocks for the disk or the coordinator.

    Raises:
        RecordingsNotFoundError: There is no such folder.
        ReplayDiskError: It cannot be read, or the token may not read the store. Damage is no error here; see
            ``Replays.verify``.
        RefusedError, UnreachableError: As ``connect`` raises them.
    """
    if path is None:
        path = os.environ.get("ROLLHOUSE_DATA") or "rollhouse-data"
    return Replays(path)


def _find(folder: str | os.PathLike[str], name: str) -> EpisodeInfo:
    """Returns an episode of a folder that was pickled in another process."""
    return Recordings(os.fspath(folder)).find(name)


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """Everything recorded of an episode of T steps. The arrays are the caller's own.

    Attributes:
        info: Its entry in a listing.
        observations: [T + 1, ...], the first one from the reset; a dict of arrays where there are several columns.
        actions: [T, ...], a dict of arrays where there are several columns; row t led from observation t to observation
            t + 1. ``action`` gives a single one in the structure of its space.
        rewards: float64 [T].
        terminations: bool [T]; True at most in the last row.
        truncations: bool [T]; likewise. Both are False throughout if the episode was interrupted.
        infos: The info columns by name, [T, ...] each.
        step_columns: What whoever chose the actions noted of each step, by name, [T, ...] each; row t is of action t.
    """

    info: EpisodeInfo
    observations: np.ndarray | dict[str, np.ndarray]
    actions: np.ndarray | dict[str, np.ndarray]
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    infos: dict[str, np.ndarray]
    step_columns: dict[str, np.ndarray]

    @property
    def id(self) -> str:
        """Its name: run, lane and number."""
        return self.info.id

    @property
    def outcome(self) -> str:
        """The way in which it ended, as in ``EpisodeInfo.outcome``."""
        return self.info.outcome

    @property
    def seed(self) -> int | None:
        """The number with which ``reset(seed)`` alone gives its first state, or None if there is none."""
        return self.info.seed

    @property
    def return_(self) -> float | None:
        """The sum of rewards; None if its end was never recorded."""
        return self.info.return_

    def action(self, step: int) -> Any:
        """Returns the action of a step as the env took it: with the texts and sequences of which ``actions`` has columns."""
        if isinstance(self.actions, dict):
            return ActionParts(self.info.action_space).of_columns(self.actions, step)
        return self.actions[step]

    def __len__(self) -> int:
        return len(self.rewards)


class Divergence(NamedTuple):
    """The place where a recording and its repetition differ."""

    first_step: int
    """The first step that may differ; 0 is the reset."""
    last_step: int
    """The last step that may be the first to differ."""
    field: str
    """What differs: ``state``, ``return``, ``terminated``, ``dynamics``, ..., or an element's name."""
    recorded: object
    replayed: object


class Verification(NamedTuple):
    """The result of verifying one episode."""

    id: str
    ok: bool
    steps: int
    """Steps that were checked."""
    first_divergence: Divergence | None
    note: str | None
    """What could not be checked, and why."""


class VerificationReport(NamedTuple):
    """The result of verifying."""

    ok: bool
    """Whether every episode is as recorded and no byte is damaged."""
    episodes: int
    """Episodes that were verified."""
    steps: int
    """Steps of them."""
    noted: list[Verification]
    """Episodes that are not as recorded, and those that could only be checked for completeness."""
    damage: list[str]
    """Stretches of files that cannot be read; found when everything is verified."""


@dataclass(frozen=True, slots=True)
class _Filter:
    env: str | None = None
    outcome: str | None = None
    result: str | None = None
    min_return: float | None = None
    options: Mapping[str, Any] | None = None
    min_agent_returns: Mapping[str, float] | None = None
    where: Callable[[EpisodeInfo], bool] | None = None

    def query(
        self,
    ) -> tuple[str | None, str | None, str | None, float | None, dict[str, Any] | None, Mapping[str, float] | None]:
        # NumPy's scalars are not Python's.
        options = None if self.options is None else {name: option_of(value) for name, value in self.options.items()}
        return self.env, self.outcome, self.result, self.min_return, options, self.min_agent_returns

    def accepts(self, info: EpisodeInfo) -> bool:
        return (
            (self.env is None or info.env == self.env)
            and (self.outcome is None or info.outcome == self.outcome)
            and (self.result is None or info.result == self.result)
            and (self.min_return is None or (info.return_ is not None and info.return_ >= self.min_return))
            and (self.options is None or _has(info.options, self.options))
            and all(info.agent_returns.get(agent, nan) >= least for agent, least in (self.min_agent_returns or {}).items())
            and (self.where is None or self.where(info))
        )


def _has(had: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    return all(name in had and had[name] == option_of(value) for name, value in options.items())


_Infos = list[EpisodeInfo]


class Replays:
    """Episodes of a folder or a cluster's store, as they were when it was opened, or those of them that pass filters.

    All methods may block for the disk or the coordinator. They release the interpreter lock meanwhile, and may be called
    from several threads. May be pickled, unless a ``Cluster`` was given: the other side opens the folder again, or
    connects again.
    """

    def __init__(self, path: str | os.PathLike[str] | Cluster, _filters: tuple[_Filter, ...] = ()):
        if not isinstance(path, Cluster):
            path = os.fspath(path)
        self._path, self._filters = path, _filters
        if isinstance(path, str) and path.startswith("rollhouse:"):
            path = Cluster(path)
        if isinstance(path, Cluster):
            self._shown, self._recordings = path.url, path._native.recordings()
            self._labels: NativeCluster | Recordings = path._native
        else:
            self._shown, self._recordings = path, Recordings(path)
            self._labels = self._recordings

    @property
    def path(self) -> str:
        """The folder, as it was given; for a cluster its address, without token."""
        return self._shown

    @property
    def is_writing(self) -> bool:
        """Whether a process was writing to the folder when it was opened."""
        return self._recordings.is_writing

    def refresh(self) -> Replays:
        """Returns the same folder and filters as they are now; this one stays as it is."""
        return Replays(self._path, self._filters)

    def list(
        self,
        *,
        env: str | None = None,
        outcome: str | None = None,
        result: str | None = None,
        min_return: float | None = None,
        options: Mapping[str, Any] | None = None,
        min_agent_returns: Mapping[str, float] | None = None,
        all_outcomes: bool = False,
        sort: str = "name",
        limit: int | None = None,
    ) -> _Infos:
        """Returns the episodes that fit, in order.

        Args:
            env: Only of this env id.
            outcome: Only with this outcome: ``terminated``, ``truncated``, ``crashed``, ``hung``, ``node_lost``,
                ``evicted``, ``cancelled``, ``disconnected``, ``policy``.
            result: Only those to which their env gave this result: ``win``, ``lose`` or ``draw``.
            min_return: Only with at least this return.
            options: Only episodes that had these values of options, drawn or given.
            min_agent_returns: Only episodes of several agents in which each of these has at least that return.
            all_outcomes: Whether an order by return or length has interrupted episodes too. It leaves them out unless
                they are asked for so, by ``outcome`` or by a filter with a function.
            sort: ``name``, ``return``, ``length`` or ``started``; with ``-`` in front the largest first.
            limit: At most so many, the first in that order.

        Raises:
            ValueError: An unknown outcome, result or order, or a negative limit.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit={limit} must be at least 0")
        own = _Filter(env, outcome, result, min_return, options, min_agent_returns)
        filters = [f for f in (*self._filters, own) if f != _Filter()]
        # The native side answers one filter without reading what cannot fit, and all of a limit; others follow.
        first, rest = (filters[0], filters[1:]) if filters else (_Filter(), [])
        all_native = not rest and first.where is None
        all_outcomes = all_outcomes or any(f.outcome is not None or f.where is not None for f in filters)
        infos = self._recordings.list(first.query(), all_outcomes, sort, limit if all_native else None)
        if all_native:
            return infos
        for one in rest:
            # An unknown outcome or result is an error, not an empty listing.
            self._recordings.list((None, one.outcome, one.result, None, None, None), False, sort, 0)
        fitting = [info for info in infos if first.accepts(info) and all(one.accepts(info) for one in rest)]
        return fitting[:limit]

    def filter(
        self,
        where: Callable[[EpisodeInfo], bool] | None = None,
        *,
        env: str | None = None,
        outcome: str | None = None,
        result: str | None = None,
        min_return: float | None = None,
        options: Mapping[str, Any] | None = None,
        min_agent_returns: Mapping[str, float] | None = None,
    ) -> Replays:
        """Returns those of these episodes that fit, and for which ``where(info)`` holds; nothing is read yet."""
        view = object.__new__(Replays)
        view._path, view._shown, view._recordings, view._labels = self._path, self._shown, self._recordings, self._labels
        view._filters = (*self._filters, _Filter(env, outcome, result, min_return, options, min_agent_returns, where))
        return view

    def __len__(self) -> int:
        return len(self.list()) if self._filters else self._recordings.count()

    def __iter__(self) -> Iterator[EpisodeInfo]:
        return iter(self.list())

    def __contains__(self, episode: object) -> bool:
        if not isinstance(episode, str):
            return isinstance(episode, EpisodeInfo) and episode in self.list()
        try:
            return self._accepts(self._recordings.find(episode))
        except (EpisodeNotFoundError, ValueError):
            return False

    def find(self, name: str) -> EpisodeInfo:
        """Returns the entry of the episode of that name, like ``k3f9q2tz-17-203``.

        Raises:
            EpisodeNotFoundError: There is none here.
            AmbiguousEpisodeError: Several runs have one.
            ValueError: ``name`` is no episode's name.
        """
        info = self._recordings.find(name)
        if not self._accepts(info):
            raise EpisodeNotFoundError(f"{name} is recorded, but the filters leave it out")
        return info

    def pin(self, name: str) -> None:
        """Pins an episode, as ``rollhouse replay pin`` does: nothing drops or prunes it. It is durable on return. In a cluster's store a
        trainer pins episodes of its own runs, 32 at most, and an admin any.

        Raises:
            EpisodeNotFoundError, AmbiguousEpisodeError: Of that name there is none, or several.
            ReplayError, RefusedError: Somebody else changes the folder's labels, there are too many, or the token may not.
        """
        self._label(name, True)

    def unpin(self, name: str) -> None:
        """Takes a pin back; raises what ``pin`` does."""
        self._label(name, False)

    def _label(self, name: str, pinned: bool) -> None:
        self._labels.pin(self.find(name).id, pinned)

    def read(self, episode: str | EpisodeInfo) -> Episode:
        """Reads an episode by name or by its entry in a listing. Action logs are recomputed, and every recorded state
        hash is compared, so that the result is what was recorded.

        Raises:
            EpisodeNotFoundError, AmbiguousEpisodeError: For a name.
            DamagedRecordingError: Part of it cannot be read.
            RecomputeError: It cannot be lived through again.
        """
        info = self.find(episode) if isinstance(episode, str) else episode
        return _episode(info)

    __getitem__ = read

    def frames(self, episode: str | EpisodeInfo) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the pictures that were recorded beside an episode's steps, in their order: (step, uint8 [height,
        width, 3]).

        There are some where ``record_frames`` was asked for when it was recorded (``EpisodeInfo.record_frames``), of the
        reset, every so many-th step and the last; a damaged one is missing. Of one that has more than 256 MiB of them,
        packed, every second one is given, and so on.

        Raises:
            EpisodeNotFoundError, AmbiguousEpisodeError: For a name.
            DamagedRecordingError: Part of its steps cannot be read.
        """
        info = self.find(episode) if isinstance(episode, str) else episode
        for step, packed in read_frames(info):
            yield step, unpack_frame(packed)

    def read_many(self, episodes: Iterable[str | EpisodeInfo] | None = None) -> Iterator[Episode]:
        """Yields episodes one by one; all of them, in the order of their names, if ``episodes`` is None.

        Reads some of one env together, which is faster by far: their arrays are parts of larger ones, and about
        64 MiB of observations are held at a time.
        """
        infos = (self.find(one) if isinstance(one, str) else one for one in episodes or ())
        window: _Infos = []
        left = 0
        for info in self.list() if episodes is None else infos:
            if window and (len(window) >= WINDOW_EPISODES or info.length > left or info.env != window[-1].env):
                yield from _episodes(window)
                window = []
            if not window:
                left = steps_in(DEFAULT_BUFFER_BYTES, info)
            window.append(info)
            left -= info.length
        yield from _episodes(window)

    def batches(
        self,
        batch_size: int,
        *,
        sequence_length: int | None = None,
        shuffle: bool = True,
        seed: int | None = None,
        env: str | None = None,
        drop_last: bool = False,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
    ) -> Batches:
        """Returns steps or sequences for training; see ``Batches`` for what it yields.

        Args:
            batch_size: Rows of a batch, B.
            sequence_length: None for single steps; L for windows of L steps.
            shuffle: Reads groups of neighbouring episodes in random order and mixes the rows of as many as
                ``buffer_bytes`` hold, 64 groups at least.
            seed: The same seed gives the same batches in the same order; every pass over the episodes has another.
            env: The env whose episodes are read; needed if there are episodes of several.
            drop_last: Leaves out the last batch of a pass if it has fewer rows.
            buffer_bytes: Memory for observations that are mixed with each other, about; at least a batch and an
                episode are held.

        Raises:
            ValueError: No episodes, or several envs and no ``env``; or a size that is not positive.
        """
        replays = self if env is None else self.filter(env=env)
        return Batches(replays, batch_size, sequence_length, shuffle, seed, drop_last, buffer_bytes)

    def verify(
        self,
        episodes: Iterable[str | EpisodeInfo] | None = None,
        *,
        python: str | os.PathLike[str] | None = None,
        allow: Sequence[str] = (),
        workers: int | None = None,
        worker_memory: int | None = None,
    ) -> VerificationReport:
        """Recomputes episodes and compares every state hash, return and outcome with the recording.

        Args:
            episodes: The episodes to verify; None for all that the filters let pass. Without filters every byte of the
                folder is read as well, and damage is listed.
            python: Interpreter whose processes play the episodes of Python envs that are declared deterministic again,
                such as ``sys.executable``; what was recorded of such an env is compared in full. None imports nothing.
            allow: Packages that may be imported beside ``gymnasium``.
            workers: The most such processes; None for one per core.
            worker_memory: Bytes of memory of its own that each of them may have; None for no limit.

        Raises:
            ReplayDiskError: A file cannot be read.
            ValueError: ``allow``, ``workers`` or ``worker_memory`` without ``python``, or a number that cannot be.
        """
        if python is None and (allow or workers is not None or worker_memory is not None):
            raise ValueError("allow, workers and worker_memory are for Python envs, which need python as well")
        hosting = None if python is None else (os.fspath(python), [*allow], workers, worker_memory)
        infos = None
        if episodes is not None:
            infos = [self.find(one) if isinstance(one, str) else one for one in episodes]
        elif self._filters:
            infos = self.list()
        count, steps, noted, damage = self._recordings.verify(infos, hosting)
        found = [
            Verification(name, ok, checked, None if at is None else Divergence(*at), note)
            for name, ok, checked, at, note in noted
        ]
        ok = all(one.ok for one in found) and not damage
        return VerificationReport(ok, count, steps, found, [*damage])

    def _accepts(self, info: EpisodeInfo) -> bool:
        return all(one.accepts(info) for one in self._filters)

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._path, Cluster):
            raise TypeError("a connection cannot be pickled; replays.open(\"rollhouse://...\") gives what can be")
        return Replays, (self._path, self._filters)

    def __repr__(self) -> str:
        filtered = f", {len(self._filters)} filters" if self._filters else ""
        return f"<Replays {self.path!r}{filtered}>"


def to_minari(recordings: Replays | str | os.PathLike[str] | Cluster, dataset_id: str, **arguments: Any) -> Any:
    """Writes episodes as a Minari dataset; see ``rollhouse.replays.minari.write_dataset``."""
    from rollhouse.replays.minari import write_dataset

    return write_dataset(
        recordings if isinstance(recordings, Replays) else open(recordings), dataset_id, **arguments
    )


def to_lerobot(recordings: Replays | str | os.PathLike[str] | Cluster, folder: Any, **arguments: Any) -> Any:
    """Writes episodes as a LeRobot dataset; see ``rollhouse.replays.lerobot.write_dataset``."""
    from rollhouse.replays.lerobot import write_dataset

    return write_dataset(recordings if isinstance(recordings, Replays) else open(recordings), folder, **arguments)


def _episode(info: EpisodeInfo) -> Episode:
    return _split([info])[0]


def _episodes(window: list[EpisodeInfo]) -> Iterator[Episode]:
    """Reads episodes together, or one by one if one of them cannot be read, so that those before it are."""
    try:
        episodes = _split(window)
    except (ReplayError, TypeError):
        yield from map(_episode, window)
    else:
        yield from episodes


def _split(infos: list[EpisodeInfo]) -> list[Episode]:
    if not infos:
        return []
    lengths, observations, actions, rewards, columns, noted = read_episodes(infos)
    acted = recorded_actions(infos[0].action_space, actions)
    episodes = []
    row = 0
    for at, (info, steps) in enumerate(zip(infos, lengths.tolist(), strict=True)):
        terminations, truncations = np.zeros(steps, np.bool_), np.zeros(steps, np.bool_)
        if steps:
            terminations[-1], truncations[-1] = info.terminated, info.truncated
        # Before it there are `at` first observations.
        seen = {path: column[row + at : row + at + steps + 1] for path, column in observations.items()}
        rows = slice(row, row + steps)
        infos_of, noted_of = ({name: column[rows] for name, column in of.items()} for of in (columns, noted))
        plain = seen[""] if list(seen) == [""] else seen
        taken = {path: part[rows] for path, part in acted.items()} if isinstance(acted, dict) else acted[rows]
        flags = terminations, truncations
        episodes.append(Episode(info, plain, taken, rewards[rows], *flags, infos_of, noted_of))
        row += steps
    return episodes
