"""send and recv: lanes are stepped as they come."""

from __future__ import annotations

import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import rollhouse
from rollhouse import errors


def make(lanes: int = 4, **arguments) -> rollhouse.VectorEnv:
    envs = rollhouse.make_vec("CartPole-v1", lanes, valid="always", **arguments)
    envs.reset(seed=0)
    return envs


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("threads", [1, 2])
def test_lanes_play_what_they_play_in_lockstep(threads: int, mode: str) -> None:
    lanes = 600
    sent, lockstep = make(lanes, threads=threads, autoreset_mode=mode), make(lanes, autoreset_mode=mode)
    rng = np.random.default_rng(1)
    for _ in range(40):
        actions = rng.integers(0, 2, lanes)
        expected = lockstep.step(actions)
        halves = np.array_split(rng.permutation(lanes), 2)
        for half in halves:
            sent.send(actions[half], half)
        rows = {}
        outstanding = lanes
        while outstanding:
            obs, rewards, terminations, truncations, infos = sent.recv(1)
            ids = infos["env_id"]
            outstanding -= len(ids)
            for row, lane in enumerate(ids):
                assert lane not in rows
                rows[lane] = (obs[row], rewards[row], terminations[row], truncations[row], infos["valid"][row])
                over = terminations[row] or truncations[row]
                if mode == "SameStep" and over:
                    assert np.array_equal(infos["final_obs"][row], expected[4]["final_obs"][lane])
        for lane, (obs, reward, terminated, truncated, valid) in rows.items():
            assert np.array_equal(obs, expected[0][lane])
            assert (reward, terminated, truncated) == tuple(array[lane] for array in expected[1:4])
            assert valid == expected[4]["valid"][lane]


def test_by_default_all_lanes_are_sent_and_received() -> None:
    envs, lockstep = make(), make()
    envs.send([0, 1, 0, 1])
    obs, rewards, _, _, infos = envs.recv()
    assert infos["env_id"].tolist() == [0, 1, 2, 3]
    assert infos["env_id"].dtype == np.int64
    assert np.array_equal(obs, lockstep.step([0, 1, 0, 1])[0])
    assert rewards.dtype == np.float64


def test_receiving_with_nothing_outstanding_is_an_error() -> None:
    envs = make()
    for least in (None, 1):
        with pytest.raises(gymnasium.error.NoAsyncCallError, match="send lanes first"):
            envs.recv(least)
    envs.send([1], [2])
    with pytest.raises(errors.NothingOutstandingError, match="at least 2 lanes are to be received, but only 1 were sent"):
        envs.recv(2)
    assert envs.recv(1)[4]["env_id"].tolist() == [2]


def test_a_lane_is_not_sent_twice() -> None:
    envs = make()
    envs.send([1, 0], [2, 0])
    with pytest.raises(gymnasium.error.AlreadyPendingCallError, match="lane 2"):
        envs.send([1, 1], [1, 2])
    with pytest.raises(errors.OutstandingError, match="lane 1"):
        envs.send([1, 1], [1, 1])
    envs.send([1], [1])
    assert sorted(envs.recv(3)[4]["env_id"].tolist()) == [0, 1, 2]


def test_lockstep_waits_until_everything_is_received() -> None:
    envs = make()
    envs.send([1], [3])
    for use in (lambda: envs.step([0, 0, 0, 0]), lambda: envs.reset()):
        with pytest.raises(errors.OutstandingError, match="1 lanes"):
            use()
    envs.recv()
    envs.step([0, 0, 0, 0])


@pytest.mark.parametrize(
    ("actions", "ids", "error", "text"),
    [
        ([1], [4], IndexError, "lane 4 of a batch of 4"),
        ([1], [-1], IndexError, "lane -1"),
        ([1, 1], [0], ValueError, r"shape \(2,\), must have \(1,\)"),
        ([7], [1], ValueError, "action 7 of lane 1 is not an integer from 0 to 1"),
        ([1.0], [1], TypeError, "float64"),
        ([1], ["a"], TypeError, "env_ids"),
        ([1], 0, TypeError, "env_ids=0"),
    ],
)
def test_what_cannot_be_sent_is_named_and_nothing_is(actions, ids, error, text) -> None:
    envs = make()
    with pytest.raises(error, match=text):
        envs.send(actions, ids)
    envs.step([0, 1, 0, 1])


@pytest.mark.parametrize(("least", "timeout"), [(0, 1.0), (-1, 1.0), (1.5, 1.0), (1, -1.0), (1, float("nan"))])
def test_bad_bounds_of_a_receive_are_named(least, timeout) -> None:
    envs = make()
    envs.send([1], [0])
    with pytest.raises(ValueError, match="min_envs|timeout"):
        envs.recv(least, timeout)


def test_disabled_refuses_to_send_a_finished_episode() -> None:
    envs = make(2, autoreset_mode="Disabled", max_episode_steps=1)
    envs.send([1], [1])
    assert envs.recv()[3].all()
    with pytest.raises(gymnasium.error.ResetNeeded, match="lane 1"):
        envs.send([1], [1])
    envs.reset(options={"reset_mask": np.array([False, True])})
    envs.send([1], [1])
    envs.recv()


@pytest.mark.skipif(not hasattr(signal, "SIGINT"), reason="this system has no signals")
def test_a_receive_that_waits_ends_with_a_timeout_or_ctrl_c() -> None:
    # Lane 599 is on another thread than the caller's, and blocks forever in its first step.
    program = """
import os, signal, threading
import numpy as np
import rollhouse
# Whoever starts the tests in the background may have them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
hanging = [{}] * 599 + [{"hang_at": 1}]
envs = rollhouse.make_vec("test/Faulty-v0", 600, threads=2, lane_options=hanging)
envs.reset(seed=0)
envs.send([1], [599])
try:
    envs.recv(1, timeout=0.2)
except TimeoutError as error:
    print("timeout", "stay outstanding" in str(error))
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    envs.recv(1, timeout=None)
except KeyboardInterrupt:
    print("interrupted", flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n")[:2] == ["timeout True", "interrupted"], done.stderr
