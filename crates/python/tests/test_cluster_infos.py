"""Numbers in the infos of Python envs on nodes are what Gymnasium makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import tallies
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from local_cluster import LocalCluster
from python_nodes import python_nodes, same

import rollhouse

LANES = 4
OBJECTS = {"name", "_own"}
"""Infos that are no numbers, or have the name of a mask."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with closing(python_nodes(tmp_path_factory.mktemp("infos"), "tallies")) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=["shm", "quic"])
def cluster(nodes: LocalCluster, request: pytest.FixtureRequest) -> Iterator[rollhouse.Cluster]:
    with rollhouse.connect(nodes.url, transport=request.param, timeout=120) as cluster:
        yield cluster


def numbers(infos: dict[str, Any]) -> dict[str, Any]:
    """The infos that are numbers, with their masks. Where an env gave a text once, Gymnasium has objects of all."""
    without = OBJECTS | {f"_{name}" for name in OBJECTS} | {"final_obs", "_final_obs", "valid", "_valid"}
    kept = {key: value for key, value in infos.items() if key not in without}
    return {key: numbers(value) if isinstance(value, dict) else value for key, value in kept.items()}


def check(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    ours, theirs = numbers(ours), numbers(theirs)
    assert sorted(ours) == sorted(theirs)
    for key, value in theirs.items():
        if isinstance(value, dict):
            check(ours[key], value)
        else:
            same(ours[key], value)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_numbers_in_infos_of_lanes_on_nodes_are_gymnasiums(cluster: rollhouse.Cluster, mode: AutoresetMode) -> None:
    """Symptom: ALE's `lives` was lost on nodes. Cause: lanes had columns for action masks alone. Fix: what an env says in a
    step that is tried is columns too. And: `won`, which comes in the last step alone, was lost. Cause: no column was known for
    it. Fix: lanes say such numbers in words, which are asked for."""
    with closing(cluster.make_vec("tallies:Tally", LANES, autoreset_mode=mode, record=False)) as there:
        here = SyncVectorEnv([tallies.Tally] * LANES, autoreset_mode=mode)
        check(there.reset(seed=5)[1], here.reset(seed=5)[1])
        here.action_space.seed(3)
        ends = 0
        for step in range(40):
            actions = here.action_space.sample()
            ours, theirs = there.step(actions), here.step(actions)
            same(ours[0], theirs[0])
            check(ours[4], theirs[4])
            over = theirs[2] | theirs[3]
            ends += int(over.sum())
            if mode is AutoresetMode.DISABLED and over.any():
                check(
                    there.reset(options={"reset_mask": over.copy()})[1],
                    here.reset(options={"reset_mask": over.copy()})[1],
                )
            if step == 30:
                check(there.reset(seed=7)[1], here.reset(seed=7)[1])
        assert ends > LANES


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.value)
def test_numbers_under_keys_that_come_later_are_gymnasiums(cluster: rollhouse.Cluster, mode: AutoresetMode) -> None:
    """`bonus` is said from the 50th step on, arrays and nested numbers beside it, and `again` by resets but the first."""
    with closing(cluster.make_vec("tallies:Late", LANES, autoreset_mode=mode, record=False)) as there:
        here = SyncVectorEnv([tallies.Late] * LANES, autoreset_mode=mode)
        check(there.reset(seed=5)[1], here.reset(seed=5)[1])
        seen = set()
        for step in range(130):
            actions = np.array([0, step % 2, 0, 1])
            ours, theirs = there.step(actions)[4], here.step(actions)[4]
            check(ours, theirs)
            seen |= ours.keys() | ours.get("final_info", {}).keys()
        assert {"bonus", "_bonus", "deep", "forces", "again"} <= seen
        check(there.reset(seed=6)[1], here.reset(seed=6)[1])


def test_more_than_there_is_room_for_is_left_out_and_costs_no_lane(cluster: rollhouse.Cluster) -> None:
    with closing(cluster.make_vec("tallies:Late", 2, env_kwargs={"more": 100}, record=False)) as there:
        there.reset(seed=5)
        for _ in range(60):
            infos = there.step(np.array([0, 0]))[4]
        many = [key for key in infos if key.startswith("more")]
        assert 10 < len(many) < 100 and infos["bonus"].tolist() == [60.0, 60.0]


def test_infos_of_a_reset_and_of_a_step_may_be_of_different_types(cluster: rollhouse.Cluster) -> None:
    with closing(cluster.make_vec("gymnasium:FrozenLake-v1", LANES, record=False)) as there:
        here = SyncVectorEnv([partial(gymnasium.make, "FrozenLake-v1")] * LANES)
        check(there.reset(seed=5)[1], here.reset(seed=5)[1])
        here.action_space.seed(3)
        resets = 0
        for _ in range(30):
            actions = here.action_space.sample()
            ours, theirs = there.step(actions)[4], here.step(actions)[4]
            resets += int(ours["prob"].dtype != np.int64 and (ours["prob"] == 1).any())
            # Gymnasium makes integers of all where the first lane gave one.
            np.testing.assert_array_equal(ours["prob"].astype(theirs["prob"].dtype), theirs["prob"])
            same(ours["_prob"], theirs["_prob"])
        assert resets > 0


def test_what_an_env_says_beside_is_no_part_of_what_it_does(cluster: rollhouse.Cluster) -> None:
    """`frame` goes on from episode to episode, so that no episode says it again; the try-out and resumed lanes pass it by."""
    with closing(cluster.make_vec("tallies:SteadyTally", 2)) as there:
        there.reset(seed=1)
        for _ in range(20):
            infos = there.step(np.array([2, 1]))[4]
        assert infos["frame"][0] > 15
        run = there.run
    assert cluster.close_pool(run, timeout=60)["stored"]
    recorded = rollhouse.replays.open(cluster)
    infos = [recorded.read(info).infos for info in recorded if info.run == run]
    assert infos and not any(infos), "nobody asked for them to be recorded"


def test_a_step_that_ends_the_process_costs_no_infos_and_no_pool(cluster: rollhouse.Cluster) -> None:
    with closing(cluster.make_vec("tallies:Abrupt", 1, record=False, on_loss="report")) as there:
        assert there.reset(seed=1)[1]["lives"].tolist() == [3]
        infos = there.step(np.array([1]))[4]
        assert infos["lost"][0] == "crashed" and "exit" in infos["lost_reason"][0]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_infos_and_pictures_are_recorded_on_nodes_as_they_are_here(cluster: rollhouse.Cluster, mode: str) -> None:
    """`won` is said in the last step alone, so that nobody could have learned it."""
    recorded = {"lives": 0, "goal/distance": 0.0, "won": 0.0}
    asked: dict[str, Any] = {"record_infos": recorded, "record_frames": 2, "render_mode": "rgb_array"}
    with closing(cluster.make_vec("tallies:Tally", 2, autoreset_mode=mode, **asked)) as there:
        there.reset(seed=4)
        won = 0
        for step in range(20):
            infos = there.step(np.array([2 if step % 3 == 2 else 1, 2]))[4]
            ended = infos.get("final_info", {}) if mode == "SameStep" else infos
            won += int(ended.get("_won", np.zeros(2, bool)).sum())
        run = there.run
    assert cluster.close_pool(run, timeout=60)["stored"]
    replays = rollhouse.replays.open(cluster)
    finished = [info for info in replays if info.run == run and info.finished]
    assert won == len(finished) > 4
    for info in finished:
        episode = replays.read(info)
        assert sorted(episode.infos) == sorted(recorded)
        assert episode.infos["lives"][-1] == 0 and episode.infos["lives"].dtype == np.int64
        assert np.isnan(episode.infos["won"][:-1]).all() and episode.infos["won"][-1] == 1
        assert (episode.infos["goal/distance"] > 0).all()
        frames = dict(replays.frames(info))
        assert set(frames) == {*range(0, info.length + 1, 2), info.length}
        for age, image in frames.items():
            lives = 3 if age == 0 else int(episode.infos["lives"][age - 1])
            assert (image == 10 * lives + age % 10).all(), (info, age)


def test_infos_and_pictures_that_cannot_be_recorded_are_refused_by_name(cluster: rollhouse.Cluster) -> None:
    for wrong, why in (
        ({"record_frames": 2}, "render_mode='rgb_array'"),
        ({"record_frames": 0, "render_mode": "rgb_array"}, "record_frames=0"),
        ({"record_infos": {"lives": 0}, "record": False}, "record_infos"),
    ):
        with pytest.raises(ValueError, match=why):
            cluster.make_vec("tallies:Tally", 1, **wrong)
    with pytest.raises(ValueError, match="Python envs"):
        cluster.make_vec("CartPole-v1", 1, record_infos={"x": 0.0})
