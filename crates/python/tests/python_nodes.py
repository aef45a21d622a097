"""Nodes that host Python envs, those of the folder `packages` among them, and what tests of their lanes share."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from local_cluster import LocalCluster, rollhouse_program

import rollhouse

PACKAGES = Path(__file__).parent / "packages"
"""The folder of packages of envs, which pytest has in the path of modules, too (pyproject.toml)."""

ALLOWED = ("balls", "broken", "chatter", "envpool", "gates", "mazes", "orders", "pettingzoo", "races", "shops", "signs", "sizes", "swarms", "tales", "walks")
"""Packages that most tests' nodes may import: of the folder, and one that is adapted."""

THREE = ("one", "two", "three")

STEPS = 120


def search_path(*folders: Path) -> dict[str, str]:
    """The environment variable by which a process finds the packages, or those of other folders."""
    return {"PYTHONPATH": os.pathsep.join([*map(str, folders or (PACKAGES,)), os.environ.get("PYTHONPATH", "")])}


def python_settings(*allow: str, **more: str) -> list[str]:
    """Settings of nodes that host Gymnasium and the packages of these names, and more of the section `python`."""
    settings = {"interpreter": sys.executable, "allow": ",".join(("gymnasium", *allow)), "workers": "2", **more}
    return [f"python.{name}={value}" for name, value in settings.items()]


def python_nodes(
    folder: Path, *allow: str, names: Sequence[str] = ("one", "two"), settings: Sequence[str] = (), **python: str
) -> LocalCluster:
    """A cluster whose nodes host the packages of these names.

    Args:
        names: Names of the nodes.
        settings: Settings of all nodes, as ``KEY=VALUE``.
        python: Settings of the section ``python``.
    """
    variables = {name: search_path() for name in names}
    return LocalCluster(folder, rollhouse_program(), [*python_settings(*allow, **python), *settings], variables, names)


def same(ours: Any, theirs: Any) -> None:
    """Asserts that observations, or results of calls, are equal to the bit."""
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    elif ours is None or theirs is None:
        assert ours is theirs
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        assert ours.shape == theirs.shape
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    else:
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


def play(
    there: Any,
    here: SyncVectorEnv,
    mode: AutoresetMode,
    steps: int = STEPS,
    at: Mapping[int, Callable[[], None]] | None = None,
) -> int:
    """Plays both with the same actions and asserts that they are equal; returns how many episodes ended.

    Args:
        at: What happens before a step, by its number.
    """
    same(there.reset(seed=11)[0], here.reset(seed=11)[0])
    here.action_space.seed(4)
    ends = 0
    for step in range(steps):
        if at and step in at:
            at[step]()
        actions = here.action_space.sample()
        ours, theirs = there.step(actions), here.step(actions)
        same(ours[0], theirs[0])
        same(ours[1], theirs[1])
        same(ours[2], theirs[2])
        same(ours[3], theirs[3])
        over = theirs[2] | theirs[3]
        ends += int(over.sum())
        if mode is AutoresetMode.SAME_STEP and over.any():
            for lane in np.flatnonzero(over):
                same(ours[4]["final_obs"][lane], theirs[4]["final_obs"][lane])
        if mode is AutoresetMode.DISABLED and over.any():
            options = {"reset_mask": over}
            same(there.reset(options=dict(options))[0], here.reset(options=dict(options))[0])
    return ends


def same_spaces(there: Any, here: SyncVectorEnv) -> None:
    """Asserts that spaces are equal, and so are the dtypes of all of their parts."""
    for name in ("single_observation_space", "single_action_space", "observation_space", "action_space"):
        ours, theirs = getattr(there, name), getattr(here, name)
        assert ours == theirs, name
        assert dtypes(ours) == dtypes(theirs), name


def dtypes(space: gymnasium.Space) -> list[np.dtype | None]:
    """The dtypes of a space's parts, in its own order."""
    if isinstance(space, gymnasium.spaces.Dict):
        return [dtype for part in space.spaces.values() for dtype in dtypes(part)]
    if isinstance(space, gymnasium.spaces.Tuple):
        return [dtype for part in space.spaces for dtype in dtypes(part)]
    if isinstance(space, gymnasium.spaces.Sequence):
        return dtypes(space.feature_space)
    return [space.dtype]


def recorded_of(cluster: rollhouse.Cluster, run: str, lane: int) -> list[Any]:
    """What the store has of a lane of a pool that was closed, once it is there."""
    assert cluster.close_pool(run, timeout=60)["stored"]
    recorded = rollhouse.replays.open(cluster)
    return [recorded.read(info) for info in recorded if info.run == run and info.lane == lane]


def workers_of(process: int) -> list[int]:
    """The worker processes of a node."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == process and b"rollhouse.env_worker" in line:
            found.append(int(entry.name))
    return sorted(found)


def ended(process: int) -> bool:
    """Waits until the process of that descriptor has ended."""
    try:
        return bool(select.select([process], [], [], 60)[0])
    finally:
        os.close(process)
