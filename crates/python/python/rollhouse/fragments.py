"""Rollouts: batches that a policy plays on the machines of the lanes, for learners that train on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse import _native
from rollhouse.evaluations import EVALUATION_SEED, Evaluating, Evaluations
from rollhouse.policies import Policy, policy_of
from rollhouse.vector import DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from typing_extensions import Self

    from rollhouse.hosted import HostedVectorEnv
    from rollhouse.keeping import Keeping
    from rollhouse.native_env import NativeVectorEnv
    from rollhouse.score import Score
    from rollhouse.vector import Mode

STEP_COLUMNS = {"log_prob": "float32", "value": "float32"}
"""What is recorded of each step unless something else is asked for."""


@dataclass(frozen=True)
class Episode:
    """An episode that has ended.

    Attributes:
        step: The step of the batch in which it ended.
        lane: Its lane.
        total: The sum of its rewards.
        length: Number of its steps.
        terminated: Whether the env has ended it; else it was cut off.
    """

    step: int
    lane: int
    total: float
    length: int
    terminated: bool


@dataclass(frozen=True)
class Batch:
    """What N lanes have shown and done in T steps. Arrays are read-only views of memory that lives as long as they do.

    Attributes:
        observations: [T + 1, N, ...], a dict or tuple of such where the space is one. ``observations[t]`` is what the actions
            of step ``t`` were chosen from.
        actions: [T, N, ...].
        rewards: float64 [T, N].
        terminations, truncations: bool [T, N].
        log_probs, values: float32 [T, N]: of the actions that were drawn, and of what they were drawn from. None if the policy
            has none.
        versions: int64 [T, N]: the version of the weights that chose each action.
        valid: bool [T, N]: whether the lane has stepped. Learners leave out what is False: rows that began an episode in place
            of a step, and rows of lanes that are lost.
        states: What a recurrent policy remembers of each lane before the first step, by the names of its inputs, float32 [N, ...] each:
            zeros where an episode begins with it. Empty for others.
        masks: [T + 1, N, actions], as ``observations``; None if the env gives none.
        infos: The env's info channels by their names, [T + 1, N, ...] each.
        notes: All that the policy has noted, by its names, [T, N, ...] each.
        final_steps, final_lanes: int64 [K]: where an episode ended in a row that shows the next one.
        final_observations: [K, ...]: its last observation.
        episodes: Those that ended, by step and lane.
        lost_episodes: Number of episodes that ended because their lane was lost.
        lag: By how many updates its oldest action is older than the newest policy, as it was returned.
    """

    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    log_probs: np.ndarray | None
    values: np.ndarray | None
    versions: np.ndarray
    valid: np.ndarray
    states: dict[str, np.ndarray]
    masks: np.ndarray | None
    infos: dict[str, np.ndarray]
    notes: dict[str, np.ndarray]
    final_steps: np.ndarray
    final_lanes: np.ndarray
    final_observations: Any
    episodes: list[Episode] = field(repr=False)
    lost_episodes: int
    lag: int

    def torch(self) -> dict[str, Any]:
        """Returns the arrays as tensors of the same memory, by their names. Do not write to them."""
        from rollhouse.tensors import shared_tensors

        names = [name for name in self.__dataclass_fields__ if name not in ("episodes", "lost_episodes", "lag")]
        return {name: shared_tensors(getattr(self, name)) for name in names}


def _batch(raw: dict[str, Any]) -> Batch:
    notes, rows = raw["notes"], raw["final_rows"]
    lanes = raw["rewards"].shape[1]
    return Batch(
        observations=raw["observations"],
        actions=raw["actions"],
        rewards=raw["rewards"],
        terminations=raw["terminations"],
        truncations=raw["truncations"],
        log_probs=notes.get("log_prob"),
        values=notes.get("value"),
        versions=raw["versions"],
        valid=~(raw["resets"] | raw["lost"]),
        states={name: frames[0] for name, frames in raw["states"].items()},
        masks=raw["masks"],
        infos=raw["infos"],
        notes=notes,
        final_steps=rows // lanes,
        final_lanes=rows % lanes,
        final_observations=raw["final_observations"],
        episodes=[Episode(*each) for each in raw["episodes"]],
        lost_episodes=raw["lost_episodes"],
        lag=raw["lag"],
    )


@dataclass(frozen=True, kw_only=True)
class Playing:
    """What is played: arguments of ``rollouts``, which says what they mean."""

    fragment: int = 128
    staleness: int = 1
    seed: int = 0
    group: int = 1
    complete_episodes: bool = False


class Rollouts:
    """Batches that a policy plays, one after the other: an iterator, and an async iterator.

    While one is learned from, ``staleness`` more are played, or wait; an ``update`` comes behind those. So with one update for each
    batch no batch is more than ``staleness`` updates older than the newest, and with 0 it is played by the newest, while nothing is played
    meanwhile. Not thread-safe.

    Attributes:
        envs: The vector env whose lanes they are.
    """

    def __init__(self, envs: NativeVectorEnv, policy: Any, playing: Playing):
        self.envs = envs
        self._seed = playing.seed
        self._evaluations: Evaluations | None = None
        self._keeping: Keeping | None = None
        self._native = _native.NativeRollouts(
            envs._native,
            steps=playing.fragment,
            staleness=playing.staleness,
            seed=playing.seed,
            group=playing.group,
            whole=playing.complete_episodes,
            policy=policy_of(policy)._given(0, playing.seed),
        )

    @property
    def version(self) -> int:
        """The version of the newest policy."""
        return self._native.version

    def next(self, timeout: float = DEFAULT_TIMEOUT) -> Batch:
        """Returns the next batch, waiting for it at most so many seconds.

        Raises:
            TimeoutError: It is not there by then; the next call goes on to wait.
            PolicyError: The policy cannot play, or has chosen what is no action.
            ClusterError: Its lanes cannot be played any more.
        """
        return _batch(self._native.next(timeout))

    def update(self, policy: Any, *, timeout: float | None = DEFAULT_TIMEOUT, **drawing: Any) -> int:
        """Has the lanes play by another policy from the next batch that is begun on. Returns its version.

        Args:
            policy: As ``rollouts`` takes it, of the same layers or others.
            timeout: Seconds to wait until all nodes have it. None does not wait; what a node says against it then comes with the
                next batch.
            **drawing: ``version`` (else one more than the last), ``deterministic``, ``temperature`` and ``epsilon``.

        Raises:
            PolicyError: It cannot play, and the lanes go on by the one before.
            ValueError: Its version is not above the one before.
            TimeoutError: The nodes do not have it by then; it is still on its way.
        """
        given = policy_of(policy, **drawing)
        chosen = given._given(self.version + 1, self._seed)
        update = self._native.update(chosen)
        self._take(given, chosen[1])
        if timeout is not None and not update.wait(timeout):
            raise TimeoutError(f"version {chosen[1]} is not with all nodes after timeout={timeout} s; it is still on its way")
        return chosen[1]

    def _take(self, given: Policy, version: int) -> None:
        if self._evaluations is not None:
            self._evaluations.take(given, version)
        if self._keeping is not None:
            self._keeping.take(given, version)

    @property
    def kept(self) -> dict[int, str]:
        """The policies that the cluster keeps of this run so far, by version, as ``{0: "pong@3"}``. Empty without ``keep``. Raises once why
        one could not be stored."""
        return {} if self._keeping is None else self._keeping.kept

    @property
    def scores(self) -> list[Score]:
        """The scores of the versions that were evaluated so far, in their order; ``score.policy.version`` says which. None without
        ``evaluate_every``. Raises once why an evaluation has failed."""
        return [] if self._evaluations is None else self._evaluations.scores

    def wait_scores(self, timeout: float = DEFAULT_TIMEOUT) -> list[Score]:
        """Returns the scores when every k-th version that was given so far is evaluated, waiting at most so many seconds.

        Raises:
            TimeoutError: Some are not by then; their evaluation goes on.
        """
        return [] if self._evaluations is None else self._evaluations.wait(timeout)

    def close(self) -> None:
        """Ends the lanes, and evaluations with the steps that they are playing: ``wait_scores`` first gets those that are due. Waits until
        versions that the cluster is to keep are there. Batches and scores stay readable. Closing again does nothing."""
        if self._evaluations is not None:
            self._evaluations.close()
        self._native.close()
        # Their lanes have ended with the rollouts.
        self.envs.close(terminate=True)
        if self._keeping is not None:
            self._keeping.close()

    def _with(self, policy: Any, evaluations: Evaluations | None, keeping: Keeping | None = None) -> Self:
        self._evaluations, self._keeping = evaluations, keeping
        self._take(policy_of(policy), self.version)
        return self

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self.next()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        return await asyncio.get_running_loop().run_in_executor(None, self.next)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def rollouts(
    env: str | Callable[[], gymnasium.Env],
    lanes: int,
    *,
    policy: Any = "random",
    fragment: int = 128,
    staleness: int = 1,
    seed: int = 0,
    group: int = 1,
    complete_episodes: bool = False,
    evaluate_every: int | None = None,
    evaluate_episodes: int = 16,
    evaluate_seed: int = EVALUATION_SEED,
    autoreset_mode: Mode = AutoresetMode.SAME_STEP,
    **options: Any,
) -> Rollouts:
    """Has a policy play lanes of this process, for a learner.

    Args:
        env: An env of ``make_vec``, in this process; or a Python env, whose lanes are stepped in worker processes: an id as
            ``gymnasium:ID``, or a function without arguments that makes one.
        lanes: Number of lanes, N.
        policy: What chooses the actions: see ``rollhouse.policies.policy_of``.
        fragment: Number of steps in a batch, T.
        staleness: Number of batches that are played while one is learned from.
        seed: The seed of lane 0, and lane i has ``seed + i``; what is drawn depends on it, too.
        group: Number of neighbours that have the same seed, and so begin alike; it divides ``lanes``. The next group has the seed that
            comes next.
        complete_episodes: Whether each batch has one episode of each lane, from its beginning to its end: T is then the length of
            the longest, and ``valid`` is False behind the end of a shorter one. Lanes are reset for each batch, to seeds that
            go on from those of the batch before, so that short episodes count no more than long ones; ``fragment`` steps are played
            at a time, and those behind the last end are thrown away. Else episodes go on from batch to batch.
        evaluate_every: Number of updates, K: the first version and every K-th after it are evaluated beside the rollouts, one after the
            other, while the learner goes on. ``Rollouts.scores`` has what they came to. A learner that is four evaluations ahead waits
            in ``update``. If the rollouts are recorded, so are evaluations, and the best episodes of the best eight are pinned.
            None evaluates nothing.
        evaluate_episodes: Number of episodes of each evaluation, each played to its end in a lane of its own.
        evaluate_seed: The seed of an evaluation's first episode. All versions play the same episodes.
        autoreset_mode: The rule by which the next episode begins. In SAME_STEP no row is lost to that.
        **options: Further arguments of ``make_vec``, of a Python env of ``vectorize``; of evaluations too.
    """
    from rollhouse.embedded import make_vec

    evaluating = Evaluating.of(evaluate_every, evaluate_episodes, evaluate_seed, options)
    playing = Playing(
        fragment=fragment, staleness=staleness, seed=seed, group=group, complete_episodes=complete_episodes
    )
    make = make_vec if isinstance(env, str) and ":" not in env else _in_workers
    played = begin(make, env, lanes, policy, playing, autoreset_mode=autoreset_mode, **options)
    return played._with(policy, Evaluations.of(evaluating, partial(rollouts, env, **options)))


def _in_workers(env: Any, lanes: int, **options: Any) -> HostedVectorEnv:
    """Makes lanes of a Python env, with all of their workers at work."""
    from rollhouse.hosted import vectorize

    envs = vectorize([env] * lanes, **options)
    envs._launch_rest()
    return envs


def begin(
    make: Callable[..., Any], env: Any, lanes: int, policy: Any, playing: Playing, **options: Any
) -> Rollouts:
    """Makes lanes, and begins rollouts of them. If they cannot begin, the lanes end."""
    options.setdefault("step_columns", STEP_COLUMNS)
    envs = make(env, lanes, **options)
    try:
        return Rollouts(envs, policy, playing)
    except BaseException:
        envs.close()
        raise
