"""PettingZoo's envs, many at a time.

    import rollhouse.pettingzoo
    from pettingzoo.butterfly import pistonball_v6

    envs = rollhouse.pettingzoo.vectorize([pistonball_v6.parallel_env] * 8)
    observations, infos = envs.reset(seed=0)
    actions = {agent: envs.action_space(agent).sample() for agent in envs.possible_agents}
    observations, rewards, terminations, truncations, infos = envs.step(actions)

One lane is one env with all its agents; everything is a dict from agent to arrays of N rows. ``make_vec`` does the same by
name, here or on the nodes of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import rollhouse
from rollhouse.agents import OBSERVED, zero
from rollhouse.errors import ActionTypeError
from rollhouse.hosted import of_id
from rollhouse.vector import Mode

if TYPE_CHECKING:
    from rollhouse.cluster import Cluster
    from rollhouse.replays import Episode

__all__ = ["ParallelVectorEnv", "agent_returns", "make_vec", "vectorize"]


def vectorize(
    env_fns: Sequence[Callable[[], Any]],
    *,
    seed: int | None = None,
    autoreset_mode: Mode = AutoresetMode.NEXT_STEP,
    **arguments: Any,
) -> ParallelVectorEnv:
    """Hosts PettingZoo envs in worker processes, one lane each.

    Args:
        env_fns: Each makes a ``ParallelEnv``, or an ``AECEnv``, which is taken in its parallel form; all have the same
            possible agents and spaces.
        seed: For the first reset, if ``reset`` is given none.
        autoreset_mode: When a lane whose agents are all gone begins its next episode.
        arguments: Further arguments of ``rollhouse.vectorize``: ``workers``, ``on_loss``, ...
    """
    envs = rollhouse.vectorize(env_fns, seed=seed, autoreset_mode=autoreset_mode, **_LAYOUT, **arguments)
    return ParallelVectorEnv(envs)


def make_vec(
    id: str,
    num_envs: int = 1,
    *,
    cluster: Cluster | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> ParallelVectorEnv:
    """Makes N lanes of a PettingZoo env by its name: in worker processes, or on the nodes of a cluster.

    Args:
        id: A function or class as ``package.module:name``: ``pettingzoo.mpe.simple_spread_v3:parallel_env``, or ``:env`` for
            the AEC env in its parallel form. Nodes import what their config allows.
        num_envs: N.
        cluster: What ``rollhouse.connect`` gave; None for processes of this one's.
        env_kwargs: The arguments with which the env is made.
        arguments: Further arguments of ``rollhouse.vectorize``, or of ``Cluster.make_vec``.
    """
    if cluster is not None:
        return ParallelVectorEnv(cluster.make_vec(id, num_envs, env_kwargs=env_kwargs, **_LAYOUT, **arguments))
    fn = of_id(id, env_kwargs or {}, arguments.pop("max_episode_steps", None))
    return vectorize([fn] * num_envs, **arguments)


def agent_returns(episode: Episode) -> dict[str, float]:
    """Returns the sum of each agent's rewards in a recorded episode.

    Raises:
        ValueError: It is no episode of several agents.
    """
    observed: Any = episode.info.observation_space
    _check_observed(observed, episode.info.env)
    totals = episode.observations["rewards"][1:].sum(axis=0)  # type: ignore[call-overload]
    return dict(zip(observed["observations"], totals.tolist(), strict=True))


_LAYOUT: dict[str, Any] = {"info_layout": "default", "valid": "always"}


def _check_observed(space: gymnasium.Space, whose: str) -> None:
    """Raises ``ValueError`` unless a space is that of lanes of several agents."""
    if not isinstance(space, spaces.Dict) or set(space) != set(OBSERVED):
        raise ValueError(f"{whose} has no agents: it observes {space}")


class ParallelVectorEnv:
    """N PettingZoo parallel envs, stepped together.

    Observations, rewards (float64 [N]), terminations and truncations (bool [N]) are dicts from agent to N rows. An
    agent that takes no part in a lane has zeros there. ``infos["alive"]``, a dict from agent to bool [N], says who
    acts in the next step; actions of the others are ignored and may be left out or be anything. ``infos[agent]``
    has the agent's own infos in Gymnasium's layout.

    When the last agent of a lane is gone its next episode begins, by ``autoreset_mode``: in the next step
    (NEXT_STEP: that step ignores the lane's actions, and its row is no transition), in the same one (SAME_STEP: what
    the agents last observed is in ``infos["final_obs"][i]``, a dict, the infos of that step in
    ``infos["final_info"]``), or when ``reset(options={"reset_mask": ...})`` says so (DISABLED).
    ``infos["over"]`` (bool [N]) marks lanes whose episode ended in this step, ``infos["valid"]`` (bool [N])
    rows that are transitions. In a step in which one ended, ``infos["agent_returns"]``, a dict from agent to float64 [N], has the
    sums of the agents' rewards in the lanes that are over, 0 in others. A time limit that is not the env's own truncates the
    agents that are left.

    Attributes:
        num_envs: N.
        possible_agents: All agents, in the env's order.
        envs: The ``rollhouse.VectorEnv`` below, in which a lane is a Gymnasium env: ``ParallelEnvAdapter`` of
            ``rollhouse.agents`` says of which spaces.
    """

    def __init__(self, envs: Any):
        """``envs`` is what ``rollhouse.vectorize``, ``rollhouse.make_vec`` or ``Cluster.make_vec`` made of envs with several
        agents, with the default ``info_layout``.

        Raises:
            ValueError: Its lanes have no agents, or it has another layout.
        """
        if envs.info_layout != "default":
            raise ValueError(f"info_layout={envs.info_layout!r}: several agents a lane need 'default'")
        _check_observed(envs.single_observation_space, f"a lane of {type(envs).__name__}")
        self.envs = envs
        self.num_envs: int = envs.num_envs
        self.autoreset_mode: AutoresetMode = envs.autoreset_mode
        self.metadata: dict[str, Any] = envs.metadata
        self.possible_agents: list[str] = list(envs.single_observation_space["observations"])
        self._alive = np.zeros((self.num_envs, len(self.possible_agents)), np.bool_)
        self._returns = np.zeros(self._alive.shape)
        self._idle = {agent: _member(self.single_action_space(agent)) for agent in self.possible_agents}

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode in every lane, or in those of ``options["reset_mask"]``; as ``VectorEnv.reset``."""
        mask = None if options is None else options.get("reset_mask")
        packed, infos = self.envs.reset(seed=seed, options=options)
        begun = np.ones(self.num_envs, np.bool_) if mask is None else np.asarray(mask)
        self._alive[begun] = packed["alive"].astype(np.bool_)[begun]
        self._returns[begun] = 0.0
        return packed["observations"], {**infos, "alive": self._by_agent(self._alive)}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[
        dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray], dict[str, Any]
    ]:
        """Steps every lane once.

        Args:
            actions: Per agent a batch of ``action_space(agent)``; an agent that is alive nowhere may be left out.

        Raises:
            ActionTypeError: Not a dict, an unknown agent, or an agent that is alive has no actions.
        """
        packed, _, terminated, truncated, infos = self.envs.step(self._filled(actions))
        over = terminated | truncated
        alive = packed["alive"].astype(np.bool_)
        left = alive.copy()
        columns = {key: np.array(packed[key]) for key in ("rewards", "terminations", "truncations")}
        shown = infos.get("_final_obs", False) & over
        for lane in np.flatnonzero(shown).tolist():
            # The row shows the next episode's first observation already; what ended is beside it.
            final = infos["final_obs"][lane]
            for key, column in columns.items():
                column[lane] = final[key]
            left[lane] = final["alive"]
            infos["final_obs"][lane] = final["observations"]
        # Those that are left when an episode is over have met a limit that is not the env's.
        columns["truncations"][over] |= left[over]
        alive[over & ~shown] = False
        void = ~infos.setdefault("valid", np.ones(self.num_envs, np.bool_))
        if void.any():
            # A lost lane shows what it last delivered: nobody is rewarded for that twice.
            lost = void & over
            columns["rewards"][void] = 0.0
            columns["terminations"][void] = 0
            columns["truncations"][void] = 0
            columns["truncations"][lost] = self._alive[lost]
            alive[lost] = False
        self._alive = alive
        infos.update(alive=self._by_agent(alive), over=over)
        self._add_returns(columns["rewards"], over, infos)
        return (
            packed["observations"],
            self._by_agent(columns["rewards"]),
            self._by_agent(columns["terminations"].astype(np.bool_)),
            self._by_agent(columns["truncations"].astype(np.bool_)),
            infos,
        )

    def _add_returns(self, rewards: np.ndarray, over: np.ndarray, infos: dict[str, Any]) -> None:
        """Adds up rewards [N, agents], and tells those of the episodes that are over."""
        self._returns += rewards
        if over.any():
            infos["agent_returns"] = self._by_agent(np.where(over[:, None], self._returns, 0.0))
            self._returns[over] = 0.0

    def render(self) -> tuple[Any, ...] | None:
        """Returns the rendered frames of all lanes, or None when the envs have no render mode."""
        return self.envs.render()

    def __enter__(self) -> ParallelVectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers. Doing it again does nothing."""
        self.envs.close()

    def _by_agent(self, columns: np.ndarray) -> dict[str, np.ndarray]:
        """Splits columns [N, agents] into a dict from agent to contiguous [N]."""
        rows = np.ascontiguousarray(columns.T)
        return dict(zip(self.possible_agents, rows, strict=True))

    def _filled(self, actions: dict[str, Any]) -> dict[str, Any]:
        """Returns the actions, with one that its space contains wherever an agent takes no part."""
        if not isinstance(actions, dict):
            raise ActionTypeError(
                f"actions: {type(actions).__name__} given, must be a dict from agent to a batch"
            )
        unknown = actions.keys() - set(self.possible_agents)
        if unknown:
            raise ActionTypeError(f"actions: no agent is called {', '.join(sorted(map(str, unknown)))}")
        filled = {}
        for at, agent in enumerate(self.possible_agents):
            alive = self._alive[:, at]
            if agent not in actions and alive.any():
                raise ActionTypeError(f"actions: none for {agent}, which is alive in {int(alive.sum())} lanes")
            idle, space = self._idle[agent], self.single_action_space(agent)
            if not alive.any():
                filled[agent] = _repeated(space, idle, self.num_envs)
            else:
                filled[agent] = actions[agent] if alive.all() else _choose(alive, actions[agent], idle, space)
        return filled

    def observation_space(self, agent: str) -> gymnasium.Space:
        """Returns the space of the agent's observations in all lanes; always the same object."""
        return self.envs.observation_space["observations"][agent]

    def action_space(self, agent: str) -> gymnasium.Space:
        """Returns the space of the agent's actions in all lanes; always the same object."""
        return self.envs.action_space[agent]

    def single_observation_space(self, agent: str) -> gymnasium.Space:
        """Returns the space of the agent's observations in one lane."""
        return self.envs.single_observation_space["observations"][agent]

    def single_action_space(self, agent: str) -> gymnasium.Space:
        """Returns the space of the agent's actions in one lane."""
        return self.envs.single_action_space[agent]


def _member(space: gymnasium.Space) -> Any:
    """Returns some value that the space contains, the same each time where it is made of numbers."""
    if isinstance(space, spaces.Dict):
        return {key: _member(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_member(part) for part in space.spaces)
    if isinstance(space, spaces.Box):
        return np.clip(zero(space), space.low, space.high)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return zero(space) + space.start
    return zero(space) if isinstance(space, spaces.MultiBinary) else space.sample()


def _repeated(space: gymnasium.Space, item: Any, count: int) -> Any:
    """Returns a batch of so many copies of a value."""
    batch: Any = gymnasium.vector.utils.create_empty_array(space, count)
    return gymnasium.vector.utils.concatenate(space, [item] * count, batch)


def _choose(rows: np.ndarray, batch: Any, idle: Any, space: Any) -> Any:
    """Returns the chosen rows of a batch of a space, and ``idle`` in the others."""
    if isinstance(batch, dict):
        return {key: _choose(rows, part, idle[key], space[key]) for key, part in batch.items()}
    if isinstance(batch, tuple) and isinstance(space, spaces.Tuple):
        return tuple(_choose(rows, *parts) for parts in zip(batch, idle, space.spaces, strict=True))
    if isinstance(batch, (tuple, list)):
        return type(batch)(one if row else idle for row, one in zip(rows, batch, strict=True))
    batch = np.array(batch)
    batch[~rows] = idle
    return batch
