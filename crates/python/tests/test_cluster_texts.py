"""Python envs on nodes whose observations have texts and sequences: the same as in Gymnasium, recorded as columns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from local_cluster import LocalCluster
from python_nodes import play, recorded_of, same
from tales import envs as tales

import rollhouse
from rollhouse.errors import RefusedError
from rollhouse.vector import rows_at

LANES = 5


@pytest.mark.parametrize(
    ("name", "mode", "copy"),
    [
        ("Story", AutoresetMode.NEXT_STEP, True),
        ("Story", AutoresetMode.SAME_STEP, False),
        ("Story", AutoresetMode.DISABLED, True),
        ("Note", AutoresetMode.SAME_STEP, True),
        ("Trail", AutoresetMode.SAME_STEP, False),
        ("Squads", AutoresetMode.NEXT_STEP, True),
        ("Squads", AutoresetMode.SAME_STEP, False),
    ],
)
def test_texts_and_sequences_are_those_that_gymnasium_gives(
    cluster: rollhouse.Cluster, name: str, mode: AutoresetMode, copy: bool
) -> None:
    there = cluster.make_vec(f"tales.envs:{name}", LANES, autoreset_mode=mode, spread="even", copy=copy)
    here = SyncVectorEnv([getattr(tales, name)] * LANES, autoreset_mode=mode)
    assert there.single_observation_space == here.single_observation_space
    assert there.observation_space == here.observation_space
    assert play(there, here, mode) > LANES
    assert there.observation_space.contains(there.reset(seed=3)[0])
    there.close()


def test_first_done_gives_each_lane_its_texts_and_sequences(cluster: rollhouse.Cluster) -> None:
    there = cluster.make_vec("tales.envs:Story", LANES, seed=9, spread="even", valid="always")
    space = there.single_observation_space
    lanes = [tales.Story() for _ in range(LANES)]
    first = there.reset()[0]
    for lane, env in enumerate(lanes):
        same(rows_at(first, lane, space), env.reset(seed=9 + lane)[0])
    same(rows_at(first, np.array([3, 1]), space)["says"], (first["says"][3], first["says"][1]))
    over = [False] * LANES
    for _ in range(30):
        for env_ids in ([4, 0], [1, 3, 2]):
            there.send(np.zeros(len(env_ids), np.int64), env_ids)
        received = 0
        while received < LANES:
            observations, _, terminations, _, infos = there.recv(1)
            for row, lane in enumerate(infos["env_id"]):
                received += 1
                theirs = lanes[lane].reset()[0] if over[lane] else lanes[lane].step(0)[0]
                same(rows_at(observations, row, space), theirs)
                over[lane] = bool(terminations[row])
    there.close()


@pytest.mark.parametrize(
    "wrong",
    [{"says": "ababab "}, {"says": "abc"}, {"says": 5}, {"bits": [[0, 1, 1]] * 3}, {"log": ((), [0.5])}, {"steps": 3}],
    ids=str,
)
def test_an_observation_that_is_none_of_its_space_costs_its_lane_alone(
    nodes: LocalCluster, wrong: dict[str, Any]
) -> None:
    cluster = rollhouse.connect(nodes.url, timeout=120)
    envs = cluster.make_vec("tales.envs:Story", 2, env_kwargs=wrong, on_loss="report", autoreset_mode="Disabled")
    first = envs.reset(seed=5)[0]
    shown, _, terminated, truncated, infos = envs.step(np.array([0, 2]))
    assert infos["_lost"].tolist() == [False, True] and infos["lost"][1] == "crashed"
    assert not terminated[1] and truncated[1]
    # What was last delivered stays.
    space = envs.single_observation_space
    same(rows_at(shown, 1, space), rows_at(first, 1, space))
    here = tales.Story()
    here.reset(seed=5)
    same(rows_at(shown, 0, space), here.step(0)[0])
    envs.close()
    cluster.close()


def test_what_rows_have_no_room_for_is_refused_before_anything_is_as_long(nodes: LocalCluster) -> None:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        for most in (5 << 20, 10**15):
            with pytest.raises(RefusedError, match=re.escape(f"at most {most} items")) as refused:
                cluster.make_vec("tales.envs:Long", 2, env_kwargs={"most": most})
            assert refused.value.code == "unsupported"


def test_texts_and_sequences_are_recorded_as_their_columns(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("tales.envs:Story", 2)
    space = envs.single_observation_space
    shown, over = [rows_at(envs.reset(seed=5)[0], 1, space)], np.zeros(2, bool)
    while not over[1]:
        observations, _, over, *_ = envs.step(np.zeros(2, np.int64))
        shown.append(rows_at(observations, 1, space))
    run = envs.run
    envs.close()
    episode = recorded_of(cluster, run, lane=1)[0]
    seen = episode.observations
    assert isinstance(seen, dict)
    assert episode.info.observation_space == space
    assert seen["says/codes"].dtype == np.uint8 and seen["says/codes"].shape == (len(shown), 6)
    assert seen["log/0/items"].shape == (len(shown), 3, 2, 2)
    for step, one in enumerate(shown):
        assert seen["says/codes"][step, : seen["says/count"][step]].tobytes().decode("latin-1") == one["says"]
        assert not seen["says/codes"][step, seen["says/count"][step] :].any()
        np.testing.assert_array_equal(seen["log/1/items"][step, : seen["log/1/count"][step]], one["log"][1])
        np.testing.assert_array_equal(seen["steps/items"][step, : seen["steps/count"][step]], one["steps"])
    with cluster.open_replay(episode.id) as replay:
        for step in (0, len(shown) - 1, 1):
            same(replay.seek(step), shown[step])


def test_a_text_beyond_latin_1_is_recorded_as_code_points(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("tales.envs:Note", 1)
    [first], _ = envs.reset(seed=2)
    for _ in range(20):
        envs.step([0])
    run = envs.run
    envs.close()
    episode = recorded_of(cluster, run, lane=0)[0]
    assert set(episode.observations) == {"codes", "count"}
    codes = episode.observations["codes"][0, : episode.observations["count"][0]]  # type: ignore[call-overload]
    assert codes.dtype == np.int32
    assert "".join(map(chr, codes)) == first
    with cluster.open_replay(episode.id) as replay:
        assert replay.observation == first


def test_an_env_with_a_sequence_may_be_deterministic(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("tales.envs:Trail", 1, deterministic=True)
    here = SyncVectorEnv([tales.Trail])
    assert play(envs, here, AutoresetMode.NEXT_STEP, steps=30) > 0
    envs.close()
