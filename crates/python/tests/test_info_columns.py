"""Infos that travelled as columns are what Gymnasium makes of them lane by lane."""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import numpy as np
import pytest
from test_hosted import same

from rollhouse.hosted.info_columns import pack
from rollhouse.hosted.infos import Said, batch_infos

LANES, WORKERS = 6, 2

VALUES = {
    "whole": [1, -7],
    "real": [0.5, float("nan")],
    "truth": [True, False],
    "single": [np.float32(0.1)],
    "small": [np.int8(3)],
    "numpy truth": [np.True_],
    "array": [np.arange(3.0)],
    "text": ["a", None],
    "nested": [{"deep": 1, "text": "b"}],
}


def batches(seed: int, kinds: int) -> list[tuple[Any, dict[str, Any]] | None]:
    """What lanes say: under each key always the same kind of value, or any of ``kinds`` numbers."""
    rng = random.Random(seed)
    said: list[tuple[Any, dict[str, Any]] | None] = []
    for _ in range(LANES):
        info = {key: rng.choice(values) for key, values in VALUES.items() if rng.random() < 0.6}
        if kinds > 1:
            info["mixed"] = rng.choice([1, 2.5, np.float32(0.3)][:kinds])
        keys = rng.sample(list(info), len(info))
        final = (np.ones(2), {"whole": 2}) if rng.random() < 0.3 else None
        said.append((final, {key: info[key] for key in keys}) if rng.random() < 0.9 else None)
    return said


def ours(envs: gymnasium.vector.VectorEnv, said: list[tuple[Any, dict[str, Any]] | None]) -> dict[str, Any]:
    gathered = Said()
    for first in range(0, LANES, LANES // WORKERS):
        lanes = said[first : first + LANES // WORKERS]
        entries = [(lane, *one) for lane, one in enumerate(lanes) if one is not None and (one[0] is not None or one[1])]
        if entries:
            columns, rest, keys = pack(entries, len(lanes))
            gathered.add(first, len(lanes), {"infos": rest, "columns": columns, "keys": keys})
    return batch_infos(envs, list(range(LANES)), gathered)


def theirs(envs: gymnasium.vector.VectorEnv, said: list[tuple[Any, dict[str, Any]] | None]) -> dict[str, Any]:
    infos: dict[str, Any] = {}
    for lane, one in enumerate(said):
        if one is None:
            continue
        final, info = one
        if final is not None:
            infos = envs._add_info(infos, {"final_obs": final[0], "final_info": final[1]}, lane)
        infos = envs._add_info(infos, info, lane)
    return infos


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_they_are_what_gymnasium_makes_of_them_lane_by_lane(kinds: int) -> None:
    envs = gymnasium.vector.VectorEnv()
    envs.num_envs = LANES
    for seed in range(300):
        said = batches(seed, kinds)
        one, two = ours(envs, said), theirs(envs, said)
        same(dict(sorted(one.items())), dict(sorted(two.items())), f"seed {seed}")
        if kinds == 1:
            assert list(one) == list(two), f"seed {seed}"


def test_numbers_of_one_worker_and_objects_of_another_under_one_key() -> None:
    envs = gymnasium.vector.VectorEnv()
    envs.num_envs = LANES
    said: list[Any] = [(None, {"a": None})] * 3 + [(None, {"a": 1, "b": 2.0})] * 3
    same(ours(envs, said), theirs(envs, said))


def test_numbers_alone_are_columns_and_nothing_else_travels() -> None:
    columns, rest, keys = pack([(lane, None, {"a": lane / 2, "b": lane}) for lane in range(4)], 4)
    assert [(key, dtype, lanes) for key, dtype, lanes, _ in columns] == [("a", "float", None), ("b", "int", None)]
    assert (rest, keys) == ([], [])
