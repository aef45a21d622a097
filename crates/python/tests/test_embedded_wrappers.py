"""Gymnasium's own vector wrappers on embedded envs."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import rollhouse

LANES = 4
AUTORESET = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


def pair(mode: AutoresetMode, wrap) -> tuple[gymnasium.vector.VectorEnv, gymnasium.vector.VectorEnv]:
    ours = rollhouse.make_vec("CartPole-v1", LANES, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * LANES, autoreset_mode=mode)
    return wrap(ours), wrap(theirs)


@pytest.mark.parametrize(
    ("wrap", "modes"),
    [
        (wrappers.RecordEpisodeStatistics, AUTORESET),
        (wrappers.NormalizeReward, AUTORESET),
        (lambda envs: wrappers.ClipReward(envs, 0.2, 0.8), AUTORESET),
        # Wrappers of observations refuse SAME_STEP, whose final observations they do not see.
        (wrappers.NormalizeObservation, AUTORESET[:1]),
        (wrappers.FlattenObservation, AUTORESET[:1]),
    ],
    ids=["RecordEpisodeStatistics", "NormalizeReward", "ClipReward", "NormalizeObservation", "FlattenObservation"],
)
def test_wrappers_do_on_ours_what_they_do_on_gymnasiums(wrap, modes: list[AutoresetMode]) -> None:
    for mode in modes:
        compare(*pair(mode, wrap))


def compare(ours: gymnasium.vector.VectorEnv, theirs: gymnasium.vector.VectorEnv) -> None:
    ours.reset(seed=3)
    theirs.reset(seed=3)
    theirs.action_space.seed(0)
    for _ in range(150):
        actions = theirs.action_space.sample()
        our, their = ours.step(actions), theirs.step(actions)
        for index in range(4):
            assert np.allclose(our[index], their[index], atol=1e-4)
        assert ("episode" in our[4]) == ("episode" in their[4])
        if "episode" in our[4]:
            assert np.array_equal(our[4]["_episode"], their[4]["_episode"])
            assert np.array_equal(our[4]["episode"]["l"], their[4]["episode"]["l"])
            assert np.allclose(our[4]["episode"]["r"], their[4]["episode"]["r"])


def test_statistics_survive_a_partial_reset_of_other_lanes() -> None:
    # Gymnasium 1.4.0's classes take the mask out of the caller's dict, and the wrapper then clears all lanes.
    envs = wrappers.RecordEpisodeStatistics(rollhouse.make_vec("CartPole-v1", 3, autoreset_mode="Disabled"))
    envs.reset(seed=0)
    for _ in range(3):
        envs.step(np.array([0, 1, 0]))
    envs.reset(options={"reset_mask": np.array([True, False, False])})
    assert envs.episode_lengths.tolist() == [0, 3, 3]


def test_infos_become_lists_of_dicts() -> None:
    envs = wrappers.DictInfoToList(rollhouse.make_vec("CartPole-v1", 2, autoreset_mode="SameStep", valid="always"))
    envs.reset(seed=0)
    while True:
        *_, terminations, _, infos = envs.step(np.array([1, 1]))
        assert [info["valid"] for info in infos] == [True, True]
        if terminations.any():
            break
    for lane in range(2):
        assert ("final_obs" in infos[lane]) == terminations[lane]


def test_wrappers_work_on_views() -> None:
    envs = rollhouse.make_vec("CartPole-v1", 4, copy=False)
    wrapped = wrappers.NormalizeObservation(wrappers.RecordEpisodeStatistics(envs))
    wrapped.reset(seed=0)
    for _ in range(60):
        obs = wrapped.step(np.array([0, 1, 0, 1]))[0]
        assert np.isfinite(obs).all()
