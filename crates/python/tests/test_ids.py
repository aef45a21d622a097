"""One id means one env, through every door, and is what its recordings are called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from local_cluster import rollhouse_program
from python_nodes import PACKAGES, recorded_of

import rollhouse
from rollhouse import replays
from rollhouse.vector import VectorEnv

IDS = ["gymnasium:signs:signs/Sign-v1", "signs:Sign", "gymnasium:CartPole-v1"]
"""An env that a module registers, one of a class, and one that is built in here, too."""


def lengths(envs: VectorEnv) -> None:
    """Plays until each lane has an episode behind it."""
    envs.reset(seed=0)
    ended = np.zeros(envs.num_envs, np.bool_)
    for _ in range(500):
        *_, terminations, truncations, _ = envs.step(np.ones(envs.num_envs, np.int64))
        ended |= terminations | truncations
        if ended.all():
            break
    envs.close()
    assert ended.all()


def called(data: Path) -> set[str]:
    """The names of the envs that were recorded there."""
    return {info.env for info in replays.open(data)}


def made_by_sb3(id: str, **arguments: Any) -> VectorEnv:
    from rollhouse.sb3 import make_vec_env

    return make_vec_env(id, 2, monitor=False, **arguments).envs


DOORS = {
    "make_vec": lambda id, **arguments: rollhouse.make_vec(id, 2, **arguments),
    "vectorize": lambda id, **arguments: rollhouse.vectorize([id] * 2, **arguments),
    "sb3": made_by_sb3,
}


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("door", ["make_vec", "vectorize", pytest.param("sb3", marks=pytest.mark.adapters("torch", "stable_baselines3"))])
def test_an_id_is_taken_here_and_is_what_recordings_are_called(door: str, id: str, tmp_path: Path) -> None:
    """Symptom: a module in an id was not imported, and recordings of `gymnasium:CartPole-v1` were those of `CartPole-v1`."""
    lengths(DOORS[door](id, record=True, data=tmp_path))
    assert called(tmp_path) == {id}


def test_functions_record_under_the_id_that_makes_the_same_env(tmp_path: Path) -> None:
    from signs import Sign

    for at, (fn, id) in enumerate(
        [
            (lambda: gymnasium.make("CartPole-v1"), "gymnasium:CartPole-v1"),
            (lambda: gymnasium.make("rollhouse/CartPole-v1"), "gymnasium:rollhouse/CartPole-v1"),
            (Sign, "signs:Sign"),
            (lambda: gymnasium.wrappers.TimeLimit(Sign(), 3), "signs:Sign"),
        ]
    ):
        lengths(rollhouse.vectorize([fn] * 2, record=True, data=tmp_path / str(at)))
        assert called(tmp_path / str(at)) == {id}
        lengths(rollhouse.make_vec(id, 2, record=True, data=tmp_path / "again" / str(at)))
        assert called(tmp_path / "again" / str(at)) == {id}


def test_an_id_without_a_version_is_the_newest(tmp_path: Path) -> None:
    lengths(rollhouse.make_vec("gymnasium:signs:signs/Sign", 2, record=True, data=tmp_path))
    assert {info.length for info in replays.open(tmp_path) if info.finished} == {4}


@pytest.mark.parametrize(
    ("id", "says"),
    [
        ("gymnasium:no_such_module:X-v0", "no_such_module"),
        ("gymnasium:NoSuch-v0", "NoSuch"),
        ("gymnasium:NetHackScore-v0", "'nle'"),
    ],
)
@pytest.mark.parametrize("door", ["make_vec", "vectorize"])
def test_an_id_of_nothing_is_refused_with_what_is_missing(door: str, id: str, says: str) -> None:
    with pytest.raises((gymnasium.error.Error, ImportError), match=says):
        DOORS[door](id)


@pytest.mark.adapters("ale_py")
def test_envs_of_known_packages_are_found_without_naming_them(tmp_path: Path) -> None:
    envs = rollhouse.make_vec("gymnasium:ALE/Pong-v5", 1)
    assert envs.reset(seed=0)[0].shape == (1, 210, 160, 3)
    envs.close()


@pytest.mark.parametrize("id", [*IDS, "gymnasium:signs/Sign-v1", "gymnasium:signs:signs/Sign"])
def test_nodes_take_the_same_ids(cluster: rollhouse.Cluster, id: str) -> None:
    """Symptom: a node that had and allowed a package refused its ids where the package was not named in them."""
    envs = cluster.make_vec(id, 2)
    lengths(envs)
    episode, *_ = recorded_of(cluster, envs.run, lane=0)
    assert episode.info.env == id


def command(*line: str) -> subprocess.CompletedProcess[str]:
    hosting = ["--python", sys.executable, "--allow", "signs"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")])}
    whole = [str(rollhouse_program()), *line, *hosting]
    return subprocess.run(whole, capture_output=True, text=True, env=environment, timeout=300, check=False)


@pytest.mark.parametrize("id", [*IDS, "gymnasium:signs/Sign-v1", "gymnasium:signs:signs/Sign"])
def test_the_command_takes_the_same_ids(id: str, tmp_path: Path) -> None:
    data = ["--data", str(tmp_path)]
    done = command("rollout", "--env", id, "--lanes", "2", "--episodes", "3", "--deterministic", *data)
    assert done.returncode == 0, done.stderr
    assert called(tmp_path) == {id}
    done = command("replay", "verify", *data)
    assert done.returncode == 0, done.stdout + done.stderr
    done = command("envs", id, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env"] == id
    # Without a terminal it gets as far as to say so.
    done = command("play", id, *data)
    assert done.returncode == 2 and "needs a terminal" in done.stderr, done.stderr


def test_the_command_names_what_an_id_needs(tmp_path: Path) -> None:
    done = command("envs", "gymnasium:ALE/Pong-v5")
    assert done.returncode == 1 and "'ale_py'" in done.stderr and "--allow" in done.stderr, done.stderr
