"""The adapter for Stable-Baselines3, beside SB3's own ``DummyVecEnv`` over Gymnasium's envs."""

from __future__ import annotations

import os
import signal

import gymnasium
import numpy as np
import pytest

import rollhouse

pytest.importorskip("stable_baselines3")
pytestmark = pytest.mark.adapters("stable_baselines3", "torch")

from stable_baselines3 import A2C, DQN, PPO  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize  # noqa: E402

from rollhouse.sb3 import Sb3VecEnv, make_vec_env  # noqa: E402

ENVS = ["CartPole-v1", "MountainCar-v0", "Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0"]


@pytest.mark.parametrize("env_id", ENVS)
def test_steps_are_those_of_sb3s_own_vec_env(env_id: str) -> None:
    ours = make_vec_env(env_id, 4, seed=5, monitor=False)
    theirs = DummyVecEnv([lambda: gymnasium.make(env_id)] * 4)
    theirs.seed(5)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    first, expected = ours.reset(), theirs.reset()
    assert first.dtype == expected.dtype
    np.testing.assert_array_equal(first, expected)
    ours.action_space.seed(1)
    ended = 0
    for _ in range(1100):
        actions = np.stack([ours.action_space.sample() for _ in range(4)])
        observations, rewards, dones, infos = ours.step(actions)
        their_observations, their_rewards, their_dones, their_infos = theirs.step(actions)
        np.testing.assert_allclose(observations, their_observations, rtol=1e-5, atol=1e-5)
        assert rewards.dtype == their_rewards.dtype == np.float32
        np.testing.assert_allclose(rewards, their_rewards, rtol=1e-5)
        np.testing.assert_array_equal(dones, their_dones)
        for info, theirs_info in zip(infos, their_infos, strict=True):
            assert info.keys() == theirs_info.keys()
            assert info["TimeLimit.truncated"] == theirs_info["TimeLimit.truncated"]
            if "terminal_observation" in info:
                ended += 1
                np.testing.assert_allclose(
                    info["terminal_observation"], theirs_info["terminal_observation"], rtol=1e-5, atol=1e-5
                )
    assert ended > 0


def test_seeds_are_used_once_and_at_the_next_reset() -> None:
    envs = make_vec_env("CartPole-v1", 2, monitor=False)
    assert list(envs.seed(3)) == [3, 4]
    first = envs.reset()
    second = envs.reset()
    envs.seed(3)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(envs.reset(), first)


def test_attributes_are_those_of_the_lanes() -> None:
    envs = make_vec_env("CartPole-v1", 3, monitor=False, sutton_barto_reward=True)
    assert envs.get_attr("sutton_barto_reward") == [True] * 3
    assert envs.get_attr("render_mode", indices=[0, 2]) == [None, None]
    assert envs.has_attr("max_episode_steps") and not envs.has_attr("wheels")
    assert envs.env_is_wrapped(Monitor) == [False] * 3
    assert envs.env_method("render") == [None] * 3
    with pytest.raises(AttributeError):
        envs.get_attr("wheels")
    with pytest.raises(ValueError, match="indices"):
        envs.env_method("render", indices=[1])


def test_monitored_and_normalised_it_reports_returns() -> None:
    envs = VecNormalize(make_vec_env("CartPole-v1", 4, seed=0))
    assert isinstance(envs.venv, VecMonitor)
    envs.reset()
    lengths = []
    for _ in range(200):
        _, rewards, dones, infos = envs.step(np.ones(4, np.int64))
        lengths += [info["episode"]["l"] for info, done in zip(infos, dones, strict=True) if done]
        assert np.isfinite(rewards).all()
    assert lengths and all(8 <= length <= 12 for length in lengths), (
        "pushed right, a pole falls within 8 to 12 steps"
    )


@pytest.mark.parametrize(
    ("algorithm", "arguments"), [(PPO, {"n_steps": 16}), (A2C, {}), (DQN, {"learning_starts": 64})]
)
def test_algorithms_learn_and_evaluate_on_it(algorithm, arguments: dict) -> None:
    envs = make_vec_env("CartPole-v1", 4, seed=0)
    model = algorithm("MlpPolicy", envs, seed=0, device="cpu", **arguments)
    model.learn(512)
    assert model.num_timesteps >= 512
    assert len(model.ep_info_buffer) > 0
    mean, _ = evaluate_policy(model, make_vec_env("CartPole-v1", 4, seed=1), n_eval_episodes=8)
    assert mean >= 8


def test_what_it_cannot_adapt_is_refused() -> None:
    with pytest.raises(ValueError, match="SAME_STEP"):
        Sb3VecEnv(rollhouse.make_vec("CartPole-v1", 2))
    with pytest.raises(ValueError, match="0.29"):
        Sb3VecEnv(rollhouse.make_vec("CartPole-v1", 2, autoreset_mode="SameStep", info_layout="0.29"))
    with pytest.raises(TypeError, match="autoreset_mode"):
        make_vec_env("CartPole-v1", 2, autoreset_mode="NextStep")


def test_it_records_what_sb3_plays(tmp_path) -> None:
    envs = make_vec_env("CartPole-v1", 4, seed=0, record=True, data=tmp_path)
    PPO("MlpPolicy", envs, n_steps=32, device="cpu", seed=0).learn(128)
    envs.close()
    assert sum(info.length for info in rollhouse.replays.open(tmp_path)) == 128


class Scaled(gymnasium.RewardWrapper):
    """Doubles rewards, and has a method and an attribute of its own."""

    factor = 2.0

    def reward(self, reward):
        return self.factor * reward

    def describe(self, word: str) -> str:
        return f"{word} {self.factor}"


@pytest.fixture
def hosted():
    envs = make_vec_env("gymnasium:CartPole-v1", 3, seed=5, monitor=False, wrapper_class=Scaled, workers=2)
    yield envs
    envs.close()


def test_hosted_envs_step_as_sb3s_own_do(hosted: Sb3VecEnv) -> None:
    theirs = DummyVecEnv([lambda: Scaled(gymnasium.make("CartPole-v1"))] * 3)
    theirs.seed(5)
    np.testing.assert_array_equal(hosted.reset(), theirs.reset())
    for step in range(300):
        actions = np.array([step % 2, 1, 0])
        observations, rewards, dones, infos = hosted.step(actions)
        their_observations, their_rewards, their_dones, their_infos = theirs.step(actions)
        np.testing.assert_array_equal(observations, their_observations)
        np.testing.assert_array_equal(rewards, their_rewards)
        np.testing.assert_array_equal(dones, their_dones)
        for info, their_info in zip(infos, their_infos, strict=True):
            assert info.keys() == their_info.keys()
            if "terminal_observation" in info:
                np.testing.assert_array_equal(info["terminal_observation"], their_info["terminal_observation"])


def test_hosted_envs_are_asked_one_by_one(hosted: Sb3VecEnv) -> None:
    assert hosted.env_method("describe", "times", indices=[2, 0]) == ["times 2.0", "times 2.0"]
    hosted.set_attr("factor", 3.0, indices=1)
    assert hosted.get_attr("factor") == [2.0, 3.0, 2.0]
    assert hosted.env_method("describe", "times", indices=1) == ["times 3.0"]
    assert hosted.env_is_wrapped(Scaled) == [True] * 3
    assert hosted.env_is_wrapped(Monitor, indices=0) == [False]


class Optional(gymnasium.Env):
    """Begins where its reset options say."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = (options or {}).get("at", 0.0)
        return np.array([self.at], np.float32), {"options": dict(options or {})}

    def step(self, action):
        return np.array([self.at], np.float32), 0.0, False, False, {"action": int(action)}


def test_options_are_each_lanes_own_and_used_once() -> None:
    envs = make_vec_env(Optional, 3, monitor=False, workers=1)
    envs.set_options([{"at": 1.0}, {"at": 2.0}, {"at": 1.0}])
    np.testing.assert_array_equal(envs.reset(), [[1], [2], [1]])
    assert [info["options"] for info in envs.reset_infos] == [{"at": 1.0}, {"at": 2.0}, {"at": 1.0}]
    np.testing.assert_array_equal(envs.reset(), [[0], [0], [0]])
    _, _, _, infos = envs.step(np.array([0, 1, 0]))
    assert [info["action"] for info in infos] == [0, 1, 0]
    envs.close()


def test_a_built_in_env_cannot_be_wrapped() -> None:
    with pytest.raises(ValueError, match="gymnasium:CartPole-v1"):
        make_vec_env("CartPole-v1", 2, wrapper_class=Scaled)


class Mortal(gymnasium.Env):
    """Kills its process in its third step."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(1, self.steps, np.float32), 1.0, False, False, {}


def test_a_lost_lane_is_raised_or_looks_like_a_time_limit() -> None:
    envs = make_vec_env(Mortal, 1, monitor=False)
    envs.reset()
    envs.step(np.zeros(1, int))
    envs.step(np.zeros(1, int))
    with pytest.raises(rollhouse.errors.LaneLostError):
        envs.step(np.zeros(1, int))
    envs.close()
    envs = make_vec_env(Mortal, 1, monitor=False, on_loss="report")
    envs.reset()
    envs.step(np.zeros(1, int))
    envs.step(np.zeros(1, int))
    _, rewards, dones, infos = envs.step(np.zeros(1, int))
    assert rewards[0] == 0 and dones[0]
    assert infos[0]["TimeLimit.truncated"] and not infos[0]["valid"] and infos[0]["lost"] == "crashed"
    np.testing.assert_array_equal(infos[0]["terminal_observation"], [2])
    envs.close()


def test_masks_of_an_env_are_those_that_maskable_ppo_asks_for() -> None:
    utils = pytest.importorskip("sb3_contrib.common.maskable.utils")
    from sb3_contrib import MaskablePPO

    envs = make_vec_env("test/Masked-v0", 4, seed=0)
    observations = envs.reset()
    assert utils.is_masking_supported(envs)
    for _ in range(40):
        masks = utils.get_action_masks(envs)
        np.testing.assert_array_equal(masks, (observations.astype(int) + np.arange(4)) % 2 == 0)
        observations = envs.step(masks.argmax(axis=1))[0]
    model = MaskablePPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=1, seed=1)
    model.learn(512)
    observations, lost = envs.reset(), 0
    for _ in range(60):
        actions, _ = model.predict(observations, action_masks=utils.get_action_masks(envs))
        observations, _, _, infos = envs.step(actions)
        lost += sum(info.get("result") == "lose" for info in infos)
    assert lost == 0
    without = make_vec_env("CartPole-v1", 2)
    without.reset()
    assert not utils.is_masking_supported(without)
