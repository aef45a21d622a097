"""Lanes that are stepped through memory shared with a node: where their arrays lie."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import rollhouse
from rollhouse import errors

LANES = 64


def mappings(name: str) -> list[range]:
    """Where this process has mapped memory of that name, as the kernel tells it."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if f"/memfd:{name}" in line:
            start, end = line.split()[0].split("-")
            found.append(range(int(start, 16), int(end, 16)))
    return found


def lies_in(array: np.ndarray, places: list[range]) -> bool:
    """Whether all of the array does: a file may be mapped in several pieces that follow each other."""
    address = array.__array_interface__["data"][0]
    return all(any(at in place for place in places) for at in (address, address + array.nbytes - 1))


@pytest.fixture
def cluster(cluster_url: str) -> rollhouse.Cluster:
    return rollhouse.connect(cluster_url)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "GridBreakout-v0"])
def test_observations_actions_rewards_and_flags_lie_inside_the_mapping(cluster: rollhouse.Cluster, id: str) -> None:
    envs = cluster.make_vec(id, LANES, copy=False, seed=0)
    assert envs.transport == "shm"
    observations, _ = envs.reset()
    assert lies_in(observations, mappings("rollhouse-outputs"))
    assert lies_in(envs.actions, mappings("rollhouse-inputs"))
    addresses = set()
    for _ in range(6):
        envs.actions[...] = envs.action_space.sample()
        arrays = envs.step(envs.actions)[:4]
        assert all(lies_in(array, mappings("rollhouse-outputs")) for array in arrays)
        addresses.add(tuple(array.__array_interface__["data"][0] for array in arrays))
    assert len(addresses) == 2, "two slots alternate"
    envs.close()


def test_actions_that_are_filled_in_place_are_the_ones_that_are_taken(cluster: rollhouse.Cluster) -> None:
    there = cluster.make_vec("Pendulum-v1", LANES, copy=False, seed=3)
    here = rollhouse.make_vec("Pendulum-v1", LANES, seed=3)
    there.reset()
    here.reset()
    for _ in range(250):
        actions = here.action_space.sample()
        there.actions[...] = actions
        for ours, theirs in zip(there.step(there.actions)[:4], here.step(actions)[:4], strict=True):
            assert np.array_equal(ours, theirs)
    # An env that is not stepped through memory has an ordinary array to fill in.
    here.actions[...] = 0.0
    here.step(here.actions)
    here.close()
    there.close()


def test_an_image_has_the_same_pixels_in_shared_memory_and_embedded(cluster: rollhouse.Cluster) -> None:
    there = cluster.make_vec("GridBreakout-v0", LANES, copy=False, seed=5)
    here = rollhouse.make_vec("GridBreakout-v0", LANES, seed=5)
    assert there.reset()[0].tobytes() == here.reset()[0].tobytes()
    for _ in range(200):
        actions = here.action_space.sample()
        assert there.step(actions)[0].tobytes() == here.step(actions)[0].tobytes()
    here.close()
    there.close()


def test_a_bad_action_in_place_is_named_and_nothing_has_moved(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("CartPole-v1", LANES, copy=False, seed=0)
    before = envs.reset()[0].copy()
    envs.actions[:] = 0
    envs.actions[7] = 9
    with pytest.raises(errors.InvalidActionError, match="action 9 of lane 7"):
        envs.step(envs.actions)
    envs.actions[7] = 0
    after = envs.step(envs.actions)[0]
    fresh = rollhouse.make_vec("CartPole-v1", LANES, seed=0)
    assert np.array_equal(fresh.reset()[0], before)
    assert np.array_equal(fresh.step(np.zeros(LANES, np.int64))[0], after)
    fresh.close()
    envs.close()


def test_the_mapping_is_gone_with_the_last_array_of_it(cluster: rollhouse.Cluster) -> None:
    gc.collect()
    before = len(mappings("rollhouse-outputs"))
    envs = cluster.make_vec("CartPole-v1", LANES, copy=False, seed=0)
    observations, _ = envs.reset()
    kept = observations.copy()
    envs.close()
    assert np.array_equal(observations, kept), "what was shown stays"
    del envs, observations
    gc.collect()
    assert len(mappings("rollhouse-outputs")) == before


def test_a_transport_that_cannot_be_had_is_refused_by_name(cluster_url: str, tmp_path: Path) -> None:
    elsewhere = rollhouse.connect(cluster_url, attach=tmp_path)
    envs = elsewhere.make_vec("CartPole-v1", 2)
    assert envs.transport == "quic"
    envs.close()
    with pytest.raises(errors.RefusedError, match="transport=shm: .* the attach socket does not answer"):
        elsewhere.make_vec("CartPole-v1", 2, transport="shm")
    with pytest.raises(ValueError, match="transport='smoke' is not one of"):
        rollhouse.connect(cluster_url, transport="smoke")  # type: ignore[arg-type]
    elsewhere.close()
