"""Live lanes of a cluster: worlds tick by a pace, whatever their owner does."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_cluster import LocalCluster, rollhouse_program
from python_nodes import python_nodes

import rollhouse
from rollhouse.errors import RefusedError, ResetNeededError, UnsupportedError

PAUSED, RESUMED, TICKED, PLANNED, PLAN_ENDED = 1, 2, 4, 8, 16
"""Bits of the step column `controls`."""

FAST = {"hz": 500, "clock": "realtime"}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with closing(python_nodes(tmp_path_factory.mktemp("paced"), "tallies", names=("one",))) as cluster:
        yield cluster


@pytest.fixture(params=["quic", "shm"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def cluster(nodes: LocalCluster, transport: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[rollhouse.Cluster]:
    """A cluster whose pools have that transport."""
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        monkeypatch.setattr(cluster, "make_vec", functools.partial(cluster.make_vec, transport=transport))
        yield cluster


def wait_until(envs: Any, holds: Callable[[Any], bool]) -> Any:
    """Looks at the newest rows until they are as wanted."""
    deadline = time.monotonic() + 60
    while not holds(rows := envs.latest()):
        assert time.monotonic() < deadline
    return rows


def test_a_world_ticks_while_its_owner_does_nothing_and_the_answer_says_what_went_by(
    cluster: rollhouse.Cluster, transport: str
) -> None:
    with cluster.make_vec("Pendulum-v1", 2, pace=FAST, max_episode_steps=0) as envs:
        assert envs.transport == transport
        envs.reset(seed=1)
        seen = wait_until(envs, lambda rows: (rows[4]["ticks"] >= 5).all())[4]["ticks"]
        _, rewards, _, _, infos = envs.step(np.zeros((2, 1), dtype=np.float32))
        assert (infos["ticks"] > seen).all() and (infos["dropped"] == 0).all()
        again = envs.latest()[4]["ticks"]
        assert (again < infos["ticks"]).all(), "a step takes away what latest leaves"
        assert rewards.shape == (2,)


def test_rewards_of_ticks_add_up_and_a_row_that_ends_an_episode_stays_until_it_is_answered(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec("CartPole-v1", 1, pace=FAST) as envs:
        envs.reset(seed=3)
        rows = wait_until(envs, lambda rows: bool(rows[2][0]))
        ticks = int(rows[4]["ticks"][0])
        assert rows[1][0] == ticks
        observations, rewards, terminated, _, infos = envs.step(np.array([0]))
        assert terminated[0] and rewards[0] == ticks and infos["ticks"][0] == ticks
        assert (observations == rows[0]).all() and infos["dropped"][0] == 1, "its action came after the end"
        _, rewards, terminated, _, infos = envs.step(np.array([0]))
        assert rewards[0] == 0 and not terminated[0] and "ticks" not in infos, "the next episode begins"


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_every_mode_tells_of_ends(cluster: rollhouse.Cluster, mode: str) -> None:
    with cluster.make_vec("CartPole-v1", 2, pace=FAST, autoreset_mode=mode) as envs:
        envs.reset(seed=3)
        ended = np.zeros(2, dtype=bool)
        while not ended.all():
            _, _, terminated, _, infos = envs.step(np.zeros(2, dtype=np.int64))
            ended |= terminated
            if terminated.any() and mode == "SameStep":
                assert infos["_final_obs"][terminated].all()
            if terminated.any() and mode == "Disabled":
                with pytest.raises(ResetNeededError):
                    envs.step(np.zeros(2, dtype=np.int64))
                envs.reset(options={"reset_mask": terminated})


def test_by_the_agents_clock_a_world_stands_still_while_its_owner_thinks(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec("CartPole-v1", 1, pace={"hz": 500, "clock": "agent"}) as envs, cluster.make_vec("CartPole-v1", 1) as waiting:
        first, _ = envs.reset(seed=3)
        assert (waiting.reset(seed=3)[0] == first).all()
        for step in range(60):
            assert (envs.latest()[4]["ticks"] == 0).all()
            mine, theirs = envs.step(np.array([step % 2])), waiting.step(np.array([step % 2]))
            assert all((a == b).all() for a, b in zip(mine[:4], theirs[:4], strict=True))


def test_thinking_that_is_charged_is_played(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec("Pendulum-v1", 1, pace={"hz": 100, "clock": "charged"}) as envs:
        envs.reset(seed=3)
        began = time.monotonic()
        while time.monotonic() < began + 0.05:
            assert (envs.latest()[4]["ticks"] == 0).all()
        infos = envs.step(np.zeros((1, 1), dtype=np.float32))[4]
        assert infos["ticks"][0] >= 6, "five ticks of thinking, and that of the action"


def test_worlds_are_paused_ticked_planned_for_and_resumed(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec("Pendulum-v1", 2, pace=FAST, max_episode_steps=0) as envs:
        envs.reset(seed=1)
        assert envs.states() == ("playing", "playing")
        assert envs.pause([1]) == ("paused",)
        before = envs.latest()[4]["ticks"]
        after = wait_until(envs, lambda rows: rows[4]["ticks"][0] > before[0] + 5)[4]["ticks"]
        assert after[1] == before[1]
        with pytest.raises(RefusedError, match="lane 1: a lane that is paused cannot take an action"):
            envs.step(np.zeros((2, 1), dtype=np.float32))
        assert envs.tick(7, [1]) == ("paused",)
        assert wait_until(envs, lambda rows: rows[4]["ticks"][1] == before[1] + 7)
        with pytest.raises(RefusedError, match="a lane that is paused cannot pause"):
            envs.pause([1])
        assert envs.plan(3000, [1]) == ("planning",)
        assert envs.end_plan([1]) == ("playing",)
        assert envs.plan(0.01, [0]) == ("planning",)
        wait_until(envs, lambda _: envs.states() == ("playing", "playing"))
        with pytest.raises(ValueError, match="ticks=5001"):
            envs.tick(5001)
        with pytest.raises(IndexError, match="lane 2"):
            envs.pause([2])


def test_what_was_put_into_a_queue_beyond_its_room_is_counted(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec("CartPole-v1", 2, pace={"hz": 0.02, "clock": "realtime"}) as envs:
        envs.reset(seed=1)
        for _ in range(19):
            rows = envs.act(np.array([1, 0]), [1, 0])
        assert rows[4]["dropped"].tolist() == [3, 3]
        envs.tick(1)
        assert envs.latest()[4]["dropped"].tolist() == [18, 18], "of single actions the newest is taken"


def test_a_lane_in_a_process_ticks_as_any(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec("tallies:Tally", 2, pace=FAST, record=False) as envs:
        envs.reset(seed=3)
        rows = wait_until(envs, lambda rows: (rows[4]["ticks"] >= 3).all())
        ended = rows[2] | rows[3]
        assert (rows[0][~ended, 0] == rows[4]["ticks"][~ended]).all()


def test_lanes_without_a_pace_are_refused_by_name(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec("CartPole-v1", 2) as envs:
        envs.reset(seed=1)
        for refused in (envs.latest, envs.pause, lambda: envs.act(np.zeros(2, dtype=np.int64))):
            with pytest.raises(UnsupportedError, match="the lanes have no pace"):
                refused()


@pytest.mark.parametrize(
    ("pace", "message"),
    [
        (0, r"hz=0 must be 0.01 to 1000"),
        (1001, "hz=1001 must be"),
        (float("nan"), "hz=nan must be"),
        ({"hz": 25, "clock": "slow"}, "clock='slow' is not one of realtime, agent, charged"),
        ({"hz": 25, "speed": 2}, "must be a number of ticks a second, or a dict"),
        ("25", "must be of type"),
        (True, "must be of type"),
    ],
)
def test_what_is_no_pace_is_refused(cluster: rollhouse.Cluster, pace: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        cluster.make_vec("CartPole-v1", 1, pace=pace)


@pytest.mark.parametrize("id", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_lanes_of_this_process_say_who_has_live_ones(id: str) -> None:
    with pytest.raises(ValueError, match="`rollhouse up` starts one"):
        rollhouse.make_vec(id, 1, pace=25)


def test_live_lanes_are_not_resumed(cluster: rollhouse.Cluster) -> None:
    with pytest.raises(ValueError, match="live lanes of `CartPole-v1` cannot be resumed"):
        cluster.make_vec("CartPole-v1", 1, pace=25, on_loss="resume")


def test_a_recorded_live_game_verifies_is_shown_and_goes_on_otherwise(cluster: rollhouse.Cluster, nodes: LocalCluster, tmp_path: Path) -> None:
    with cluster.make_vec("CartPole-v1", 1, pace=FAST, autoreset_mode="Disabled") as envs:
        envs.reset(seed=3)
        ticks, ended = 0, False
        while not ended:
            _, _, terminated, _, infos = envs.step(np.array([1]))
            ticks, ended = ticks + int(infos["ticks"][0]), bool(terminated[0])
        run = envs.run
    assert cluster.close_pool(run, timeout=60)["stored"]

    def rollhouse_prints(*line: str) -> Any:
        printed = subprocess.run([rollhouse_program(), *line, "--connect", nodes.url, "--json"], capture_output=True, text=True, cwd=tmp_path)
        assert printed.returncode == 0, printed.stderr
        return [json.loads(line) for line in printed.stdout.splitlines()]

    (episode,) = rollhouse_prints("replay", "ls", "--run", run)
    assert episode["length"] == ticks, "every tick is a step"
    assert rollhouse_prints("replay", "verify", episode["id"])
    forked = rollhouse_prints("replay", "fork", episode["id"], "--at", str(ticks // 2), "--policy", "random", "--seed", "1", "--into", "forks")
    assert forked


def test_a_recording_says_when_and_how_long_a_world_stood_still(cluster: rollhouse.Cluster, nodes: LocalCluster) -> None:
    with cluster.make_vec("CartPole-v1", 1, pace={"hz": 0.02}, autoreset_mode="Disabled") as envs:
        envs.reset(seed=3)
        envs.tick(2)
        envs.pause()
        began = time.monotonic()
        while time.monotonic() < began + 0.03:
            assert envs.states() == ("paused",)
        envs.tick(1)
        envs.resume()
        envs.plan(100)
        envs.end_plan()
        envs.tick(100)
        assert envs.step(np.array([0]))[2][0]
        run = envs.run
    assert cluster.close_pool(run, timeout=60)["stored"]
    recorded = rollhouse.replays.open(nodes.url)
    (episode,) = [info for info in recorded if info.run == run]
    columns = episode.step_columns()
    stood, controls = columns["stood_ms"], columns["controls"]
    assert controls[:5].tolist() == [TICKED, 0, PAUSED | TICKED, RESUMED | PLANNED | PLAN_ENDED | TICKED, 0]
    assert stood[2] >= 30 and stood[[0, 1, *range(4, len(stood))]].tolist() == [0] * (len(stood) - 2)


def test_a_live_game_is_watched_while_its_owner_does_nothing(cluster: rollhouse.Cluster, nodes: LocalCluster) -> None:
    with cluster.make_vec("Pendulum-v1", 1, pace=FAST, max_episode_steps=0) as envs:
        envs.reset(seed=3)
        line = [rollhouse_program(), "watch", envs.run, "--connect", nodes.url, "--lane", "0", "--json", "--frames", "4"]
        printed = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    steps = [json.loads(line)["step"] for line in printed.splitlines()]
    assert len(steps) == 4 and steps == sorted(set(steps)) and steps[-1] > 4


def test_orders_of_several_actions_are_carried_out_in_one_tick(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec("Skirmish-v0", 1, pace={"hz": 0.02}) as envs:
        envs.reset(seed=3)
        idle = envs.action_space.sample()
        train = {"kind": 7, "subject": 0, "target": 0, "x": 0, "y": 0, "item": 0, "queued": 0}
        idle["until"]["interrupts"][:] = 0
        idle["until"]["conditions"] = ((),)
        idle["ticks"][:] = 1
        for _ in range(5):
            envs.act({**idle, "orders": ((train,),)})
        envs.tick(1)
        rows = envs.latest()
        assert rows[4]["ticks"][0] == 1 and rows[4]["dropped"][0] == 0
        assert rows[0]["military"]["order_count"][0] + rows[4]["rejected_orders"][0] == 5


def test_the_newest_row_is_awaited_beside_other_work(nodes: LocalCluster) -> None:
    async def look() -> tuple[int, int]:
        async with await rollhouse.connect_async(nodes.url, timeout=120) as cluster:
            async with await cluster.make_vec("Pendulum-v1", 1, pace=FAST, max_episode_steps=0) as envs:
                await envs.reset(seed=1)
                seen = 0
                while seen < 3:
                    seen = int((await envs.latest())[4]["ticks"][0])
                await envs.act(np.zeros((1, 1), dtype=np.float32))
                infos = (await envs.step(np.zeros((1, 1), dtype=np.float32)))[4]
                return seen, int(infos["ticks"][0])

    seen, ticks = asyncio.run(look())
    assert ticks > seen


@pytest.mark.parametrize("env", ["MountainCar-v0", "tallies:Tally"])
def test_the_text_with_which_planning_ends_is_recorded_with_the_tick_that_follows(
    cluster: rollhouse.Cluster, nodes: LocalCluster, env: str
) -> None:
    with cluster.make_vec(env, 2, pace={"hz": 25, "clock": "agent"}, record=True) as envs:
        envs.reset(seed=3)
        envs.step(np.zeros(2, dtype=np.int64))
        envs.plan(60)
        envs.end_plan(lanes=[1], text="Erst das Öl, dann \"der Fluß\".")
        envs.end_plan(lanes=[0])
        with pytest.raises(RefusedError, match="cannot end planning"):
            envs.end_plan(text="too late")
        with pytest.raises(ValueError, match="at most 16384"):
            envs.end_plan(text="x" * 16385)
        for _ in range(3):
            envs.step(np.zeros(2, dtype=np.int64))
        run = envs.run
    assert cluster.close_pool(run, timeout=60)["stored"]
    first, second = sorted((info for info in rollhouse.replays.open(nodes.url) if info.run == run), key=lambda info: info.lane)
    assert first.calls() == []
    assert second.calls() == [(1, ":plan", "Erst das Öl, dann \"der Fluß\".")]
    if ":" not in env:
        line = [rollhouse_program(), "replay", "verify", second.id, "--connect", nodes.url]
        verified = subprocess.run(line, capture_output=True, text=True)
        assert verified.returncode == 0, verified.stderr


def test_a_reader_in_the_background_has_the_newest_rows_for_whoever_looks(nodes: LocalCluster) -> None:
    async def look() -> tuple[list[int], int]:
        async with await rollhouse.connect_async(nodes.url, timeout=120) as cluster:
            async with await cluster.make_vec("Pendulum-v1", 1, pace=FAST, max_episode_steps=0) as envs:
                await envs.reset(seed=1)
                seen: list[int] = []
                async with envs.reader() as reader, envs.reader(every=0.01) as other:
                    assert reader.newest is None
                    async for rows in reader:
                        seen.append(int(rows[4]["ticks"][0]))
                        if len(seen) == 5:
                            break
                    await envs.act(np.zeros((1, 1), dtype=np.float32))
                    await anext(other)
                    assert reader.newest is not None
                infos = (await envs.step(np.zeros((1, 1), dtype=np.float32)))[4]
                return seen, int(infos["ticks"][0])

    seen, ticks = asyncio.run(look())
    assert seen == sorted(seen) and seen[-1] > seen[0]
    assert ticks > seen[-1], "readers take nothing away"


def test_a_reader_ends_with_what_its_lanes_ended_with_and_wants_live_lanes(nodes: LocalCluster) -> None:
    async def look() -> None:
        async with await rollhouse.connect_async(nodes.url, timeout=120) as cluster:
            async with await cluster.make_vec("CartPole-v1", 1, pace=FAST) as envs:
                async with envs.reader() as reader:
                    with pytest.raises(ResetNeededError):
                        await anext(reader)
                with pytest.raises(ValueError, match="every=0"):
                    envs.reader(every=0)
            async with await cluster.make_vec("CartPole-v1", 1) as envs:
                with pytest.raises(ValueError, match="no pace"):
                    envs.reader()

    asyncio.run(look())


def test_a_node_counts_how_punctual_live_lanes_tick(cluster: rollhouse.Cluster, nodes: LocalCluster) -> None:
    counted = 'rollhouse_live_tick_lateness_seconds_count{env="MountainCar-v0"}'
    before = nodes.figures("one").get(counted, 0)
    with cluster.make_vec("MountainCar-v0", 2, pace=FAST, max_episode_steps=0) as envs:
        envs.reset(seed=1)
        wait_until(envs, lambda rows: (rows[4]["ticks"] >= 20).all())
        envs.step(np.zeros(2, dtype=np.int64))
    metrics = nodes.figures("one")
    assert metrics[counted] >= before + 40
    assert metrics['rollhouse_live_ticks_missed_total{env="MountainCar-v0"}'] >= 0
