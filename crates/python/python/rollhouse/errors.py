"""The exceptions of this package.

Every class here is also one of those that Gymnasium (or Python) raises in the same place, so that code written
for Gymnasium's own vector envs catches them.
"""

from __future__ import annotations

import gymnasium.error


class InvalidActionError(gymnasium.error.InvalidAction, ValueError):
    """An action is not in its space: out of range, NaN or infinite, or there are too many or too few of them."""


class ActionTypeError(gymnasium.error.InvalidAction, TypeError):
    """Actions have a type or dtype that the action space does not accept."""


class ResetNeededError(gymnasium.error.ResetNeeded, RuntimeError):
    """A step came before the first reset, or in DISABLED mode over a lane whose episode is over."""


class ClosedError(gymnasium.error.ClosedEnvironmentError):
    """The vector env was used after ``close``."""


class ForkedError(gymnasium.error.Error, RuntimeError):
    """The vector env was used in a forked child of the process that made it."""


class OptionsError(gymnasium.error.Error, ValueError):
    """The env does not know an option (``UnknownOptionError``), or does not accept its value."""


class UnknownOptionError(OptionsError, TypeError):
    """The env does not know a keyword; a ``TypeError`` as that of any other function.

    Attributes:
        keyword: The keyword.
    """

    def __init__(self, message: str, keyword: str = ""):
        super().__init__(message)
        self.keyword = keyword


class SeedError(gymnasium.error.Error, ValueError):
    """A seed is negative or has more than 64 bits."""


class UnsupportedError(gymnasium.error.Error, NotImplementedError):
    """This kind of vector env does not have what was asked for."""


class CallError(gymnasium.error.Error, RuntimeError):
    """The env refused a call of one of its methods, or its lane is lost."""


class OutstandingError(gymnasium.error.AlreadyPendingCallError, RuntimeError):
    """A lane was sent (or all were stepped) while its earlier result has not been received.

    Attributes:
        name: The call that is pending, ``"recv"``.
    """

    def __init__(self, message: str):
        super().__init__(message, "recv")


class NothingOutstandingError(gymnasium.error.NoAsyncCallError, RuntimeError):
    """``recv`` was called for more lanes than have been sent.

    Attributes:
        name: The call that is missing, ``"send"``.
    """

    def __init__(self, message: str):
        super().__init__(message, "send")


class BusyError(gymnasium.error.Error, RuntimeError):
    """Too much is under way: receive, then send again."""


class LaneLostError(gymnasium.error.Error, RuntimeError):
    """An env failed: it raised, died or hung. The other lanes go on, and the lane is restarted with back-off.

    Attributes:
        lanes: Indices of the lanes that were lost.
        outcome: How they were lost: ``"crashed"``, ``"hung"``, ``"node_lost"``, ...
    """

    def __init__(self, message: str, lanes: tuple[int, ...] = (), outcome: str = "crashed"):
        super().__init__(message)
        self.lanes = lanes
        self.outcome = outcome


class NotConnectedError(gymnasium.error.Error, ConnectionError):
    """An env that is a client of a game or simulator could not connect to it, however often it tried. The message has the
    last failure.

    Attributes:
        retries: How often it tried again.
    """

    def __init__(self, message: str, retries: int = 0):
        super().__init__(message)
        self.retries = retries


class NotSentError(gymnasium.error.Error, RuntimeError):
    """A worker process needs an env or a definition of the program that could not be sent to it; the message names it."""


class InterpreterError(gymnasium.error.Error, RuntimeError):
    """No process can be started: this one is a program with Python inside of it, and names no interpreter; or the one that
    was named is of another version.
    """


class PolicyError(gymnasium.error.Error, ValueError):
    """Something is no policy, or one that cannot play in the env; or it has chosen what is no action."""


class HungError(gymnasium.error.Error, TimeoutError):
    """A stepping thread did not answer within its deadline. The vector env can only be closed."""


class ClusterError(gymnasium.error.Error, RuntimeError):
    """A cluster failed or refused; the base of the exceptions that only ``rollhouse.connect`` and its vector envs
    raise.
    """


class UnreachableError(ClusterError, ConnectionError):
    """The coordinator does not answer, or is not the cluster it should be."""


class RefusedError(ClusterError):
    """A coordinator or node refused a request.

    Attributes:
        code: The reason in one word: ``"unauthenticated"``, ``"forbidden"``, ``"quota"``, ``"busy"``, ``"not_found"``, ...
    """

    def __init__(self, message: str, code: str = "unknown"):
        super().__init__(message)
        self.code = code


class RecordingError(gymnasium.error.Error, OSError):
    """Episodes could not be recorded."""


class ReplayError(Exception):
    """Recordings could not be read; the base of all exceptions that ``rollhouse.replays`` defines."""


class RecordingsNotFoundError(ReplayError, FileNotFoundError):
    """There is no such folder."""


class EpisodeNotFoundError(ReplayError, KeyError):
    """No episode of that name is recorded there."""

    # KeyError would show the message in quotes.
    __str__ = Exception.__str__


class AmbiguousEpisodeError(ReplayError, LookupError):
    """Several runs have an episode of that name; the message lists their full ids."""


class DamagedRecordingError(ReplayError):
    """Part of an episode's recording is damaged or was dropped."""


class ReplayDiskError(ReplayError, OSError):
    """A file of a recording could not be read."""


class RecomputeError(ReplayError):
    """Recomputing an action log does not give the recorded episode: its env is not there, has other dynamics now, or
    ends up in another state than was recorded.
    """


class PluginError(gymnasium.error.Error, ValueError):
    """A plug-in was not loaded; the message says what is wrong with it."""


class UnknownEnvError(gymnasium.error.NameNotFound, ValueError):
    """No env has that id; the message names the nearest."""
