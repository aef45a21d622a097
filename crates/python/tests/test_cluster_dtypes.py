"""Python envs on nodes whose values have dtypes that columns have not: shown, recorded and given to envs as their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LocalCluster, rollhouse_program
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from test_cluster_python import play, python_settings, recorded_of, same, same_spaces

import rollhouse
from rollhouse.action_parts import ActionParts
from rollhouse.errors import InvalidActionError, RefusedError
from rollhouse.native_env import action_converter
from rollhouse.vector import rows_at

LANES = 3
KINDS = ("int8", "int16", "uint16", "uint32", "float16")

PACKAGE = '''
import gymnasium
import numpy as np
from gymnasium import spaces

KINDS = ("int8", "int16", "uint16", "uint32", "float16")


def ends(kind):
    """The least and the greatest number of a dtype."""
    range_of = np.finfo(kind) if kind == "float16" else np.iinfo(kind)
    return range_of.min, range_of.max


class Alone(gymnasium.Env):
    """Shows a Box of one dtype over its whole range, and takes another."""

    def __init__(self, kind, shape=(2,)):
        self.observation_space = self.action_space = spaces.Box(*ends(kind), tuple(shape), kind)

    def _drawn(self, space):
        if space.dtype.kind == "f":
            return self.np_random.uniform(-60000, 60000, space.shape).astype(space.dtype)[()]
        drawn = self.np_random.integers(*ends(space.dtype.name), space.shape, space.dtype, endpoint=True)
        return space.dtype.type(drawn) if space.shape == () else drawn

    def _shown(self):
        return self._drawn(self.observation_space)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 9))
        return self._shown(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.left -= 1
        return self._shown(), self._felt(action), self.left == 0, False, {}

    def _felt(self, action):
        return float(np.asarray(action, np.float64).sum())


class Odd(Alone):
    """Shows a Box of a dtype that no column has."""

    def __init__(self, kind):
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(0, 1, (2,), np.uint64)
        self.observation_space.dtype = np.dtype(kind)


class Choice(Alone):
    """Shows and takes choices of a dtype."""

    def __init__(self, kind):
        self.observation_space = spaces.MultiDiscrete([100, 27], dtype=kind, start=[0, 100])
        self.action_space = spaces.Discrete(27, start=100, dtype=kind)

    def _shown(self):
        return (self.np_random.integers(0, [100, 27]) + [0, 100]).astype(self.observation_space.dtype)


class Bits(Alone):
    """Shows and takes bits, which Gymnasium has as int8."""

    def __init__(self):
        self.observation_space = self.action_space = spaces.MultiBinary(3)

    def _shown(self):
        return self.np_random.integers(0, 2, 3, np.int8)


class Nested(Alone):
    """Shows and takes all dtypes in Dict and Tuple, and sequences of some."""

    metadata = {"max_lengths": {"seen/0": 4, "seen/1": 3}}

    def __init__(self):
        boxes = {kind: spaces.Box(*ends(kind), (2, 3), kind) for kind in KINDS}
        scalars = spaces.Tuple([spaces.Box(*ends(kind), (), kind) for kind in KINDS])
        few = spaces.Discrete(5, start=-7, dtype=np.int8)
        seen = (spaces.Sequence(spaces.Box(-9, 9, (2,), np.int16), stack=True), spaces.Sequence(few))
        self.observation_space = spaces.Dict({
            "boxes": spaces.Dict(boxes), "scalars": scalars, "few": few, "seen": spaces.Tuple(seen),
            "plain": spaces.Box(0, 1, (2,), np.float32), "bits": spaces.MultiBinary(3),
        })
        self.action_space = spaces.Tuple([spaces.Dict(boxes), few, spaces.MultiDiscrete([9, 3], dtype=np.uint8)])

    def _shown(self):
        draw = self.np_random
        return {
            "bits": draw.integers(0, 2, 3, np.int8),
            "boxes": {kind: self._drawn(box) for kind, box in self.observation_space["boxes"].items()},
            "few": np.int8(draw.integers(-7, -2)),
            "plain": draw.uniform(0, 1, 2).astype(np.float32),
            "scalars": tuple(self._drawn(box) for box in self.observation_space["scalars"]),
            "seen": (
                draw.integers(-9, 9, (draw.integers(0, 5), 2), np.int16),
                tuple(np.int8(draw.integers(-7, -2)) for _ in range(draw.integers(0, 4))),
            ),
        }

    def _felt(self, action):
        boxes, few, many = action
        assert [box.dtype.name for box in boxes.values()] == sorted(KINDS)
        return float(sum(box.astype(np.float64).sum() for box in boxes.values()) + few + many.sum())
'''


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package `sizes`."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "sizes").mkdir()
    (folder / "sizes/__init__.py").touch()
    (folder / "sizes/envs.py").write_text(PACKAGE)
    return folder


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Iterator[LocalCluster]:
    path = {"PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])}
    settings = python_settings("sizes")
    cluster = LocalCluster(tmp_path_factory.mktemp("nodes"), rollhouse_program(), settings, {"one": path, "two": path})
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module", params=["quic", "shm"])
def cluster(nodes: LocalCluster, request: pytest.FixtureRequest) -> rollhouse.Cluster:
    return rollhouse.connect(nodes.url, transport=request.param, timeout=120)


@pytest.fixture
def sizes(package: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(package)
    from sizes import envs  # type: ignore[import-not-found]

    return envs


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
    cluster: rollhouse.Cluster, sizes: Any, name: str, kwargs: dict[str, Any], mode: AutoresetMode, copy: bool
) -> None:
    # Sessions on both nodes, or one whose memory is looked at in place.
    lanes, spread = (LANES, "even") if copy else (2, "pack")
    there = cluster.make_vec(f"sizes.envs:{name}", lanes, env_kwargs=kwargs, autoreset_mode=mode, spread=spread, copy=copy)
    here = SyncVectorEnv([lambda: getattr(sizes, name)(**kwargs)] * lanes, autoreset_mode=mode)
    same_spaces(there, here)
    assert play(there, here, mode) > lanes
    assert there.observation_space.contains(there.reset(seed=3)[0])
    there.close()


def test_first_done_gives_each_lane_its_own_dtypes(cluster: rollhouse.Cluster, sizes: Any) -> None:
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


def test_recordings_tell_the_envs_own_dtypes(cluster: rollhouse.Cluster, sizes: Any) -> None:
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


def test_an_env_with_such_dtypes_may_be_deterministic(cluster: rollhouse.Cluster, sizes: Any) -> None:
    envs = cluster.make_vec("sizes.envs:Nested", 1, deterministic=True)
    here = SyncVectorEnv([sizes.Nested])
    assert play(envs, here, AutoresetMode.NEXT_STEP, steps=30) > 0
    envs.close()
