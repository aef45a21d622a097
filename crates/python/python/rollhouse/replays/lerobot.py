"""Recordings as LeRobot datasets, version 3.0 of their layout."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollhouse.replays.batches import only_env

if TYPE_CHECKING:
    from rollhouse.replays import Episode, Replays

VERSION = "v3.0"
"""The layout's version, as LeRobot writes it."""

FILE_BYTES = 100 << 20
"""After so many bytes a data file is closed and the next one begun."""

FILES_PER_CHUNK = 1000
"""Files of a folder ``chunk-000``."""

DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


def write_dataset(
    recordings: Replays,
    folder: str | os.PathLike[str],
    *,
    env: str | None = None,
    task: str | None = None,
    fps: int = 30,
    keep_interrupted: bool = False,
) -> Path:
    """Writes episodes as a LeRobot dataset that ``LeRobotDataset(name, root=folder)`` opens.

    Frame t has what the policy saw (``observation.state``; of a Dict or Tuple space ``observation.PATH``; 8-bit images of
    height x width x 3 as ``observation.images.PATH``, lossless), the ``action`` that it took, what was noted of that step (``step.NAME`` for each step column), and what came
    of it: ``next.reward``, ``next.done``, ``next.truncated``. Dtypes are those of the recording. The observation after the last
    action has no frame: LeRobot has no place for it.

    Args:
        recordings: The result of ``rollhouse.replays.open`` or ``filter``.
        folder: The folder to write; it is made, and may not be there.
        env: The env whose episodes are written; needed if there are episodes of several.
        task: The task of the policy, in words; the env's id if it is None.
        fps: Frames a second that LeRobot takes the episodes to have.
        keep_interrupted: Also writes episodes that were cut from outside, whose last frame is not ``next.done``.

    Returns:
        The folder. It has its name when all of it is written; until then it is ``FOLDER.part``, which is removed if
        something fails. Some episodes at a time were held in memory.

    Raises:
        ImportError: PyArrow is not installed, or Pillow where there are images.
        ValueError: No episodes, several envs and no ``env``, an ``fps`` that is not positive, or two columns that would
            have one name, such as those of ``a/b`` and ``a.b``.
        FileExistsError: ``folder`` is there.
        ReplayError: An episode cannot be read.
    """
    try:
        import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401
    except ImportError as error:
        raise ImportError(f"to_lerobot needs PyArrow ({error}): pip install pyarrow pillow") from error
    if fps < 1:
        raise ValueError(f"fps={fps} must be at least 1")
    wanted = (info for info in recordings.list(env=env) if keep_interrupted or info.finished)
    infos = [info for info in wanted if info.length > 0]
    only_env(infos)
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder} is there already")
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _Writer(part, infos[0].env if task is None else task, fps).write(recordings.read_many(infos))
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return folder


class _Writer:
    """Writes episodes one after another, each as a row group."""

    def __init__(self, root: Path, task: str, fps: int):
        self._root, self._task, self._fps = root, task, fps
        self._features: dict[str, dict[str, Any]] = {}
        self._stats: dict[str, _Stats] = {}
        self._episodes: list[dict[str, Any]] = []
        self._frames = 0
        self._file: Any = None
        self._path = root
        self._place = (0, -1)

    def write(self, episodes: Iterator[Episode]) -> None:
        for episode in episodes:
            self._add(episode)
        if self._file is not None:
            self._file.close()
        self._write_meta()

    def _add(self, episode: Episode) -> None:
        import pyarrow as pa

        steps, number = len(episode), len(self._episodes)
        columns: dict[str, np.ndarray] = {}
        for name, values in _columns(episode):
            if name in columns:
                raise ValueError(f"two columns of {episode.info.env} would be called {name!r}; LeRobot has no slashes in names")
            columns[name] = values
        frames = np.arange(steps, dtype=np.int64)
        columns["timestamp"] = (frames / self._fps).astype(np.float32)
        columns["frame_index"] = frames
        columns["episode_index"] = np.full(steps, number, np.int64)
        columns["index"] = frames + self._frames
        columns["task_index"] = np.zeros(steps, np.int64)
        arrays = {}
        for name, values in columns.items():
            feature = _feature(name, values)
            self._features.setdefault(name, feature)
            self._stats.setdefault(name, _Stats(feature["dtype"] == "image")).add(values)
            arrays[name] = _images(values) if feature["dtype"] == "image" else _array(values)
        table = pa.table(arrays)
        chunk, file = self._writable(table)
        self._file.write_table(table)
        self._episodes.append(
            {
                "episode_index": number,
                "tasks": [self._task],
                "length": steps,
                "dataset_from_index": self._frames,
                "dataset_to_index": self._frames + steps,
                "data/chunk_index": chunk,
                "data/file_index": file,
                "meta/episodes/chunk_index": 0,
                "meta/episodes/file_index": 0,
                "rollhouse/id": episode.id,
                "rollhouse/outcome": episode.outcome,
                "rollhouse/seed": episode.seed,
                "rollhouse/return": episode.return_,
                "rollhouse/policy": episode.info.policy,
            }
        )
        self._frames += steps

    def _writable(self, table: Any) -> tuple[int, int]:
        """Opens a file that has room, and returns its place."""
        import pyarrow.parquet as pq  # type: ignore[import-untyped,import-not-found,unused-ignore]

        if self._file is None or self._path.stat().st_size >= FILE_BYTES:
            if self._file is not None:
                self._file.close()
            chunk, file = self._place
            self._place = (chunk, file + 1) if file + 1 < FILES_PER_CHUNK else (chunk + 1, 0)
            self._path = self._root / DATA_PATH.format(chunk_index=self._place[0], file_index=self._place[1])
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = pq.ParquetWriter(self._path, table.schema, compression="snappy")
        return self._place

    def _write_meta(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        meta = self._root / "meta"
        meta.mkdir(parents=True, exist_ok=True)
        info = {
            "codebase_version": VERSION,
            "robot_type": None,
            "total_episodes": len(self._episodes),
            "total_frames": self._frames,
            "total_tasks": 1,
            "chunks_size": FILES_PER_CHUNK,
            "data_files_size_in_mb": FILE_BYTES >> 20,
            "video_files_size_in_mb": 200,
            "fps": self._fps,
            "splits": {"train": f"0:{len(self._episodes)}"},
            "data_path": DATA_PATH,
            "video_path": None,
            "features": self._features,
        }
        (meta / "info.json").write_text(json.dumps(info, indent=4))
        stats = {name: stats.figures() for name, stats in self._stats.items()}
        (meta / "stats.json").write_text(json.dumps(stats, indent=4))
        path = self._root / EPISODES_PATH.format(chunk_index=0, file_index=0)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(self._episodes), path)
        tasks = pa.table({"task_index": pa.array([0], pa.int64()), "__index_level_0__": pa.array([self._task])})
        pq.write_table(tasks.replace_schema_metadata({"pandas": json.dumps(TASKS_AS_PANDAS)}), meta / "tasks.parquet")


def _pandas_column(name: str | None, field: str, kind: str, numpy: str) -> dict[str, Any]:
    return {"name": name, "field_name": field, "pandas_type": kind, "numpy_type": numpy, "metadata": None}


TASKS_AS_PANDAS = {
    "index_columns": ["__index_level_0__"],
    "column_indexes": [_pandas_column(None, "None", "unicode", "object") | {"metadata": {"encoding": "UTF-8"}}],
    "columns": [
        _pandas_column("task_index", "task_index", "int64", "int64"),
        _pandas_column(None, "__index_level_0__", "unicode", "object"),
    ],
    "creator": {"library": "rollhouse", "version": "1"},
    "pandas_version": "2.0.0",
}
"""What has pandas take the task as the row's label, as LeRobot does, without a pandas to write it."""


def _columns(episode: Episode) -> Iterator[tuple[str, np.ndarray]]:
    seen = episode.observations
    by_path = {"": seen} if isinstance(seen, np.ndarray) else seen
    for path, column in by_path.items():
        # Feature names may not have slashes.
        name = path.replace("/", ".")
        if _is_image(column):
            yield f"observation.images.{name or 'image'}", column[:-1]
        else:
            yield f"observation.{name or 'state'}", column[:-1]
    if isinstance(episode.actions, dict):
        for path, column in episode.actions.items():
            yield f"action.{path.replace('/', '.')}", column
    else:
        yield "action", episode.actions
    for name, column in episode.step_columns.items():
        yield f"step.{name}", column
    yield "next.reward", episode.rewards
    yield "next.done", episode.terminations | episode.truncations
    yield "next.truncated", episode.truncations


def _is_image(column: np.ndarray) -> bool:
    return column.dtype == np.uint8 and column.ndim == 4 and column.shape[-1] == 3


def _feature(name: str, column: np.ndarray) -> dict[str, Any]:
    """Returns the entry of ``info.json`` for a column of T rows."""
    shape = list(column.shape[1:]) or [1]
    if name.startswith("observation.images.") and _is_image(column):
        return {"dtype": "image", "shape": shape, "names": ["height", "width", "channels"]}
    return {"dtype": column.dtype.name, "shape": shape, "names": None}


def _array(column: np.ndarray) -> Any:
    """Converts rows to numbers, or to lists of a fixed size, as deep as they have axes."""
    import pyarrow as pa

    array = pa.array(np.ascontiguousarray(column).reshape(-1))
    shape = column.shape[1:]
    if shape in [(), (1,)]:
        return array
    # The last axis lies innermost.
    for size in reversed(shape[1:]):
        array = pa.ListArray.from_arrays(np.arange(0, len(array) + 1, size, dtype=np.int32), array)
    if len(shape) == 1:
        return pa.FixedSizeListArray.from_arrays(array, shape[0])
    return pa.ListArray.from_arrays(np.arange(0, len(array) + 1, shape[0], dtype=np.int32), array)


def _images(column: np.ndarray) -> Any:
    """Encodes rows as PNGs, in the form in which Hugging Face's datasets hold images."""
    import pyarrow as pa

    try:
        from PIL import Image  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError(f"to_lerobot needs Pillow for images ({error}): pip install pillow") from error
    rows = []
    for pixels in column:
        png = io.BytesIO()
        Image.fromarray(pixels).save(png, format="PNG")
        rows.append({"bytes": png.getvalue(), "path": None})
    return pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


class _Stats:
    """The least, greatest, mean and deviation of each element; for images, of each colour between 0 and 1."""

    def __init__(self, is_image: bool):
        self._is_image = is_image
        self._count = 0
        self._mean: Any = 0.0
        self._squares: Any = 0.0
        self._least: Any = None
        self._greatest: Any = None

    def add(self, column: np.ndarray) -> None:
        frames = len(column)
        rows = column.astype(np.float64)
        if self._is_image:
            rows = rows.reshape(-1, column.shape[-1]) / 255.0
        elif rows.ndim == 1:
            rows = rows[:, None]
        least, greatest = rows.min(axis=0), rows.max(axis=0)
        mean, squares = rows.mean(axis=0), ((rows - rows.mean(axis=0)) ** 2).mean(axis=0)
        if self._count == 0:
            self._least, self._greatest, self._mean, self._squares = least, greatest, mean, squares
        else:
            # Chan's way of joining two parts' means and variances.
            share = frames / (self._count + frames)
            apart = mean - self._mean
            self._squares = (1 - share) * self._squares + share * squares + share * (1 - share) * apart**2
            self._mean = self._mean + share * apart
            self._least, self._greatest = np.minimum(self._least, least), np.maximum(self._greatest, greatest)
        self._count += frames

    def figures(self) -> dict[str, Any]:
        def listed(values: Any) -> Any:
            return (np.reshape(values, (-1, 1, 1)) if self._is_image else values).tolist()

        return {
            "min": listed(self._least),
            "max": listed(self._greatest),
            "mean": listed(self._mean),
            "std": listed(np.sqrt(self._squares)),
            "count": [self._count],
        }
