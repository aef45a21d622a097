"""What bad input gets: Gymnasium's exception types, and messages that name argument, value and what was wanted."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import rollhouse
from rollhouse import errors


def cartpole(lanes: int = 3) -> rollhouse.VectorEnv:
    envs = rollhouse.make_vec("CartPole-v1", lanes)
    envs.reset(seed=0)
    return envs


def pendulum(lanes: int = 2) -> rollhouse.VectorEnv:
    envs = rollhouse.make_vec("Pendulum-v1", lanes)
    envs.reset(seed=0)
    return envs


@pytest.mark.parametrize(
    ("actions", "error", "text"),
    [
        ([0, 1], ValueError, r"shape \(2,\), must have \(3,\)"),
        (np.zeros(4, dtype=np.int64), ValueError, r"shape \(4,\), must have \(3,\)"),
        (np.zeros((3, 1), dtype=np.int64), ValueError, r"shape \(3, 1\)"),
        ([], ValueError, r"shape \(0,\)"),
        (0, TypeError, "one row per lane"),
        (None, TypeError, "None"),
        ([[0], [0, 1], [1]], TypeError, "cannot be made an array"),
        ([0.0, 1.0, 1.0], TypeError, "dtype float64, must be integers"),
        (np.zeros(3, dtype=bool), TypeError, "dtype bool"),
        (["a", "b", "c"], TypeError, "must be integers"),
        ([0, 2, 1], ValueError, "action 2 of lane 1 is not an integer from 0 to 1"),
        ([0, 1, -1], ValueError, "action -1 of lane 2"),
        (np.array([0, 1, 2**63], dtype=np.uint64), ValueError, "9223372036854775808"),
        ([0, 1, 2**70], TypeError, "object"),
    ],
)
def test_bad_discrete_actions(actions, error, text) -> None:
    envs, twin = cartpole(), cartpole()
    with pytest.raises(error, match=text) as caught:
        envs.step(actions)
    assert isinstance(caught.value, gymnasium.error.InvalidAction)
    assert np.array_equal(envs.step([1, 0, 1])[0], twin.step([1, 0, 1])[0])


@pytest.mark.parametrize(
    ("actions", "error", "text"),
    [
        ([0.0, 0.0], ValueError, r"shape \(2,\), must have \(2, 1\)"),
        ([[0.0], [float("nan")]], ValueError, "action NaN of lane 1 is not a finite number"),
        ([[float("inf")], [0.0]], ValueError, "action inf of lane 0 is not a finite number"),
        ([[1e300], [0.0]], ValueError, "lane 0"),
        ([[1j], [0]], TypeError, "complex128"),
        ([["x"], ["y"]], TypeError, "must be numbers"),
    ],
)
def test_bad_box_actions(actions, error, text) -> None:
    envs, twin = pendulum(), pendulum()
    with pytest.raises(error, match=text):
        envs.step(actions)
    good = [[0.5], [-0.5]]
    assert np.array_equal(envs.step(good)[0], twin.step(good)[0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, ">i8"])
def test_every_integer_dtype_is_taken(dtype) -> None:
    envs, twin = cartpole(), cartpole()
    assert np.array_equal(envs.step(np.array([1, 0, 1], dtype=dtype))[0], twin.step([1, 0, 1])[0])


def test_layouts_are_taken_as_they_come() -> None:
    expected = cartpole().step([1, 0, 1])[0]
    strided = np.array([1, 7, 0, 7, 1], dtype=np.int64)[::2]
    unaligned = np.frombuffer(b"\0" + np.array([1, 0, 1]).tobytes(), dtype=np.int64, offset=1)
    frozen = np.array([1, 0, 1])
    frozen.flags.writeable = False
    for actions in (strided, unaligned, frozen, (1, 0, 1), [np.int64(1), 0, 1]):
        assert np.array_equal(cartpole().step(actions)[0], expected)


def test_box_actions_of_other_dtypes_and_out_of_bounds_go_to_the_env() -> None:
    theirs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1")] * 2)
    theirs.reset(seed=0)
    for actions in (np.array([[50.0], [-50.0]]), np.array([[1], [2]], dtype=np.int8), [[0.25], [1.5]]):
        ours = pendulum()
        theirs.reset(seed=0)
        assert np.allclose(ours.step(actions)[0], theirs.step(np.asarray(actions, dtype=np.float32))[0], atol=1e-5)


DRAWN = {"render_mode": "rgb_array"}


@pytest.mark.parametrize(
    ("id", "arguments", "error", "text"),
    [
        ("CartPole-v9", {}, gymnasium.error.NameNotFound, "CartPole-v9.*nearest are CartPole-v1"),
        ("CartPole-v1", {"num_envs": 0}, ValueError, "num_envs=0 must be at least 1"),
        ("CartPole-v1", {"num_envs": -2}, ValueError, "num_envs=-2"),
        ("CartPole-v1", {"num_envs": 65537}, ValueError, "num_envs: 65537 lanes"),
        ("CartPole-v1", {"num_envs": 2.5}, TypeError, "num_envs=2.5 must be an integer"),
        ("CartPole-v1", {"threads": 0}, ValueError, "threads=0"),
        ("CartPole-v1", {"threads": 1000}, ValueError, "threads: 1000"),
        ("CartPole-v1", {"autoreset_mode": "next"}, ValueError, "autoreset_mode='next' is not one of 'NextStep'"),
        ("CartPole-v1", {"max_episode_steps": -1}, ValueError, "max_episode_steps=-1"),
        ("CartPole-v1", {"record": "some"}, ValueError, "record='some'"),
        ("CartPole-v1", {"data": "/tmp"}, ValueError, "data='/tmp' is used only with record=True"),
        ("CartPole-v1", {"on_loss": "ignore"}, ValueError, "on_loss='ignore'"),
        ("CartPole-v1", {"sutton": True}, ValueError, "unknown option 'sutton'; did you mean 'sutton_barto_reward'"),
        ("CartPole-v1", {"recrod": True}, TypeError, "unknown option 'recrod'; did you mean 'record'"),
        ("test/Noise-v0", {"render_mode": "rgb_array"}, TypeError, "test/Noise-v0 has no renderer"),
        ("GridBreakout-v0", {"render_mode": "human"}, ValueError, "render_mode='human' is neither"),
        ("CartPole-v1", {"render_size": (64, 64)}, ValueError, "is used only with render_mode='rgb_array'"),
        ("CartPole-v1", {**DRAWN, "render_size": 64}, ValueError, "render_size=64 must be a width and a height"),
        ("CartPole-v1", {**DRAWN, "render_size": (64, 0)}, ValueError, "render_size=0 must be at least 1"),
        ("CartPole-v1", {**DRAWN, "render_size": (64, 2.5)}, TypeError, "render_size=2.5 must be an integer"),
        ("CartPole-v1", {**DRAWN, "render_size": (4097, 1)}, ValueError, "an image cannot have 4097 x 1 pixels"),
        ("CartPole-v1", {**DRAWN, "render_size": (4096, 4096)}, ValueError, "the whole at most 8388608"),
        ("MountainCar-v1", {}, gymnasium.error.NameNotFound, "nearest are MountainCar-v0"),
        ("LunarLander-v3", {}, gymnasium.error.NameNotFound, "'gymnasium:LunarLander-v3' runs it in worker processes"),
        ("CartPole-v1", {"zzz": True}, ValueError, "unknown option 'zzz'; CartPole-v1 takes sutton_barto_reward"),
        ("CartPole-v1", {"sutton_barto_reward": 3}, ValueError, "`sutton_barto_reward` takes true or false, got 3"),
        ("CartPole-v1", {"sutton_barto_reward": "x"}, ValueError, "takes true or false, got \"x\""),
        ("CartPole-v1", {"lane_options": [{}]}, ValueError, "lane_options has 1 dicts, must have one per lane"),
        ("CartPole-v1", {"seed": [1]}, ValueError, "num_envs=2 but got length=1"),
    ],
)
def test_bad_arguments(id, arguments, error, text) -> None:
    with pytest.raises(error, match=text):
        rollhouse.make_vec(id, **{"num_envs": 2, **arguments})


def test_errors_are_gymnasiums_too() -> None:
    assert issubclass(errors.OptionsError, gymnasium.error.Error)
    assert issubclass(errors.UnknownEnvError, gymnasium.error.UnregisteredEnv)
    assert issubclass(errors.HungError, TimeoutError)
