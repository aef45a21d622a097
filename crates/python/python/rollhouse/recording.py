"""The recording of a vector env: where it is, and how it fares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollhouse.cluster import Cluster


class RecordingWarning(UserWarning):
    """A recording loses episodes, or is about to: its disk fails or is nearly full. It comes once for each outage, from the next
    call of the vector env that is recorded."""


class Recording:
    """The recording of a vector env, which can be asked at any time and on any thread.

    Attributes:
        path: The folder of this process inside the data folder; ``rollhouse replay ls --data PATH`` lists it. None of lanes on a
            cluster, whose nodes record.
        run: The run's UUID.
    """

    def __init__(self, path: Path | None, run: str, read: Callable[[], Mapping[str, Any]]):
        self.path, self.run = path, run
        self._read = read
        self._seen: Mapping[str, Any] = MappingProxyType({})
        self._is_closed = False

    @property
    def figures(self) -> Mapping[str, Any]:
        """Counts of what was recorded so far, of all vector envs of this process that record there; once the env is closed, as they
        were then.

        ``episodes``, ``steps`` (of lanes), ``bytes`` on disk, ``raw_bytes`` (what is recorded of those steps, in memory),
        ``lost_episodes``, ``lost_frames``, ``dropped_segments``, ``stalled_seconds``, ``failing_since`` (seconds since 1970, None
        while the disk takes something), ``failure`` (the reason, or None) and ``free_bytes`` of the disk.

        Of lanes on a cluster it asks the coordinator, whose reports of nodes are about a second old: ``episodes`` and ``steps`` are
        what was played, ``lost_episodes`` counts what nodes of the lanes lost of anybody's, and the rest but ``failure`` is None.
        Once the env is closed they are as they were last asked for.
        """
        if not self._is_closed:
            self._seen = MappingProxyType(dict(self._read()))
        return self._seen

    @property
    def failure(self) -> str | None:
        """The reason for which nothing is recorded just now, or None."""
        return self.figures.get("failure")

    def _close(self) -> None:
        """Keeps the figures: as they are, or of a cluster as they were when they were last asked for."""
        if self.path is not None:
            self._seen = self.figures
        self._is_closed = True

    def __repr__(self) -> str:
        return f"rollhouse.Recording(path={self.path and str(self.path)!r}, run={self.run!r})"


def figures_of_pool(cluster: Cluster, run: str) -> dict[str, Any]:
    """Returns the figures of a pool, as far as the coordinator knows them."""
    sessions = [session for session in cluster.sessions() if session["run"] == run]
    places = {session["node"] for session in sessions}
    nodes = [node for node in cluster.nodes() if node["node"] in places]
    unknown = ("bytes", "raw_bytes", "lost_frames", "dropped_segments", "stalled_seconds", "failing_since", "free_bytes")
    troubles = [(node["node"], node["unfit"]) for node in nodes if node["unfit"] and node["unfit"]["reason"] in RECORDING_TROUBLES]
    return {
        "episodes": sum(session["episodes"] for session in sessions),
        "steps": sum(session["steps"] for session in sessions),
        "lost_episodes": sum(node["spool"]["dropped_episodes"] for node in nodes),
        "failure": "; ".join(f"node {name}: {unfit['why']}" for name, unfit in troubles) or None,
        **dict.fromkeys(unknown),
    }


RECORDING_TROUBLES = ("disk", "spool_full")
"""Reasons for which a node is unfit that are about its recordings."""
