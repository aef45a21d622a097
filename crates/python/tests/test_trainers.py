"""Trainers step and learn on built-in envs by the lines that their own documentation has, and on nothing else of ours.

So do the blocks of docs/trainers.md."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from pages import TRAINERS, blocks, run

import rollhouse

DISCRETE, CONTINUOUS = "rollhouse/CartPole-v1", "rollhouse/Pendulum-v1"


# The page


@pytest.mark.parametrize("code", blocks(TRAINERS))
def test_the_lines_of_the_page_run(code: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run(code, tmp_path, request)


# CleanRL


@pytest.mark.adapters("torch")
def test_a_script_in_cleanrls_manner_learns_and_logs_what_episodes_came_to() -> None:
    import torch

    torch.manual_seed(1)
    lanes, length = 16, 64
    envs = rollhouse.make_vec("CartPole-v1", lanes, autoreset_mode="SameStep", info_layout="0.29", statistics=True)
    layers = [torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3)]
    agent = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3, eps=1e-5)
    observation = torch.Tensor(envs.reset(seed=1)[0])
    running, logged, counted = np.zeros(lanes), [], []
    for _ in range(30):
        steps = []
        for _ in range(length):
            with torch.no_grad():
                out = agent(observation)
            chances = torch.distributions.Categorical(logits=out[:, :2])
            action = chances.sample()
            following, reward, terminations, truncations, infos = envs.step(action.numpy())
            done = terminations | truncations
            steps.append((observation, action, chances.log_prob(action), torch.Tensor(reward), torch.Tensor(done), out[:, 2]))
            observation = torch.Tensor(following)
            running += reward
            counted += running[done].tolist()
            running[done] = 0.0
            if "final_info" in infos:
                for info in infos["final_info"]:
                    if info and "episode" in info:
                        logged.append(float(info["episode"]["r"]))
        observations, actions, old, rewards, dones, values = (torch.stack(column) for column in zip(*steps, strict=True))
        with torch.no_grad():
            ahead, value, advantages = torch.zeros(lanes), agent(observation)[:, 2], torch.zeros(length, lanes)
            for t in reversed(range(length)):
                error = rewards[t] + 0.99 * (1 - dones[t]) * value - values[t]
                advantages[t] = ahead = error + 0.95 * 0.99 * (1 - dones[t]) * ahead
                value = values[t]
        returns, scaled = advantages + values, (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        for _ in range(4):
            out = agent(observations)
            chances = torch.distributions.Categorical(logits=out[..., :2])
            ratio = (chances.log_prob(actions) - old).exp()
            gain = torch.min(ratio * scaled, ratio.clamp(0.8, 1.2) * scaled).mean()
            loss = 0.01 * (out[..., 2] - returns).pow(2).mean() - gain - 0.01 * chances.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert logged == counted and len(logged) > 100
    assert np.mean(logged[-30:]) > 2 * np.mean(logged[:30])
    envs.close()


# Stable-Baselines3


def sb3(name: str, env: Any) -> Any:
    import stable_baselines3

    short = {
        "PPO": {"n_steps": 32, "batch_size": 32, "n_epochs": 1},
        "A2C": {"n_steps": 8},
        "DQN": {"learning_starts": 20, "buffer_size": 500},
        "SAC": {"learning_starts": 20, "buffer_size": 500, "train_freq": 16},
    }
    small = {"net_arch": [8]}
    return getattr(stable_baselines3, name)(
        "MlpPolicy", env, seed=0, device="cpu", policy_kwargs=small, **short[name]
    )


@pytest.mark.adapters("stable_baselines3", "torch")
@pytest.mark.parametrize("how", ["id", "make_vec_env", "adapter"])
@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN", "SAC"])
def test_stable_baselines3_learns(name: str, how: str) -> None:
    from stable_baselines3.common.env_util import make_vec_env

    from rollhouse.sb3 import make_vec_env as ours

    id = CONTINUOUS if name == "SAC" else DISCRETE
    env: Any = id
    if how == "make_vec_env":
        env = make_vec_env(id, n_envs=3, seed=0)
    elif how == "adapter":
        env = ours(id, 3, seed=0)
    model = sb3(name, env)
    model.learn(128)
    assert model.num_timesteps >= 128
    action, _ = model.predict(model.get_env().reset())
    assert model.action_space.contains(action[0])
    model.get_env().close()


# TorchRL


@pytest.mark.adapters("torchrl", "torch")
@pytest.mark.parametrize("id", [DISCRETE, CONTINUOUS])
def test_torchrls_gym_env_rolls_out(id: str) -> None:
    from torchrl.envs import GymEnv
    from torchrl.envs.utils import check_env_specs

    env = GymEnv(id)
    check_env_specs(env)
    assert env.rollout(30, break_when_any_done=False).shape == (30,)
    env.close()


@pytest.mark.adapters("torchrl", "torch")
def test_torchrls_collector_gathers_frames_of_many_lanes() -> None:
    from torchrl.collectors import Collector
    from torchrl.envs import GymWrapper

    env = GymWrapper(rollhouse.make_vec("CartPole-v1", 4, autoreset_mode="SameStep"))
    collector = Collector(env, frames_per_batch=64, total_frames=256)
    batches = [batch.clone() for batch in collector]
    assert [tuple(batch.shape) for batch in batches] == [(4, 16)] * 4
    first = batches[0]
    going = ~first["next", "done"][:, :-1, 0]
    assert (first["observation"][:, 1:][going] == first["next", "observation"][:, :-1][going]).all()
    collector.shutdown()


# RLlib


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        yield ray
        ray.shutdown()


# `tree` comes with ray[rllib] and not with Ray alone.
@pytest.mark.adapters("ray", "tree", "torch")
@pytest.mark.parametrize("runners", [0, 1], ids=["here", "remote"])
@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_rllibs_runners_sample_and_learn(ray: Any, mode: str, runners: int) -> None:
    from ray.rllib.algorithms.ppo import PPOConfig

    # The part before the colon is the module that a remote runner imports to know the env.
    config = (
        PPOConfig()
        .environment("rollhouse:rollhouse/CartPole-v1")
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=3, gym_env_vectorize_mode=mode)
        .training(train_batch_size_per_learner=128, minibatch_size=64, num_epochs=1)
    )
    algorithm = config.build_algo()
    try:
        result = algorithm.train()
    finally:
        algorithm.stop()
    assert result["env_runners"]["num_env_steps_sampled"] >= 128
    assert result["env_runners"]["num_episodes"] > 0


# skrl


@pytest.mark.adapters("skrl", "torch")
@pytest.mark.parametrize("where", ["embedded", "hosted", "cluster"])
def test_skrl_wraps_and_steps_every_class(where: str, request: pytest.FixtureRequest) -> None:
    import torch
    from skrl.envs.wrappers.torch import wrap_env

    if where == "embedded":
        envs = rollhouse.make_vec("CartPole-v1", 4)
    elif where == "hosted":
        envs = rollhouse.vectorize([partial(gymnasium.make, "CartPole-v1")] * 4, workers=2)
    else:
        cluster = rollhouse.connect(request.getfixturevalue("cluster_url"))
        envs = cluster.make_vec("CartPole-v1", 4, record=False)
    wrapped = wrap_env(envs)
    assert type(wrapped).__name__ == "GymnasiumWrapper" and wrapped.num_envs == 4
    observations, _ = wrapped.reset()
    assert observations.shape == (4, 4)
    for _ in range(20):
        observations, rewards, terminated, _, _ = wrapped.step(torch.randint(0, 2, (4, 1)))
        assert (observations.shape, rewards.shape, terminated.shape) == ((4, 4), (4, 1), (4, 1))
    wrapped.close()


# Tianshou


@pytest.mark.adapters("tianshou", "torch")
@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
@pytest.mark.parametrize("how", ["id", "adapter"])
def test_tianshous_collector_gathers_whole_episodes(how: str, mode: str) -> None:
    import torch
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor

    from rollhouse.tianshou import VectorEnv

    lanes = 4
    envs: Any
    if how == "id":
        envs = DummyVectorEnv([lambda: gymnasium.make(DISCRETE)] * lanes)
    else:
        envs = VectorEnv(rollhouse.make_vec("CartPole-v1", lanes, autoreset_mode=mode))
    space = gymnasium.spaces.Discrete(2)
    net = Net(state_shape=(4,), hidden_sizes=[16])
    actor = DiscreteActor(preprocess_net=net, action_shape=2)
    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=torch.distributions.Categorical,
        action_space=space,
        action_scaling=False,
        observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (4,)),
    )
    collector = Collector(policy, envs, VectorReplayBuffer(4000, lanes))
    collector.reset(gym_reset_kwargs={"seed": 3})
    stats = collector.collect(n_episode=9)
    assert stats.n_collected_episodes == 9
    batch = collector.buffer.sample(0)[0]
    assert len(batch) == stats.n_collected_steps == stats.lens.sum()
    # Every reward counts, no row is one that only began an episode, and episodes are chains.
    assert (batch.rew == 1.0).all() and (stats.returns == stats.lens).all()
    ends = (batch.terminated | batch.truncated)[:-1]
    chained = (batch.obs[1:] == batch.obs_next[:-1]).all(axis=1)
    assert (chained | ends).sum() >= len(batch) - 1 - lanes
    stats = collector.collect(n_step=40)
    assert stats.n_collected_steps == 40
    collector.close()


# JAX


@pytest.mark.adapters("jax")
@pytest.mark.parametrize("copy", [True, False])
def test_jax_takes_what_steps_return_and_its_actions_are_taken(copy: bool) -> None:
    import jax.numpy as jnp

    envs = rollhouse.make_vec("CartPole-v1", 4, copy=copy, seed=0)
    theirs = rollhouse.make_vec("CartPole-v1", 4, seed=0)
    observations, _ = envs.reset()
    theirs.reset()
    kept = []
    for _ in range(30):
        # jnp.array copies, so that it stays when a view is overwritten.
        actions = (jnp.array(observations)[:, 2] > 0).astype(jnp.int32)
        observations, rewards, *_ = envs.step(actions)
        expected, *_ = theirs.step(np.asarray(actions))
        kept.append((jnp.array(observations), expected))
        assert jnp.array(rewards).shape == (4,)
    for mine, wanted in kept:
        np.testing.assert_array_equal(np.asarray(mine), wanted)
    envs.close()
