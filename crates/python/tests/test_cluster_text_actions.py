"""Python envs on nodes whose actions have texts and sequences: the same as in Gymnasium, recorded as columns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate
from local_cluster import LocalCluster, rollhouse_program
from orders import envs as orders
from python_nodes import play, python_nodes, recorded_of, same, search_path

import rollhouse
import rollhouse.pettingzoo
from rollhouse.action_parts import ActionParts
from rollhouse.errors import ActionTypeError, InvalidActionError, NothingOutstandingError, RefusedError
from rollhouse.native_env import action_converter

LANES = 5


PLAN: dict[str, Any] = {
    "bits": (np.array([1, 0, 1], np.int8),),
    "far": np.array([-300, 300], np.int16),
    "go": 1,
    "log": ((np.ones((2, 2), np.float32),), np.array([3, 7])),
    "says": "ab",
    "steps": (np.array([2, 3]),),
    "where": np.zeros(3),
}
"""An action of Plan."""


def both(cluster: rollhouse.Cluster, name: str, mode: AutoresetMode, **more: Any) -> tuple[Any, SyncVectorEnv]:
    """Makes lanes of an env there and here."""
    there = cluster.make_vec(f"orders.envs:{name}", LANES, autoreset_mode=mode, spread="even", **more)
    here = SyncVectorEnv([getattr(orders, name)] * LANES, autoreset_mode=mode)
    assert there.single_action_space == here.single_action_space
    assert there.action_space == here.action_space
    # The same but for its samples, of which none is longer than the env takes.
    here.action_space = there.action_space
    return there, here


@pytest.mark.parametrize(
    ("name", "mode", "copy"),
    [
        ("Plan", AutoresetMode.NEXT_STEP, True),
        ("Plan", AutoresetMode.SAME_STEP, False),
        ("Plan", AutoresetMode.DISABLED, True),
        ("Say", AutoresetMode.SAME_STEP, True),
        ("Route", AutoresetMode.NEXT_STEP, False),
        ("Path", AutoresetMode.SAME_STEP, True),
        ("Squads", AutoresetMode.NEXT_STEP, True),
        ("Squads", AutoresetMode.SAME_STEP, False),
    ],
)
def test_texts_and_sequences_are_those_that_gymnasium_gives_its_envs(
    cluster: rollhouse.Cluster, name: str, mode: AutoresetMode, copy: bool
) -> None:
    there, here = both(cluster, name, mode, copy=copy)
    assert play(there, here, mode) > LANES
    there.close()


def test_first_done_gives_each_lane_its_own_action(cluster: rollhouse.Cluster) -> None:
    there = cluster.make_vec("orders.envs:Plan", LANES, seed=9, spread="even")
    lanes = [orders.Plan() for _ in range(LANES)]
    there.reset()
    for lane, env in enumerate(lanes):
        env.reset(seed=9 + lane)
    says = [f"{'ab '[lane % 3]}{'a' * lane}" for lane in range(LANES)]
    sent = [{**PLAN, "says": says[lane]} for lane in range(LANES)]
    for env_ids in ([4, 0], [1, 3, 2]):
        there.send(batch([sent[lane] for lane in env_ids]), env_ids)
    received = 0
    while received < LANES:
        observations, _, _, _, infos = there.recv(1)
        for row, lane in enumerate(infos["env_id"]):
            received += 1
            same(observations[row], lanes[lane].step({**sent[lane], "go": np.int64(1)})[0])
    with pytest.raises(InvalidActionError, match="lane 1: says: a text of 7, which may have 6"):
        there.send(batch([PLAN, {**PLAN, "says": "a" * 7}]), [0, 1])
    with pytest.raises(NothingOutstandingError):
        there.recv()
    there.close()


def batch(actions: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch of actions of Plan."""
    return {
        "bits": tuple(action["bits"] for action in actions),
        "far": tuple(action["far"] for action in actions),
        "go": np.array([action["go"] for action in actions]),
        "log": tuple(tuple(action["log"][at] for action in actions) for at in (0, 1)),
        "says": [action["says"] for action in actions],
        "steps": tuple(action["steps"] for action in actions),
        "where": np.stack([action["where"] for action in actions]),
    }


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"says": "ababab "}, InvalidActionError, "lane 3: says: a text of 7, which may have 6 at most"),
        ({"says": "abc"}, InvalidActionError, "lane 3: says: a text with 'c', which its space does not have"),
        ({"says": 5}, ActionTypeError, "lane 3: says: a int is no text"),
        ({"bits": (np.ones(3, np.int8),) * 3}, InvalidActionError, "lane 3: bits: a sequence of 3, which may have 2"),
        ({"bits": (np.array([0, 2, 1]),)}, InvalidActionError, "lane 3: bits: a sequence with"),
        ({"log": ((), np.array([8]))}, InvalidActionError, "lane 3: log/1: a sequence with .*8"),
        ({"log": ((), np.array([3.0]))}, ActionTypeError, "lane 3: log/1: actions have dtype float64"),
        ({"log": (([0.5],), np.array([3]))}, InvalidActionError, "lane 3: log/0: actions have shape"),
        ({"steps": (np.array([1, 4]),)}, InvalidActionError, "lane 3: steps: a sequence with"),
        ({"steps": 3}, ActionTypeError, "lane 3: .*has no len"),
    ],
    ids=str,
)
def test_an_action_that_is_none_is_refused_by_name_and_steps_no_lane(
    cluster: rollhouse.Cluster, wrong: dict[str, Any], error: type[Exception], words: str
) -> None:
    there, here = both(cluster, "Plan", AutoresetMode.DISABLED)
    same(there.reset(seed=3)[0], here.reset(seed=3)[0])
    actions = [PLAN] * LANES
    with pytest.raises(error, match=words):
        there.step(batch([*actions[:3], {**PLAN, **wrong}, *actions[4:]]))
    with pytest.raises(InvalidActionError, match="says: 4 were given for 5 lanes"):
        there.step({**batch(actions), "says": ["a"] * 4})
    with pytest.raises(ActionTypeError, match="says: 7 must be one value per lane"):
        there.step({**batch(actions), "says": 7})
    good = batch(actions)
    for ours, theirs in zip(there.step(good)[:4], here.step(good)[:4], strict=True):
        same(ours, theirs)
    there.close()


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("count", 7),
        ("count", 2**60),
        ("codes", -5),
        ("codes", 0xD800),
        ("codes", 2**40),
        ("says/count", -1),
        ("says/count", 1.5),
        ("says/codes", 97.5),
        ("log/0/count", 4),
        ("log/1/items", 8),
        ("log/1/items", 3.5),
        ("far/items", 65537),
        ("bits/items", 2),
    ],
)
def test_numbers_that_carry_no_text_and_no_sequence_cost_their_lane_alone(
    cluster: rollhouse.Cluster, path: str, number: float
) -> None:
    name, good = ("Plan", batch([PLAN] * 3)) if "/" in path else ("Say", ("aβ",) * 3)
    there = cluster.make_vec(f"orders.envs:{name}", 3, on_loss="report", autoreset_mode="Disabled")
    parts = ActionParts(there.single_action_space)
    there.reset(seed=5)
    rows = there.actions
    rows[...] = parts.rows(good, 3, action_converter)
    rows[1, next(column.place for column in parts._columns if column.path == path).start] = number
    shown, _, terminated, truncated, infos = there.step(rows)
    assert infos["_lost"].tolist() == [False, True, False]
    assert infos["lost"][1] == "crashed" and not terminated[1] and truncated[1]
    assert shown[0] == shown[2] != ""
    there.close()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_none_step_no_lane(cluster: rollhouse.Cluster, number: float) -> None:
    there = cluster.make_vec("orders.envs:Plan", 3, on_loss="report", autoreset_mode="Disabled")
    there.reset(seed=5)
    good = batch([PLAN] * 3)
    rows = ActionParts(there.single_action_space).rows(good, 3, action_converter)
    rows[1, 0] = number
    with pytest.raises(InvalidActionError, match="lane 1"):
        there.step(rows)
    assert "_lost" not in there.step(good)[4]
    there.close()


def test_actions_that_nodes_draw_are_texts_and_sequences_of_their_spaces(nodes: LocalCluster) -> None:
    program = str(rollhouse_program())
    line = [program, "rollout", "--connect", nodes.url, "--lanes", "4", "--episodes", "24", "--seed", "3", "--json"]
    rollouts = []
    for name in ("Plan", "Say", "Route", "Path"):
        for policy in ("random", "noop"):
            words = [*line, "--env", f"orders.envs:{name}", "--policy", policy]
            # All at once, because each waits for processes most of the time.
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            rollouts.append((name, process))
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        for name, process in rollouts:
            told, talk = process.communicate(timeout=300)
            assert process.returncode == 0, talk
            recorded = rollhouse.replays.open(cluster)
            run = json.loads(told)["run"]
            episodes = [recorded.read(info) for info in recorded.filter(lambda info: info.run == run)]  # noqa: B023
            assert [episode.outcome for episode in episodes] == ["terminated"] * 24
            space = episodes[0].info.action_space
            for episode in episodes:
                for step in range(len(episode)):
                    action = episode.action(step)
                    assert action in space and action in getattr(orders, name).action_space
    shown = subprocess.run([program, "replay", "show", episode.id, "--connect", nodes.url], capture_output=True, check=False)
    assert shown.returncode == 0, shown.stderr


def test_they_are_recorded_as_columns_and_given_back_as_what_they_are(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("orders.envs:Plan", 2)
    envs.action_space.seed(8)
    envs.reset(seed=5)
    took, over = [], np.zeros(2, bool)
    while not over[1]:
        actions = envs.action_space.sample()
        took.append(list(iterate(envs.action_space, actions))[1])
        over = envs.step(actions)[2]
    run = envs.run
    envs.close()
    episode = recorded_of(cluster, run, lane=1)[0]
    assert isinstance(episode.actions, dict)
    assert episode.info.action_space == orders.Plan.action_space
    assert episode.actions["says/codes"].dtype == np.uint8 and episode.actions["says/codes"].shape == (len(took), 6)
    assert episode.actions["log/0/items"].shape == (len(took), 3, 2, 2)
    with cluster.open_replay(episode.id) as replay:
        assert replay.action is None
        for step, action in enumerate(took):
            same(episode.action(step), action)
            assert episode.actions["says/count"][step] == len(action["says"])
            replay.seek(step + 1)
            same(replay.action, action)


@pytest.mark.parametrize("name", ["Say", "Route"])
def test_episodes_of_deterministic_envs_are_played_again_from_their_texts_and_sequences(
    nodes: LocalCluster, name: str
) -> None:
    cluster = rollhouse.connect(nodes.url, timeout=120)
    there, here = both(cluster, name, AutoresetMode.NEXT_STEP)
    assert there.on_loss == "resume"
    assert play(there, here, AutoresetMode.NEXT_STEP, steps=40) > 0
    run = there.run
    there.close()
    [first, *_] = recorded_of(cluster, run, lane=0)
    line = [str(rollhouse_program()), "replay", "verify", first.id, "--connect", nodes.url]
    line += ["--python", sys.executable, "--allow", "orders"]
    environment = os.environ | search_path()
    verified = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    cluster.close()


def test_lanes_go_on_elsewhere_by_the_texts_that_they_were_given(tmp_path: Path) -> None:
    with closing(python_nodes(tmp_path, "orders")) as nodes:
        with rollhouse.connect(nodes.url, timeout=120) as cluster:
            there, here = both(cluster, "Say", AutoresetMode.SAME_STEP)
            assert play(there, here, AutoresetMode.SAME_STEP, 30, {11: lambda: nodes.kill("two")}) > 0
            assert {placement.node for placement in there.placements} == {"one"}


def test_agents_may_say_texts_and_go_sequences(cluster: rollhouse.Cluster) -> None:
    there = rollhouse.pettingzoo.make_vec("orders.envs:Talk", 3, cluster=cluster, autoreset_mode="Disabled")
    lanes = [orders.Talk() for _ in range(3)]
    there.reset(seed=4)
    for lane, env in enumerate(lanes):
        env.reset(seed=4 + lane)
    for _ in range(5):
        alive = [list(env.agents) for env in lanes]
        actions = {agent: there.action_space(agent).sample() for agent in there.possible_agents}
        shown = there.step(actions)[0]
        for lane, env in enumerate(lanes):
            theirs = env.step({agent: actions[agent][lane] for agent in alive[lane]})[0]
            assert {agent: shown[agent][lane] for agent in alive[lane]} == theirs
    there.close()


def test_what_cannot_be_taken_is_refused_by_name(nodes: LocalCluster) -> None:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        for most in (5 << 20, 10**15):
            with pytest.raises(RefusedError, match=f"action space: at most {most} items") as refused:
                cluster.make_vec("orders.envs:Long", 2, env_kwargs={"most": most})
            assert refused.value.code == "unsupported"
        with pytest.raises(RefusedError, match=r'action: Sequence.* has no maximum; .*metadata\["max_action_lengths"\]'):
            cluster.make_vec("orders.envs:Endless", 2)
