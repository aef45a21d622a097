"""Recordings as Minari datasets, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hosted_envs import Camera
from local_cluster import rollhouse_program

import rollhouse
from rollhouse import replays
from rollhouse.replays.minari import write_dataset

minari = pytest.importorskip("minari")
pytestmark = pytest.mark.adapters("minari")


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "datasets"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(path))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Recordings of three envs; the last episode of every lane is cancelled."""
    path = tmp_path / "data"
    for env in ("CartPole-v1", "Pendulum-v1", "test/Noise-v0"):
        envs = rollhouse.make_vec(env, 4, record=True, data=path, step_columns={"value": "float32", "pair": (int, (2,))})
        envs.action_space.seed(1)
        envs.reset(seed=1)
        for _ in range(230):
            actions = envs.action_space.sample()
            envs.note(value=np.sum(actions.reshape(4, -1), axis=1), pair=np.stack([np.arange(4), np.ones(4, int)], axis=1))
            envs.step(actions)
        envs.close()
    return path


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "test/Noise-v0"])
def test_every_finished_episode_is_written_bit_for_bit(data: Path, env: str) -> None:
    recorded = replays.open(data)
    replays.to_minari(recorded, "ours/random-v0", env=env, author="us")
    dataset = minari.load_dataset("ours/random-v0")
    episodes = [episode for episode in recorded.filter(env=env).read_many() if episode.info.finished]
    assert dataset.total_episodes == len(episodes) > 0
    assert dataset.observation_space == episodes[0].info.observation_space
    assert dataset.action_space == episodes[0].info.action_space
    for written, episode in zip(dataset.iterate_episodes(), episodes, strict=True):
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            column, expected = getattr(written, name), getattr(episode, name)
            assert column.dtype == expected.dtype
            np.testing.assert_array_equal(column, expected)
        assert written.terminations[-1] or written.truncations[-1]
        for name, column in episode.infos.items():
            np.testing.assert_array_equal(written.infos[name][1:], column)
        for name, column in episode.step_columns.items():
            np.testing.assert_array_equal(written.infos["step_columns"][name][1:], column)
    facts = list(dataset.storage.get_episode_metadata(range(len(episodes))))
    for fact, episode in zip(facts, episodes, strict=True):
        assert fact["rollhouse"]["id"] == episode.id
        assert fact["rollhouse"]["outcome"] == episode.outcome
        assert fact.get("seed") == episode.seed


def test_interrupted_episodes_are_kept_only_when_asked_for_and_without_an_end(data: Path) -> None:
    recorded = replays.open(data).filter(env="CartPole-v1")
    cut = [info for info in recorded if not info.finished]
    assert cut
    replays.to_minari(recorded, "ours/all-v0", keep_interrupted=True)
    dataset = minari.load_dataset("ours/all-v0")
    assert dataset.total_episodes == len(recorded)
    facts = list(dataset.storage.get_episode_metadata(range(len(recorded))))
    ends = [(e.terminations[-1], e.truncations[-1]) for e in dataset.iterate_episodes()]
    for fact, end in zip(facts, ends, strict=True):
        interrupted = fact["rollhouse"]["outcome"] == "cancelled"
        assert interrupted == (not any(end))


def test_the_env_can_be_made_again_from_the_dataset(data: Path) -> None:
    replays.to_minari(data, "ours/again-v0", env="CartPole-v1", recover_env="CartPole-v1")
    env = minari.load_dataset("ours/again-v0").recover_environment()
    assert env.spec.id == "CartPole-v1"


def test_a_dataset_that_is_there_is_not_touched(data: Path) -> None:
    replays.to_minari(data, "ours/once-v0", env="CartPole-v1")
    before = minari.load_dataset("ours/once-v0").total_episodes
    with pytest.raises(ValueError, match="ours/once-v0"):
        replays.to_minari(data, "ours/once-v0", env="Pendulum-v1")
    assert minari.load_dataset("ours/once-v0").total_episodes == before


def test_a_failed_export_leaves_no_dataset(data: Path, datasets: Path) -> None:
    recorded = replays.open(data)
    recorded.list()
    for segment in data.glob("**/segments/*.seg"):
        segment.unlink()
    with pytest.raises(replays.ReplayError):
        replays.to_minari(recorded, "ours/failed-v0", env="CartPole-v1")
    assert not (datasets / "ours" / "failed-v0").exists()


def test_several_envs_are_refused_without_saying_which(data: Path) -> None:
    with pytest.raises(ValueError, match="CartPole-v1, Pendulum-v1"):
        replays.to_minari(data, "ours/mixed-v0")
    with pytest.raises(TypeError, match="jpeg_encoding"):
        replays.to_minari(data, "ours/lossy-v0", env="CartPole-v1", jpeg_encoding=True)


def test_images_are_not_compressed(tmp_path: Path) -> None:
    """Minari compresses images with JPEG unless it is told not to, and noise does not survive that."""
    envs = rollhouse.vectorize([Camera] * 2, workers=1, record=True, data=tmp_path / "images")
    first, _ = envs.reset(seed=3)
    seen = [first] + [envs.step(np.zeros(2, np.int64))[0] for _ in range(5)]
    envs.close()
    recorded = replays.open(tmp_path / "images")
    assert [info.recorded for info in recorded] == ["full"] * 2
    written = list(write_dataset(recorded, "ours/images-v0").iterate_episodes())
    assert len(written) == 2
    for lane, episode in enumerate(written):
        assert episode.observations.dtype == np.uint8
        np.testing.assert_array_equal(episode.observations, [frames[lane] for frames in seen])


TELLING = """
import gymnasium
from gymnasium import spaces


class Telling(gymnasium.Env):
    metadata = {"max_lengths": {"": 3}, "max_action_lengths": {"": 3}}

    def __init__(self, part, kind):
        self.observation_space = self.action_space = spaces.Discrete(2)
        self.text = spaces.Text(3) if kind == "Text" else spaces.Sequence(spaces.Discrete(2))
        setattr(self, f"{part}_space", self.text)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shown(), {}

    def shown(self):
        told = "a" if isinstance(self.text, spaces.Text) else (1,)
        return told if self.observation_space is self.text else 0

    def step(self, action):
        return self.shown(), 0.0, True, False, {}
"""


@pytest.mark.parametrize("kind", ["Text", "Sequence"])
@pytest.mark.parametrize("part", ["observation", "action"])
def test_texts_and_sequences_are_refused_by_name(tmp_path: Path, part: str, kind: str, datasets: Path) -> None:
    (tmp_path / "telling.py").write_text(TELLING)
    line = [str(rollhouse_program()), "rollout", "--env", "telling:Telling", "--data", str(tmp_path / "told")]
    line += ["--env-kwargs", json.dumps({"part": part, "kind": kind}), "--lanes", "2", "--episodes", "4"]
    line += ["--python", sys.executable, "--allow", "telling"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    subprocess.run(line, check=True, capture_output=True, timeout=300, env=environment)
    with pytest.raises(TypeError, match=rf"^{part}s: {kind}\(.* cannot be written as a Minari dataset"):
        replays.to_minari(tmp_path / "told", "ours/told-v0")
    assert not (datasets / "ours/told-v0").exists()
