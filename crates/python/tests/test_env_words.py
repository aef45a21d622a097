"""What envs say beside the protocol costs no lane, here and on nodes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import chatter
import gymnasium
import numpy as np
import pytest
from chatter import Chatter, Errand
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rollhouse
from rollhouse import replays

ACTIONS = np.zeros((2, 2), np.int64)
MASK = [1, 0, 0, 1, 1]


def here(says: str, tmp_path: Path, **arguments: Any) -> Any:
    """Lanes of workers, recorded."""
    return rollhouse.vectorize([partial(Chatter, says)] * 2, workers=1, record=True, data=tmp_path, **arguments)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("says", Chatter.WORDS)
def test_rows_of_envs_that_say_anything_are_delivered_and_recorded(says: str, mode: AutoresetMode, tmp_path: Path) -> None:
    """Symptom: keys that are numbers raised in every step, and an info of None or of a generator lost the lane."""
    envs = here(says, tmp_path, autoreset_mode=mode)
    envs.reset(seed=0)
    for step in range(1, 6):
        observations, rewards, terminations, *_ = envs.step(ACTIONS)
        assert rewards.tolist() == [1.0, 1.0]
        assert step == 5 or observations.tolist() == [[step], [step]]
    assert terminations.all()
    envs.close()
    assert [info.length for info in replays.open(tmp_path) if info.finished] == [5, 5]


@pytest.mark.parametrize("says", Chatter.WORDS)
def test_nodes_deliver_them_too(cluster: rollhouse.Cluster, says: str) -> None:
    envs = cluster.make_vec("chatter:Chatter", 2, env_kwargs={"says": says})
    _, infos = envs.reset(seed=0)
    for _ in range(12):
        assert ("action_mask" in infos) == (says in ("tuple", "board"))
        if "action_mask" in infos:
            assert infos["action_mask"].tolist() == [MASK, MASK]
        *_, infos = envs.step(ACTIONS)
        assert "lost" not in infos
    envs.close()


def test_infos_that_cannot_be_sent_or_read_say_why(tmp_path: Path) -> None:
    class Unreadable:
        """Can be pickled, and made nowhere else."""

        def __reduce__(self) -> Any:
            return float, ("no number",)

    class Says(Chatter):
        def reset(self, **arguments: Any) -> Any:
            return super().reset(**arguments)[0], {"what": Unreadable(), "fine": 1.0}

    envs = here("generator", tmp_path)
    infos = envs.reset(seed=0)[1]
    assert "generator that cannot be sent" in infos["generator"][0] and infos["fine"].tolist() == [1.0, 1.0]
    envs.close()
    envs = rollhouse.vectorize([Says] * 2)
    infos = envs.reset(seed=0)[1]
    assert "ValueError" in infos["info_unread"][1]
    assert envs.step(ACTIONS)[1].tolist() == [1.0, 1.0]
    envs.close()


def test_infos_that_differ_from_lane_to_lane_are_objects() -> None:
    """Symptom: an array of another shape, or a text beside a number, raised in the step of the whole batch."""

    class Differs(Chatter):
        def __init__(self, lane: int):
            super().__init__()
            self.WORDS = {
                "none": [
                    {"shape": np.zeros(2), "kind": 1, "nested": {"deep": 1}, "great": 1, "fine": 0.5},
                    {"shape": np.zeros(3), "kind": "text", "nested": 2, "great": 2**70, "fine": 1.5},
                    {"shape": 1.0, "kind": {"a": 1}, "nested": {"deep": "x"}, "great": 3},
                ][lane]
            }

    envs = rollhouse.vectorize([partial(Differs, lane) for lane in range(3)], workers=2)
    envs.reset(seed=0)
    for _ in range(2):
        infos = envs.step(np.zeros((3, 2), np.int64))[4]
        assert [np.shape(value) for value in infos["shape"]] == [(2,), (3,), ()] and infos["_shape"].all()
        assert infos["kind"].tolist() == [1, "text", {"a": 1}]
        assert infos["nested"].tolist() == [{"deep": 1}, 2, {"deep": "x"}]
        assert infos["great"].tolist() == [1, 2**70, 3]
        assert infos["fine"].tolist() == [0.5, 1.5, 0.0] and infos["_fine"].tolist() == [True, True, False]
    envs.close()


def test_names_of_ours_stay_ours_with_one_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        envs = here("own", tmp_path, valid="always", record_infos={"fine": 0.0})
        envs.reset(seed=0)
        for step in range(7):
            infos = envs.step(ACTIONS)[4]
            assert infos["valid"].tolist() == [step != 5] * 2 and "lost" not in infos
            assert step == 5 or infos["fine"].tolist() == [1.0, 1.0]
        envs.close()
    told = [str(warning.message) for warning in caught if "this package's name" in str(warning.message)]
    assert len(told) == 1 and "lost, valid" in told[0], told
    envs = rollhouse.vectorize([partial(Chatter, "own")] * 2, info_layout="gymnasium")
    assert envs.reset(seed=0)[1]["lost"].tolist() == ["keys"] * 2
    envs.close()


@pytest.mark.parametrize("reward", [[2.5], (2.5,), np.array([2.5]), np.array([[2.5]], np.float32), np.array(2.5), True])
def test_a_reward_that_is_an_array_of_one_is_its_number(reward: Any) -> None:
    envs = rollhouse.vectorize([partial(Chatter, "none", reward)] * 2)
    envs.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert envs.step(ACTIONS)[1].tolist() == [float(np.ravel(reward)[0])] * 2
    envs.close()


def test_nodes_take_a_reward_that_is_an_array_of_one(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("chatter:Chatter", 2, env_kwargs={"reward": [2.5]})
    envs.reset(seed=0)
    assert envs.step(ACTIONS)[1].tolist() == [2.5, 2.5]
    envs.close()


def test_nested_infos_are_recorded_by_their_path(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        envs = here("nested", tmp_path, record_infos={"arm/force": 0.0, "arm/none": 0.0})
        envs.reset(seed=0)
        for _ in range(5):
            envs.step(ACTIONS)
        envs.close()
    assert not [warning for warning in caught if "left out" in str(warning.message)]
    recorded = replays.open(tmp_path)
    infos = recorded.read(recorded.list(limit=1)[0]).infos
    assert infos["arm/force"].tolist() == [2.5] * 5 and np.isnan(infos["arm/none"]).all()


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_wrappers_that_know_the_time_limit_are_what_they_are_in_gymnasium(cluster: rollhouse.Cluster, mode: AutoresetMode) -> None:
    """Symptom: an env that is registered with such a wrapper could not be made on a node."""
    there = cluster.make_vec("gymnasium:chatter:chatter/Timed-v0", 2, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: gymnasium.make("chatter/Timed-v0")] * 2, autoreset_mode=mode)
    assert there.single_observation_space == theirs.single_observation_space
    one, two = there.reset(seed=1)[0], theirs.reset(seed=1)[0]
    for step in range(7):
        np.testing.assert_array_equal(one["time"], two["time"])
        one, *rest = there.step([1, 0] if step % 2 else [0, 1])
        two, *expected = theirs.step([1, 0] if step % 2 else [0, 1])
        for ours, others in zip(rest[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(ours, others)
    there.close()
    theirs.close()


def left(space: spaces.Space) -> None:
    assert isinstance(space, spaces.Dict) and set(space) == {"at", "told"}
    assert isinstance(space["told"], spaces.Dict) and set(space["told"]) == {"how"}


def test_parts_of_foreign_spaces_are_left_out_on_request(cluster: rollhouse.Cluster, tmp_path: Path) -> None:
    parts = ["told/mission"]
    doors: list[Callable[[], Any]] = [
        lambda: rollhouse.vectorize([Errand] * 2, leave_out=parts, record=True, data=tmp_path),
        lambda: rollhouse.make_vec("chatter:Errand", 2, leave_out=parts, record=True, data=tmp_path),
        lambda: cluster.make_vec("chatter:Errand", 2, leave_out=parts),
        lambda: cluster.make_vec("chatter:Errand", 2, env_kwargs={"leave_out": parts}),
    ]
    for door in doors:
        envs = door()
        left(envs.single_observation_space)
        observations, _ = envs.reset(seed=0)
        assert observations["told"]["how"].tolist() == [2, 2] and "mission" not in observations["told"]
        envs.step([0, 1])
        envs.close()
    assert {info.env for info in replays.open(tmp_path)} == {"chatter:Errand"}
    with pytest.raises(ValueError, match="no part 'told/missing'"):
        rollhouse.vectorize([Errand], leave_out=["told/missing"])
    with pytest.raises(rollhouse.errors.RefusedError, match="no part 'told/missing'"):
        cluster.make_vec("chatter:Errand", 1, leave_out=["told/missing"])
    assert chatter.Errand.observation_space["told"]["mission"] is not None
