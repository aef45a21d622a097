"""Python envs on nodes that report which actions they took: that is answered, recorded and resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import walks
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from local_cluster import LocalCluster, rollhouse_program
from python_nodes import python_nodes, search_path

import rollhouse
from rollhouse.errors import RefusedError

LANES = 4


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with closing(python_nodes(tmp_path_factory.mktemp("reports"), "drivers", "walks")) as cluster:
        yield cluster


@pytest.fixture
def cluster(nodes: LocalCluster) -> Iterator[rollhouse.Cluster]:
    with rollhouse.connect(nodes.url, timeout=120) as connected:
        yield connected


def play(there: Any, here: SyncVectorEnv, steps: int, given: np.random.Generator) -> int:
    """Steps lanes, and others here by the actions that those took, which show the same. Returns how many were others than given."""
    others = 0
    for _ in range(steps):
        actions = given.integers(0, 2, LANES)
        shown, rewards, *flags, infos = there.step(actions)
        taken = actions
        # In SAME_STEP the infos of an episode's last step are its final infos.
        for part in (infos, infos.get("final_info", {})):
            stepped = part.get("_action_taken", np.zeros(LANES, bool))
            assert not stepped.any() or (part["policy_version"][stepped] > 100).all()
            taken = np.where(stepped, part.get("action_taken", actions), taken)
        assert taken.dtype == np.int64
        ours = here.step(taken)
        np.testing.assert_array_equal(shown, ours[0])
        np.testing.assert_array_equal(rewards, ours[1])
        np.testing.assert_array_equal(flags, ours[2:4])
        others += int((taken != actions).sum())
    return others


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.value)
def test_lanes_of_a_killed_node_go_on_by_the_actions_that_they_took(tmp_path: Path, mode: AutoresetMode) -> None:
    two = python_nodes(tmp_path, "drivers", "walks")
    try:
        with rollhouse.connect(two.url, timeout=120) as cluster:
            there = cluster.make_vec("drivers:Driver", LANES, autoreset_mode=mode, spread="single")
            assert there.on_loss == "resume"
            here = SyncVectorEnv([walks.Walk] * LANES, autoreset_mode=mode)
            np.testing.assert_array_equal(there.reset(seed=3)[0], here.reset(seed=3)[0])
            given = np.random.default_rng(5)
            assert play(there, here, 150, given) > LANES
            first = there.placements[0].node
            two.kill(first)
            assert play(there, here, 150, given) > LANES
            assert there.placements[0].node != first
            there.close()
    finally:
        two.close()


def test_what_a_step_reports_is_recorded(cluster: rollhouse.Cluster) -> None:
    with closing(cluster.make_vec("drivers:Driver", LANES, step_columns={"own": "float64"})) as envs:
        envs.reset(seed=3)
        envs.set_policy_version(7)
        reported: list[dict[int, tuple[Any, ...]]] = []
        for step in range(60):
            envs.note(own=float(step))
            infos = envs.step(np.ones(LANES, np.int64))[4]
            columns = [infos[name] for name in ("action_taken", "policy_version", "margin", "late")]
            rows = zip(*columns, infos["at"].tolist(), strict=True)
            reported.append({lane: row for lane, row in enumerate(rows) if infos["_action_taken"][lane]})
        run = envs.run
    assert cluster.close_pool(run, timeout=60)["stored"]
    replays = rollhouse.replays.open(cluster)
    found: dict[int, list[tuple[Any, ...]]] = {lane: [] for lane in range(LANES)}
    for info in sorted((info for info in replays if info.run == run), key=lambda info: (info.lane, info.number)):
        episode = replays.read(info)
        assert not episode.infos, "they are recorded as what they report"
        columns = episode.step_columns
        assert list(columns) == ["own", "margin", "at", "late"]
        rows = zip(episode.actions, info.policy_versions().tolist(), columns["margin"], columns["late"], columns["at"].tolist(), strict=True)
        found[info.lane] += rows
    for lane in range(LANES):
        wanted = [row[lane] for row in reported if lane in row]
        assert found[lane] == wanted
        assert any(late for *_, late, _ in wanted) and not all(late for *_, late, _ in wanted)


def test_who_plays_a_recorded_lane_again_is_given_what_it_took(tmp_path: Path) -> None:
    def run(*line: str) -> list[Any]:
        whole = [rollhouse_program(), *line, "--python", sys.executable, "--allow", "drivers", "--json", "--data", tmp_path]
        done = subprocess.run(whole, capture_output=True, text=True, env=os.environ | search_path(), timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(row) for row in done.stdout.splitlines()]

    run("rollout", "--env", "drivers:Driver", "--lanes", "3", "--episodes", "9", "--seed", "5")
    verified = run("replay", "verify")
    assert sum(row["steps"] for row in verified) > 100 and all(row["ok"] for row in verified)
    episodes = [rollhouse.replays.open(tmp_path).read(info) for info in rollhouse.replays.open(tmp_path)]
    late = np.concatenate([episode.step_columns["late"] for episode in episodes])
    assert 0 < late.sum() < len(late)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"action_taken": 5}, "the action that the lane took is none: action 5 of lane 0"),
        ({"action_taken": [0, 1]}, "info 'action_taken' is not as the env declares it"),
        ({"policy_version": 3}, "the policy's version went back from 108 to 3"),
        ({"margin": [1.0, 2.0]}, "info 'margin' is not as the env declares it"),
        ({"late": "no"}, "info 'late' is not as the env declares it"),
    ],
)
def test_a_report_that_cannot_be_costs_its_lane_alone_and_says_why(cluster: rollhouse.Cluster, wrong: Any, why: str) -> None:
    made = {"env_kwargs": {"wrong": wrong}, "on_loss": "report", "record": False}
    with closing(cluster.make_vec("drivers:Driver", 2, **made)) as envs:
        envs.reset(seed=1)
        infos: dict[str, Any] = {}
        lost: dict[int, str] = {}
        for _ in range(30):
            # Both lanes come to their ninth step, one after the other.
            infos = envs.step(np.ones(2, np.int64))[4]
            for lane in np.flatnonzero(infos.get("_lost", np.zeros(2, bool))):
                lost[int(lane)] = infos["lost_reason"][lane]
        assert lost
        assert all(why.replace("lane 0", f"lane {lane}") in words for lane, words in lost.items()), lost


def test_an_env_that_reports_no_step_took_what_it_was_given(cluster: rollhouse.Cluster) -> None:
    with closing(cluster.make_vec("drivers:Silent", 2)) as envs:
        envs.reset(seed=1)
        infos = envs.step(np.array([0, 1]))[4]
        assert "action_taken" not in infos and "margin" not in infos
        run = envs.run
    assert cluster.close_pool(run, timeout=60)["stored"]
    replays = rollhouse.replays.open(cluster)
    episodes = {info.lane: replays.read(info) for info in replays if info.run == run}
    assert [episodes[lane].actions.tolist() for lane in (0, 1)] == [[0], [1]]
    assert np.isnan(episodes[0].step_columns["margin"]).all()


def test_an_action_of_several_columns_is_reported_as_the_row_that_carries_it(cluster: rollhouse.Cluster) -> None:
    with closing(cluster.make_vec("drivers:Pair", 2)) as envs:
        envs.reset(seed=1)
        action = {"a": np.array([[0.5, -0.5], [0, 1]], np.float32), "b": np.array([2, 0])}
        infos = envs.step(action)[4]
        assert infos["action_taken"].tolist() == [[0.5, -0.5, 1], [0, 1, 0]]
        run = envs.run
    assert cluster.close_pool(run, timeout=60)["stored"]
    replays = rollhouse.replays.open(cluster)
    taken = {info.lane: replays.read(info).actions["b"].tolist() for info in replays if info.run == run}
    assert taken == {0: [1], 1: [0]}


@pytest.mark.parametrize(("env", "why"), [("Words", "reports_actions.*Text"), ("Crooked", "step column \"no name\"")])
def test_what_cannot_be_reported_is_refused_by_name(cluster: rollhouse.Cluster, env: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        cluster.make_vec(f"drivers:{env}", 1)
