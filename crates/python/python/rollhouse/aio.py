"""Clusters and their vector envs for asyncio: the same calls, awaited.

Every vector env has one thread of its own, on which its calls run one after the other in the order in which they
were made; the event loop goes on meanwhile. An await that is cancelled leaves its call running; the next one waits
for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rollhouse.cluster import Cluster, ClusterVectorEnv, connect
from rollhouse.pool_options import arguments_of
from rollhouse.vector import DEFAULT_TIMEOUT, Step


class _Caller:
    """Runs calls on one thread of its own."""

    def __init__(self, name: str):
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))

    def end(self) -> None:
        self._executor.shutdown(wait=False)


class AsyncVectorEnv:
    """A ``ClusterVectorEnv`` whose ``reset``, ``step``, ``send``, ``recv``, ``latest``, ``act`` and ``close`` are awaited.

    With ``copy=False`` what a step returned is overwritten by the second next one, as in the env itself.

    Attributes:
        envs: The env itself: spaces, modes and placements are there. Not to be called while an await is under way.
    """

    def __init__(self, envs: ClusterVectorEnv, caller: _Caller):
        self.envs = envs
        self.num_envs = envs.num_envs
        self._caller = caller

    async def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets the lanes as ``VectorEnv.reset`` does."""
        return await self._caller.call(self.envs.reset, seed=seed, options=options)

    async def step(self, actions: Any) -> Step:
        """Steps the lanes as ``VectorEnv.step`` does."""
        return await self._caller.call(self.envs.step, actions)

    async def send(self, actions: Any, env_ids: Any = None) -> None:
        """Sends actions as ``VectorEnv.send`` does."""
        await self._caller.call(self.envs.send, actions, env_ids)

    async def recv(self, min_envs: int | None = None, timeout: float | None = DEFAULT_TIMEOUT) -> Step:
        """Receives results as ``VectorEnv.recv`` does."""
        return await self._caller.call(self.envs.recv, min_envs, timeout)

    async def latest(self) -> Step:
        """Returns the newest rows of live lanes as ``ClusterVectorEnv.latest`` does."""
        return await self._caller.call(self.envs.latest)

    async def act(self, actions: Any, env_ids: Any = None) -> Step:
        """Puts actions into the queues of live lanes as ``ClusterVectorEnv.act`` does."""
        return await self._caller.call(self.envs.act, actions, env_ids)

    def reader(self, every: float | None = None) -> LatestReader:
        """Returns a reader of live lanes' newest rows, to be entered with ``async with``.

        Args:
            every: Seconds from one look at the lanes to the next; None for those from one tick to the next.

        Raises:
            ValueError: The lanes have no pace, or ``every`` is not above 0.
        """
        pace = self.envs.pace
        if pace is None:
            raise ValueError("reader: the lanes have no pace, so that nothing is newer than the last answer")
        every = 1 / pace["hz"] if every is None else every
        if not every > 0:
            raise ValueError(f"every={every!r} must be a number of seconds above 0")
        return LatestReader(self, every)

    async def close(self) -> None:
        """Ends the lanes. Closing again does nothing."""
        if not self.envs.closed:
            await self._caller.call(self.envs.close)
            self._caller.end()

    async def __aenter__(self) -> AsyncVectorEnv:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class LatestReader:
    """Reads the newest rows of live lanes in the background. An async iterator of what ``latest`` returns.

    Whoever iterates gets the newest rows that were not handed out yet: rows that come meanwhile take the place of those that
    wait. Several readers do not know of each other, and none takes anything away from ``step``. While a step is under way, its
    rows are the next that can be read.
    """

    def __init__(self, envs: AsyncVectorEnv, every: float):
        self._envs, self._every = envs, every
        self._rows: Step | None = None
        self._fresh = asyncio.Event()
        self._failed: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def newest(self) -> Step | None:
        """The newest rows that were read, handed out or not; None before the first. Never waits."""
        return self._rows

    def __aiter__(self) -> LatestReader:
        return self

    async def __anext__(self) -> Step:
        await self._fresh.wait()
        if self._failed is not None:
            raise self._failed
        self._fresh.clear()
        assert self._rows is not None
        return self._rows

    async def __aenter__(self) -> LatestReader:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                self._rows = await self._envs.latest()
                self._fresh.set()
                await asyncio.sleep(began + self._every - loop.time())
        except Exception as failed:
            # Whoever reads has it.
            self._failed = failed
            self._fresh.set()


class AsyncCluster:
    """A ``Cluster`` whose calls are awaited.

    Attributes:
        cluster: The cluster itself.
    """

    def __init__(self, cluster: Cluster, caller: _Caller):
        self.cluster = cluster
        self._caller = caller

    @arguments_of(Cluster.make_vec)
    async def make_vec(self, id: str, num_envs: int = 1, **arguments: Any) -> AsyncVectorEnv:
        """Makes a vector env as ``Cluster.make_vec`` does."""
        caller = _Caller("rollhouse-pool")
        try:
            envs = await caller.call(self.cluster.make_vec, id, num_envs, **arguments)
        except BaseException:
            caller.end()
            raise
        return AsyncVectorEnv(envs, caller)

    async def status(self) -> dict[str, Any]:
        """Returns the state of the cluster as ``Cluster.status`` does."""
        return await self._caller.call(self.cluster.status)

    async def nodes(self) -> list[dict[str, Any]]:
        """Returns the nodes as ``Cluster.nodes`` does."""
        return await self._caller.call(self.cluster.nodes)

    async def envs(self) -> list[dict[str, Any]]:
        """Returns the envs as ``Cluster.envs`` does."""
        return await self._caller.call(self.cluster.envs)

    async def sessions(self) -> list[dict[str, Any]]:
        """Returns the sessions as ``Cluster.sessions`` does."""
        return await self._caller.call(self.cluster.sessions)

    async def close_pool(self, run: str, timeout: float = 0.0) -> dict[str, Any]:
        """Ends a pool as ``Cluster.close_pool`` does."""
        return await self._caller.call(self.cluster.close_pool, run, timeout)

    async def close(self) -> None:
        """Closes the connections as ``Cluster.close`` does."""
        await self._caller.call(self.cluster.close)
        self._caller.end()

    async def __aenter__(self) -> AsyncCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect_async(
    url: str | os.PathLike[str],
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    *,
    certificate: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> AsyncCluster:
    """Connects to a cluster as ``rollhouse.connect`` does, without blocking the event loop."""
    caller = _Caller("rollhouse-cluster")
    try:
        cluster = await caller.call(connect, url, token, ca, certificate=certificate, timeout=timeout)
    except BaseException:
        caller.end()
        raise
    return AsyncCluster(cluster, caller)
