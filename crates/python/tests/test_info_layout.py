"""The infos of Gymnasium 0.29, and the infos of one lane."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import VectorEnv

import rollhouse
from rollhouse.info_layout import infos_of_029, lane_info


def vectorised(per_lane: list[dict]) -> dict:
    infos: dict = {}
    for lane, info in enumerate(per_lane):
        env = VectorEnv()
        env.num_envs = len(per_lane)
        infos = env._add_info(infos, info, lane)
    return infos


def same(a, b) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return np.array_equal(a, b) and np.asarray(a).dtype.kind == np.asarray(b).dtype.kind


def test_what_gymnasium_vectorised_comes_apart_again() -> None:
    per_lane = [
        {
            "count": 3,
            "speed": 1.5,
            "won": False,
            "word": "left",
            "at": np.arange(3),
            "deep": {"er": {"x": 1}, "y": 2.0},
        },
        {},
        {"count": 0, "none": None, "deep": {"er": {"x": 0}}},
    ]
    infos = vectorised(per_lane)
    for lane, info in enumerate(per_lane):
        assert same(lane_info(infos, lane), info), lane


def test_final_infos_are_named_and_laid_out_as_in_029() -> None:
    envs = rollhouse.make_vec("CartPole-v1", 3, autoreset_mode="SameStep", info_layout="0.29")
    new = rollhouse.make_vec("CartPole-v1", 3, autoreset_mode="SameStep")
    envs.reset(seed=1), new.reset(seed=1)
    ended = 0
    for _ in range(100):
        old_infos, new_infos = envs.step(np.ones(3, np.int64))[4], new.step(np.ones(3, np.int64))[4]
        assert "final_obs" not in old_infos and "valid" not in old_infos
        assert ("final_obs" in new_infos) == ("final_observation" in old_infos)
        if "final_obs" not in new_infos:
            continue
        ended += 1
        np.testing.assert_array_equal(old_infos["_final_observation"], new_infos["_final_obs"])
        np.testing.assert_array_equal(old_infos["_final_info"], new_infos["_final_obs"])
        for lane, over in enumerate(new_infos["_final_obs"]):
            if over:
                np.testing.assert_array_equal(
                    old_infos["final_observation"][lane], new_infos["final_obs"][lane]
                )
                assert isinstance(old_infos["final_info"][lane], dict)
            else:
                assert old_infos["final_observation"][lane] is None and old_infos["final_info"][lane] is None
    assert ended > 10


def test_final_infos_hold_what_the_env_said() -> None:
    final = vectorised([{"episode": {"r": 7.0}, "cause": "fell"}, {}, {"episode": {"r": 9.0}}])
    mask = np.array([True, False, True])
    infos = {
        "final_info": final,
        "_final_info": mask,
        "final_obs": np.empty(3, object),
        "_final_obs": mask,
        "k": 1,
    }
    old = infos_of_029(infos, 3)
    assert old["k"] == 1 and "final_obs" in infos, "the infos given are not changed"
    assert old["final_info"][0] == {"episode": {"r": 7.0}, "cause": "fell"}
    assert old["final_info"][1] is None
    assert old["final_info"][2] == {"episode": {"r": 9.0}}


def test_cleanrl_logs_returns_from_them() -> None:
    """The loop of CleanRL's scripts for Gymnasium 0.29, over per-lane statistics."""
    final = vectorised([{"episode": {"r": np.array([7.0]), "l": np.array([7])}}, {}])
    infos = infos_of_029({"final_info": final, "_final_info": np.array([True, False])}, 2)
    logged = [info["episode"]["r"] for info in infos["final_info"] if info and "episode" in info]
    assert logged == [7.0]


@pytest.mark.parametrize("hosted", [False, True])
def test_what_episodes_came_to_is_in_them_too(hosted: bool) -> None:
    arguments: dict = {"autoreset_mode": "SameStep", "info_layout": "0.29", "statistics": True}
    if hosted:
        envs = rollhouse.vectorize([lambda: gymnasium.make("CartPole-v1")] * 3, workers=1, **arguments)
    else:
        envs = rollhouse.make_vec("CartPole-v1", 3, **arguments)
    envs.reset(seed=0)
    lengths, ended = np.zeros(3, int), 0
    for _ in range(60):
        *_, terminations, _, infos = envs.step(np.ones(3, np.int64))
        lengths += 1
        for lane in np.flatnonzero(terminations):
            episode = infos["final_info"][lane]["episode"]
            assert (episode["r"], episode["l"]) == (lengths[lane], lengths[lane]) and set(episode) == {"r", "l", "t"}
            assert infos["episode"]["l"][lane] == lengths[lane]
            lengths[lane], ended = 0, ended + 1
    assert ended > 10
    envs.close()


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="0.21"):
        rollhouse.make_vec("CartPole-v1", 1, info_layout="0.21")


def with_statistics() -> gymnasium.Env:
    return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))


def test_hosted_lanes_have_it_too() -> None:
    envs = rollhouse.vectorize([with_statistics] * 3, workers=1, autoreset_mode="SameStep", info_layout="0.29")
    envs.reset(seed=0)
    lengths, ended = np.zeros(3, int), 0
    for _ in range(60):
        _, _, terminations, _, infos = envs.step(np.ones(3, np.int64))
        lengths += 1
        assert ("final_info" in infos) == terminations.any()
        for lane in np.flatnonzero(terminations):
            assert infos["_final_info"][lane] and infos["_final_observation"][lane]
            assert infos["final_info"][lane]["episode"]["l"] == lengths[lane]
            lengths[lane], ended = 0, ended + 1
    assert ended > 10
    envs.close()
