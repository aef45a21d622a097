"""Vector envs whose lanes run on the nodes of a cluster."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse import _native
from rollhouse.errors import PolicyError, RefusedError, ResetNeededError
from rollhouse.evaluations import EVALUATION_SEED, Evaluating, Evaluations
from rollhouse.fragments import Playing, Rollouts, begin
from rollhouse.keeping import Keeping
from rollhouse.native_env import (
    NativeVectorEnv,
    action_converter,
    check_render_mode,
    lane_options_of,
    make_space,
    render_metadata,
)
from rollhouse.paced import LiveLanes
from rollhouse.policies import Policy, is_of_cluster, policy_of
from rollhouse.pool_options import PoolOptions, Transport
from rollhouse.recording import Recording, figures_of_pool
from rollhouse.replay_session import ReplaySession
from rollhouse.step_columns import StepColumnSpecs
from rollhouse.vector import DEFAULT_TIMEOUT, InfoLayout, Mode, ShowValid, Step

@dataclass(frozen=True)
class Placement:
    """The place where some lanes of a vector env run.

    Attributes:
        node: The node's name.
        lanes: Those lanes.
        transport: The way in which they are stepped, ``"shm"`` or ``"quic"``.
    """

    node: str
    lanes: range
    transport: str


class Cluster:
    """A connection to a cluster's coordinator. Any thread may use it; calls block, Ctrl-C ends them.

    Attributes:
        url: The connection string, without the token.
        transport: The argument of that name of ``connect``.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        certificate: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
        transport: Transport | None = None,
        attach: str | os.PathLike[str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ):
        _check_transport(transport)
        if not 0 < timeout < 1e9:
            raise ValueError(f"timeout={timeout!r} must be a number of seconds above 0")
        url = _address(url)
        self.url = url.split("?")[0]
        self.transport = transport
        self._native = _native.NativeCluster(
            url,
            token=token,
            ca=None if ca is None else os.fspath(ca),
            certificate=None if certificate is None else (os.fspath(certificate[0]), os.fspath(certificate[1])),
            transport=transport,
            attach=None if attach is None else os.fspath(attach),
            timeout=float(timeout),
        )

    def make_vec(
        self,
        id: str,
        num_envs: int = 1,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        deterministic: bool | None = None,
        seed: int | Sequence[int | None] | None = None,
        autoreset_mode: Mode = AutoresetMode.NEXT_STEP,
        record: bool | str = True,
        copy: bool = True,
        max_episode_steps: int | None = None,
        transport: Transport | None = None,
        labels: Mapping[str, str] | None = None,
        spread: Literal["pack", "even", "single"] = "pack",
        info_layout: InfoLayout = "default",
        valid: ShowValid = "needed",
        on_loss: Literal["resume", "raise", "report"] | None = None,
        render_mode: str | None = None,
        render_size: Sequence[int] | None = None,
        statistics: bool = False,
        step_columns: StepColumnSpecs | None = None,
        record_infos: Mapping[str, Any] | None = None,
        record_frames: int | None = None,
        leave_out: Sequence[str] = (),
        lane_options: Sequence[Mapping[str, Any]] | None = None,
        pace: int | float | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> ClusterVectorEnv:
        """Asks for lanes, waiting while the cluster is full, and makes a vector env of them.

        Args:
            id: An env of the nodes, or a Python env that they learn: ``gymnasium:ID``, ``gymnasium:module:ID``, a class as
                ``package.module:Class``, or a vector env ``vector:package:ID``, whose lanes step together. Nodes' config says which packages they import.
            env_kwargs: The arguments with which a Python env is made; what JSON has. ``render_mode``, if it is given, is one of
                them too, and nodes draw each lane by its env's own ``render``.
            deterministic: Whether a Python env is declared deterministic: seed and actions decide everything. It is tried
                out before it is believed, and its lanes are resumed if their node is lost. None for what the env's
                ``metadata["deterministic"]`` says.
            num_envs, seed, autoreset_mode, copy, max_episode_steps, info_layout, valid, render_mode, render_size,
                statistics, step_columns: The arguments of ``rollhouse.make_vec``. Here ``note`` is a round trip of its own,
                comes after the first reset, and lanes that go on on another node are noted anew.
            on_loss: The rule for lanes whose node is lost. ``"resume"``, the default for deterministic envs: another
                node does again what they did, and the step takes longer. ``"report"``: they are marked as lost, and
                begin new episodes elsewhere. ``"raise"``, the default for others: ``LaneLostError``, and the lanes
                begin anew at the next reset. A lane whose env fails is reported under ``"resume"`` too.
            record: Whether the nodes record; episodes reach the cluster's store. ``"sample:0.01"`` for each with that
                probability, ``"trace"`` for every step's observations too.
            transport: ``"shm"`` for memory shared with nodes on this machine, ``"quic"``, or ``"auto"`` for memory where
                a node answers at its attach socket here and QUIC elsewhere. None is what the connection was told,
                else ``"auto"``. Lanes that go on elsewhere do so over QUIC.
            labels: Labels that a node must have.
            spread: ``"pack"`` for as few nodes as have room, ``"even"`` for all that fit, ``"single"`` for one session on
                one node, so that a large batch shared in memory needs no gathering.
            record_infos, record_frames: Of Python envs, as in ``rollhouse.vectorize``: infos of each step that are recorded, each with a
                value of its dtype and shape, and of every how many-th step a picture is, which needs ``render_mode="rgb_array"``. In
                first-done mode a picture is left out whose process steps another lane.
            leave_out: Paths of parts of a Python env's observations that its lanes do without, such as ``("mission",)``: of spaces that
                nodes do not host.
            lane_options: One dict of options per lane, over ``options``. Lanes get them with the first reset, whose own options
                go first.
            pace: Live lanes: ticks a second, ``25``, of a world that ticks whatever its owner does. A step is answered with the row
                of the next tick that takes its action, ``infos["ticks"]`` ticks after the last answer, their rewards added up. Or
                ``{"hz": 25, "clock": "agent"}`` for a world that is frozen while its owner thinks, and ``"charged"`` for one in which
                the time of thinking is played first. Lost with their node, whatever ``on_loss`` says: they do not begin elsewhere.
            **options: Options of the env itself by name, or a dict of them as ``options``; the same for all lanes, or
                distributions of which each episode draws, as in ``rollhouse.make_vec``. Of a Python env also its arguments
                by name, as in ``env_kwargs``.

        Raises:
            TypeError, OptionsError, ValueError: The message names the argument, its value and what was wanted; of an unknown one the
                nearest that there is.
            RefusedError: The cluster has no such env, no room within the timeout, or the token may not.
            UnreachableError: The coordinator does not answer.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        return ClusterVectorEnv(self, PoolOptions(**given))

    def rollouts(
        self,
        env: str,
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
        keep: str | None = None,
        keep_every: int = 1,
        autoreset_mode: Mode = AutoresetMode.SAME_STEP,
        **options: Any,
    ) -> Rollouts:
        """Has a policy play lanes on the cluster's nodes, for a learner. The batches are those of ``rollhouse.rollouts`` of the same
        arguments, on any number of nodes.

        Args:
            env, lanes, policy, fragment, staleness, seed, group, complete_episodes, evaluate_every, evaluate_episodes, evaluate_seed,
                autoreset_mode: The arguments of ``rollhouse.rollouts``. The lanes of evaluations are of the cluster, too; those of one
                at a time. ``policy`` may be one of the cluster's too: ``"pong@3"``, or ``"pong"`` for its newest version.
            keep: The name of a policy of the cluster, to store versions of the learner's there, durably and beside the rollouts: the first
                one and every ``keep_every``-th after it, if it has a file. ``Rollouts.kept`` says which version there each is. A learner
                that is four of them ahead waits in ``update``. None stores nothing.
            keep_every: Number of updates.
            **options: Further arguments of ``make_vec``. The lanes are played over QUIC.
        """
        options["transport"] = "quic"
        if is_of_cluster(policy):
            policy = self.policy(policy)
        evaluating = Evaluating.of(evaluate_every, evaluate_episodes, evaluate_seed, options)
        keeping = None if keep is None else Keeping(keep, keep_every, self.put_policy)
        playing = Playing(
            fragment=fragment, staleness=staleness, seed=seed, group=group, complete_episodes=complete_episodes
        )
        played = begin(self.make_vec, env, lanes, policy, playing, autoreset_mode=autoreset_mode, **options)
        evaluations = Evaluations.of(evaluating, partial(self.rollouts, env, **options))
        return played._with(policy, evaluations, keeping)

    def put_policy(self, name: str, policy: Any, version: int | None = None) -> int:
        """Stores a policy at the cluster's coordinator, durably, and returns its version.

        Args:
            name: Its name there. The first who stores a policy under a name is its owner.
            policy: What ``rollhouse.policies.policy_of`` takes: a file, its bytes, a torch module, a Stable-Baselines3 model.
            version: Its version, above all that there are. None is the next one, or the one that has the same file.

        Raises:
            PolicyError: It is no policy that has a file.
            RefusedError: The name is another owner's, or there is no room.
        """
        given = policy_of(policy)
        if not given.file:
            raise PolicyError(f"policy {given.name!r} has no file: nodes have it, or it is the cluster's already")
        return self._native.put_policy(name, given.version if version is None else version, given.file)

    def policies(self) -> list[dict[str, Any]]:
        """Returns the versions of all policies, as ``rollhouse policy ls --json`` prints them."""
        return json.loads(self._native.policies())

    def policy(self, policy: str) -> Policy:
        """Fetches a policy, ``"pong@3"``, or the newest version of ``"pong"``.

        Raises:
            ValueError: That is no name of a policy.
            PolicyError: The cluster has none of that name and version.
        """
        name, version = _named(policy)
        try:
            found, file = self._native.fetch_policy(name, version)
        except RefusedError as error:
            if error.code != "not_found":
                raise
            raise PolicyError(str(error)) from None
        return Policy(name=name, version=found, file=file)

    def remove_policy(self, policy: str) -> int:
        """Removes a version of a policy, ``"pong@3"``, or all versions of ``"pong"``. Returns how many went. Lanes that play by it
        go on."""
        return self._native.remove_policy(*_named(policy))

    def status(self) -> dict[str, Any]:
        """Returns an overview of the cluster, as ``rollhouse status --json`` prints it."""
        return json.loads(self._native.status())

    def nodes(self) -> list[dict[str, Any]]:
        """Returns the nodes, by name, as ``rollhouse nodes --json`` prints them."""
        return json.loads(self._native.nodes())

    def envs(self) -> list[dict[str, Any]]:
        """Returns the envs of nodes that are alive, each with ``env``, ``dynamics``, ``nodes`` and ``free_lanes``.

        The ``dynamics`` of a kind of envs that nodes learn when one is asked for, ``gymnasium:*``, is None.
        """
        return json.loads(self._native.envs())

    def sessions(self) -> list[dict[str, Any]]:
        """Returns the open sessions, by name, as ``rollhouse sessions --json`` prints them. ``launching`` is true of one whose lanes
        are still being launched, and ``connecting`` is how often the lanes of one have tried again to connect."""
        return json.loads(self._native.sessions())

    def open_replay(self, name: str) -> ReplaySession:
        """Opens a recorded episode of the cluster's store on one of its nodes, paused at its reset.

        Args:
            name: The episode, as ``rollhouse replay ls`` and ``EpisodeInfo.id`` have it.

        Raises:
            ValueError: ``name`` is not the name of an episode.
            RefusedError: There is no such episode, a part of it is damaged, no node has its env as it was recorded, or nodes
                show as many as they take.
            UnreachableError: The coordinator or the node does not answer.
        """
        return ReplaySession(*self._opened(name))

    def _opened(self, name: str) -> tuple[_native.NativeReplay, str, str, dict[str, Any]]:
        native, session, spec = self._native.open_replay(name)
        return native, name, session, spec

    def close_pool(self, run: str, timeout: float = 0.0) -> dict[str, Any]:
        """Ends a pool, with any kind of stepping: a rollout that goes on by itself, or one that a process left behind.

        Args:
            run: Its run, as ``envs.run``, ``rollhouse rollout --detach`` or ``sessions()`` have it.
            timeout: Seconds to wait at most until the store has everything that it recorded: then ``stored`` is true,
                and its episodes can be read. A pool that has ended already can be waited for, too.

        Returns:
            Its last state, as ``rollhouse close --json`` prints it: sessions that are still ``open``, ``ended`` by cause,
            ``steps``, ``episodes``, ``failures``, ``stored``.

        Raises:
            ValueError: ``run`` is not the id of a run, or ``timeout`` is negative or not a finite number.
            RefusedError: No such pool is known, or it is another owner's and the token is no admin's.
            UnreachableError: The coordinator does not answer.
        """
        return json.loads(self._native.close_pool(run, timeout))

    def close(self) -> None:
        """Closes the connections; vector envs of this cluster are of no use afterwards. Closing again does nothing."""
        self._native.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"rollhouse.Cluster({self.url!r})"


class ClusterVectorEnv(NativeVectorEnv, LiveLanes, gymnasium.vector.VectorEnv):
    """N lanes of an env on the nodes of a cluster, as one batch. ``Cluster.make_vec`` makes them.

    Lanes on a node of this machine are stepped through memory that both processes have mapped (``transport``); with
    ``copy=False`` and lanes of one session the arrays of a step lie in that memory, and ``actions`` does. Otherwise a
    step is one round trip to each node. The interpreter lock is released meanwhile, and Ctrl-C ends it. When a
    connection is lost, it is made again and the last request repeated, which steps nothing twice. Lanes whose
    node went away go on elsewhere, as ``on_loss`` says. A call that takes longer
    than the cluster's ``timeout`` raises ``TimeoutError``; the env has to be reset then, as after Ctrl-C. Owners of live lanes
    (``pace``) have the methods of ``LiveLanes``, too.

    Attributes:
        run: The UUID that the episodes of this env are named by.
        pace: Of live lanes, ``{"hz": ..., "clock": ...}``; None of others.
    """

    run: str
    pace: Mapping[str, Any] | None

    on_losses = ("resume", "raise", "report")

    def __init__(self, cluster: Cluster, pool: PoolOptions):
        id, num_envs = pool.id, pool.num_envs
        self.num_envs = num_envs
        self._step_columns = pool.columns
        self._render_size = pool.size
        self._together = pool.together
        if pool.seed is not None:
            self._parse_seeds(pool.seed)
        try:
            run, spec, native = cluster._native.make(
                id, pool.request(), pool.options, lambda spec: action_converter(make_space(spec["action_space"]))
            )
        except RefusedError as error:
            pool.check_refusal(error)
            raise
        self._env_spec = spec
        limit = pool.max_episode_steps
        self._max_episode_steps = spec["max_episode_steps"] if limit is None else limit or None
        try:
            # Asked of the nodes only when it matters: it is a round trip.
            renders = pool.render_mode is not None and native.renders()
            check_render_mode(id, pool.render_mode, renders)
            self._first_options = _by_name(spec, pool, num_envs)
        except BaseException:
            native.close()
            raise
        super().__init__(
            num_envs=num_envs,
            single_observation_space=make_space(spec["observation_space"]),
            single_action_space=make_space(spec["action_space"]),
            autoreset_mode=pool.autoreset_mode,
            metadata=render_metadata(id, renders),
            info_layout=pool.info_layout,
            valid=pool.valid,
            on_loss=pool.on_loss or ("resume" if spec["deterministic"] and pool.pace is None else "raise"),
            render_mode=pool.render_mode,
            statistics=pool.statistics,
        )
        # Holds the connection for as long as the env lives.
        self.cluster = cluster
        self.run, self.pace = run, pool.world_pace
        self._adopt(native, seed=pool.seed, copy=pool.copy)
        if pool.record:
            self.recording = Recording(None, run, partial(figures_of_pool, cluster, run))
        self._watch_events(None)
        _OPEN.add(self)

    def _send(self, actions: Any, env_ids: Any) -> None:
        if self._together is not None and env_ids is not None:
            self._together.check_sent(np.unique(env_ids).tolist(), self.num_envs)
        super()._send(actions, env_ids)

    def _recv(self, min_envs: int | None, timeout: float | None) -> Step:
        # Lanes that step together are done together.
        return super()._recv(min_envs if self._together is None else None, timeout)

    def _reset(
        self, seeds: list[int | None], mask: np.ndarray | None, options: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any]]:
        if self._together is not None:
            self._together.check_reset(seeds, mask)
        if self._first_options:
            options = {**self._first_options, **(options or {})}
        result = super()._reset(seeds, mask, options)
        self._first_options = {}
        return result

    def _note(self, lanes: list[int] | None, columns: list[tuple[int, np.ndarray]]) -> None:
        if not self._reset_done:
            raise ResetNeededError("lanes of a cluster are noted after the first reset")
        super()._note(lanes, columns)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The places where its lanes run now. They move when their node goes away, with the next call that steps or
        resets.
        """
        self._check_usable()
        placed = self._native.placements
        return tuple(Placement(node, range(start, end), transport) for node, start, end, transport in placed)

    @property
    def transport(self) -> str:
        """``"shm"``, ``"quic"``, or ``"mixed"`` if placements differ."""
        words = {placement.transport for placement in self.placements}
        return words.pop() if len(words) == 1 else "mixed"

    def _close(self, **kwargs: Any) -> None:
        _OPEN.discard(self)
        if self.recording is not None:
            self.recording._close()
        super()._close(**kwargs)


_OPEN: weakref.WeakSet[ClusterVectorEnv] = weakref.WeakSet()


@atexit.register
def _close_open() -> None:
    """Gives back lanes that were not closed; otherwise the nodes would keep them for the time of a lease."""
    for env in list(_OPEN):
        with contextlib.suppress(Exception):
            env.close()


def connect(
    url: str | os.PathLike[str],
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    *,
    certificate: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
    transport: Transport | None = None,
    attach: str | os.PathLike[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Cluster:
    """Connects to a cluster.

    Args:
        url: ``rollhouse://HOST:PORT``, or the path of a file that holds it, as ``rollhouse up`` leaves one; may carry ``?token=...&ca=...``, as ``rollhouse up`` prints it, and
            ``&transport=...&attach=...``.
        token: The bearer token; goes before the one in the URL.
        ca: The authority that proves the cluster: ``sha256:`` and the fingerprint of its authority's certificate, or the
            path of a PEM file; goes before the one in the URL.
        certificate: Files of a client certificate and its key, in place of a token.
        transport: The default of ``transport`` in ``Cluster.make_vec``.
        attach: The folder in which to look for nodes' attach sockets, in place of the one each names: for containers
            that have mounted it elsewhere. A socket in it is believed whoever's process answers, so that nobody
            else may write to it.
        timeout: Seconds that connecting, a request, a reset or a step may take. Connecting ends before if the host says for a
            second that nobody listens there.

    Raises:
        ValueError: The URL or ``ca`` is malformed; the message says why.
        RefusedError: The coordinator does not admit us; ``code`` says why.
        UnreachableError: It does not answer, or is not the cluster it should be.
    """
    return Cluster(
        url, token=token, ca=ca, certificate=certificate, transport=transport, attach=attach, timeout=timeout
    )


def _named(policy: str) -> tuple[str, int | None]:
    name, at, version = policy.partition("@")
    if not name or (at and not version.isdecimal()):
        raise ValueError(f"{policy!r} is no name of a policy: NAME or NAME@VERSION")
    return name, int(version) if at else None


def _address(url: str | os.PathLike[str]) -> str:
    """Returns the connection string that ``url`` is, or that the file of that name holds."""
    text = os.fspath(url)
    if "://" in text or not Path(text).is_file():
        return text
    return Path(text).read_text(encoding="utf-8").strip()


def _check_transport(transport: str | None) -> None:
    if transport not in (None, "auto", "shm", "quic"):
        raise ValueError(f"transport={transport!r} is not one of auto, shm, quic")


def _by_name(spec: Mapping[str, Any], pool: PoolOptions, num_envs: int) -> dict[str, list[Any]]:
    """Returns options of lanes by name, as the first reset takes them: of each that a lane is given a value for every lane."""
    if pool.lane_options is None:
        return {}
    lanes = lane_options_of(spec, {}, pool.lane_options, num_envs)
    names = {name: pool.options.get(name, spec["options"][name][0]) for lane in lanes for name in lane}
    return {name: [lane.get(name, default) for lane in lanes] for name, default in names.items()}
