"""What ``rollhouse.launch.ray`` uses of Ray, in this process: actors are objects, and their calls run on threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ray import exceptions, util

__all__ = ["exceptions", "get", "init", "is_initialized", "kill", "remote", "started", "util"]

started: list[Actor] = []
"""The actors that were started, killed ones too."""

_threads = ThreadPoolExecutor(8)
_initialized: list[bool] = []


class Call:
    """A method of an actor."""

    def __init__(self, method: Any):
        self._method = method

    def remote(self, *arguments: Any) -> Future[Any]:
        return _threads.submit(self._method, *arguments)


class Actor:
    """An actor, with the options that it was started with."""

    def __init__(self, body: Any, options: dict[str, Any], arguments: tuple[Any, ...]):
        self.body, self.options, self.arguments = body(*arguments), options, arguments
        self.killed = False

    def __getattr__(self, name: str) -> Call:
        return Call(getattr(self.body, name))


class ActorClass:
    """A class of actors."""

    def __init__(self, body: Any, options: dict[str, Any] | None = None):
        self._body, self._options = body, options or {}

    def options(self, **options: Any) -> ActorClass:
        return ActorClass(self._body, options)

    def remote(self, *arguments: Any) -> Actor:
        started.append(Actor(self._body, self._options, arguments))
        return started[-1]


def is_initialized() -> bool:
    return bool(_initialized)


def init() -> None:
    _initialized.append(True)


def remote(body: Any) -> ActorClass:
    return ActorClass(body)


def get(futures: Future[Any] | Sequence[Future[Any]], timeout: float) -> Any:
    if isinstance(futures, Future):
        return futures.result(timeout)
    return [future.result(timeout) for future in futures]


def kill(actor: Actor) -> None:
    actor.killed = True
