"""Envs of several agents."""

import numpy as np
from gymnasium import spaces

AGENTS = ["tortoise", "hare", "snail"]


class Race:
    """A parallel env in PettingZoo's words. Agents have other spaces each, and walk until they are tired (terminated) or time
    is up. `fault` says what it does wrong in the second step of the lane whose env was reset with the seed `of`.
    """

    metadata = {"name": "race"}
    render_mode = None

    def __init__(self, limit=9, fault=None, of=0, agents=None):
        self.possible_agents = list(AGENTS if agents is None else agents)
        self.agents, self.limit, self.fault, self.of = [], limit, fault, of
        masked = spaces.Dict({"at": spaces.Box(-1e3, 1e3, (2,), np.float32), "action_mask": spaces.MultiBinary(3)})
        seen = {"tortoise": spaces.Box(-1e3, 1e3, (3,), np.float64), "hare": masked, "snail": spaces.Discrete(1000)}
        graph = spaces.Graph(spaces.Discrete(2), None)
        acts = {"tortoise": spaces.Box(-1, 1, (2,), np.float32), "hare": spaces.Discrete(3, start=5)}
        self.seen = {agent: graph if fault == "graph" else seen[agent] for agent in self.possible_agents}
        self.acts = {**acts, "snail": spaces.MultiDiscrete([2, 3])}

    @property
    def unwrapped(self):
        return self

    def observation_space(self, agent):
        return self.seen[agent]

    def action_space(self, agent):
        return self.acts[agent]

    def _observe(self):
        at, steps = self.at, self.steps
        all_seen = {
            "tortoise": np.array([at["tortoise"], steps, self.random.random()]),
            "hare": {"at": np.array([at["hare"], steps], np.float32), "action_mask": np.array([1, steps % 2, 1], np.int8)},
            "snail": int(at["snail"]),
        }
        return {agent: all_seen[agent] for agent in self.agents}

    def reset(self, seed=None, options=None):
        if seed is not None or not hasattr(self, "random"):
            self.random, self.seed = np.random.default_rng(seed), seed
        self.agents = list(self.possible_agents)
        self.at = {agent: float(self.random.integers(100)) for agent in AGENTS}
        self.breath = {agent: int(self.random.integers(3, 15)) for agent in AGENTS}
        self.steps = 0
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert actions.keys() == set(self.agents), "an agent that takes no part has no action"
        for agent, action in actions.items():
            assert self.acts[agent].contains(action), (agent, action)
            self.at[agent] += float(np.sum(action))
        self.steps += 1
        rewards = {agent: float(np.sum(action)) + self.steps / 10 for agent, action in actions.items()}
        ends = {agent: self.steps >= self.breath[agent] for agent in self.agents}
        cuts = {agent: self.steps >= self.limit and not ends[agent] for agent in self.agents}
        observations = self._observe()
        self.agents = [agent for agent in self.agents if not (ends[agent] or cuts[agent])]
        if self.fault is not None and self.seed == self.of and self.steps == 2:
            self._err(observations, rewards, ends)
        return observations, rewards, ends, cuts, {}

    def close(self):
        pass

    def _err(self, observations, rewards, ends):
        if self.fault == "stranger seen":
            observations["wolf"] = 1
        elif self.fault == "stranger alive":
            self.agents.append("wolf")
        elif self.fault == "unseen":
            del observations["hare"]
        elif self.fault == "unrewarded":
            del rewards["hare"]
        elif self.fault == "unended":
            del ends["hare"]
        elif self.fault == "nan":
            rewards["hare"] = float("nan")
        elif self.fault == "shape":
            observations["tortoise"] = np.zeros(4)


class Rerun(Race):
    """One whose seed and actions decide everything."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.random = np.random.default_rng()

    @property
    def np_random(self):
        return self.random


def parallel_env(**kwargs):
    return Race(**kwargs)
