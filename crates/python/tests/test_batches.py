"""Batches of recorded steps and sequences."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import rollhouse
from rollhouse import replays


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> replays.Replays:
    """Some 250 episodes of CartPole, some of them cancelled, and two of Pendulum."""
    data = tmp_path_factory.mktemp("batches")
    for env, lanes, steps in (("CartPole-v1", 16, 400), ("Pendulum-v1", 2, 200)):
        envs = rollhouse.make_vec(env, lanes, record=True, data=data)
        envs.action_space.seed(3)
        envs.reset(seed=3)
        for _ in range(steps):
            envs.step(envs.action_space.sample())
        envs.close()
    return replays.open(data)


@pytest.fixture(scope="module")
def cartpole(recorded: replays.Replays) -> replays.Replays:
    return recorded.filter(env="CartPole-v1")


def rows_of(recorded: replays.Replays) -> set[bytes]:
    """Every transition as bytes."""
    rows = set()
    for episode in recorded.read_many():
        for t in range(len(episode)):
            flags = bytes([int(episode.terminations[t]), int(episode.truncations[t])])
            rows.add(
                episode.observations[t].tobytes()
                + episode.observations[t + 1].tobytes()
                + episode.actions[t].tobytes()
                + episode.rewards[t].tobytes()
                + flags
            )
    return rows


def rows_in(batch: dict) -> list[bytes]:
    return [
        batch["observations"][row].tobytes()
        + batch["next_observations"][row].tobytes()
        + batch["actions"][row].tobytes()
        + batch["rewards"][row].tobytes()
        + bytes([int(batch["terminations"][row]), int(batch["truncations"][row])])
        for row in range(len(batch["rewards"]))
    ]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("buffer_bytes", [1, 1 << 14, 1 << 26])
def test_every_step_comes_once_whatever_the_buffer(cartpole, shuffle: bool, buffer_bytes: int) -> None:
    seen: list[bytes] = []
    batches = list(cartpole.batches(128, shuffle=shuffle, seed=1, buffer_bytes=buffer_bytes))
    for batch in batches:
        seen.extend(rows_in(batch))
        assert all(column.flags.c_contiguous for column in batch.values())
    assert all(len(batch["rewards"]) == 128 for batch in batches[:-1])
    assert len(seen) == sum(info.length for info in cartpole)
    assert set(seen) == rows_of(cartpole)


def test_pendulums_continuous_actions_come_with_their_shape(recorded) -> None:
    batch = next(iter(recorded.batches(32, env="Pendulum-v1", seed=0)))
    assert batch["actions"].shape == (32, 1) and batch["actions"].dtype == np.float32
    assert batch["observations"].shape == (32, 3)


def test_several_envs_are_refused_without_saying_which(recorded) -> None:
    with pytest.raises(ValueError, match="CartPole-v1, Pendulum-v1"):
        recorded.batches(4)


def test_a_seed_decides_the_order_and_every_pass_has_another(cartpole) -> None:
    first, again = cartpole.batches(64, seed=5), cartpole.batches(64, seed=5)
    passes = [np.concatenate([batch["observations"] for batch in first]) for _ in range(2)]
    np.testing.assert_array_equal(passes[0], np.concatenate([batch["observations"] for batch in again]))
    assert not np.array_equal(passes[0], passes[1])
    other = np.concatenate([batch["observations"] for batch in cartpole.batches(64, seed=6)])
    assert not np.array_equal(passes[0], other)


def test_unshuffled_steps_are_in_the_order_of_the_listing(cartpole) -> None:
    observations = np.concatenate([batch["observations"] for batch in cartpole.batches(100, shuffle=False)])
    expected = np.concatenate([episode.observations[:-1] for episode in cartpole.read_many()])
    np.testing.assert_array_equal(observations, expected)


def test_a_short_last_batch_can_be_dropped(cartpole) -> None:
    steps = sum(info.length for info in cartpole)
    assert steps % 100 != 0
    sizes = [len(batch["rewards"]) for batch in cartpole.batches(100, drop_last=True)]
    assert sizes == [100] * (steps // 100)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("length", [1, 7, 64])
def test_windows_put_together_are_the_episodes(cartpole, shuffle: bool, length: int) -> None:
    windows: dict[bytes, dict] = {}
    for batch in cartpole.batches(16, sequence_length=length, shuffle=shuffle, seed=2, buffer_bytes=1 << 12):
        assert batch["observations"].shape[1:] == (length + 1, 4)
        for row in range(len(batch["rewards"])):
            window = {key: value[row] for key, value in batch.items()}
            steps = int(window["mask"].sum())
            assert window["mask"][:steps].all(), "padding is at the end"
            assert not window["actions"][steps:].any() and not window["rewards"][steps:].any()
            assert not window["observations"][steps + 1 :].any()
            windows[window["observations"][0].tobytes()] = window
    count = 0
    for episode in cartpole.read_many():
        for start in range(0, len(episode), length):
            window = windows[episode.observations[start].tobytes()]
            steps = min(length, len(episode) - start)
            assert window["mask"].sum() == steps
            assert window["starts"] == (start == 0)
            np.testing.assert_array_equal(
                window["observations"][: steps + 1], episode.observations[start : start + steps + 1]
            )
            np.testing.assert_array_equal(window["actions"][:steps], episode.actions[start : start + steps])
            np.testing.assert_array_equal(
                window["terminations"][:steps], episode.terminations[start : start + steps]
            )
            count += 1
    assert count == len(windows)


def test_batches_travel_to_other_processes(cartpole) -> None:
    batches = cartpole.batches(64, seed=5)
    again = pickle.loads(pickle.dumps(batches))
    for one, other in zip(batches, again, strict=True):
        np.testing.assert_array_equal(one["observations"], other["observations"])


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_yields_every_step_once_as_tensors(cartpole, workers: int) -> None:
    import torch
    from torch.utils.data import DataLoader

    dataset = cartpole.batches(64, seed=5).to_torch()
    context = "spawn" if workers else None
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=context)
    seen = []
    for batch in loader:
        assert all(isinstance(column, torch.Tensor) for column in batch.values())
        seen.append(batch["observations"].numpy())
    seen = np.concatenate(seen)
    expected = np.concatenate([episode.observations[:-1] for episode in cartpole.read_many()])
    assert sorted(map(bytes, seen)) == sorted(map(bytes, expected))


@pytest.mark.torch
def test_tensors_are_over_the_same_memory(cartpole) -> None:
    from rollhouse.replays import torch_dataset

    batch = next(iter(cartpole.batches(8, seed=5)))
    tensors = torch_dataset._tensors(batch)
    tensors["rewards"][0] = 42.0
    assert batch["rewards"][0] == 42.0
