"""The native half of the package. Its interface is that of the modules beside it, which use it."""

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import gymnasium
import numpy as np

VERSION: str

def __getattr__(name: str) -> Any: ...
@final
class EpisodeInfo:
    """What a listing says of an episode; the fields of ``rollhouse replay ls --json`` and ``replay show --json``."""

    @property
    def id(self) -> str:
        """Its name: run, lane and number, like ``k3f9q2tz-17-203``."""
    @property
    def env(self) -> str:
        """The env's id."""
    @property
    def seed(self) -> int | None:
        """The number with which ``reset(seed)`` alone gives the first state, or None if there is none."""
    @property
    def length(self) -> int:
        """Steps."""
    @property
    def return_(self) -> float | None:
        """Sum of rewards; None if its end was never recorded."""
    @property
    def outcome(self) -> str:
        """``terminated``, ``truncated``, or how it was interrupted."""
    @property
    def terminated(self) -> bool:
        """Whether the env itself reached its end."""
    @property
    def truncated(self) -> bool:
        """Whether a limit cut it; may hold together with ``terminated``."""
    @property
    def finished(self) -> bool:
        """Whether it was terminated or truncated, and not interrupted."""
    @property
    def started(self) -> datetime.datetime:
        """When it began, to 100 ms, in UTC."""
    @property
    def policy(self) -> str:
        """Name of what chose its actions."""
    @property
    def policy_version(self) -> int:
        """Version of that policy."""
    @property
    def dynamics(self) -> str:
        """Hash of the env's dynamics when it was recorded, 16 hexadecimal digits."""
    @property
    def bytes(self) -> int:
        """Its share of the bytes on disk, estimated."""
    @property
    def run(self) -> str:
        """The full id of its run."""
    @property
    def lane(self) -> int:
        """Its row in the run's batch."""
    @property
    def number(self) -> int:
        """Counts its lane's episodes from 0."""
    @property
    def options(self) -> dict[str, bool | int | float]:
        """Options its lane was made with."""
    @property
    def max_episode_steps(self) -> int | None:
        """The time limit that applied, in steps."""
    @property
    def recorded(self) -> str:
        """How much of it is kept: ``action_log`` (recomputed when read), ``trace`` or ``full``."""
    @property
    def program(self) -> str:
        """Name and version of the program that recorded it."""
    @property
    def folder(self) -> Path:
        """The folder it is in."""
    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of one observation."""
    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of one action."""

@final
class Recordings:
    """The recordings of a folder and of the folders in it, as they were when opened."""

    def __new__(cls, path: str | os.PathLike[str]) -> Recordings: ...
    @property
    def is_writing(self) -> bool: ...
    @property
    def folders(self) -> list[Path]: ...
    def count(self) -> int: ...
    def list(
        self, env: str | None, outcome: str | None, min_return: float | None, sort: str, limit: int | None
    ) -> list[EpisodeInfo]: ...
    def find(self, name: str) -> EpisodeInfo: ...
    def verify(self, infos: Sequence[EpisodeInfo] | None) -> tuple[int, int, Sequence[Any], Sequence[str]]: ...

def read_episodes(
    infos: Sequence[EpisodeInfo],
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, np.ndarray, dict[str, np.ndarray]]: ...
