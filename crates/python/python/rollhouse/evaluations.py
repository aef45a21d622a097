"""Evaluations of the versions of a policy that a learner makes, played beside its rollouts.

    every k-th version --wait, at most WAITING--> played, one after the other --> scores
                                                  \\-> failed: nothing more is played, and the learner's next call raises why

| thread | on close | on error |
|---|---|---|
| ``rollhouse-evaluations``, one for each rollouts that evaluate | ends with the fragment that is played | keeps it for the learner's next call, and ends |
"""

from __future__ import annotations

import collections
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rollhouse import _native
from rollhouse.errors import ClusterError, ReplayError
from rollhouse.policies import Policy
from rollhouse.recording import RecordingWarning
from rollhouse.score import FRAGMENT, ONE_EPISODE, Score, first_episodes
from rollhouse.vector import DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from rollhouse.fragments import Rollouts
    from rollhouse.replays import Replays


@dataclass(frozen=True, kw_only=True)
class Evaluating:
    """What is evaluated: arguments of ``rollouts``, which says what they mean."""

    every: int
    episodes: int
    seed: int

    @staticmethod
    def of(every: int | None, episodes: int, seed: int, options: dict[str, Any]) -> Evaluating | None:
        """Returns what was asked for; None if nothing is to be evaluated."""
        if every is None:
            return None
        for name, value in (("evaluate_every", every), ("evaluate_episodes", episodes)):
            if value < 1:
                raise ValueError(f"{name}={value!r} is below 1")
        if options.get("lane_options") is not None:
            raise ValueError("lane_options are of the lanes of rollouts, and an evaluation has lanes of its own")
        return Evaluating(every=every, episodes=episodes, seed=seed)


class _ClosingError(Exception):
    """The evaluations are being closed."""


class Evaluations:
    """Scores of every k-th version, from the first on. Any thread may use it.

    Args:
        asked: What is evaluated.
        begin: Begins rollouts of so many lanes, by a policy and with further arguments.
    """

    def __init__(self, asked: Evaluating, begin: Callable[..., Rollouts]):
        self._asked, self._begin = asked, begin
        self._given = 0
        self._changed = threading.Condition()
        # The first is the one that is played.
        self._waiting: collections.deque[Policy] = collections.deque()
        self._scores: collections.deque[Score] = collections.deque(maxlen=MAX_SCORES)
        self._pinned: list[tuple[float, str]] = []
        self._failure: BaseException | None = None
        self._is_over = self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="rollhouse-evaluations", daemon=True)
        self._thread.start()

    @staticmethod
    def of(asked: Evaluating | None, begin: Callable[..., Rollouts]) -> Evaluations | None:
        """Begins what was asked for; None if nothing is to be evaluated."""
        return None if asked is None else Evaluations(asked, begin)

    def take(self, policy: Policy, version: int) -> None:
        """Takes the next version of the learner's. Every k-th is evaluated; while ``WAITING`` wait it waits until there is room."""
        number = self._given
        self._given += 1
        if number % self._asked.every:
            self._raise_failure()
            return
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < WAITING or self._is_over)
            if not self._is_over:
                self._waiting.append(replace(policy, version=version))
                self._changed.notify_all()
        self._raise_failure()

    @property
    def scores(self) -> list[Score]:
        """The newest scores, in the order of their versions."""
        self._raise_failure()
        with self._changed:
            return list(self._scores)

    def wait(self, timeout: float) -> list[Score]:
        """Waits until all versions that were taken are evaluated, at most so many seconds, and returns the scores."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._waiting or self._is_over, timeout):
                left = [policy.version for policy in self._waiting]
                raise TimeoutError(f"after timeout={timeout} s versions {left} are not evaluated yet")
        return self.scores

    def close(self) -> None:
        """Ends the evaluation that is played, with the fragment that is under way; those that wait are not played."""
        with self._changed:
            self._is_over = self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def _raise_failure(self) -> None:
        with self._changed:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._is_closing)
                    if self._is_closing:
                        return
                    policy = self._waiting[0]
                score = self._play(policy)
                with self._changed:
                    self._scores.append(score)
                    self._waiting.popleft()
                    self._changed.notify_all()
        except _ClosingError:
            pass
        except BaseException as error:
            self._failure = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _look(self) -> None:
        if self._is_closing:
            raise _ClosingError

    def _play(self, policy: Policy) -> Score:
        lanes = self._asked.episodes
        with self._begin(lanes, policy=policy, seed=self._asked.seed, fragment=FRAGMENT, staleness=0, **ONE_EPISODE) as played:
            score = Score(policy, *first_episodes(played, lanes, self._look))
            envs = played.envs
        if envs.recording is None or np.isnan(score.returns).all():
            return score
        lane = int(np.nanargmax(score.returns))
        try:
            recorded = _recordings(envs)
            best = _native.episode_name(envs.recording.run, lane, 0)
            self._pin(recorded, best, float(score.returns[lane]))
        except (ClusterError, ReplayError, TimeoutError) as error:
            warnings.warn(f"the best episode of version {policy.version} is not pinned: {error}", RecordingWarning, stacklevel=1)
            return score
        return replace(score, best=best)

    def _pin(self, recorded: Replays, name: str, total: float) -> None:
        """Pins an episode if it is among the best of all evaluations, and unpins what is no longer."""
        if len(self._pinned) == MAX_PINNED and total <= self._pinned[0][0]:
            return
        recorded.pin(name)
        self._pinned = sorted([*self._pinned, (total, name)])
        if len(self._pinned) > MAX_PINNED:
            recorded.unpin(self._pinned.pop(0)[1])


def _recordings(envs: Any) -> Replays:
    """Returns the recordings of lanes that have ended, once all of them are there."""
    from rollhouse import replays

    cluster = getattr(envs, "cluster", None)
    if cluster is None:
        return replays.open(envs.recording.path)
    cluster.close_pool(envs.run, DEFAULT_TIMEOUT)
    return replays.open(cluster)


WAITING = 4
"""Versions that wait or are played at a time; a learner that is faster waits."""

MAX_SCORES = 4096
"""Scores that are kept, the newest."""

MAX_PINNED = 8
"""Episodes that are pinned at a time: the best of as many evaluations."""

EVALUATION_SEED = 1 << 30
"""The seed of the first episode unless another is given, beyond what lanes of rollouts begin from."""
