"""The call that was begun with ``*_async`` and waits for its ``*_wait``."""

from __future__ import annotations

import multiprocessing

from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError


class PendingCall:
    """The call that is pending: at most one of ``step``, ``reset`` and ``call``.

    Attributes:
        name: The name of the call; None if none is pending.
    """

    __slots__ = ("name",)

    def __init__(self) -> None:
        self.name: str | None = None

    def check_none(self, caller: str) -> None:
        """Raises unless ``caller`` may begin a call.

        Raises:
            AlreadyPendingCallError: A call is pending.
        """
        if self.name is not None:
            raise AlreadyPendingCallError(
                f"Calling `{caller}` while waiting for a pending call to `{self.name}` to complete.", self.name
            )

    def check(self, name: str) -> None:
        """Raises unless the call to ``name`` is pending.

        Raises:
            NoAsyncCallError: It is not.
        """
        if self.name != name:
            raise NoAsyncCallError(f"Calling `{name}_wait` without any prior call to `{name}_async`.", name)

    def timed_out(self, timeout: float | None) -> Exception:
        """Makes the exception for a call that is not done within ``timeout`` seconds; it stays pending."""
        return multiprocessing.TimeoutError(
            f"The call to `{self.name}_wait` has timed out after {timeout} second(s)."
        )
