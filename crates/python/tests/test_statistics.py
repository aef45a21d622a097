"""``statistics=True`` tells of episodes what Gymnasium's ``RecordEpisodeStatistics`` tells."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import rollhouse

LANES = 5
MODES = list(AutoresetMode)


def make(where: str, request: pytest.FixtureRequest, **arguments) -> rollhouse.VectorEnv:
    if where == "hosted":
        return rollhouse.vectorize([partial(gymnasium.make, "CartPole-v1")] * LANES, workers=2, **arguments)
    if where == "cluster":
        cluster = rollhouse.connect(request.getfixturevalue("cluster_url"))
        return cluster.make_vec("CartPole-v1", LANES, record=False, **arguments)
    return rollhouse.make_vec("CartPole-v1", LANES, **arguments)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("where", ["embedded", "hosted", "cluster"])
def test_it_is_what_the_wrapper_gives(where: str, mode: AutoresetMode, request: pytest.FixtureRequest) -> None:
    if mode is AutoresetMode.SAME_STEP and gymnasium.__version__.startswith("1.2."):
        pytest.skip("the wrapper of Gymnasium 1.2 leaves steps out in SAME_STEP")
    ours = make(where, request, autoreset_mode=mode, statistics=True)
    theirs = RecordEpisodeStatistics(make(where, request, autoreset_mode=mode))
    ours.reset(seed=3)
    theirs.reset(seed=3)
    ours.action_space.seed(0)
    over = np.zeros(LANES, np.bool_)
    ended = 0
    for step in range(150):
        if mode is AutoresetMode.DISABLED and over.any():
            for envs in (ours, theirs):
                envs.reset(options={"reset_mask": over.copy()})
        elif step == 70:
            for envs in (ours, theirs):
                envs.reset(seed=5)
        actions = ours.action_space.sample()
        _, _, terminations, truncations, infos = ours.step(actions)
        expected = theirs.step(actions)[4]
        over = terminations | truncations
        assert ("episode" in infos) == ("episode" in expected) == over.any()
        if "episode" in infos:
            ended += over.sum()
            mine, wanted = infos["episode"], expected["episode"]
            assert sorted(mine) == sorted(wanted)
            np.testing.assert_array_equal(infos["_episode"], expected["_episode"])
            for key in "rl":
                assert mine[key].dtype == wanted[key].dtype
                np.testing.assert_array_equal(mine[key], wanted[key])
            assert mine["t"].dtype == wanted["t"].dtype
            assert ((mine["t"] > 0) == over).all() and np.array_equal(mine["t"], mine["t"].round(6))
    assert ended > 20
    ours.close()
    theirs.close()


@pytest.mark.parametrize("where", ["embedded", "hosted"])
def test_lanes_that_are_received_apart_are_counted_apart(where: str, request: pytest.FixtureRequest) -> None:
    envs = make(where, request, statistics=True, autoreset_mode="SameStep")
    envs.reset(seed=1)
    lengths = np.zeros(LANES, np.int64)
    told = 0
    rng = np.random.default_rng(0)
    for _ in range(200):
        lanes = np.flatnonzero(rng.integers(0, 2, LANES))
        if not lanes.size:
            continue
        envs.send(np.ones(lanes.size, np.int64), lanes)
        _, _, terminations, _, infos = envs.recv()
        order = infos["env_id"]
        lengths[order] += 1
        if terminations.any():
            told += terminations.sum()
            np.testing.assert_array_equal(infos["_episode"], terminations)
            np.testing.assert_array_equal(infos["episode"]["l"], np.where(terminations, lengths[order], 0))
            np.testing.assert_array_equal(infos["episode"]["r"], np.where(terminations, lengths[order], 0.0))
            lengths[order[terminations]] = 0
    assert told > 20
    envs.close()


def test_what_was_told_of_a_step_stays_for_who_keeps_it() -> None:
    # Arrays that nobody holds are filled again.
    envs = rollhouse.make_vec("CartPole-v1", 64, statistics=True, autoreset_mode="SameStep", seed=0)
    envs.reset()
    kept = []
    for step in range(100):
        infos = envs.step(np.full(64, step % 2))[4]
        if "episode" in infos:
            arrays = [*infos["episode"].values(), infos["final_obs"], infos["_final_obs"], infos["_episode"]]
            arrays += [row for row in infos["final_obs"] if row is not None]
            kept.append((arrays, [array.copy() for array in arrays]))
            if step % 3 == 0:
                # Only a part of it is held on to.
                del arrays[:5], kept[-1][1][:5]
    assert len(kept) > 10
    for arrays, copies in kept:
        for array, copy in zip(arrays, copies, strict=True):
            if array.dtype == object:
                assert all(np.array_equal(a, b) for a, b in zip(array, copy, strict=True))
            else:
                np.testing.assert_array_equal(array, copy)


def test_an_array_that_was_changed_is_not_handed_out_again() -> None:
    envs = rollhouse.make_vec("CartPole-v1", 8, statistics=True, autoreset_mode="SameStep", max_episode_steps=1)
    envs.reset(seed=0)
    for _ in range(6):
        observations, _, _, _, infos = envs.step(np.zeros(8, np.int64))
        assert infos["final_obs"].shape == (8,) and infos["final_obs"][0].shape == (4,)
        assert infos["final_obs"][0].flags.writeable and infos["episode"]["l"].tolist() == [1] * 8
        infos["final_obs"][0].shape = (2, 2)
        infos["final_obs"][1].flags.writeable = False
        infos["final_obs"][2] = "mine"
        infos["episode"]["r"].shape = (2, 4)
        infos["episode"]["l"].dtype = np.float64
        del infos


def test_a_dict_that_was_changed_is_not_handed_out_again() -> None:
    envs = rollhouse.make_vec("CartPole-v1", 8, statistics=True, autoreset_mode="SameStep", max_episode_steps=1)
    envs.reset(seed=0)

    def add(told: dict) -> None:
        told["mine"] = 1

    def swap(told: dict) -> None:
        told["l"], told["t"] = told["t"], told["l"]

    def take(told: dict) -> None:
        del told["t"]

    def order(told: dict) -> None:
        told["r"] = told.pop("r")

    for change in (add, swap, take, order) * 3:
        *_, infos = envs.step(np.zeros(8, np.int64))
        assert list(infos["episode"]) == ["r", "l", "t"]
        assert infos["episode"]["l"].tolist() == [1] * 8 and infos["episode"]["t"].dtype == np.float64
        change(infos["episode"])
        del infos


def test_infos_that_were_changed_or_are_kept_are_not_handed_out_again() -> None:
    envs = rollhouse.make_vec("CartPole-v1", 8, statistics=True, autoreset_mode="SameStep", max_episode_steps=1)
    envs.reset(seed=0)
    expected = {"final_obs", "_final_obs", "final_info", "_final_info", "episode", "_episode"}
    kept = []
    for step in range(24):
        observations, _, _, _, infos = envs.step(np.full(8, step % 2))
        assert set(infos) == expected
        assert infos["final_info"] == {} and set(infos["episode"]) == set("rlt")
        assert np.array_equal(infos["episode"]["l"], np.ones(8)) and infos["_final_info"].all()
        assert all(last.shape == (4,) for last in infos["final_obs"])
        match step % 6:
            case 0:
                infos["mine"] = 1
            case 1:
                del infos["final_obs"]
            case 2:
                infos["episode"]["mine"] = 1
            case 3:
                infos["final_info"]["mine"] = 1
            case 4:
                kept.append((infos, np.stack(infos["final_obs"])))
            case _:
                infos["final_obs"] = infos["final_obs"][:3]
        del infos
    for infos, last in kept:
        assert np.array_equal(np.stack(infos["final_obs"]), last)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_infos_that_nobody_keeps_are_handed_out_again(mode: str) -> None:
    envs = rollhouse.make_vec("CartPole-v1", 64, statistics=True, autoreset_mode=mode)
    envs.reset(seed=0)
    # Lanes end at different times, so that in NEXT_STEP nearly every step has ends and lanes that began again.
    seen = []
    for step in range(200):
        infos = envs.step(np.arange(64) // 8 * step % 2)[4]
        if "episode" in infos:
            seen.append(id(infos["episode"]))
            seen.append(id(infos))
    assert len(seen) > 100
    assert len(set(seen[8:])) == 4


def test_infos_that_are_handed_out_again_say_what_is_valid_where_others_do() -> None:
    ours = rollhouse.make_vec("CartPole-v1", 8, statistics=True)
    plain = rollhouse.make_vec("CartPole-v1", 8)
    ours.reset(seed=0)
    plain.reset(seed=0)
    told = set()
    for step in range(300):
        actions = np.full(8, step // 3 % 2)
        infos, expected = ours.step(actions)[4], plain.step(actions)[4]
        told.add(("valid" in infos, "episode" in infos))
        assert set(infos) - {"episode", "_episode"} == set(expected)
        for key, value in expected.items():
            np.testing.assert_array_equal(infos[key], value)
    assert len(told) == 4
