"""Lanes on a cluster: the same arrays as in this process, and what only a cluster has."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from python_nodes import same

import rollhouse
from rollhouse import errors

BUILT_IN = [
    "Acrobot-v1",
    "CartPole-v1",
    "Echo-v0",
    "GridBreakout-v0",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
]
LANES = 5
STEPS = 300


@pytest.fixture(scope="module", params=["quic", "shm"])
def cluster(cluster_url: str, request: pytest.FixtureRequest) -> rollhouse.Cluster:
    return rollhouse.connect(cluster_url, transport=request.param)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("id", BUILT_IN)
def test_a_seeded_run_gives_the_same_arrays_embedded_and_on_a_cluster(
    cluster: rollhouse.Cluster, id: str, mode: AutoresetMode
) -> None:
    here = rollhouse.make_vec(id, LANES, autoreset_mode=mode, max_episode_steps=90)
    there = cluster.make_vec(id, LANES, autoreset_mode=mode, max_episode_steps=90)
    assert there.observation_space == here.observation_space
    assert there.action_space == here.action_space
    same(there.reset(seed=11), here.reset(seed=11))
    here.action_space.seed(4)
    ends = 0
    for _ in range(STEPS):
        actions = here.action_space.sample()
        ours, theirs = there.step(actions), here.step(actions)
        same(ours, theirs)
        over = theirs[2] | theirs[3]
        ends += over.sum()
        if mode is AutoresetMode.DISABLED and over.any():
            options = {"reset_mask": over}
            same(there.reset(options=options), here.reset(options=options))
    assert ends >= LANES
    there.close()


def test_options_that_episodes_draw_are_the_same_embedded_and_on_a_cluster(cluster: rollhouse.Cluster) -> None:
    drawn = {"g": {"uniform": [2, 15]}}
    here = rollhouse.make_vec("Pendulum-v1", LANES, options=drawn, max_episode_steps=20)
    there = cluster.make_vec("Pendulum-v1", LANES, options=drawn, max_episode_steps=20)
    same(there.reset(seed=11), here.reset(seed=11))
    here.action_space.seed(4)
    values = set()
    for _ in range(STEPS):
        actions = here.action_space.sample()
        same(there.step(actions), here.step(actions))
        assert there.get_attr("g") == here.get_attr("g")
        values.update(here.get_attr("g"))
    assert all(2 <= value < 15 for value in values)
    assert len(values) == LANES * (1 + STEPS // 21), "a value for each episode"
    with pytest.raises(errors.OptionsError, match="gauss"):
        cluster.make_vec("Pendulum-v1", LANES, options={"g": {"gauss": [2, 15]}})
    there.close()


def test_views_stay_as_they_are_until_the_second_next_step(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("CartPole-v1", LANES, copy=False, seed=3)
    envs.reset()
    actions = np.zeros(LANES, dtype=np.int64)
    first = envs.step(actions)[0]
    kept = first.copy()
    assert not first.flags.writeable
    second = envs.step(actions)[0]
    assert np.array_equal(first, kept)
    assert not np.shares_memory(first, second)
    third = envs.step(actions)[0]
    assert third is first
    envs.close()
    del envs
    gc.collect()
    assert np.isfinite(third).all()


def test_first_done_gives_each_lane_what_it_gets_embedded(cluster: rollhouse.Cluster) -> None:
    here = rollhouse.make_vec("CartPole-v1", LANES, seed=9, valid="always")
    there = cluster.make_vec("CartPole-v1", LANES, seed=9, valid="always")
    same(there.reset(), here.reset())
    for step in range(60):
        actions = (np.arange(LANES) + step) % 2
        for env_ids in ([4, 0], [1, 3, 2]):
            there.send(actions[env_ids], env_ids)
        with pytest.raises(errors.OutstandingError):
            there.step(actions)
        here.send(actions)
        rows: dict[int, Any] = {}
        while len(rows) < LANES:
            *arrays, infos = there.recv(min_envs=1)
            for row, lane in enumerate(infos["env_id"]):
                rows[int(lane)] = [*(array[row] for array in arrays), infos["valid"][row]]
        *arrays, infos = here.recv()
        for row, lane in enumerate(infos["env_id"]):
            for ours, theirs in zip(
                rows[int(lane)], [*(array[row] for array in arrays), infos["valid"][row]], strict=True
            ):
                assert np.array_equal(ours, theirs)
    with pytest.raises(errors.NothingOutstandingError):
        there.recv()
    there.close()


def test_bad_input_is_told_as_in_this_process(cluster: rollhouse.Cluster) -> None:
    with pytest.raises(errors.RefusedError, match="CartPole-v7") as refused:
        cluster.make_vec("CartPole-v7", 2)
    assert refused.value.code == "not_found"
    with pytest.raises(errors.OptionsError):
        cluster.make_vec("CartPole-v1", 2, gravitas=1)
    with pytest.raises(ValueError, match="num_envs"):
        cluster.make_vec("CartPole-v1", 0)
    with pytest.raises(ValueError, match="threads"):
        cluster.make_vec("CartPole-v1", 2, threads=2)
    with pytest.raises(ValueError, match="transport"):
        cluster.make_vec("CartPole-v1", 2, transport="smoke")  # type: ignore[arg-type]
    envs = cluster.make_vec("CartPole-v1", 2)
    with pytest.raises(errors.ResetNeededError):
        envs.step(np.zeros(2, dtype=np.int64))
    envs.reset(seed=0)
    with pytest.raises(errors.InvalidActionError, match="lane 1"):
        envs.step(np.array([0, 7]))
    with pytest.raises(errors.ActionTypeError):
        envs.step(np.array([0.5, 0.5]))
    envs.step(np.array([0, 1]))
    envs.close()
    with pytest.raises(errors.ClosedError):
        envs.step(np.array([0, 1]))


def test_options_reach_the_lanes(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("CartPole-v1", 3, sutton_barto_reward=True)
    envs.reset(seed=0)
    assert np.array_equal(envs.step(np.zeros(3, dtype=np.int64))[1], np.zeros(3))
    assert envs.get_attr("sutton_barto_reward") == (True,) * 3
    envs.close()


def test_the_cluster_tells_what_runs_on_it(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("Pendulum-v1", 4)
    envs.reset(seed=0)
    assert envs.transport == cluster.transport
    assert [placement.transport for placement in envs.placements] == [cluster.transport]
    assert [placement.lanes for placement in envs.placements] == [range(0, 4)]
    assert cluster.status()["pools"] >= 1
    assert [node["node"] for node in cluster.nodes()] == [placement.node for placement in envs.placements]
    envs.close()


def test_a_pool_is_closed_by_its_run(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("CartPole-v1", 4)
    envs.reset(seed=0)
    status = cluster.close_pool(envs.run)
    assert (status["open"], status["ended"]) == (0, {"closed": 1})
    assert cluster.close_pool(envs.run.replace("-", "")) == status
    with pytest.raises(errors.RefusedError) as refused:
        cluster.close_pool("0" * 32)
    assert refused.value.code == "not_found"
    with pytest.raises(ValueError, match="not the id of a run"):
        cluster.close_pool("k3f9q2tz")
    with pytest.raises(ValueError, match="timeout=-1"):
        cluster.close_pool(envs.run, timeout=-1)
    envs.close()


def test_what_nodes_recorded_is_read_from_the_clusters_store(
    cluster: rollhouse.Cluster, cluster_url: str, tmp_path: Path
) -> None:
    there = cluster.make_vec("CartPole-v1", 4, seed=3)
    here = rollhouse.make_vec("CartPole-v1", 4, seed=3, record=True, data=tmp_path)
    for envs in (there, here):
        envs.reset()
        for _ in range(60):
            envs.step(np.ones(4, np.int64))
        envs.close()
    assert cluster.close_pool(there.run, timeout=60)["stored"]
    secret = cluster_url.partition("token=")[2].partition("&")[0]
    expected = {
        (info.lane, info.number): rollhouse.replays.open(tmp_path).read(info)
        for info in rollhouse.replays.open(tmp_path).filter(lambda info: info.finished)
    }
    assert len(expected) > 4
    for place in (cluster, cluster_url):
        stored = rollhouse.replays.open(place).filter(lambda info: info.finished and info.run == there.run)
        assert secret not in repr(stored) + stored.path
        assert {(info.lane, info.number) for info in stored} == expected.keys()
        assert stored.verify().ok
        for episode in stored.read_many():
            other = expected[episode.info.lane, episode.info.number]
            assert np.array_equal(episode.observations, other.observations)
    again = pickle.loads(pickle.dumps(rollhouse.replays.open(cluster_url)))
    assert len(again.filter(lambda info: info.run == there.run)) >= len(expected)
    with pytest.raises(TypeError, match="connection cannot be pickled"):
        pickle.dumps(rollhouse.replays.open(cluster))


@pytest.mark.parametrize("url", ["{}&token=rh_1_secret", "{}?rh_1_secret", "{}?token=rh_1_secret&who=me"])
def test_no_error_of_a_mistaken_connection_string_shows_its_token(url: str) -> None:
    for connect in (rollhouse.connect, rollhouse.replays.open):
        with pytest.raises(ValueError) as refused:
            connect(url.format("rollhouse://127.0.0.1:1"))
        assert "secret" not in str(refused.value)


def test_it_is_a_gymnasium_vector_env(cluster: rollhouse.Cluster) -> None:
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(cluster.make_vec("CartPole-v1", 3))
    envs.reset(seed=0)
    found = 0
    for _ in range(100):
        infos = envs.step(envs.action_space.sample())[4]
        found += "episode" in infos
    assert found > 0
    envs.close()


def test_who_is_not_admitted_is_told_why(cluster_url: str) -> None:
    url, _, query = cluster_url.partition("?")
    ca = dict(pair.split("=", 1) for pair in query.split("&"))["ca"]
    with pytest.raises(errors.RefusedError) as refused:
        rollhouse.connect(url, token="rh_nobody_0000", ca=ca)
    assert refused.value.code == "unauthenticated"
    with pytest.raises(errors.UnreachableError, match="not whom it should be"):
        rollhouse.connect(url, token="rh_nobody_0000", ca="sha256:" + "0" * 64)
    with pytest.raises(ValueError, match="ca is missing"):
        rollhouse.connect(url, token="rh_nobody_0000")
    with pytest.raises(ValueError, match="rollhouse://"):
        rollhouse.connect("http://localhost")


def test_a_file_with_the_connection_string_is_as_good(cluster_url: str, tmp_path: Path) -> None:
    file = tmp_path / "connection"
    file.write_text(cluster_url + "\n")
    for named in (file, str(file)):
        cluster = rollhouse.connect(named)
        assert cluster.url == cluster_url.partition("?")[0] and cluster.nodes()
        cluster.close()
    file.write_text("nothing of the kind, rh_secret")
    for named in (file, tmp_path / "absent?token=rh_secret"):
        with pytest.raises(ValueError) as refused:
            rollhouse.connect(named)
        assert "rh_secret" not in str(refused.value)


def test_threads_of_their_own_step_pools_of_one_cluster_at_a_time(cluster: rollhouse.Cluster) -> None:
    def run(seed: int, into: list[Any]) -> None:
        envs = cluster.make_vec("CartPole-v1", 8, seed=seed)
        envs.reset()
        for step in range(100):
            into.append(envs.step(np.full(8, step % 2))[0])
        envs.close()

    found: list[list[Any]] = [[], [], []]
    threads = [threading.Thread(target=run, args=(seed % 2, into)) for seed, into in enumerate(found)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(a, b) for a, b in zip(found[0], found[2], strict=True))
    assert not np.array_equal(found[0][0], found[1][0])


def test_asyncio_has_the_same_calls(cluster_url: str) -> None:
    async def run() -> tuple[list[Any], list[Any]]:
        async with await rollhouse.connect_async(cluster_url) as cluster:
            assert (await cluster.status())["nodes"]
            envs = [await cluster.make_vec("CartPole-v1", 4, seed=5) for _ in range(2)]
            await asyncio.gather(*(one.reset() for one in envs))
            steps: tuple[list[Any], list[Any]] = ([], [])
            for _ in range(50):
                results = await asyncio.gather(*(one.step(np.ones(4, dtype=np.int64)) for one in envs))
                for into, result in zip(steps, results, strict=True):
                    into.append(result[0])
            for one in envs:
                await one.send(np.zeros(4, dtype=np.int64))
            received = [await one.recv() for one in envs]
            same(received[0], received[1])
            for one in envs:
                await one.close()
            return steps

    first, second = asyncio.run(run())
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_cannot_use_what_its_parent_connected(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("CartPole-v1", 2)
    envs.reset(seed=0)
    pid = os.fork()
    if pid == 0:
        codes = 0
        for call in (lambda: envs.step(np.zeros(2, dtype=np.int64)), cluster.status):
            try:
                call()
            except errors.ForkedError:
                codes += 1
        os._exit(codes)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    envs.step(np.zeros(2, dtype=np.int64))
    envs.close()


def test_ctrl_c_ends_a_call_that_waits(cluster: rollhouse.Cluster) -> None:
    class Told(Exception):
        pass

    def tell(*_: object) -> None:
        raise Told

    envs = cluster.make_vec("CartPole-v1", 2)
    envs.reset(seed=0)
    before = signal.signal(signal.SIGALRM, tell)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(Told):
            while True:
                envs.step(np.zeros(2, dtype=np.int64))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    envs.reset(seed=0)
    envs.step(np.zeros(2, dtype=np.int64))
    envs.close()


def test_options_attributes_and_images_are_those_of_embedded_lanes(cluster: rollhouse.Cluster) -> None:
    here = rollhouse.make_vec("GridBreakout-v0", LANES, seed=3, render_mode="rgb_array")
    there = cluster.make_vec("GridBreakout-v0", LANES, seed=3, render_mode="rgb_array", record=False)
    sticky = {"sticky_action_probability": np.linspace(0, 1, LANES)}
    same(there.reset(options=sticky), here.reset(options=sticky))
    for _ in range(30):
        actions = here.action_space.sample()
        same(there.step(actions), here.step(actions))
        same(there.get_attr("state"), here.get_attr("state"))
    same(there.get_attr("sticky_action_probability"), here.get_attr("sticky_action_probability"))
    same(there.render(), here.render())
    assert there.metadata == here.metadata
    states = here.get_attr("state")[::-1]
    for one in (here, there):
        one.set_attr("state", states)
        one.set_attr("sticky_action_probability", 0.0)
    same(there.step(actions), here.step(actions))
    assert there.statistics()["steps"] == here.statistics()["steps"]
    there.close()


def test_what_lanes_of_a_cluster_cannot_do_is_refused_by_name(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("CartPole-v1", 2, seed=1)
    envs.reset()
    with pytest.raises(errors.RefusedError, match="recorded lanes keep"):
        envs.set_attr("low", 0.0)
    envs.reset(options={"low": 0.0})
    assert envs.get_attr("low") == (0.0, 0.0), "a reset gives an episode its own"
    with pytest.raises(AttributeError, match="viscosity"):
        envs.get_attr("viscosity")
    with pytest.raises(ValueError, match="has no renderer"):
        cluster.make_vec("test/Noise-v0", 2, render_mode="rgb_array")
    with pytest.raises(ValueError, match="an image cannot have 5000 x 3 pixels"):
        cluster.make_vec("CartPole-v1", 2, render_mode="rgb_array", render_size=(5000, 3))
    envs.reset()
    envs.close()


@pytest.mark.parametrize("transport", ["shm", "quic"])
def test_every_env_is_drawn_on_a_cluster_as_it_is_here(cluster: rollhouse.Cluster, transport: Any) -> None:
    for id in rollhouse.env_ids():
        for size in (None, (640, 480)):
            drawn = {"seed": 3, "render_mode": "rgb_array", "render_size": size}
            here = rollhouse.make_vec(id, 3, **drawn)
            there = cluster.make_vec(id, 3, transport=transport, record=False, **drawn)
            same(there.reset(), here.reset())
            same(there.render(), here.render())
            there.close()


@pytest.mark.parametrize("copy", [True, False], ids=["copies", "views"])
@pytest.mark.parametrize("spread", ["single", "even"])
def test_lanes_in_memory_go_on_elsewhere_when_their_node_is_killed(
    two_nodes: Any, spread: Any, copy: bool
) -> None:
    cluster = rollhouse.connect(two_nodes.url, timeout=120)
    there = cluster.make_vec("CartPole-v1", LANES, copy=copy, spread=spread, seed=11)
    here = rollhouse.make_vec("CartPole-v1", LANES, seed=11)
    same(there.reset(), here.reset())
    assert there.transport == "shm"
    mine, killed = there.actions, there.placements[0].node
    held: list[tuple[np.ndarray, np.ndarray]] = []
    for step in range(200):
        if step == 100:
            two_nodes.kill(killed)
        mine[:] = here.action_space.sample()
        ours, theirs = there.step(mine), here.step(mine.copy())
        same(ours, theirs)
        if step in (98, 99):
            held.append((ours[0], ours[0].copy()))
    assert killed not in {placement.node for placement in there.placements}
    assert there.transport == ("quic" if spread == "single" else "mixed")
    # What was shown before is readable, and does not change any more, but for views of frames that are gathered.
    assert (not copy and spread == "even") or all(np.array_equal(array, kept) for array, kept in held)
    # Another array is filled in from now on; the old one is copied, as it was above.
    assert spread != "single" or not np.shares_memory(there.actions, mine)
    there.actions[:] = 1
    same(there.step(there.actions), here.step(np.ones(LANES, np.int64)))
    there.close()
    here.close()
    gc.collect()
    assert np.isfinite(held[0][0]).all()
    cluster.close()


def test_lanes_are_resumed_if_their_node_is_lost_unless_it_is_told_otherwise(cluster_url: str) -> None:
    cluster = rollhouse.connect(cluster_url)
    envs = cluster.make_vec("CartPole-v1", 2)
    assert envs.on_loss == "resume"
    envs.close()
    # By whichever transport they are stepped.
    for transport in ("shm", "quic"):
        envs = cluster.make_vec("CartPole-v1", 2, on_loss="resume", transport=transport)
        assert (envs.on_loss, envs.transport) == ("resume", transport)
        envs.close()
    with pytest.raises(ValueError, match="on_loss='ignore'"):
        cluster.make_vec("CartPole-v1", 2, on_loss="ignore")  # type: ignore[arg-type]
    cluster.close()
