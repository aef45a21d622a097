"""``statistics=True`` tells of episodes what Gymnasium's ``RecordEpisodeStatistics`` tells."""

from __future__ import annotations

import copy
import gc
import operator
import queue
import sys
import threading
import types
import weakref
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


def made_again(**arguments) -> rollhouse.VectorEnv:
    """Whose every step ends all episodes, so that what one hands out the second next one may hand out again."""
    envs = rollhouse.make_vec("CartPole-v1", 8, statistics=True, max_episode_steps=1, seed=0, **arguments)
    envs.reset()
    return envs


def seen_of(infos: dict) -> dict:
    """A copy that shares nothing with it."""
    return {key: seen_of(value) if isinstance(value, dict) else value.copy() for key, value in infos.items()}


def same(one: dict, other: dict) -> bool:
    def alike(a, b) -> bool:
        if isinstance(a, dict):
            return same(a, b)
        if a.dtype == object:
            return all(x is None and y is None or np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        return np.array_equal(a, b)

    return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    "keep",
    [copy.copy, dict, lambda infos: {**infos}, lambda infos: types.MappingProxyType(infos), operator.methodcaller("copy")],
    ids=["copy", "dict", "unpacked", "proxy", "method"],
)
def test_a_shallow_copy_keeps_what_it_was_made_from(keep) -> None:
    envs = made_again(autoreset_mode="SameStep", valid="always", copy=True)
    kept = []
    for _ in range(6):
        *_, infos = envs.step(np.zeros(8, np.int64))
        kept.append((keep(infos), seen_of(infos)))
        del infos
    assert all(same(dict(copied), seen) for copied, seen in kept)
    envs.close()


@pytest.mark.parametrize("part", ["final_obs", "episode.t", "row"])
def test_what_only_a_weak_reference_knows_of_is_gone_when_its_step_is(part: str) -> None:
    envs = made_again(autoreset_mode="SameStep")
    for _ in range(6):
        *_, infos = envs.step(np.zeros(8, np.int64))
        parts = {**infos, "episode.t": infos["episode"]["t"], "row": infos["final_obs"][3]}
        known = weakref.ref(parts[part])
        seen = parts[part].copy()
        del infos, parts
        for _ in range(2):
            envs.step(np.zeros(8, np.int64))
        # Not the array of a later step under the same name.
        assert known() is None or np.array_equal(known(), seen)
    envs.close()


def test_a_view_or_a_buffer_keeps_the_array_it_is_of() -> None:
    envs = made_again(autoreset_mode="SameStep")
    kept = []
    for _ in range(6):
        *_, infos = envs.step(np.zeros(8, np.int64))
        row, times = infos["final_obs"][2], infos["episode"]["t"]
        kept.append((row[1:], memoryview(row), times[::2], row[1:].copy(), row.copy(), times[::2].copy()))
        del infos, row, times
    for rows, buffer, times, *seen in kept:
        np.testing.assert_array_equal(rows, seen[0])
        np.testing.assert_array_equal(np.asarray(buffer), seen[1])
        np.testing.assert_array_equal(times, seen[2])
    envs.close()


def test_another_thread_keeps_what_it_was_handed() -> None:
    envs = made_again(autoreset_mode="SameStep", valid="always")
    handed: queue.Queue = queue.Queue()
    wrong = []

    def look() -> None:
        while (one := handed.get()) is not None:
            infos, seen = one
            if not same(infos, seen):
                wrong.append((infos, seen))
            del infos, seen, one

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(300):
        *_, infos = envs.step(np.zeros(8, np.int64))
        handed.put((infos, seen_of(infos)))
        del infos
    handed.put(None)
    reader.join()
    assert not wrong
    envs.close()


@pytest.mark.parametrize("copied", [True, False], ids=["copies", "views"])
def test_valid_is_the_steps_own_where_the_rest_is_handed_out_again(copied: bool) -> None:
    # Of so many lanes some end and some begin an episode in most steps.
    envs = rollhouse.make_vec("CartPole-v1", 64, statistics=True, copy=copied, seed=0)
    plain = rollhouse.make_vec("CartPole-v1", 64, copy=copied, seed=0)
    envs.reset()
    plain.reset()
    rng = np.random.default_rng(0)
    told = 0
    for step in range(300):
        actions = rng.integers(0, 2, 64)
        *_, terminations, truncations, infos = envs.step(actions)
        expected = plain.step(actions)[4]
        keys = ["episode", "_episode"] if (terminations | truncations).any() else []
        assert sorted(infos) == sorted([*keys, *expected])
        for key in expected:
            told += 1
            np.testing.assert_array_equal(infos[key], expected[key])
        if "valid" in infos and step % 7 == 0:
            # Whatever is done to it, the next ones have it.
            change = [infos.clear, lambda: infos.pop("valid"), lambda: infos.update(valid=None, _valid=1)]
            change[step % 3]()
    assert told > 300
    envs.close()
    plain.close()


def test_rows_that_were_moved_or_kept_are_not_filled_again() -> None:
    envs = rollhouse.make_vec("CartPole-v1", 64, autoreset_mode="SameStep", seed=0)
    apart = rollhouse.make_vec("CartPole-v1", 64, autoreset_mode="SameStep", seed=0, copy=False)
    envs.reset()
    apart.reset()
    rng = np.random.default_rng(0)
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for step in range(400):
        actions = rng.integers(0, 2, 64)
        *_, terminations, truncations, infos = envs.step(actions)
        expected = apart.step(actions)[4]
        over = terminations | truncations
        assert ("final_obs" in infos) == over.any()
        if not over.any():
            continue
        rows = infos["final_obs"]
        assert [row is not None for row in rows] == over.tolist()
        assert all(np.array_equal(rows[lane], expected["final_obs"][lane]) for lane in np.flatnonzero(over))
        first = int(np.flatnonzero(over)[0])
        match step % 6:
            case 0:
                kept.append((rows[first], rows[first].copy()))
            case 1:
                rows[[first, first - 1]] = rows[[first - 1, first]]
            case 2:
                rows.fill(rows[first])
            case 3:
                rows[first] = None
            case 4:
                rows[first - 1] = kept[-1][0] if kept else None
        del infos, expected, rows
    assert len(kept) > 30
    for row, seen in kept:
        np.testing.assert_array_equal(row, seen)
    envs.close()
    apart.close()


def test_rows_leave_no_reference_behind() -> None:
    envs = rollhouse.make_vec("CartPole-v1", 64, autoreset_mode="SameStep", seed=0)
    envs.reset()
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 2, 64) for _ in range(64)]
    for batch in actions * 4:
        envs.step(batch)
    before = sys.getrefcount(None)
    for batch in actions * 40:
        envs.step(batch)
    # As many as two steps hold, which is two arrays of 64 at most.
    assert abs(sys.getrefcount(None) - before) <= 300
    *_, infos = envs.step(actions[0])
    while "final_obs" not in infos:
        *_, infos = envs.step(actions[0])
    row = weakref.ref(next(row for row in infos["final_obs"] if row is not None))
    envs.close()
    del infos, envs
    gc.collect()
    assert row() is None
