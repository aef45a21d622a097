"""Python envs on nodes whose values have dtypes that columns have not: shown, recorded and given to envs as their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from python_nodes import play, recorded_of, same, same_spaces
from sizes import envs as sizes

import rollhouse
from rollhouse.action_parts import ActionParts
from rollhouse.errors import InvalidActionError, RefusedError
from rollhouse.native_env import action_converter
from rollhouse.vector import rows_at

LANES = 3
KINDS = ("int8", "int16", "uint16", "uint32", "float16")


@pytest.mark.parametrize(
    ("name", "kwargs", "mode", "copy"),
    [
        *[("Alone", {"kind": kind}, AutoresetMode.SAME_STEP, copy) for kind, copy in zip(KINDS, [True, False] * 3)],
        ("Alone", {"kind": "int8", "shape": []}, AutoresetMode.SAME_STEP, False),
        ("Alone", {"kind": "float16", "shape": [3, 2]}, AutoresetMode.NEXT_STEP, False),
        *[("Choice", {"kind": kind}, AutoresetMode.SAME_STEP, False) for kind in ("int8", "uint8", "int32", "uint32")],
        ("Bits", {}, AutoresetMode.SAME_STEP, True),
        ("Nested", {}, AutoresetMode.NEXT_STEP, True),
        ("Nested", {}, AutoresetMode.SAME_STEP, False),
        ("Nested", {}, AutoresetMode.DISABLED, True),
    ],
)
def test_spaces_and_arrays_have_the_dtypes_that_gymnasium_gives(
    cluster: rollhouse.Cluster, name: str, kwargs: dict[str, Any], mode: AutoresetMode, copy: bool
) -> None:
    # Sessions on both nodes, or one whose memory is looked at in place.
    lanes, spread = (LANES, "even") if copy else (2, "pack")
    there = cluster.make_vec(f"sizes.envs:{name}", lanes, env_kwargs=kwargs, autoreset_mode=mode, spread=spread, copy=copy)
    here = SyncVectorEnv([lambda: getattr(sizes, name)(**kwargs)] * lanes, autoreset_mode=mode)
    same_spaces(there, here)
    assert play(there, here, mode) > lanes
    assert there.observation_space.contains(there.reset(seed=3)[0])
    there.close()


def test_first_done_gives_each_lane_its_own_dtypes(cluster: rollhouse.Cluster) -> None:
    there = cluster.make_vec("sizes.envs:Nested", LANES, seed=9, spread="even", valid="always")
    space = there.single_observation_space
    lanes = [sizes.Nested() for _ in range(LANES)]
    first = there.reset()[0]
    for lane, env in enumerate(lanes):
        same(rows_at(first, lane, space), env.reset(seed=9 + lane)[0])
    there.single_action_space.seed(3)
    over = [False] * LANES
    for _ in range(20):
        action = there.single_action_space.sample()
        for env_ids in ([2, 0], [1]):
            boxes, few, many = action
            batch = ({kind: np.stack([box] * len(env_ids)) for kind, box in boxes.items()},)
            there.send((*batch, np.repeat(few, len(env_ids)), np.stack([many] * len(env_ids))), env_ids)
        received = 0
        while received < LANES:
            observations, rewards, terminations, _, infos = there.recv(1)
            for row, lane in enumerate(infos["env_id"]):
                received += 1
                theirs = (lanes[lane].reset()[0], 0.0) if over[lane] else lanes[lane].step(action)[:2]
                same(rows_at(observations, row, space), theirs[0])
                assert rewards[row] == theirs[1]
                over[lane] = bool(terminations[row])
    there.close()


def test_recordings_tell_the_envs_own_dtypes(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("sizes.envs:Nested", 2)
    space = envs.single_observation_space
    envs.action_space.seed(3)
    shown, taken, over = [rows_at(envs.reset(seed=5)[0], 1, space)], [], np.zeros(2, bool)
    while not over[1]:
        taken.append(envs.action_space.sample())
        observations, _, over, *_ = envs.step(taken[-1])
        shown.append(rows_at(observations, 1, space))
    run = envs.run
    envs.close()
    episode = recorded_of(cluster, run, lane=1)[0]
    seen, acted = episode.observations, episode.actions
    assert isinstance(seen, dict) and isinstance(acted, dict)
    assert episode.info.observation_space == space
    for at, kind in enumerate(KINDS):
        same(seen[f"boxes/{kind}"], np.array([one["boxes"][kind] for one in shown]))
        same(seen[f"scalars/{at}"], np.array([one["scalars"][at] for one in shown]))
        same(acted[f"0/{kind}"], np.array([one[0][kind][1] for one in taken]))
    same(seen["few"], np.array([one["few"] for one in shown]))
    assert seen["seen/0/items"].dtype == np.int16 and seen["seen/1/items"].dtype == np.int8
    same(acted["1"], np.array([one[1][1] for one in taken]))
    same(acted["2"], np.array([one[2][1] for one in taken]))
    with cluster.open_replay(episode.id) as replay:
        for step in (0, len(shown) - 1, 1):
            same(replay.seek(step), shown[step])
        same(replay.action[0], {kind: box[1] for kind, box in taken[0][0].items()})
        same(replay.action[1:], (taken[0][1][1], taken[0][2][1]))


@pytest.mark.parametrize("kind", KINDS)
def test_an_action_that_the_envs_dtype_does_not_have_is_refused(cluster: rollhouse.Cluster, kind: str) -> None:
    envs = cluster.make_vec("sizes.envs:Alone", 2, env_kwargs={"kind": kind})
    envs.reset(seed=1)
    envs.step(np.zeros((2, 2), kind))
    carried = envs.actions
    assert carried.dtype == {"uint32": np.int64, "float16": np.float32}.get(kind, np.int32)
    carried[:] = 1
    same(envs.step(carried)[1], np.array([2.0, 2.0]))
    for wide in (np.float64, np.float32) if kind == "float16" else (np.int64, carried.dtype):
        with pytest.raises(InvalidActionError, match="70000.0|finite|inf" if kind == "float16" else "is not in Box"):
            envs.step(np.full((2, 2), 70000.0 if kind == "float16" else np.iinfo(kind).max + 1, wide))
    envs.step(np.ones((2, 2), kind))
    envs.close()


def test_carried_rows_with_a_number_that_a_part_does_not_have_are_refused_by_its_name(cluster: rollhouse.Cluster) -> None:
    # Symptom: such a row stepped its lane by another action, 128 by -128 in a part of int8.
    # Cause: an array of the carrying dtype was sent as it is, and a worker casts it to the dtypes of the parts.
    # Fix: rows that are handed in are looked at part by part, as batches of the space's structure are.
    envs = cluster.make_vec("sizes.envs:Nested", 2, record=False)
    parts = ActionParts(envs.single_action_space)
    rows = envs.actions
    assert rows.dtype == np.float64
    rows[...] = parts.rows(envs.action_space.sample(), 2, action_converter)
    good = rows.copy()
    envs.reset(seed=1)
    for path, number in [
        ("0/int8", 128),
        ("0/int16", 0.5),
        ("0/uint16", -1),
        ("0/uint32", 2**32),
        ("0/float16", 70000.0),
        ("0/float16", -np.finfo(np.float64).max),
        ("1", -8),
        ("1", 253),
        ("2", 256),
    ]:
        rows[...] = good
        rows[1, place_of(parts, path).stop - 1] = number
        for step in (envs.step, envs.send):
            with pytest.raises(InvalidActionError, match=f"actions of {path}: lane 1 is given"):
                step(rows)
    rows[...] = good
    boxes, few, many = parts.action(good[1])
    assert envs.step(rows)[1][1] == sum(box.astype(np.float64).sum() for box in boxes.values()) + few + many.sum()
    envs.close()


@pytest.mark.parametrize(
    ("parts", "carrier", "wrong"),
    [
        ({"a": spaces.Box(-9, 9, (), np.int8), "b": spaces.Box(0, 9, (2,), np.int32)}, np.int64, {"a": 128, "b": 1 << 31}),
        ({"a": spaces.Box(-9, 9, (), np.float16), "b": spaces.Box(0, 9, (2,), np.float32)}, np.float32, {"a": 65520.0}),
        ({"a": spaces.MultiBinary(2), "b": spaces.Box(0, 9, (), np.float64)}, np.float64, {"a": 0.5}),
        ({"a": spaces.Discrete(3, start=1), "b": spaces.Box(0, 9, (), np.uint8)}, np.int64, {"a": 0, "b": 256}),
    ],
    ids=str,
)
def test_carried_rows_are_checked_in_whichever_dtype_carries_them(
    parts: dict[str, spaces.Space], carrier: type, wrong: dict[str, float]
) -> None:
    told = ActionParts(spaces.Dict(parts))
    assert told.dtype == carrier
    good = np.ones((3, told.elements), carrier)
    assert told.rows(good, 3, action_converter) is good
    for name, number in wrong.items():
        rows = good.copy()
        rows[2, place_of(told, name).stop - 1] = number
        with pytest.raises(InvalidActionError, match=f"actions of {name}: lane 2 is given"):
            told.rows(rows, 3, action_converter)


def place_of(parts: ActionParts, path: str) -> slice:
    """The place of a column in the rows that carry it."""
    return next(column.place for column in parts._columns if column.path == path)


def test_what_no_column_has_is_refused_by_name(cluster: rollhouse.Cluster) -> None:
    for kind in ("uint64", "complex64"):
        with pytest.raises(RefusedError, match=f"Box of {kind} cannot be hosted"):
            cluster.make_vec("sizes.envs:Odd", 2, env_kwargs={"kind": kind})


def test_an_env_with_such_dtypes_may_be_deterministic(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("sizes.envs:Nested", 1, deterministic=True)
    here = SyncVectorEnv([sizes.Nested])
    assert play(envs, here, AutoresetMode.NEXT_STEP, steps=30) > 0
    envs.close()
