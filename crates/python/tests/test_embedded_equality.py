"""The built-in envs against Gymnasium's own, through whole seeded episodes."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rollhouse

BUILT_IN = ["Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]
LANES = 5
STEPS = 1100  # several episodes of each env, at least one that its time limit cuts


def pair(id: str, mode: AutoresetMode) -> tuple[rollhouse.VectorEnv, SyncVectorEnv]:
    theirs = SyncVectorEnv([lambda: gymnasium.make(id)] * LANES, autoreset_mode=mode)
    return rollhouse.make_vec(id, LANES, autoreset_mode=mode), theirs


def close_to(ours: np.ndarray, theirs: np.ndarray) -> bool:
    # Singles of doubles that differ in the last bits of a sine, over hundreds of steps of an unstable system.
    return np.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("id", BUILT_IN)
def test_spaces_are_those_of_gymnasium(id: str) -> None:
    ours, theirs = pair(id, AutoresetMode.NEXT_STEP)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.single_action_space == theirs.single_action_space
    assert ours.action_space == theirs.action_space
    assert ours.observation_space.dtype == theirs.observation_space.dtype


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("id", BUILT_IN)
def test_seeded_episodes_are_those_of_gymnasium(id: str, mode: AutoresetMode) -> None:
    ours, theirs = pair(id, mode)
    obs, infos = ours.reset(seed=17)
    their_obs, their_infos = theirs.reset(seed=17)
    assert close_to(obs, their_obs)
    assert infos == their_infos == {}
    assert obs.dtype == their_obs.dtype
    theirs.action_space.seed(3)
    ends = 0
    for _ in range(STEPS):
        actions = theirs.action_space.sample()
        obs, rewards, terminations, truncations, infos = ours.step(actions)
        their_obs, their_rewards, their_terminations, their_truncations, their_infos = theirs.step(actions)
        assert close_to(obs, their_obs)
        assert close_to(rewards, their_rewards)
        assert np.array_equal(terminations, their_terminations)
        assert np.array_equal(truncations, their_truncations)
        assert (rewards.dtype, terminations.dtype, truncations.dtype) == (np.float64, np.bool_, np.bool_)
        over = terminations | truncations
        ends += over.sum()
        assert {key for key in infos if not key.endswith("valid")} == set(their_infos)
        if mode is AutoresetMode.SAME_STEP and over.any():
            assert np.array_equal(infos["_final_obs"], their_infos["_final_obs"])
            for lane in np.flatnonzero(over):
                assert close_to(infos["final_obs"][lane], their_infos["final_obs"][lane])
                assert infos["final_obs"][lane].dtype == obs.dtype
            assert all(infos["final_obs"][lane] is None for lane in np.flatnonzero(~over))
        if mode is AutoresetMode.DISABLED and over.any():
            obs, infos = ours.reset(options={"reset_mask": over})
            their_obs, _ = theirs.reset(options={"reset_mask": over.copy()})
            assert close_to(obs, their_obs)
            assert infos == {}
    assert ends >= LANES


def test_options_are_those_of_gymnasium() -> None:
    for options in ({"sutton_barto_reward": True}, {"sutton_barto_reward": False}):
        ours = rollhouse.make_vec("CartPole-v1", 4, **options)
        theirs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1", **options)] * 4)
        ours.reset(seed=1)
        theirs.reset(seed=1)
        for _ in range(40):
            actions = np.ones(4, dtype=np.int64)
            assert np.array_equal(ours.step(actions)[1], theirs.step(actions)[1])


@pytest.mark.parametrize("limit", [1, 7])
def test_a_time_limit_is_gymnasiums(limit: int) -> None:
    ours = rollhouse.make_vec("Pendulum-v1", 3, max_episode_steps=limit)
    theirs = SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1", max_episode_steps=limit)] * 3)
    ours.reset(seed=0)
    theirs.reset(seed=0)
    for _ in range(30):
        actions = np.zeros((3, 1), dtype=np.float32)
        for our, their in zip(ours.step(actions)[1:4], theirs.step(actions)[1:4]):
            assert close_to(our, their)


def test_without_a_time_limit_no_episode_is_truncated() -> None:
    envs = rollhouse.make_vec("Pendulum-v1", 2, max_episode_steps=0)
    envs.reset(seed=0)
    for _ in range(500):
        *_, truncations, infos = envs.step(np.zeros((2, 1), dtype=np.float32))
        assert not truncations.any()
        assert infos == {}


def test_results_do_not_depend_on_threads() -> None:
    runs = []
    for threads in (1, 2):
        envs = rollhouse.make_vec("CartPole-v1", 600, threads=threads)
        assert envs.threads == threads
        obs, _ = envs.reset(seed=5)
        rng = np.random.default_rng(0)
        run = [obs]
        for _ in range(60):
            run.extend(envs.step(rng.integers(0, 2, 600))[:4])
        runs.append(run)
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))
