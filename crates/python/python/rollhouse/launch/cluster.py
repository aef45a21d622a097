"""A cluster whose nodes were launched, until it is closed."""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rollhouse.cluster import Cluster, ClusterVectorEnv, connect
from rollhouse.launch.coordinator import Coordinator, own_program
from rollhouse.launch.errors import LaunchError
from rollhouse.pool_options import arguments_of

DEFAULT_DATA = "rollhouse-launch"
JOIN_PATIENCE = 120.0
"""Seconds in which all nodes are there, unless it is said otherwise."""


class Nodes(Protocol):
    """Nodes on what somebody runs."""

    def start(self, join: str, prefix: str) -> None:
        """Has them started; they join by that string, under names that begin so."""

    def wait(self, until: float) -> None:
        """Returns when all have joined; ``until`` is a time of ``time.monotonic``. Raises LaunchError."""

    def stop(self) -> None:
        """Ends them in order and waits for that. Raises LaunchError for those that did not."""


class LaunchedCluster:
    """Nodes that this process has launched, and how they are used. A context manager; ``close`` ends the nodes.

    The nodes are those of any cluster: ``rollhouse nodes``, ``status`` and ``drain`` show and drain them by ``address``.
    """

    def __init__(self, nodes: Nodes, count: int, coordinator: Coordinator, timeout: float, name: str | None):
        self._nodes, self._coordinator = nodes, coordinator
        self._connection: Cluster | None = None
        self.prefix = f"{name or 'launch'}-{secrets.token_hex(4)}-"
        """With what the names of its nodes begin."""
        self._open = True
        try:
            nodes.start(coordinator.join_string(count, self.prefix), self.prefix)
            nodes.wait(time.monotonic() + timeout)
        except BaseException:
            self.close(failed=True)
            raise

    @property
    def address(self) -> str | None:
        """The connection string, with a token; None if only a join token of a cluster elsewhere is known."""
        return self._coordinator.address

    @property
    def connection(self) -> Cluster:
        """A connection to the cluster, made at the first use."""
        if not self._open:
            raise ValueError("the launched cluster is closed")
        if self._connection is None:
            if self.address is None:
                raise ValueError("the cluster was named by a join token only: connect= says how it is reached from here")
            self._connection = connect(self.address)
        return self._connection

    @arguments_of(Cluster.make_vec)
    def make_vec(self, id: str, num_envs: int = 1, **options: Any) -> ClusterVectorEnv:
        """As ``Cluster.make_vec`` of ``rollhouse.connect``."""
        return self.connection.make_vec(id, num_envs=num_envs, **options)

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that were launched, as the coordinator sees them."""
        return [node for node in self.connection.nodes() if node["node"].startswith(self.prefix)]

    def close(self, *, failed: bool = False) -> None:
        """Ends the nodes in order, then the coordinator if it is the launcher's own. Again is no error.

        Sessions that are open have 5 s to move to other nodes of the cluster; what is left is evicted. What was recorded
        is shipped first.
        """
        if not self._open:
            return
        self._open = False
        if self._connection is not None:
            self._connection.close()
        try:
            self._nodes.stop()
        except LaunchError:
            if not failed:
                raise
        finally:
            self._coordinator.close()

    def __enter__(self) -> LaunchedCluster:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(failed=kind is not None)

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"LaunchedCluster({self.prefix}*, {state})"


def launch(
    nodes: Callable[[], Nodes],
    count: int,
    *,
    host: str | None,
    data: str | os.PathLike[str],
    join: str | None,
    connect: str | None,
    program: Sequence[str] | None,
    timeout: float,
    name: str | None,
) -> LaunchedCluster:
    """What all ways of launching do in the same order: a coordinator, then nodes, then waiting for them."""
    if count < 1:
        raise ValueError(f"nodes={count}, at least 1 is wanted")
    made = nodes()
    coordinator = Coordinator(
        data, host or address_here(), program or own_program(), join=join, connect=connect
    )
    return LaunchedCluster(made, count, coordinator, timeout, name)


def address_here() -> str:
    """The address of this machine on the way to others; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def hosting_here() -> dict[str, str]:
    """Variables of a node that hosts Python envs of the interpreter that runs this, as ``rollhouse up`` does: none where another is
    named, where this is no interpreter, or where it has no Gymnasium.
    """
    named = "ROLLHOUSE_PYTHON__INTERPRETER"
    has_gymnasium = importlib.util.find_spec("gymnasium") is not None
    if named in os.environ or getattr(sys, "frozen", False) or not sys.executable or not has_gymnasium:
        return {}
    return {named: sys.executable}


def scratch_node(settings: Mapping[str, object]) -> dict[str, str]:
    """Variables of a node that is tied to its launcher and keeps nothing once it has ended."""
    return {**settings_of(settings), "ROLLHOUSE_SCRATCH": "yes"}


def settings_of(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings of nodes (``{"node.threads": 4}``) as variables."""

    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return {f"ROLLHOUSE_{key.replace('.', '__').upper()}": text(value) for key, value in settings.items()}
