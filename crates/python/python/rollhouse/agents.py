"""Envs of several agents, PettingZoo's, as envs of Gymnasium: one lane is one env with all of its agents.

Nothing of PettingZoo is imported for parallel envs; what they have to give is checked at every reset and step, because
they are somebody else's.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

OBSERVED = ("observations", "rewards", "terminations", "truncations", "alive")
"""The parts of what a lane of several agents observes."""


def adapted(env: Any) -> Any:
    """Returns an env as Gymnasium has them: an adapter of a PettingZoo env, and anything else itself. AEC envs are taken in
    their parallel form.
    """
    if isinstance(env, gymnasium.Env) or not hasattr(env, "possible_agents"):
        return env
    if callable(getattr(env, "agent_iter", None)):
        from pettingzoo.utils.conversions import aec_to_parallel, turn_based_aec_to_parallel

        # Of those in which agents take turns all observe each turn, and the action of one counts.
        parallel = bool((env.metadata or {}).get("is_parallelizable", False))
        env = aec_to_parallel(env) if parallel else turn_based_aec_to_parallel(env)
    return ParallelEnvAdapter(env)


def name_of(env: Any) -> str:
    """Returns the name of an env that is not registered, for recordings: what PettingZoo's say, else its class as
    ``package.module:Class``.
    """
    if not isinstance(env, ParallelEnvAdapter):
        return f"{type(env).__module__}:{type(env).__qualname__}"
    return str(env.metadata.get("name") or type(env.env.unwrapped).__name__)


class ParallelEnvAdapter(gymnasium.Env):
    """A parallel env as a Gymnasium env, whose observation holds the observations of all agents in a step, their rewards
    (float64), terminations and truncations, and which of them are alive: act in the next step. Those of agents that take
    no part are zeros.

    The reward is the sum of the agents'. The episode is over when no agent is left: terminated if an agent's own end was
    the last, truncated if a limit was.
    """

    def __init__(self, env: Any):
        self.env = env
        self.agents = list(env.possible_agents)
        if not self.agents or len(set(self.agents)) != len(self.agents):
            raise ValueError(f"possible_agents={self.agents!r} must be at least one name, and none twice")
        wrong = [agent for agent in self.agents if not isinstance(agent, str)]
        if wrong:
            raise ValueError(f"possible_agents: {wrong[0]!r} is no text")
        count = len(self.agents)
        self._known = frozenset(self.agents)
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)
        flags = functools.partial(spaces.MultiBinary, count)
        # Pairs keep their order; a dict would be sorted.
        observed = [(agent, env.observation_space(agent)) for agent in self.agents]
        self.observation_space = spaces.Dict(
            [
                ("observations", spaces.Dict(observed)),
                ("rewards", spaces.Box(-np.inf, np.inf, (count,), np.float64)),
                ("terminations", flags()),
                ("truncations", flags()),
                ("alive", flags()),
            ]
        )
        self.action_space = spaces.Dict([(agent, env.action_space(agent)) for agent in self.agents])
        # What an agent that takes no part observes.
        self._nothing = {agent: zero(space) for agent, space in observed}

    @property  # type: ignore[misc]
    def np_random(self) -> Any:  # type: ignore[override]
        """The generator of the env itself."""
        return self.env.unwrapped.np_random

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
        for what, given in (("reward", rewards), ("termination", terminations), ("truncation", truncations)):
            missing = [agent for agent in taking_part if agent not in given]
            if missing:
                raise ValueError(f"no {what} for agent {missing[0]!r}, which has acted")
        over = not self.env.agents
        truncated = over and any(truncations[agent] for agent in taking_part)
        packed = self._pack(observations, rewards, terminations, truncations)
        return packed, float(sum(packed["rewards"].tolist())), over and not truncated, truncated, self._infos(infos)

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
        said = (("an observation", observations), ("a reward", rewards), ("a termination", terminations))
        for what, given in (*said, ("a truncation", truncations), ("a turn", alive)):
            unknown = given - self._known if isinstance(given, set) else given.keys() - self._known
            if unknown:
                names = ", ".join(sorted(map(repr, unknown)))
                raise ValueError(f"{what} for agent {names}, of which possible_agents has nothing")
        blind = [agent for agent in self.agents if agent in alive and agent not in observations]
        if blind:
            raise ValueError(f"no observation for agent {blind[0]!r}, which is to act")
        for agent, reward in rewards.items():
            if not math.isfinite(reward):
                raise ValueError(f"a reward of {reward} for agent {agent!r}")
        return {
            "observations": {agent: observations.get(agent, self._nothing[agent]) for agent in self.agents},
            "rewards": np.array([rewards.get(agent, 0.0) for agent in self.agents], np.float64),
            "terminations": flags(terminations),
            "truncations": flags(truncations),
            "alive": np.array([agent in alive for agent in self.agents], np.int8),
        }

    def _infos(self, infos: dict[str, Any]) -> dict[str, Any]:
        return {agent: info for agent, info in infos.items() if info}


def zero(space: gymnasium.Space) -> Any:
    """Returns a value of the space's form, all zeros."""
    if isinstance(space, spaces.Dict):
        return {key: zero(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(zero(part) for part in space.spaces)
    if isinstance(space, spaces.Text):
        return ""
    if isinstance(space, spaces.Sequence):
        return gymnasium.vector.utils.create_empty_array(space.feature_space, 0) if space.stack else ()
    if space.shape is None or space.dtype is None:
        return space.sample()
    return np.zeros(space.shape, space.dtype)
