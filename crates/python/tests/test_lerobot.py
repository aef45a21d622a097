"""Recordings as LeRobot datasets, read by PyArrow after the layout's description, and by LeRobot itself where it is."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

import rollhouse
from rollhouse import replays

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of two envs; the last episode of every lane is cancelled."""
    path = tmp_path_factory.mktemp("recordings") / "data"
    for env in ("CartPole-v1", "Pendulum-v1"):
        envs = rollhouse.make_vec(env, 3, record=True, data=path)
        envs.action_space.seed(1)
        envs.reset(seed=1)
        for _ in range(230):
            envs.step(envs.action_space.sample())
        envs.close()
    return path


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_every_frame_is_written_bit_for_bit_in_the_layout_that_lerobot_reads(
    data: Path, env: str, tmp_path: Path
) -> None:
    folder = replays.to_lerobot(data, tmp_path / "set", env=env, task="keep it up", fps=50)
    assert folder == tmp_path / "set" and not (tmp_path / "set.part").exists()
    episodes = [episode for episode in replays.open(data).filter(env=env).read_many() if episode.info.finished]
    info = json.loads((folder / "meta/info.json").read_text())
    frames = sum(map(len, episodes))
    assert (info["codebase_version"], info["fps"]) == ("v3.0", 50)
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (len(episodes), frames, 1)
    table = pq.read_table(folder / info["data_path"].format(chunk_index=0, file_index=0))
    assert set(table.column_names) == set(info["features"])
    listed = pq.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    stats = json.loads((folder / "meta/stats.json").read_text())
    seen = np.concatenate([episode.observations[:-1] for episode in episodes]).astype(np.float64)
    for name, figure in [("min", seen.min(0)), ("max", seen.max(0)), ("mean", seen.mean(0)), ("std", seen.std(0))]:
        np.testing.assert_allclose(stats["observation.state"][name], figure, rtol=1e-9, atol=1e-12)
    for number, (episode, facts) in enumerate(zip(episodes, listed, strict=True)):
        rows = table.slice(facts["dataset_from_index"], len(episode))
        assert facts["dataset_to_index"] - facts["dataset_from_index"] == facts["length"] == len(episode)
        assert (facts["episode_index"], facts["tasks"]) == (number, ["keep it up"])
        assert (facts["rollhouse/id"], facts["rollhouse/seed"]) == (episode.id, episode.seed)

        def column(name: str, rows=rows) -> np.ndarray:
            values = rows.column(name).combine_chunks()
            fixed = pa.types.is_fixed_size_list(values.type)
            return np.asarray(values.flatten()).reshape(len(values), -1) if fixed else np.asarray(values)

        np.testing.assert_array_equal(column("observation.state"), episode.observations[:-1])
        np.testing.assert_array_equal(column("action").reshape(episode.actions.shape), episode.actions)
        np.testing.assert_array_equal(column("next.reward"), episode.rewards)
        np.testing.assert_array_equal(column("next.done"), episode.terminations | episode.truncations)
        np.testing.assert_array_equal(column("frame_index"), np.arange(len(episode)))
        np.testing.assert_array_equal(column("episode_index"), np.full(len(episode), number))
        np.testing.assert_array_equal(column("timestamp"), (np.arange(len(episode)) / 50).astype(np.float32))
        assert column("observation.state").dtype == episode.observations.dtype
    tasks = pq.read_table(folder / "meta/tasks.parquet")
    assert tasks.to_pylist() == [{"task_index": 0, "__index_level_0__": "keep it up"}]
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["__index_level_0__"]


def test_what_was_noted_of_a_step_stands_in_its_frame(tmp_path: Path) -> None:
    columns = {"log_prob": "float32", "pair": (np.int64, (2,)), "explored": bool}
    envs = rollhouse.make_vec("CartPole-v1", 2, record=True, data=tmp_path / "data", step_columns=columns)
    envs.reset(seed=1)
    for step in range(60):
        envs.note(log_prob=np.array([-step, step / 2]), pair=np.array([[step, 0], [step, 1]]), explored=step % 3 == 0)
        envs.step(np.ones(2, np.int64))
    envs.close()
    folder = replays.to_lerobot(tmp_path / "data", tmp_path / "set")
    features = json.loads((folder / "meta/info.json").read_text())["features"]
    assert [features[f"step.{name}"]["dtype"] for name in columns] == ["float32", "int64", "bool"]
    assert features["step.pair"]["shape"] == [2]
    table = pq.read_table(folder / "data/chunk-000/file-000.parquet")
    episodes = [episode for episode in replays.open(tmp_path / "data").read_many() if episode.info.finished]
    for name in columns:
        noted = np.concatenate([episode.step_columns[name] for episode in episodes])
        assert table.column(f"step.{name}").to_pylist() == noted.tolist()


def test_images_are_lossless_pngs(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    from hosted_envs import Camera

    envs = rollhouse.vectorize([Camera] * 2, workers=1, record=True, data=tmp_path / "images")
    first, _ = envs.reset(seed=3)
    seen = [first] + [envs.step(np.zeros(2, np.int64))[0] for _ in range(5)]
    envs.close()
    folder = replays.to_lerobot(tmp_path / "images", tmp_path / "set")
    info = json.loads((folder / "meta/info.json").read_text())
    assert info["features"]["observation.images.image"]["dtype"] == "image"
    rows = pq.read_table(folder / "data/chunk-000/file-000.parquet").to_pylist()
    for row in rows:
        pixels = np.asarray(image.open(io.BytesIO(row["observation.images.image"]["bytes"])))
        np.testing.assert_array_equal(pixels, seen[row["frame_index"]][row["episode_index"]])


def test_a_folder_that_is_there_is_not_touched_and_a_failed_export_leaves_none(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="mine"):
        replays.to_lerobot(data, tmp_path / "mine", env="CartPole-v1")
    with pytest.raises(ValueError, match="CartPole-v1, Pendulum-v1"):
        replays.to_lerobot(data, tmp_path / "mixed")
    with pytest.raises(ValueError, match="fps=0"):
        replays.to_lerobot(data, tmp_path / "still", env="CartPole-v1", fps=0)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.adapters("lerobot")
def test_lerobot_itself_opens_it(data: Path, tmp_path: Path) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    folder = replays.to_lerobot(data, tmp_path / "set", env="CartPole-v1", task="keep it up")
    dataset = LeRobotDataset("ours/cartpole", root=folder)
    episode = next(e for e in replays.open(data).filter(env="CartPole-v1").read_many() if e.info.finished)
    for t in range(len(episode)):
        frame = dataset[t]
        np.testing.assert_array_equal(frame["observation.state"].numpy(), episode.observations[t])
        assert frame["action"].item() == episode.actions[t]
        assert frame["task"] == "keep it up"
