"""Recordings as Minari datasets."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rollhouse._native import EpisodeInfo
from rollhouse.counted import Counted
from rollhouse.replays.batches import only_env

if TYPE_CHECKING:
    from rollhouse.replays import Episode, Replays


STEP_COLUMNS = "step_columns"
"""The key of what was noted of each step, among the infos."""


def write_dataset(
    recordings: Replays,
    dataset_id: str,
    *,
    env: str | None = None,
    keep_interrupted: bool = False,
    recover_env: Any = None,
    **metadata: Any,
) -> Any:
    """Writes episodes as a Minari dataset, bit for bit: images are not compressed.

    Minari needs an info row for the reset, which recordings do not have: that row is zero. Every episode's
    metadata has its seed (if ``reset(seed)`` alone gives its first state) and, under ``rollhouse``, its id,
    outcome, run, lane, number, policy and options.

    Args:
        recordings: The result of ``rollhouse.replays.open`` or ``filter``.
        dataset_id: Minari's id, such as ``cartpole/random-v0``.
        env: The env whose episodes are written; needed if there are episodes of several.
        keep_interrupted: Also writes episodes that were cut from outside, with both flags False in their last
            row. Otherwise they are left out: Minari has no word for them.
        recover_env: Gymnasium's id or ``EnvSpec`` with which Minari may make the env again.
        metadata: Further arguments of ``minari.create_dataset_from_buffers``: ``author``, ``description``, ...

    Returns:
        The ``minari.MinariDataset``. It has been written; some episodes at a time were held in memory.

    Raises:
        ImportError: Minari is not installed.
        ValueError: No episodes, several envs and no ``env``, Minari has a dataset of that id, or there are step columns and an
            info called ``step_columns``.
        TypeError: There is a Text or a Sequence in observations or actions; nothing is written then.
        ReplayError: An episode cannot be read; the dataset is removed then.
    """
    try:
        # Minari's HDF5 storage imports Pillow without declaring it.
        import h5py  # type: ignore[import-untyped]  # noqa: F401
        import PIL  # type: ignore[import-untyped,unused-ignore]  # noqa: F401
        from minari import create_dataset_from_buffers  # type: ignore[import-untyped,attr-defined]
        from minari.data_collector import EpisodeBuffer  # type: ignore[import-untyped]
        from minari.storage import get_dataset_path  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(f"to_minari needs Minari ({error}): pip install 'minari[hdf5]' pillow") from error
    reserved = {"buffer", "data_format", "jpeg_encoding", "observation_space", "action_space"} & metadata.keys()
    if reserved:
        raise TypeError(f"{', '.join(sorted(reserved))}: decided here; the dataset is lossless HDF5")
    wanted = (info for info in recordings.list(env=env) if keep_interrupted or info.finished)
    infos = [info for info in wanted if info.length > 0]
    spaces = only_env(infos)
    _refuse_counted(spaces.observation_space, "observations")
    _refuse_counted(spaces.action_space, "actions")
    path = Path(get_dataset_path(dataset_id))
    if path.exists():
        raise ValueError(f"dataset_id={dataset_id!r}: Minari has a dataset of that id at {path}")

    def buffers() -> Iterator[Any]:
        for episode in recordings.read_many(infos):
            yield EpisodeBuffer(**_columns(episode, spaces.observation_space))

    try:
        with warnings.catch_warnings():
            # Minari warns of each piece of metadata that is not given.
            warnings.simplefilter("ignore", UserWarning)
            dataset = create_dataset_from_buffers(
                dataset_id,
                buffers(),
                env=recover_env,
                observation_space=spaces.observation_space,
                action_space=spaces.action_space,
                data_format="hdf5",
                jpeg_encoding=False,
                **metadata,
            )
        dataset.storage.update_episode_metadata(map(_metadata, infos))
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return dataset


def _columns(episode: Episode, space: gymnasium.Space) -> dict[str, Any]:
    def with_reset_row(column: np.ndarray) -> np.ndarray:
        return np.concatenate((np.zeros_like(column[:1]), column))

    infos: dict[str, Any] = {name: with_reset_row(column) for name, column in episode.infos.items()}
    if episode.step_columns:
        if STEP_COLUMNS in infos:
            raise ValueError(f"an info of {episode.info.env} is called {STEP_COLUMNS!r}, as step columns are in the dataset")
        infos[STEP_COLUMNS] = {name: with_reset_row(column) for name, column in episode.step_columns.items()}
    return {
        "seed": episode.seed,
        "observations": _nested(space, episode.observations),
        "actions": _nested(episode.info.action_space, episode.actions),
        "rewards": episode.rewards,
        "terminations": episode.terminations,
        "truncations": episode.truncations,
        "infos": infos,
    }


def _refuse_counted(space: gymnasium.Space, path: str) -> None:
    """Raises ``TypeError`` if a space has a Text or a Sequence, which recordings have as columns."""
    if isinstance(space, gymnasium.spaces.Dict):
        for key, child in space.spaces.items():
            _refuse_counted(child, f"{path}/{key}")
    elif isinstance(space, gymnasium.spaces.Tuple):
        for place, child in enumerate(space.spaces):
            _refuse_counted(child, f"{path}/{place}")
    elif isinstance(space, Counted):
        raise TypeError(f"{path}: {space} cannot be written as a Minari dataset")


def _nested(space: gymnasium.Space, columns: Any, path: str = "") -> Any:
    """Puts columns by path into the structure of their space."""
    if isinstance(columns, np.ndarray):
        return columns
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _nested(child, columns, f"{path}/{key}".lstrip("/")) for key, child in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_nested(child, columns, f"{path}/{place}".lstrip("/")) for place, child in enumerate(space.spaces))
    return columns[path]


def _metadata(info: EpisodeInfo) -> dict[str, Any]:
    facts = {
        "id": info.id,
        "outcome": info.outcome,
        "run": info.run,
        "lane": info.lane,
        "number": info.number,
        "policy": info.policy,
        **{f"options/{name}": value for name, value in info.options.items()},
    }
    return {f"rollhouse/{name}": value for name, value in facts.items()}
