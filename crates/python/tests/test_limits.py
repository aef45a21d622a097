"""What a node limits, and what it lets be set: times, what envs leave behind, keys of spaces."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from games import Game, Great, Numbered
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from local_cluster import LocalCluster, rollhouse_program
from python_nodes import play, python_nodes, search_path, workers_of

import rollhouse
from rollhouse.errors import LaneLostError, RefusedError


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node that gives sessions up after 5 s and thus steps after 2 s, and resets after an hour."""
    settings = ["node.hang_after=5 s", "node.reset_within=1 h", "node.call_within=1 s"]
    folder = tmp_path_factory.mktemp("patient")
    with closing(python_nodes(folder, "games", names=("one",), settings=settings, launch_within="20 h")) as cluster:
        yield cluster


def test_a_reset_takes_as_long_as_is_set_and_a_step_as_long_as_is_not(patient: LocalCluster) -> None:
    """Symptom: a reset over 25 s was lost as hung on a node, whatever was set. Cause: one fixed time for steps and resets.
    Fix: ``node.reset_within`` and ``node.step_within``, by which the session's own time grows.
    """
    with rollhouse.connect(patient.url, timeout=120) as cluster:
        envs = cluster.make_vec("games:Long", 2, env_kwargs={"seconds": 6}, on_loss="report", valid="always")
        envs.reset(seed=1)
        envs.reset(seed=2)
        assert envs.step([0, 0])[4]["valid"].tolist() == [True, True]
        infos = envs.step([1, 0])[4]
        assert infos["lost"].tolist() == ["hung", None] and infos["valid"].tolist() == [False, True]
        assert infos["lost_reason"].tolist() == ["a step took longer than 2s, which `node.step_within` sets", None]
        envs.close()


def test_a_call_takes_as_long_as_is_set_and_the_trainer_is_told_by_what(patient: LocalCluster) -> None:
    """Symptom: a call of an env on a node had 20 s, whatever was set, and its lane was lost without a word. Cause: a fixed
    time. Fix: ``node.call_within``, which the reason names.
    """
    with rollhouse.connect(patient.url, timeout=120) as cluster:
        envs = cluster.make_vec("games:Asked", 1, on_loss="report")
        envs.reset(seed=1)
        assert envs.call_method(0, "wait", 0) == 0
        with pytest.raises(RefusedError, match="the lane is lost"):
            envs.call_method(0, "wait", 3600)
        infos = envs.step([0])[4]
        assert infos["lost"].tolist() == ["crashed"]
        assert infos["lost_reason"].tolist() == ["a call took longer than 1s, which `node.call_within` sets"]
        envs.close()


@pytest.mark.parametrize("transport", ["shm", "quic"])
def test_choices_beyond_two_to_the_53_are_taken_to_the_last_digit_and_verified(patient: LocalCluster, transport: Any) -> None:
    """Symptom: the try-out of an env gave it actions that it does not have. Cause: they were drawn as floats. Fix: as integers."""
    with rollhouse.connect(patient.url, transport=transport, timeout=120) as cluster:
        with closing(cluster.make_vec("games:Great", 2)) as there:
            assert there.transport == transport
            play(there, SyncVectorEnv([Great] * 2), AutoresetMode.NEXT_STEP, steps=30)
            run = there.run
        assert cluster.close_pool(run, timeout=60)["stored"]
        replays = rollhouse.replays.open(cluster)
        recorded = [info for info in replays if info.run == run and info.finished]
        assert len(recorded) > 3
        for info in recorded:
            episode = replays.read(info)
            assert info.action_space == Great.action_space
            shown = [2**61 + (int(action) + 2**63) // 8 for action in episode.actions]
            assert episode.observations[1:].tolist() == shown
        verify = ["--connect", patient.url, "--python", sys.executable, "--allow", "games", recorded[0].id]
        line = [str(rollhouse_program()), "replay", "verify", *verify]
        variables = os.environ | search_path()
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, env=variables)
        assert done.returncode == 0 and "1 " in done.stdout, done


def end_of(process: int) -> None:
    """Waits until a process is gone, reaped too."""
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{process}"):
        assert time.monotonic() < deadline, f"{process} is still there"
        os.sched_yield()


def lives(process: int) -> bool:
    """Whether a process has not ended, whoever is to reap it."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False


def game_of(mark: Path) -> tuple[int, int]:
    """The id and port that a game has written."""
    process, port = map(int, mark.read_text().split())
    return process, port


# What has no environment is found by its parents alone, where there is no control group.
@pytest.mark.parametrize(
    ("ends", "how"),
    [("killed", "plain"), ("killed", "orphan"), ("hangs", "plain"), ("hangs", "bare"), ("hangs", "orphan"), ("closes", "orphan")],
)
def test_what_an_env_starts_on_a_node_ends_with_it(patient: LocalCluster, tmp_path: Path, ends: str, how: str) -> None:
    """Symptom: a game with a session of its own outlived its worker and kept its port. Cause: only the worker's process
    group was ended. Fix: all that the worker has started is, and the node reaps it.
    """
    mark = tmp_path / "game"
    with rollhouse.connect(patient.url, timeout=120) as cluster:
        envs = cluster.make_vec("games:Game", 1, env_kwargs={"mark": str(mark), "how": how}, on_loss="report")
        envs.reset(seed=1)
        game, port = game_of(mark)
        socket.create_connection(("127.0.0.1", port)).close()
        if ends == "killed":
            os.kill(workers_of(patient.process_id("one"))[0], signal.SIGKILL)
            envs.step([0])
        elif ends == "hangs":
            assert envs.step([1])[4]["lost"].tolist() == ["hung"]
        else:
            envs.close()
        end_of(game)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        envs.close()


@pytest.mark.parametrize("how", ["plain", "orphan"])
def test_what_an_env_starts_ends_with_its_worker_here_too(tmp_path: Path, how: str) -> None:
    envs = rollhouse.vectorize([lambda: Game(str(tmp_path / "game"), how)], step_timeout=0.5)
    envs.reset(seed=1)
    game, _ = game_of(tmp_path / "game")
    with pytest.raises(LaneLostError, match="a step took longer than 500ms, which `step_timeout` sets"):
        envs.step([1])
    deadline = time.monotonic() + 60
    while lives(game):
        assert time.monotonic() < deadline
    envs.close(terminate=True)


def test_keys_of_dicts_are_numbers_on_nodes_where_they_are_numbers(patient: LocalCluster, tmp_path: Path) -> None:
    """Symptom: keys that are numbers were texts on nodes. Cause: names of columns are texts. Fix: the names say which."""
    expected: dict[Any, Any] = {3: 7, "3": 5, 0.5: {-1: 7}, "[3]": 5}
    with rollhouse.connect(patient.url, timeout=120) as cluster:
        with closing(cluster.make_vec("games:Numbered", 2)) as envs:
            space = envs.single_observation_space
            assert isinstance(space, spaces.Dict) and list(space.spaces) == list(expected)
            assert list(envs.single_action_space.spaces) == [1, 2]
            assert set(envs.reset(seed=1)[0]) == set(expected)
            observations = envs.step({1: np.array([7, 7]), 2: np.array([5, 5])})[0]
            assert {key: observations[key][0] for key in (3, "3", "[3]")} == {3: 7, "3": 5, "[3]": 5}
            assert observations[0.5][-1].tolist() == [7, 7]
        with pytest.raises(RefusedError, match=r"the key \(0, 1\) of a Dict is neither a text nor a number"):
            cluster.make_vec("games:Paired", 1)


def test_a_recording_has_the_keys_that_the_env_has(tmp_path: Path) -> None:
    with closing(rollhouse.vectorize([Numbered], record=True, data=tmp_path)) as envs:
        envs.reset(seed=1)
        envs.step({1: np.array([7]), 2: np.array([5])})
    replays = rollhouse.replays.open(tmp_path)
    (episode,) = (replays.read(info) for info in replays)
    assert list(episode.observations) == ["[3]", "3", "[0.5]/[-1]", "[[3]]"]
    assert isinstance(episode.info.observation_space, spaces.Dict)
    assert list(episode.info.observation_space.spaces) == [3, "3", 0.5, "[3]"]
    assert episode.action(0) == {1: 7, 2: 5}


def test_arguments_of_an_env_are_given_by_name_on_a_cluster_too(patient: LocalCluster) -> None:
    with rollhouse.connect(patient.url, timeout=120) as cluster:
        for arguments in ({"seconds": 0}, {"env_kwargs": {"seconds": 0}}):
            with closing(cluster.make_vec("games:Long", 1, **arguments)) as envs:
                envs.reset(seed=1)
                assert envs.step([1])[0].tolist() == [[1.0]]
        with pytest.raises(TypeError, match="env_kwargs: seconds stands there and by name"):
            cluster.make_vec("games:Long", 1, seconds=0, env_kwargs={"seconds": 1})
        with pytest.raises(RefusedError, match="unexpected keyword argument 'minutes'"):
            cluster.make_vec("games:Long", 1, seconds=0, minutes=0)
        with pytest.raises(TypeError, match="unexpected keyword argument 'determinstic'.*did you mean 'deterministic'"):
            cluster.make_vec("games:Long", 1, seconds=0, determinstic=True)
