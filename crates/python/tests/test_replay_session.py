"""Recorded episodes that a node of a cluster shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import rollhouse
from rollhouse import errors, replays


@pytest.fixture(scope="module")
def cluster(cluster_url: str) -> rollhouse.Cluster:
    return rollhouse.connect(cluster_url)


def recorded(cluster: rollhouse.Cluster, env: str, steps: int) -> replays.Episode:
    """The longest finished episode of a few that were just played, once the store has it."""
    envs = cluster.make_vec(env, 4, seed=3)
    envs.reset()
    for _ in range(steps):
        envs.step(envs.action_space.sample())
    run = envs.run
    envs.close()
    while True:
        store = replays.open(cluster)
        found = [info for info in store.list(env=env, sort="-length") if info.run == run and info.finished]
        if found:
            return store.read(found[0])


@pytest.fixture(scope="module")
def episode(cluster: rollhouse.Cluster) -> replays.Episode:
    return recorded(cluster, "CartPole-v1", 120)


@pytest.fixture
def replay(cluster: rollhouse.Cluster, episode: replays.Episode) -> Iterator[rollhouse.ReplaySession]:
    with cluster.open_replay(episode.info.id) as replay:
        yield replay


def test_each_step_is_the_recorded_one_wherever_it_is_sought(
    replay: rollhouse.ReplaySession, episode: replays.Episode
) -> None:
    length = len(episode)
    assert (len(replay), replay.position, replay.state) == (length, 0, "paused")
    assert (replay.action, replay.reward) == (None, 0.0)
    for step in [0, length, 1, length // 2, length // 2, length - 1, 3, 0]:
        observation = replay.seek(step)
        assert observation.dtype == np.float32
        assert np.array_equal(observation, episode.observations[step])
        assert np.array_equal(replay.observation, observation)
        if step > 0:
            assert replay.action == episode.actions[step - 1]
            assert replay.reward == episode.rewards[step - 1]
        assert replay.position == step
        assert replay.total_reward == episode.rewards[:step].sum()
    with pytest.raises(ValueError, match=f"the episode has {length}"):
        replay.seek(length + 1)
    with pytest.raises(ValueError, match="step=-1"):
        replay.seek(-1)


def test_it_is_stepped_like_an_env_and_stays_at_its_end(
    replay: rollhouse.ReplaySession, episode: replays.Episode
) -> None:
    observation, info = replay.reset()
    assert np.array_equal(observation, episode.observations[0])
    assert info == {}
    for step in range(1, len(episode) + 1):
        observation, reward, terminated, truncated, _ = replay.step(0)
        assert np.array_equal(observation, episode.observations[step])
        assert reward == episode.rewards[step - 1]
        assert (terminated or truncated) == (step == len(episode))
    assert replay.state == "over"
    replay.step()
    assert replay.position == len(episode)
    assert np.array_equal(replay.back(2), episode.observations[len(episode) - 2])
    assert replay.state == "paused"


def test_it_plays_by_itself_is_paused_and_seen_by_another(
    cluster: rollhouse.Cluster, replay: rollhouse.ReplaySession, episode: replays.Episode
) -> None:
    replay.play(64)
    seen = [frame.position for frame in replay.frames()]
    assert seen == sorted(seen)
    assert (seen[-1], replay.state) == (len(episode), "over")
    replay.seek(2)
    replay.play(1 / 16)
    replay.pause()
    where = replay.position
    assert replay.refresh().position == where
    assert list(frame.position for frame in replay.frames(timeout=0.0)) == [where]
    with pytest.raises(ValueError, match="speed = 65"):
        replay.play(65)
    listed = [session for session in cluster.sessions() if session["replay"]]
    assert episode.info.id in [report["replay"]["episode"] for report in listed]


def test_a_picture_is_the_one_that_the_lane_drew(replay: rollhouse.ReplaySession, episode: replays.Episode) -> None:
    replay.seek(5)
    picture = replay.render()
    assert picture.shape == (*rollhouse.env_spec("CartPole-v1")["render_size"][::-1], 3)
    assert picture.dtype == np.uint8
    small = replay.render((64, 48))
    assert small.shape == (48, 64, 3)
    replay.seek(len(episode))
    assert not np.array_equal(replay.render(), picture)


def test_what_is_closed_or_not_there_says_so(cluster: rollhouse.Cluster, episode: replays.Episode) -> None:
    replay = cluster.open_replay(episode.info.id)
    replay.close()
    replay.close()
    with pytest.raises(errors.ClosedError):
        replay.seek(0)
    with pytest.raises(errors.RefusedError) as refused:
        cluster.open_replay("aaaaaaaa-0-0")
    assert refused.value.code == "not_found"
    with pytest.raises(ValueError, match="name="):
        cluster.open_replay("nothing")
    other = cluster.open_replay(episode.info.id)
    cluster.close_pool(next(s for s in cluster.sessions() if s["replay"])["run"])
    with pytest.raises(errors.ClusterError, match="has ended: closed"):
        while True:
            other.refresh()
    other.close()
