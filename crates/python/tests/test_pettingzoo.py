"""PettingZoo's parallel envs in lanes are the envs stepped by hand."""

from __future__ import annotations

import functools
import os
import signal

import numpy as np
import pytest
from gymnasium import spaces

import rollhouse
from rollhouse.errors import ActionTypeError

pettingzoo = pytest.importorskip("pettingzoo")
pytestmark = pytest.mark.adapters("pettingzoo")

from pettingzoo.test import parallel_api_test  # noqa: E402

import rollhouse.pettingzoo  # noqa: E402

AGENTS = ["hare", "tortoise", "snail"]


class Race(pettingzoo.ParallelEnv):
    """Agents walk until they are tired (terminated, each after its own number of steps) or time is up."""

    metadata = {"name": "race", "render_modes": []}

    def __init__(self, limit: int = 9):
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.limit = limit
        self.render_mode = None
        self._observations = {
            agent: spaces.Dict(
                {
                    "at": spaces.Box(-1e3, 1e3, (2,), np.float32),
                    "action_mask": spaces.MultiBinary(3),
                }
            )
            for agent in AGENTS
        }
        self._actions = {agent: spaces.Discrete(3, start=5) for agent in AGENTS}

    def observation_space(self, agent: str) -> spaces.Space:
        return self._observations[agent]

    def action_space(self, agent: str) -> spaces.Space:
        return self._actions[agent]

    def _observe(self) -> dict:
        return {
            agent: {
                "at": np.array([self.at[agent], self.steps], np.float32),
                "action_mask": np.array([1, self.steps % 2, 1], np.int8),
            }
            for agent in self.agents
        }

    def reset(self, seed=None, options=None):
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.agents = list(AGENTS)
        self.at = {agent: float(self.random.integers(100)) for agent in AGENTS}
        self.breath = {agent: int(self.random.integers(3, 15)) for agent in AGENTS}
        self.steps = 0
        return self._observe(), {agent: {"breath": self.breath[agent]} for agent in self.agents}

    def step(self, actions):
        assert actions.keys() == set(self.agents), "an agent that takes no part has no action"
        self.steps += 1
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), action
            self.at[agent] += float(action)
        rewards = {agent: float(action) + self.steps / 10 for agent, action in actions.items()}
        terminations = {agent: self.steps >= self.breath[agent] for agent in self.agents}
        truncations = {agent: self.steps >= self.limit and not terminations[agent] for agent in self.agents}
        observations = self._observe()
        infos = {agent: {"left": self.limit - self.steps} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not (terminations[agent] or truncations[agent])]
        return observations, rewards, terminations, truncations, infos


class ByHand:
    """One lane as the adapter promises it."""

    def __init__(self, env, mode: str):
        self.env, self.mode = env, mode
        self.pending = False

    def reset(self, seed=None) -> dict:
        self.pending = False
        return self.env.reset(seed=seed)[0]

    def step(self, actions: dict) -> dict:
        if self.pending:
            observations, _ = self.env.reset()
            self.pending = False
            return {
                "obs": observations,
                "rewards": {},
                "terms": {},
                "truncs": {},
                "valid": False,
                "over": False,
            }
        played = {agent: actions[agent] for agent in self.env.agents}
        observations, rewards, terminations, truncations, _ = self.env.step(played)
        row = {
            "obs": observations,
            "rewards": rewards,
            "terms": terminations,
            "truncs": truncations,
            "valid": True,
        }
        row["over"] = not self.env.agents
        if row["over"] and self.mode == "NextStep":
            self.pending = True
        elif row["over"] and self.mode == "SameStep":
            row["final_obs"], row["obs"] = observations, self.env.reset()[0]
        return row


def same(space, batch, lane: int, expected) -> None:
    """Row ``lane`` of a batch is ``expected``, or all zero if there is nothing to expect."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            same(part, batch[key], lane, None if expected is None else expected[key])
    elif expected is None:
        assert not np.asarray(batch[lane]).any()
    else:
        np.testing.assert_array_equal(batch[lane], expected)


def check_against_hand(fn, mode: str, lanes: int, steps: int) -> dict[str, int]:
    """Plays side by side; counts what happened."""
    envs = rollhouse.pettingzoo.vectorize([fn] * lanes, autoreset_mode=mode, workers=2)
    hands = [ByHand(fn(), mode) for _ in range(lanes)]
    observations, infos = envs.reset(seed=42)
    expected = [hand.reset(seed=42 + lane) for lane, hand in enumerate(hands)]
    for agent in envs.possible_agents:
        for lane in range(lanes):
            same(envs.single_observation_space(agent), observations[agent], lane, expected[lane].get(agent))
    counts = {"over": 0, "dead": 0, "final": 0}
    rng = np.random.default_rng(0)
    for agent in envs.possible_agents:
        envs.action_space(agent).seed(int(rng.integers(1 << 30)))
    for _ in range(steps):
        actions = {agent: envs.action_space(agent).sample() for agent in envs.possible_agents}
        # What agents that take no part "do" is nothing the env may ever see.
        given = {
            agent: np.where(
                infos["alive"][agent].reshape((-1,) + (1,) * (batch.ndim - 1)),
                batch,
                np.asarray(99, batch.dtype),
            )
            for agent, batch in actions.items()
        }
        observations, rewards, terminations, truncations, infos = envs.step(given)
        for lane, hand in enumerate(hands):
            row = hand.step({agent: batch[lane] for agent, batch in actions.items()})
            assert infos["valid"][lane] == row["valid"] and infos["over"][lane] == row["over"]
            counts["over"] += row["over"]
            for agent in envs.possible_agents:
                same(envs.single_observation_space(agent), observations[agent], lane, row["obs"].get(agent))
                assert rewards[agent][lane] == row["rewards"].get(agent, 0.0)
                assert terminations[agent][lane] == row["terms"].get(agent, False)
                assert truncations[agent][lane] == row["truncs"].get(agent, False)
                assert infos["alive"][agent][lane] == (agent in hand.env.agents)
                counts["dead"] += agent not in hand.env.agents
            if "final_obs" in row:
                counts["final"] += 1
                for agent, final in infos["final_obs"][lane].items():
                    wanted = row["final_obs"].get(agent)
                    for key in final if isinstance(final, dict) and wanted is not None else ():
                        np.testing.assert_array_equal(final[key], wanted[key])
        if mode == "Disabled" and infos["over"].any():
            mask = infos["over"].copy()
            observations, reset_infos = envs.reset(options={"reset_mask": mask})
            infos = {**infos, "alive": reset_infos["alive"]}
            for lane in np.flatnonzero(mask):
                expected_row = hands[lane].reset()
                for agent in envs.possible_agents:
                    same(
                        envs.single_observation_space(agent), observations[agent], lane, expected_row.get(agent)
                    )
                    assert infos["alive"][agent][lane]
    envs.close()
    return counts


def test_the_env_of_these_tests_is_a_parallel_env() -> None:
    parallel_api_test(Race(), num_cycles=200)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_lanes_are_the_envs_stepped_by_hand(mode: str) -> None:
    counts = check_against_hand(Race, mode, lanes=5, steps=120)
    assert counts["over"] > 20 and counts["dead"] > 50
    assert (counts["final"] > 0) == (mode == "SameStep")


def test_knights_and_archers_run_in_lanes() -> None:
    """A real env of PettingZoo's, whose agents die one by one."""
    pytest.importorskip("pygame")
    from pettingzoo.butterfly import knights_archers_zombies_v11 as zombies

    counts = check_against_hand(functools.partial(zombies.parallel_env, max_cycles=120), "NextStep", 2, 250)
    assert counts["over"] >= 2


def test_spaces_are_per_agent_and_always_the_same_objects() -> None:
    envs = rollhouse.pettingzoo.vectorize([Race] * 3, workers=1)
    assert envs.possible_agents == AGENTS
    for agent in AGENTS:
        assert envs.observation_space(agent) is envs.observation_space(agent)
        assert envs.action_space(agent) is envs.action_space(agent)
        assert envs.single_action_space(agent) == Race().action_space(agent)
        assert envs.single_observation_space(agent) == Race().observation_space(agent)
        assert envs.action_space(agent).shape == (3,)
    observations, infos = envs.reset(seed=1)
    for agent in AGENTS:
        assert envs.observation_space(agent).contains(observations[agent])
        np.testing.assert_array_equal(infos[agent]["_breath"], [True] * 3)
    envs.close()


def test_wrong_actions_are_refused_by_agent() -> None:
    envs = rollhouse.pettingzoo.vectorize([Race] * 2, workers=1)
    envs.reset(seed=1)
    right = {agent: np.full(2, 5) for agent in AGENTS}
    with pytest.raises(ActionTypeError, match="wolf"):
        envs.step({**right, "wolf": np.zeros(2, int)})
    with pytest.raises(ActionTypeError, match="snail"):
        envs.step({agent: batch for agent, batch in right.items() if agent != "snail"})
    with pytest.raises(ActionTypeError, match="ndarray"):
        envs.step(np.zeros(2))
    with pytest.raises(ValueError):
        envs.step({**right, "hare": np.array([5, 8])})
    observations, *_ = envs.step(right)
    assert observations["hare"]["at"][0, 1] == 1, "nothing has moved before"
    envs.close()


class Mortal(Race):
    """Its process dies in the third step of the episode begun with an odd seed, in lane 0 only."""

    def __init__(self, dies: bool):
        super().__init__(limit=50)
        self.dies = dies

    def step(self, actions):
        if self.dies and self.steps == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(actions)


def test_a_lost_lane_rewards_nobody_and_is_marked() -> None:
    fns = [functools.partial(Mortal, True), functools.partial(Mortal, False)]
    envs = rollhouse.pettingzoo.vectorize(fns, workers=2, on_loss="report")
    envs.reset(seed=1)
    actions = {agent: np.full(2, 5) for agent in AGENTS}
    for _ in range(2):
        _, rewards, *_ = envs.step(actions)
        assert all((rewards[agent] > 0).all() for agent in AGENTS)
    _, rewards, terminations, truncations, infos = envs.step(actions)
    np.testing.assert_array_equal(infos["valid"], [False, True])
    np.testing.assert_array_equal(infos["over"], [True, False])
    assert infos["lost"][0] == "crashed"
    for agent in AGENTS:
        assert rewards[agent][0] == 0 and rewards[agent][1] > 0
        assert not terminations[agent][0] and truncations[agent][0]
        assert not infos["alive"][agent][0]
    envs.close()
