"""Small things of every day: `with`, arguments of envs, names of processes, tensors."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import gymnasium
import pytest
from hosted_envs import CountEnv

import rollhouse


def test_with_closes_vector_envs() -> None:
    for envs in (rollhouse.make_vec("CartPole-v1", 2), rollhouse.vectorize([CountEnv] * 2)):
        with envs as inside:
            assert inside is envs
            inside.reset(seed=0)
        assert envs.closed


def test_arguments_of_an_env_stand_by_name_or_in_env_kwargs() -> None:
    for arguments in ({"length": 2}, {"env_kwargs": {"length": 2}}):
        for id in ("signs:Sign", "gymnasium:signs:signs/Sign-v1"):
            with rollhouse.make_vec(id, 2, **arguments) as envs:
                envs.reset(seed=0)
                envs.step([0, 0])
                assert envs.step([0, 0])[2].all()
    with rollhouse.make_vec("Pendulum-v1", 2, env_kwargs={"g": 9.0}) as envs:
        assert envs.get_attr("g") == (9.0, 9.0)
    for id in ("signs:Sign", "Pendulum-v1"):
        with pytest.raises(TypeError, match="stands there and by name"):
            rollhouse.make_vec(id, 2, length=2, env_kwargs={"length": 2})


def test_workers_have_a_name_in_ps() -> None:
    with rollhouse.vectorize([CountEnv] * 4, workers=2) as envs:
        envs.reset(seed=0)
        ids = envs._crew.workers.process_ids()
        names = sorted(Path(f"/proc/{id}/comm").read_text().strip() for id in ids)
        assert names == ["rollhouse 0-1", "rollhouse 2-3"]


@pytest.mark.adapters("torch", "stable_baselines3")
def test_workers_of_the_adapter_of_stable_baselines3_do_not_import_it() -> None:
    """Symptom: 597 MB a worker instead of 44."""
    from rollhouse.sb3 import make_vec_env

    class Imports(CountEnv):
        def imported(self) -> list[str]:
            return [name for name in ("torch", "stable_baselines3") if name in sys.modules]

    wrapped = partial(gymnasium.wrappers.TimeLimit, max_episode_steps=9)
    with make_vec_env(Imports, 2, wrapper_class=wrapped, monitor=False) as envs:
        envs.reset()
        assert envs.env_method("imported") == [[], []]
        assert envs.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [True, True]
        assert envs.env_is_wrapped(gymnasium.wrappers.TransformReward) == [False, False]


@pytest.mark.torch
def test_torch_gives_tensors_of_every_class_with_spaces_and_close() -> None:
    import torch

    for envs in (rollhouse.make_vec("CartPole-v1", 2), rollhouse.make_vec("gymnasium:CartPole-v1", 2)):
        with envs.torch() as view:
            assert view.single_action_space == envs.single_action_space and view.observation_space == envs.observation_space
            first, _ = view.reset(seed=3)
            observations, rewards, terminations, *_ = view.step(torch.ones(2, dtype=torch.int64))
            assert isinstance(first, torch.Tensor) and observations.shape == (2, 4) and view.num_envs == 2
            assert rewards.tolist() == [1.0, 1.0] and terminations.dtype == torch.bool
            view.send(torch.zeros(2, dtype=torch.int64))
            assert view.recv(min_envs=2)[0].shape == (2, 4)
        assert envs.closed


def test_episodes_and_their_infos_are_pickled_and_copied(tmp_path: Path) -> None:
    with rollhouse.vectorize([CountEnv] * 2, record=True, data=tmp_path) as envs:
        envs.reset(seed=0)
        envs.step([CountEnv.FINE] * 2)
        envs.step([CountEnv.END] * 2)
    recorded = rollhouse.replays.open(tmp_path)
    info = recorded.list(limit=1)[0]
    for again in (copy.copy(info), copy.deepcopy(info), pickle.loads(pickle.dumps(info))):
        assert again == info and again.length == 2 and again.observation_space == info.observation_space
    episode = recorded.read(info)
    for other in (copy.copy(episode), copy.deepcopy(episode), pickle.loads(pickle.dumps(episode))):
        assert other.info == info and other.rewards.tolist() == episode.rewards.tolist()
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer).id)"
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(info), capture_output=True, check=True)
    assert done.stdout.decode().strip() == info.id
