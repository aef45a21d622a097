"""What ``rollhouse replay export`` writes, opened by the programs that it is written for."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from hosted_envs import ZOO, ZooEnv
from local_cluster import rollhouse_program

import rollhouse
from rollhouse import replays


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with episodes of three envs."""
    path = tmp_path_factory.mktemp("recorded") / "data"
    for env in ("CartPole-v1", "Pendulum-v1", "GridBreakout-v0"):
        run("rollout", "--env", env, "--lanes", "3", "--episodes", "6", "--seed", "1", "--data", str(path))
    return path


def run(*line: str) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([rollhouse_program(), *line], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done


def export(data: Path, *line: str) -> bytes:
    return run("replay", "export", "--data", str(data), *line).stdout


def best(data: Path, env: str) -> replays.Episode:
    recorded = replays.open(data)
    return recorded.read(recorded.list(env=env, sort="-length", limit=1)[0])


def same_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, (found.dtype, found.shape, wanted.dtype)
    assert found.tobytes() == wanted.tobytes()


def test_actions_of_several_columns_are_written_by_their_paths(tmp_path: Path) -> None:
    space = gymnasium.spaces.Dict({"b": gymnasium.spaces.Box(-1, 1, (2,)), "a": gymnasium.spaces.Discrete(5, start=-2)})
    fn = partial(ZooEnv, ZOO["box"], 3, False, space)
    envs = rollhouse.vectorize([fn], workers=1, record=True, data=tmp_path / "data")
    envs.reset(seed=1)
    envs.action_space.seed(1)
    for _ in range(9):
        envs.step(envs.action_space.sample())
    envs.close()
    episode = best(tmp_path / "data", "hosted_envs:ZooEnv")
    wanted = episode.actions
    assert isinstance(wanted, dict) and len(wanted["a"]) == len(episode)
    arrays = np.load(io.BytesIO(export(tmp_path / "data", episode.id, "--format", "npz")))
    for path, column in wanted.items():
        same_bits(arrays[f"action/{path}"], column)
    lines = [json.loads(line) for line in export(tmp_path / "data", episode.id, "--format", "jsonl").splitlines()]
    assert [line["action"]["a"] for line in lines[1:]] == wanted["a"].tolist()
    assert np.array_equal(np.array([line["action"]["b"] for line in lines[1:]], np.float32), wanted["b"])
    pq = pytest.importorskip("pyarrow.parquet")
    export(tmp_path / "data", "--format", "parquet", "-o", str(tmp_path / "all.parquet"))
    table = pq.read_table(tmp_path / "all.parquet").filter(pq.read_table(tmp_path / "all.parquet")["episode"].to_numpy() == episode.id)
    assert table["action/a"].to_pylist() == [None, *wanted["a"].tolist()]
    assert table["action/b/1"].to_pylist() == [None, *wanted["b"][:, 1].tolist()]


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "GridBreakout-v0"])
def test_a_table_of_all_episodes_opens_in_pyarrow_bit_for_bit(data: Path, env: str, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    compute = pytest.importorskip("pyarrow.compute")
    export(data, "--format", "parquet", "--env", env, "-o", str(tmp_path / "all.parquet"))
    table = pq.read_table(tmp_path / "all.parquet")
    episodes = list(replays.open(data).filter(env=env).read_many())
    assert table.num_rows == sum(len(episode) + 1 for episode in episodes)
    assert compute.unique(table["episode"]).to_pylist() == [episode.id for episode in episodes]
    about = json.loads(pq.read_schema(tmp_path / "all.parquet").metadata[b"rollhouse"])
    assert about["env"] == env
    for episode in episodes:
        rows = table.filter(compute.equal(table["episode"], episode.id))
        steps = rows.slice(1)
        assert rows["t"].to_pylist() == list(range(len(episode) + 1))
        assert rows["reward"][0].as_py() is None
        same_bits(steps["reward"].to_numpy(), episode.rewards)
        actions = [name for name in table.column_names if name == "action" or name.startswith("action/")]
        found = np.stack([steps[name].to_numpy() for name in actions], axis=-1)
        same_bits(found.reshape(episode.actions.shape), episode.actions)
        elements = [name for name in table.column_names if name.startswith("obs")]
        if elements == ["obs"]:
            # Rows of bytes.
            found = np.stack([np.frombuffer(row.as_py(), np.uint8) for row in rows["obs"]])
        else:
            found = np.stack([rows[name].to_numpy() for name in elements], axis=-1)
        same_bits(found.reshape(episode.observations.shape), episode.observations)
        assert steps["terminated"].to_pylist() == episode.terminations.tolist()
        assert steps["truncated"].to_pylist() == episode.truncations.tolist()


def test_tables_of_single_episodes_and_of_all_have_the_same_rows(data: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    line = ["--format", "parquet", "--env", "CartPole-v1"]
    whole = pq.read_table(pa.BufferReader(export(data, *line)))
    export(data, *line, "--into", str(tmp_path / "each"))
    ids = [info.id for info in replays.open(data).filter(env="CartPole-v1")]
    parts = [pq.read_table(tmp_path / "each" / f"{id}.parquet") for id in ids]
    assert pa.concat_tables(parts).equals(whole)


def test_messages_are_read_by_the_mcap_package(data: Path, tmp_path: Path) -> None:
    reader = pytest.importorskip("mcap.reader")
    image = pytest.importorskip("PIL.Image")
    episode = best(data, "CartPole-v1")
    path = tmp_path / "episode.mcap"
    export(data, episode.id, "--format", "mcap", "--every", "5", "--size", "60x40", "-o", str(path))
    with path.open("rb") as file:
        opened = reader.make_reader(file, validate_crcs=True)
        (facts,) = opened.iter_metadata()
        summary = opened.get_summary()
        messages = [(channel.topic, message, schema) for schema, channel, message in opened.iter_messages()]
    assert (facts.name, facts.metadata["id"]) == ("rollhouse.episode", episode.id)
    assert summary.statistics.message_count == len(messages)
    told = {topic: [json.loads(m.data) for of, m, _ in messages if of == topic] for topic, _, _ in messages}
    names = json.loads(export(data, episode.id, "--format", "jsonl").splitlines()[0])["obs"]
    assert len(told["/observation"]) == len(episode) + 1 and len(names) == 4
    seen = np.array([list(value.values()) for value in told["/observation"]], np.float32)
    # Keys are sorted: the columns are told apart by what they hold.
    assert sorted(seen[-1].tolist()) == sorted(episode.observations[-1].tolist())
    assert [value["value"] for value in told["/action"]] == episode.actions.tolist()
    assert [value["reward"] for value in told["/reward"]] == episode.rewards.tolist()
    assert len(told["/picture"]) == len({*range(0, len(episode) + 1, 5), len(episode)})
    for value in told["/picture"]:
        assert image.open(io.BytesIO(base64.b64decode(value["data"]))).size == (60, 40)
    assert all(schema.encoding == "jsonschema" for _, _, schema in messages)


def test_films_and_pictures_are_read_by_pillow_and_arrays_by_numpy(data: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    episode = best(data, "GridBreakout-v0")
    film = image.open(io.BytesIO(export(data, episode.id, "--format", "gif", "--size", "200x200")))
    png = image.open(io.BytesIO(export(data, episode.id, "--format", "png", "--size", "200x200")))
    assert film.size == png.size == (200, 200) and film.is_animated
    film.seek(film.n_frames - 1)
    last, wanted = np.asarray(film.convert("RGB"), np.int16), np.asarray(png.convert("RGB"), np.int16)
    assert abs(last - wanted).max() <= 12
    export(data, episode.id, "--format", "npz", "-o", str(tmp_path / "episode.npz"))
    arrays = np.load(tmp_path / "episode.npz", allow_pickle=False)
    same_bits(arrays["obs"], episode.observations)
    same_bits(arrays["reward"], episode.rewards)


@pytest.mark.adapters("rerun")
def test_rerun_finds_no_fault_in_messages(data: Path, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("rerun")
    for env in ("CartPole-v1", "GridBreakout-v0"):
        path = tmp_path / f"{env}.mcap"
        export(data, best(data, env).id, "--format", "mcap", "-o", str(path))
        done = subprocess.run([program, "mcap", "check", path], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
