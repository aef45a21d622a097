"""Several agents a lane: here and on nodes they are the env stepped by hand, and what an env must not do costs its lane."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from local_cluster import LocalCluster, rollhouse_program
from python_nodes import python_nodes, recorded_of
from races import Race

import rollhouse
import rollhouse.pettingzoo
from rollhouse.errors import ActionTypeError, InvalidActionError, RefusedError

LANES = 4
STEPS = 70
AGENTS = ["tortoise", "hare", "snail"]
MODES = pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])


@pytest.fixture(params=["here", "quic", "shm"])
def where(request: pytest.FixtureRequest) -> Any:
    """The arguments of `make_vec` that say where lanes are."""
    if request.param == "here":
        return {"workers": 2}
    nodes = request.getfixturevalue("nodes")
    return {"cluster": rollhouse.connect(nodes.url, transport=request.param, timeout=120), "spread": "even"}


class ByHand:
    """One lane, as `ParallelVectorEnv` promises it."""

    def __init__(self, env: Any, mode: str):
        self.env, self.mode, self.pending = env, mode, False
        self.returns = dict.fromkeys(env.possible_agents, 0.0)

    def reset(self, seed: int | None = None) -> Any:
        self.pending = False
        return self.env.reset(seed=seed)[0]

    def step(self, actions: dict[str, Any]) -> dict[str, Any]:
        if self.pending:
            row = {"obs": self.reset(), "rewards": {}, "ends": {}, "cuts": {}, "valid": False, "over": False}
            return {**row, "alive": list(self.env.agents)}
        observations, rewards, ends, cuts, _ = self.env.step({agent: actions[agent] for agent in self.env.agents})
        row = {"obs": observations, "rewards": rewards, "ends": ends, "cuts": cuts, "valid": True}
        row["over"] = not self.env.agents
        for agent, reward in rewards.items():
            self.returns[agent] += reward
        if row["over"]:
            row["returns"] = {**self.returns}
            self.returns = dict.fromkeys(self.returns, 0.0)
            self.pending = self.mode == "NextStep"
            if self.mode == "SameStep":
                row["final"], row["obs"] = observations, self.reset()
        return {**row, "alive": list(self.env.agents)}


def row_of(batch: Any, lane: int) -> Any:
    """One row of a batch, through dicts."""
    return {key: row_of(part, lane) for key, part in batch.items()} if isinstance(batch, dict) else batch[lane]


def same(space: spaces.Space, ours: Any, theirs: Any) -> None:
    """Asserts that a value is another, to the dtype, or all zeros where there is none."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            same(part, ours[key], None if theirs is None else theirs[key])
    elif theirs is None:
        assert not np.asarray(ours).any()
    else:
        assert np.asarray(ours).dtype == space.dtype
        np.testing.assert_array_equal(ours, theirs)


def check(envs: Any, hands: list[ByHand], mode: str, steps: int) -> dict[str, int]:
    """Plays lanes and envs side by side with the same actions; counts what happened."""
    agents = envs.possible_agents
    lanes = range(len(hands))
    observations, infos = envs.reset(seed=42)
    for lane, hand in enumerate(hands):
        expected = hand.reset(seed=42 + lane)
        for agent in agents:
            same(envs.single_observation_space(agent), row_of(observations[agent], lane), expected.get(agent))
    for place, agent in enumerate(agents):
        envs.action_space(agent).seed(place)
    counts = {"over": 0, "gone": 0, "final": 0, "cut": 0}
    for _ in range(steps):
        actions = {agent: envs.action_space(agent).sample() for agent in agents}
        observations, rewards, ends, cuts, infos = envs.step(actions)
        for lane, hand in zip(lanes, hands, strict=True):
            row = hand.step({agent: row_of(actions[agent], lane) for agent in agents})
            assert (infos["valid"][lane], infos["over"][lane]) == (row["valid"], row["over"])
            counts["over"] += row["over"]
            for agent in agents:
                same(envs.single_observation_space(agent), row_of(observations[agent], lane), row["obs"].get(agent))
                assert rewards[agent][lane] == row["rewards"].get(agent, 0.0)
                assert ends[agent][lane] == row["ends"].get(agent, False)
                assert cuts[agent][lane] == row["cuts"].get(agent, False)
                assert infos["alive"][agent][lane] == (agent in row["alive"])
                counts["gone"] += agent not in row["alive"]
                counts["cut"] += cuts[agent][lane]
                if row["over"]:
                    assert infos["agent_returns"][agent][lane] == row["returns"][agent]
                if "final" in row:
                    seen = infos["final_obs"][lane][agent]
                    same(envs.single_observation_space(agent), seen, row["final"].get(agent))
                    counts["final"] += 1
        if mode == "Disabled" and infos["over"].any():
            over = infos["over"].copy()
            observations, began = envs.reset(options={"reset_mask": over})
            for lane in np.flatnonzero(over):
                expected = hands[lane].reset()
                for agent in agents:
                    same(envs.single_observation_space(agent), row_of(observations[agent], lane), expected.get(agent))
                    assert began["alive"][agent][lane]
    envs.close()
    return counts


@MODES
def test_lanes_of_several_agents_are_the_env_stepped_by_hand_wherever_they_are(where: Any, mode: str) -> None:
    envs = rollhouse.pettingzoo.make_vec("races:parallel_env", LANES, env_kwargs={"limit": 8}, autoreset_mode=mode, **where)
    assert envs.possible_agents == AGENTS
    for agent in AGENTS:
        assert envs.single_action_space(agent) == Race().action_space(agent)
        assert envs.single_observation_space(agent) == Race().observation_space(agent)
    counts = check(envs, [ByHand(Race(limit=8), mode) for _ in range(LANES)], mode, STEPS)
    assert counts["over"] > LANES and counts["gone"] > 20 and counts["cut"] > 3
    assert (counts["final"] > 0) == (mode == "SameStep")


@pytest.mark.adapters("pettingzoo")
@pytest.mark.parametrize("name", ["tictactoe_v3", "rps_v2"])
def test_envs_of_pettingzoos_whose_agents_take_turns_or_not_are_what_pettingzoo_steps(where: Any, name: str) -> None:
    """The parallel forms of two AEC envs."""
    from pettingzoo.utils.conversions import aec_to_parallel, turn_based_aec_to_parallel

    module = pytest.importorskip(f"pettingzoo.classic.{name}")
    convert = aec_to_parallel if name == "rps_v2" else turn_based_aec_to_parallel
    hands = [ByHand(convert(module.env()), "NextStep") for _ in range(2)]
    envs = rollhouse.pettingzoo.make_vec(f"pettingzoo.classic.{name}:env", 2, **where)
    assert check(envs, hands, "NextStep", 60)["over"] > 0


def test_a_limit_of_the_engines_truncates_the_agents_that_are_left(nodes: LocalCluster) -> None:
    cluster = rollhouse.connect(nodes.url, timeout=120)
    envs = rollhouse.pettingzoo.make_vec(
        "races:parallel_env", 2, cluster=cluster, max_episode_steps=3, env_kwargs={"limit": 50}, autoreset_mode="Disabled"
    )
    for seed in range(3):
        assert all(rows.all() for rows in envs.reset(seed=seed)[1]["alive"].values())
        for step in range(3):
            actions = {agent: envs.action_space(agent).sample() for agent in AGENTS}
            _, _, ends, cuts, infos = envs.step(actions)
            for agent in AGENTS:
                assert (cuts[agent] == (~ends[agent] if step == 2 else np.zeros(2, bool))).all()
                assert step < 2 or not infos["alive"][agent].any()
        assert infos["over"].all()
    envs.close()


def test_the_lanes_below_are_gymnasiums_with_all_agents_in_their_spaces(nodes: LocalCluster) -> None:
    cluster = rollhouse.connect(nodes.url, timeout=120)
    lanes = cluster.make_vec("races:Race", 2)
    assert isinstance(lanes, gymnasium.vector.VectorEnv)
    assert list(lanes.single_action_space) == AGENTS == list(lanes.single_observation_space["observations"])
    observations, _ = lanes.reset(seed=3)
    assert lanes.observation_space.contains(observations)
    observations, rewards, *_ = lanes.step(lanes.action_space.sample())
    np.testing.assert_allclose(rewards, observations["rewards"].sum(axis=1))
    assert rollhouse.pettingzoo.ParallelVectorEnv(lanes).possible_agents == AGENTS
    lanes.close()
    plain = rollhouse.make_vec("CartPole-v1", 2)
    with pytest.raises(ValueError, match="has no agents"):
        rollhouse.pettingzoo.ParallelVectorEnv(plain)
    plain.close()


def test_what_agents_did_is_read_back_from_its_recording(where: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    cluster = where.get("cluster")
    recorded = {} if cluster else {"record": True, "data": tmp_path}
    envs = rollhouse.pettingzoo.make_vec("races:parallel_env", 2, autoreset_mode="Disabled", **where, **recorded)
    observations, infos = envs.reset(seed=5)
    seen, done, paid, alive = [observations], [], [], []
    while not infos.get("over", np.zeros(2, bool))[1]:
        if infos.get("over", np.zeros(2, bool))[0]:
            envs.reset(options={"reset_mask": np.array([True, False])})
        done.append({agent: envs.action_space(agent).sample() for agent in AGENTS})
        observations, rewards, _, _, infos = envs.step(done[-1])
        seen.append(observations)
        paid.append(rewards)
        alive.append(infos["alive"])
    returns = {agent: infos["agent_returns"][agent][1] for agent in AGENTS}
    envs.close()
    if cluster:
        episode = recorded_of(cluster, envs.envs.run, lane=1)[0]
    else:
        replays = rollhouse.replays.open(tmp_path)
        episode = next(replays.read(info) for info in replays if info.lane == 1)
    assert episode.info.env == "races:parallel_env"
    assert len(episode) == len(paid) and episode.info.finished
    for agent in AGENTS:
        acts = np.array([True, *(rows[agent][1] for rows in alive[:-1])])
        np.testing.assert_array_equal(
            episode.actions[agent][acts], np.array([one[agent][1] for one in done])[acts]
        )
        assert episode.actions[agent].dtype == envs.single_action_space(agent).dtype
        place = AGENTS.index(agent)
        np.testing.assert_array_equal(
            episode.observations["rewards"][1:, place], [rows[agent][1] for rows in paid]
        )
        np.testing.assert_array_equal(episode.observations["alive"][1:, place], [rows[agent][1] for rows in alive])
    np.testing.assert_array_equal(
        episode.observations["observations/tortoise"], [one["tortoise"][1] for one in seen]
    )
    assert rollhouse.pettingzoo.agent_returns(episode) == pytest.approx(returns, rel=1e-12)
    check_listed(episode, cluster or tmp_path)
    check_printed(episode, ["--data", str(tmp_path)] if not cluster else ["--connect", request.getfixturevalue("nodes").url])
    assert episode.return_ == pytest.approx(sum(returns.values()))


def check_listed(episode: Any, place: Any) -> None:
    """Asserts that each agent's return is listed, without the steps, as these have it, and that it is filtered by."""
    returns = rollhouse.pettingzoo.agent_returns(episode)
    recorded = rollhouse.replays.open(place)
    assert episode.info.agent_returns == returns and list(returns) == AGENTS
    for least, listed in ((returns["hare"], True), (returns["hare"] + 1e-6, False)):
        for found in (recorded.list(min_agent_returns={"hare": least}), recorded.filter(min_agent_returns={"hare": least})):
            assert (episode.id in [info.id for info in found]) == listed
    assert not recorded.list(min_agent_returns={"wolf": -1e9})


def printed(*line: str) -> str:
    return subprocess.run([str(rollhouse_program()), "replay", *line], check=True, capture_output=True, text=True).stdout


def check_printed(episode: Any, place: list[str]) -> None:
    """Asserts the same of what commands print."""
    returns = rollhouse.pettingzoo.agent_returns(episode)
    assert json.loads(printed("show", episode.id, "--json", *place))["agent_returns"] == returns
    assert all(agent in printed("show", episode.id, *place) for agent in AGENTS)
    for least, listed in ((returns["snail"], True), (returns["snail"] + 1e-6, False)):
        found = [json.loads(line) for line in printed("ls", "--json", f"--min-agent-return=snail={least!r}", *place).splitlines()]
        assert ({"id": episode.id, "agent_returns": returns} in [{key: one[key] for key in ("id", "agent_returns")} for one in found]) == listed


def test_the_returns_of_agents_are_those_of_whole_episodes_after_they_went_on_on_another_node(two_nodes_of_races: LocalCluster) -> None:
    with rollhouse.connect(two_nodes_of_races.url, timeout=120) as cluster:
        envs = rollhouse.pettingzoo.make_vec(
            "races:Rerun", 2, cluster=cluster, env_kwargs={"limit": 12}, deterministic=True, spread="single", autoreset_mode="Disabled"
        )
        envs.reset(seed=4)
        first, known = envs.envs.placements[0].node, {}
        for step in range(200):
            if step == 5:
                # It says so, and ends when its lanes have gone on elsewhere; what it has recorded reaches the store.
                os.kill(two_nodes_of_races.process_id(first), signal.SIGTERM)
            infos = envs.step({agent: envs.action_space(agent).sample() for agent in AGENTS})[4]
            assert not infos.get("lost", np.array([])).any()
            for lane in np.flatnonzero(infos["over"]).tolist():
                known.setdefault(lane, {agent: infos["agent_returns"][agent][lane] for agent in AGENTS})
            if len(known) == 2 and envs.envs.placements[0].node != first:
                break
            if infos["over"].any():
                envs.reset(options={"reset_mask": infos["over"].copy()})
        assert envs.envs.placements[0].node != first
        envs.close()
        for lane, returns in known.items():
            episode = next(one for one in recorded_of(cluster, envs.envs.run, lane) if one.info.number == 0)
            assert episode.info.agent_returns == rollhouse.pettingzoo.agent_returns(episode) == pytest.approx(returns, rel=1e-12)


@pytest.fixture
def two_nodes_of_races(tmp_path: Path) -> Iterator[LocalCluster]:
    with closing(python_nodes(tmp_path, "races")) as nodes:
        yield nodes


def test_a_nodes_own_policy_gives_each_agent_an_action_of_its_space(nodes: LocalCluster, tmp_path: Path) -> None:
    line = [str(rollhouse_program()), "rollout", "--connect", nodes.url, "--env", "races:parallel_env"]
    line += ["--lanes", "3", "--episodes", "9", "--seed", "3", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # The env breaks off at an action that is none of its agent's.
    assert told["episodes"] == 9 and "crashed" not in done.stdout, done.stdout


FAULTS = {
    "stranger seen": "an observation for agent 'wolf'",
    "stranger alive": "a turn for agent 'wolf'",
    "unseen": "no observation for agent 'hare'",
    "unrewarded": "no reward for agent 'hare'",
    "unended": "no termination for agent 'hare'",
    "nan": "a reward of nan for agent 'hare'",
    "shape": r"shape \(4,\)",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_an_env_of_agents_must_not_do_costs_its_own_lane(where: Any, fault: str) -> None:
    kwargs = {"fault": fault, "of": 8, "limit": 50}
    envs = rollhouse.pettingzoo.make_vec(
        "races:parallel_env", 3, env_kwargs=kwargs, autoreset_mode="Disabled", on_loss="report", **where
    )
    envs.reset(seed=7)
    for step in range(2):
        actions = {agent: envs.action_space(agent).sample() for agent in AGENTS}
        _, rewards, _, cuts, infos = envs.step(actions)
        assert list(infos["valid"]) == [True, step == 0, True]
    assert infos["lost"][1] == "crashed" and list(infos["over"]) == [False, True, False]
    for agent in AGENTS:
        assert rewards[agent][1] == 0 and cuts[agent][1] and not infos["alive"][agent][1]
        assert list(infos["alive"][agent][[0, 2]]) == [True, True]
    envs.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_who_is_told_of_a_loss_hears_what_the_env_did(fault: str) -> None:
    kwargs = {"fault": fault, "of": 7, "limit": 50}
    envs = rollhouse.pettingzoo.make_vec("races:parallel_env", 1, env_kwargs=kwargs, workers=1)
    envs.reset(seed=7)
    actions = {agent: envs.action_space(agent).sample() for agent in AGENTS}
    envs.step(actions)
    with pytest.raises(ValueError, match=FAULTS[fault]):
        envs.step(actions)
    envs.close()


@pytest.mark.parametrize(
    ("id", "kwargs", "words"),
    [
        ("races:Race", {"agents": []}, "possible_agents=.* must be at least one name"),
        ("races:Race", {"agents": ["hare", "hare"]}, "none twice"),
        ("races:Race", {"fault": "graph"}, "a space is not supported.*observation/observations/tortoise: Graph"),
        ("races:Race", {"breath": 1}, "the arguments are refused"),
        ("rivals:Race", {}, "rivals"),
    ],
)
def test_what_cannot_be_hosted_is_refused_with_its_reason(
    nodes: LocalCluster, id: str, kwargs: dict[str, Any], words: str
) -> None:
    cluster = rollhouse.connect(nodes.url, timeout=120)
    with pytest.raises(RefusedError, match=words):
        rollhouse.pettingzoo.make_vec(id, 2, cluster=cluster, env_kwargs=kwargs)


def test_wrong_actions_are_refused_by_agent_and_nothing_moves(where: Any) -> None:
    envs = rollhouse.pettingzoo.make_vec("races:parallel_env", 2, **where)
    envs.reset(seed=1)
    right = {agent: envs.action_space(agent).sample() for agent in AGENTS}
    for wrong, words in [
        ({**right, "wolf": np.zeros(2)}, "wolf"),
        ({"hare": right["hare"], "snail": right["snail"]}, "tortoise"),
        (np.zeros(2), "ndarray"),
    ]:
        with pytest.raises(ActionTypeError, match=words):
            envs.step(wrong)
    with pytest.raises(InvalidActionError):
        envs.step({**right, "hare": np.array([5, 8])})
    observations, *_ = envs.step(right)
    assert observations["hare"]["at"][0, 1] == 1, "nothing has moved before"
    envs.close()
