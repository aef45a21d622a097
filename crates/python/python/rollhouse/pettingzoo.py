"""PettingZoo's parallel envs, many at a time.

    import rollhouse.pettingzoo
    from pettingzoo.butterfly import pistonball_v6

    envs = rollhouse.pettingzoo.vectorize([pistonball_v6.parallel_env] * 8)
    observations, infos = envs.reset(seed=0)
    actions = {agent: envs.action_space(agent).sample() for agent in envs.possible_agents}
    observations, rewards, terminations, truncations, infos = envs.step(actions)

One lane is one env with all its agents; everything is a dict from agent to arrays of N rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import rollhouse
from rollhouse.errors import ActionTypeError

__all__ = ["ParallelVectorEnv", "vectorize"]


def vectorize(
    env_fns: Sequence[Callable[[], Any]],
    *,
    seed: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    **arguments: Any,
) -> ParallelVectorEnv:
    """Hosts PettingZoo parallel envs in worker processes, one lane each.

    Args:
        env_fns: Each makes a ``ParallelEnv``; all have the same possible agents and spaces.
        seed: For the first reset, if ``reset`` is given none.
        autoreset_mode: When a lane whose agents are all gone begins its next episode.
        arguments: Further arguments of ``rollhouse.vectorize``: ``workers``, ``on_loss``, ...
    """
    wrapped = [functools.partial(ParallelEnvAdapter, env_fn) for env_fn in env_fns]
    envs = rollhouse.vectorize(
        wrapped, seed=seed, autoreset_mode=autoreset_mode, info_layout="default", valid="always", **arguments
    )
    return ParallelVectorEnv(envs)


class ParallelEnvAdapter(gymnasium.Env):
    """A parallel env as a Gymnasium env, whose observation holds the observations of all agents in a step.

    It is over when no agent is left: terminated if an agent's own end was the last, truncated if a limit was.
    """

    def __init__(self, env_fn: Callable[[], Any]):
        self.env = env_fn()
        self.agents = list(self.env.possible_agents)
        count = len(self.agents)
        self.metadata = dict(getattr(self.env, "metadata", {}))
        self.render_mode = getattr(self.env, "render_mode", None)
        flags = functools.partial(spaces.MultiBinary, count)
        self.observation_space = spaces.Dict(
            {
                "observations": spaces.Dict(
                    {agent: self.env.observation_space(agent) for agent in self.agents}
                ),
                "rewards": spaces.Box(-np.inf, np.inf, (count,), np.float64),
                "terminations": flags(),
                "truncations": flags(),
                "alive": flags(),
            }
        )
        self.action_space = spaces.Dict({agent: self.env.action_space(agent) for agent in self.agents})
        # What an agent that takes no part observes.
        self._nothing = {agent: _zero(self.env.observation_space(agent)) for agent in self.agents}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._pack(observations, {}, {}, {}), self._infos(infos)

    def step(self, actions: dict[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        taking_part = list(self.env.agents)
        observations, rewards, terminations, truncations, infos = self.env.step(
            {agent: actions[agent] for agent in taking_part}
        )
        over = not self.env.agents
        truncated = over and any(truncations.get(agent, False) for agent in taking_part)
        packed = self._pack(observations, rewards, terminations, truncations)
        total = float(sum(rewards.values()))
        return packed, total, over and not truncated, truncated, self._infos(infos)

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def _pack(self, observations: Any, rewards: Any, terminations: Any, truncations: Any) -> dict[str, Any]:
        def flags(values: Any) -> np.ndarray:
            return np.array([bool(values.get(agent, False)) for agent in self.agents], np.int8)

        alive = set(self.env.agents)
        return {
            "observations": {agent: observations.get(agent, self._nothing[agent]) for agent in self.agents},
            "rewards": np.array([rewards.get(agent, 0.0) for agent in self.agents], np.float64),
            "terminations": flags(terminations),
            "truncations": flags(truncations),
            "alive": np.array([agent in alive for agent in self.agents], np.int8),
        }

    def _infos(self, infos: dict[str, Any]) -> dict[str, Any]:
        return {agent: info for agent, info in infos.items() if info}


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
    rows that are transitions.

    Attributes:
        num_envs: N.
        possible_agents: All agents, in the env's order.
        envs: The ``rollhouse.VectorEnv`` below.
    """

    def __init__(self, envs: Any):
        self.envs = envs
        self.num_envs: int = envs.num_envs
        self.autoreset_mode: AutoresetMode = envs.autoreset_mode
        self.metadata: dict[str, Any] = envs.metadata
        self.possible_agents: list[str] = list(envs.call("agents")[0])
        self._alive = np.zeros((self.num_envs, len(self.possible_agents)), np.bool_)
        self._idle = {agent: _member(self.single_action_space(agent)) for agent in self.possible_agents}

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode in every lane, or in those of ``options["reset_mask"]``; as ``VectorEnv.reset``."""
        packed, infos = self.envs.reset(seed=seed, options=options)
        self._alive = packed["alive"].astype(np.bool_)
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
        columns = {key: np.array(packed[key]) for key in ("rewards", "terminations", "truncations")}
        for lane in np.flatnonzero(infos.get("_final_obs", False) & over).tolist():
            # The row shows the next episode's first observation already; what ended is beside it.
            final = infos["final_obs"][lane]
            for key, column in columns.items():
                column[lane] = final[key]
            infos["final_obs"][lane] = final["observations"]
        void = ~infos["valid"]
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
        return (
            packed["observations"],
            self._by_agent(columns["rewards"]),
            self._by_agent(columns["terminations"].astype(np.bool_)),
            self._by_agent(columns["truncations"].astype(np.bool_)),
            infos,
        )

    def render(self) -> tuple[Any, ...] | None:
        """Returns the rendered frames of all lanes, or None when the envs have no render mode."""
        return self.envs.render()

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
            idle = self._idle[agent]
            if not alive.any():
                filled[agent] = _repeated(self.single_action_space(agent), idle, self.num_envs)
            else:
                filled[agent] = actions[agent] if alive.all() else _choose(alive, actions[agent], idle)
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


def _zero(space: gymnasium.Space) -> Any:
    """Returns a value of the space's form, all zeros."""
    if isinstance(space, spaces.Dict):
        return {key: _zero(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_zero(part) for part in space.spaces)
    if space.shape is None or space.dtype is None:
        return space.sample()
    return np.zeros(space.shape, space.dtype)


def _member(space: gymnasium.Space) -> Any:
    """Returns some value that the space contains, the same each time where it is made of numbers."""
    if isinstance(space, spaces.Dict):
        return {key: _member(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_member(part) for part in space.spaces)
    if isinstance(space, spaces.Box):
        return np.clip(_zero(space), space.low, space.high)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return _zero(space) + space.start
    return _zero(space) if isinstance(space, spaces.MultiBinary) else space.sample()


def _repeated(space: gymnasium.Space, item: Any, count: int) -> Any:
    """Returns a batch of so many copies of a value."""
    batch: Any = gymnasium.vector.utils.create_empty_array(space, count)
    return gymnasium.vector.utils.concatenate(space, [item] * count, batch)


def _choose(rows: np.ndarray, batch: Any, idle: Any) -> Any:
    """Returns the chosen rows of a batch, and ``idle`` in the others."""
    if isinstance(batch, dict):
        return {key: _choose(rows, part, idle[key]) for key, part in batch.items()}
    if isinstance(batch, tuple) and isinstance(idle, tuple):
        return tuple(_choose(rows, part, other) for part, other in zip(batch, idle, strict=True))
    if isinstance(batch, (tuple, list)):
        return type(batch)(one if row else idle for row, one in zip(rows, batch, strict=True))
    batch = np.array(batch)
    batch[~rows] = idle
    return batch
