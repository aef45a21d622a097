"""Infos that travelled as bytes are what Gymnasium makes of them lane by lane."""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import numpy as np
import pytest
from test_hosted import same

from rollhouse.hosted.infos import batch_infos
from rollhouse.hosted.words import NUMBERS, Packer, Reader, pickled
from rollhouse.hosted.worker import dump

LANES = 6

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
    packer, told = Packer(), []
    for lane, one in enumerate(said):
        if one is None or (one[0] is None and not one[1]):
            continue
        final, info = one
        if final is None:
            words = packer.numbers(info) or pickled(None, info, None, None, dump)
            told.append((lane, words, None) if lane % 2 else (lane, None, words))
        else:
            last, last_info = final
            begun = pickled(None, info, None, None, dump) if info else None
            told.append((lane, pickled((last,), last_info, None, None, dump), begun))
    return batch_infos(envs, list(range(LANES)), Reader().read(told, []))


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
        same(ours(envs, said), theirs(envs, said), f"seed {seed}")


@pytest.mark.parametrize("missing", [[], [0], [2, 5], [0, 1, 2, 3, 4]])
def test_numbers_of_all_types_under_the_same_keys_are_too(missing: list[int]) -> None:
    envs = gymnasium.vector.VectorEnv()
    envs.num_envs = LANES
    kinds = [int, float, bool, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]
    kinds += [np.int64, np.uint64, np.float16, np.float32, np.float64]
    said: list[Any] = []
    for lane in range(LANES):
        said.append(None if lane in missing else (None, {f"k{at}": kind(lane + at) for at, kind in enumerate(kinds)}))
    same(ours(envs, said), theirs(envs, said))
    assert Packer().numbers({f"k{at}": kind(1) for at, kind in enumerate(kinds)})[0] == NUMBERS


def test_numbers_of_one_lane_and_objects_of_another_under_one_key() -> None:
    envs = gymnasium.vector.VectorEnv()
    envs.num_envs = LANES
    said: list[Any] = [(None, {"a": None})] * 3 + [(None, {"a": 1, "b": 2.0})] * 3
    same(ours(envs, said), theirs(envs, said))


def test_only_numbers_that_fit_are_packed() -> None:
    packer = Packer()
    assert packer.numbers({"a": 1}) is not None
    for info in ({"a": 1 << 70}, {"a": "b"}, {"a": np.arange(2)}, {"a": np.True_}, {1: 2}):
        assert packer.numbers(info) is None
