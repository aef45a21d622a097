"""What a worker finds out about an env's infos, and how it writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tallies
from gymnasium import spaces

from rollhouse.remarks import MAX_INFO_BYTES, MAX_INFOS, LaneInfos, channels, keys_of, learned, least


def paths(found: list[dict[str, Any]]) -> list[str]:
    return [channel["path"] for channel in found]


def test_numbers_of_a_reset_and_of_a_step_are_found_whatever_lies_between() -> None:
    env = tallies.Tally()
    said = learned(env, lambda: env.reset(seed=0))
    assert paths(said["first"]) == ["lives", "frame", "first"]
    assert paths(said["step"]) == ["lives", "frame", "speed", "forces", "goal/distance", "goal/near", "rate~1s", "bonus"]
    assert keys_of("goal/distance") == ["goal", "distance"] and keys_of("rate~1s") == ["rate/s"] and keys_of("a~01") == ["a~1"]
    types = {channel["path"]: (channel["dtype"], channel["shape"]) for channel in said["step"]}
    assert types["lives"] == ("int64", []) and types["forces"] == ("float32", [3]) and types["goal/near"] == ("bool", [])


def test_what_is_no_number_or_too_much_is_left_out() -> None:
    info = {"text": "a", "list": [1, 2], "none": None, "valid": 1, "_mask": True, 3: 4, "small": np.int8(2), "wide": np.uint64(7)}
    assert channels(info) == [{"path": "small", "dtype": "int32", "shape": []}]
    many = {f"key{at}": at for at in range(MAX_INFOS + 5)}
    assert len(channels(many)) == MAX_INFOS
    large = {"picture": np.zeros(MAX_INFO_BYTES + 1, np.uint8), "lives": 3}
    assert paths(channels(large)) == ["lives"]
    assert channels({"long" * 100: 1, "deep": {"a": {"b": {"c": {"d": {"e": 1}}}}}}) == []


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([3, 4], start=[1, 2]),
        spaces.MultiBinary([2, 2]),
        spaces.Box(1, 2, (2,)),
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.Box(-1, 1, ()), spaces.Text(4)])),
    ],
    ids=str,
)
def test_the_action_that_is_tried_is_one_of_the_space(space: spaces.Space) -> None:
    assert space.contains(least(space))


def test_a_masked_action_is_the_first_that_is_allowed() -> None:
    assert least(spaces.Discrete(3, start=5), np.array([0, 0, 1], np.int8)) == 7


def test_what_a_lane_does_not_say_is_not_there_and_what_it_said_at_its_reset_stays() -> None:
    memory: dict[int, np.ndarray] = {}

    def array(at: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        return memory.setdefault(at, np.zeros((2, *shape), dtype))

    number = {"dtype": "float64", "shape": []}
    infos = {
        "record": [{"path": "goal/near", **number}],
        "reported": [],
        "step": [{"path": "speed", **number}, {"path": "lives", "dtype": "int64", "shape": []}],
        "first": [{"path": "lives", "dtype": "int64", "shape": []}],
    }
    lanes = LaneInfos(infos, [0, 1, 2, 3, 4], None, array)
    lanes.first(1, {"lives": 3})
    lanes.step(1, {"speed": 0.5, "lives": 2, "goal": {"near": 1.0}})
    assert memory[4].tolist() == [[False] * 4, [True] * 4]
    assert (memory[0][1], memory[1][1], memory[2][1], memory[3][1]) == (1, 0.5, 2, 3)
    lanes.step(1, {"speed": "fast", "lives": 1.5})
    assert memory[4][1].tolist() == [False, False, False, True]
    assert np.isnan(memory[0][1]) and np.isnan(memory[1][1]) and memory[2][1] == 0
    with pytest.raises(ValueError, match="goal/near.*record_infos"):
        lanes.step(1, {"goal": {"near": [1.0, 2.0]}})
    assert not memory[4][0].any(), "the other lane has said nothing"


def test_a_step_reports_the_action_that_was_taken_else_the_given_one_and_nothing_of_another_shape() -> None:
    memory: dict[int, np.ndarray] = {}

    def array(at: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        return memory.setdefault(at, np.zeros((2, *shape), dtype))

    whole = {"dtype": "int64", "shape": []}
    margin = {"path": "margin", "dtype": "float32", "shape": [2]}
    reported = [{"path": "action_taken", **whole}, {"path": "policy_version", **whole}, margin]
    lanes = LaneInfos({"record": [], "reported": reported, "step": [], "first": []}, [0, 1, 2, 3], (4, 1024), array)

    def report(info: dict[str, Any]) -> list[Any]:
        lanes.step(1, info)
        lanes.report(1, info, np.array(7), lambda action: action)
        return [memory[at][1].tolist() for at in range(4)]

    given = report({})
    assert given[:2] == [7, 0] and np.isnan(given[2]).all() and given[3] == [False, False, False, False]
    told = report({"action_taken": 2, "policy_version": 5, "margin": [0.5, 1.0]})
    assert told == [2, 5, [0.5, 1.0], [True, True, True, False]], "nothing of it is without a column"
    for wrong in ({"action_taken": [1, 2]}, {"action_taken": 0.5}, {"policy_version": "new"}, {"margin": 1.0}):
        with pytest.raises(ValueError, match=f"info '{next(iter(wrong))}' is not as the env declares it"):
            report(wrong)
    assert memory[0].tolist()[0] == 0, "the other lane has reported nothing"


def test_numbers_that_are_reported_are_no_remarks() -> None:
    assert [channel["path"] for channel in channels({"action_taken": 1, "lives": 2}, {"action_taken"})] == ["lives"]
