"""Live lanes whose owners and nodes are processes that come late, are paused, or are killed."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest
from local_cluster import LocalCluster
from python_nodes import python_nodes, recorded_of

import rollhouse
from rollhouse.errors import LaneLostError, RefusedError

DEADLINE = 120.0
"""Seconds after which what has not happened never does."""

STOOD = 32
"""Bit of the step column `controls`: no owner was there."""

HZ = 50
REALTIME = {"hz": HZ, "clock": "realtime"}
AGENT = {"hz": HZ, "clock": "agent"}
CHARGED = {"hz": HZ, "clock": "charged"}

OWNER = """
import json, sys
import numpy as np
import rollhouse

def counts(infos, name):
    # A row that begins an episode has none.
    return infos.get(name, np.zeros(envs.num_envs, np.int64)).tolist()

def shown(rows):
    if len(rows) != 5 or not isinstance(rows[4], dict):
        return rows
    observations, rewards, terminated, truncated, infos = rows
    told = {name: counts(infos, name) for name in ("ticks", "dropped", "late")}
    return told | {"first": observations[:, 0].tolist(), "rewards": rewards.tolist(), "ended": (terminated | truncated).tolist()}

def actions(wanted):
    return np.asarray(wanted, envs.action_space.dtype)

def play(ticks, ends):
    # Until each lane has had so many ticks and ends. Thinks for up to three ticks; says of each lane what its ended episodes were.
    random = np.random.default_rng(1)
    episodes = [[] for _ in range(envs.num_envs)]
    sums = [[0, 0.0] for _ in range(envs.num_envs)]
    total = np.zeros(envs.num_envs, np.int64)
    over = np.zeros(envs.num_envs, bool)
    while (total < ticks).any() or min(map(len, episodes)) < ends:
        for _ in range(random.integers(3)):
            envs.act(random.integers(3, size=envs.num_envs))
            over[:] = False
        wanted = 2 * random.integers(2)
        # A lane whose end was answered stands until it is given an action.
        while wanted and not over.all():
            newest = envs.latest()
            if (over | (newest[4]["ticks"] >= wanted) | newest[2] | newest[3]).all():
                break
        rows = shown(envs.step(random.integers(3, size=envs.num_envs)))
        total += rows["ticks"]
        over = np.array(rows["ended"])
        for lane, (ticks_of, rewards_of) in enumerate(sums):
            ticks_of += rows["ticks"][lane]
            rewards_of += rows["rewards"][lane]
            counted = rows["first"][lane]
            assert counted == ticks_of, f"lane {lane}: the world counted {counted} ticks, its owner {ticks_of}"
            sums[lane] = [ticks_of, rewards_of]
            if rows["ended"][lane]:
                episodes[lane].append(sums[lane])
                sums[lane] = [0, 0.0]
    return episodes

cluster = rollhouse.connect(sys.argv[1], timeout=120)
envs = cluster.make_vec(sys.argv[2], int(sys.argv[3]), **json.loads(sys.argv[4]))
envs.reset(seed=1)
print(json.dumps([envs.run, envs.placements[0].node]), flush=True)
for line in sys.stdin:
    call, *given = json.loads(line)
    if call == "play":
        told = play(*given)
    else:
        told = shown(getattr(envs, call)(*map(actions, given)))
    print(json.dumps(told), flush=True)
envs.close()
"""


class Owner:
    """A process that owns live lanes, and does to them what it is asked to."""

    def __init__(self, url: str, env: str, lanes: int, **options: Any):
        line = [sys.executable, "-c", OWNER, url, env, str(lanes), json.dumps(options)]
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._began: list[str] = []

    @property
    def run(self) -> str:
        """The run of its pool, once its episodes have begun."""
        self._began = self._began or self.hear()
        return self._began[0]

    def ask(self, call: str, *given: Any) -> Any:
        """What it has been answered."""
        self.tell(call, *given)
        return self.hear()

    def tell(self, call: str, *given: Any) -> None:
        assert self.run and self._process.stdin is not None
        self._process.stdin.write(json.dumps([call, *given]) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        # It answers with one line at a time, so that none waits in a buffer.
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], DEADLINE)[0], "it says nothing"
        said = self._process.stdout.readline()
        assert said, "it has ended"
        return json.loads(said)

    def stop(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Has it close its pool."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(DEADLINE) == 0

    def close(self) -> None:
        with self._process:
            self._process.kill()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node that keeps lanes of an owner who has gone for 8 s."""
    folder = tmp_path_factory.mktemp("owners")
    settings = ["node.lease=8 s"]
    with closing(python_nodes(folder, "tallies", names=("one",), settings=settings, workers="1")) as cluster:
        yield cluster


@pytest.fixture
def cluster(nodes: LocalCluster) -> Iterator[rollhouse.Cluster]:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        yield cluster


def until(holds: Callable[[], Any]) -> Any:
    """Looks until something is there."""
    deadline = time.monotonic() + DEADLINE
    while not (found := holds()):
        assert time.monotonic() < deadline
    return found


def session_of(cluster: rollhouse.Cluster, run: str) -> dict[str, Any] | None:
    """What the coordinator knows of a pool of one session, as of a second ago."""
    return next((session for session in cluster.sessions() if session["run"] == run), None)


def played(owner: Owner, ticks: int, action: list[Any]) -> np.ndarray:
    """Steps until each lane has had that many ticks, and says how many were due: played, or late."""
    total, due = 0, np.zeros(len(action), np.int64)
    while total < ticks:
        rows = owner.ask("step", action)
        assert min(rows["ticks"]) >= 1
        total += min(rows["ticks"])
        due += np.add(rows["ticks"], rows["late"])
    return due


def test_an_owner_that_comes_two_seconds_late_costs_another_owners_lanes_nothing(nodes: LocalCluster) -> None:
    with ExitStack() as owners:
        late = owners.enter_context(closing(Owner(nodes.url, "tallies:Tally", 2, pace=REALTIME)))
        other = owners.enter_context(closing(Owner(nodes.owner("other"), "Pendulum-v1", 2, pace=REALTIME, max_episode_steps=0)))
        late.ask("step", [0, 0])
        other.ask("step", [[0.0], [0.0]])
        due = played(other, 2 * HZ, [[0.0], [0.0]])
        rows = late.ask("step", [0, 0])
        missed = np.add(rows["ticks"], rows["late"])
        assert (missed >= due.max() - 1).all(), "its own worlds went on as well"
        assert (np.array(rows["ticks"]) > 1).all() and (np.array(rows["first"]) > rows["ticks"]).all()


def test_pools_of_different_owners_tick_by_different_clocks_on_one_node(nodes: LocalCluster, cluster: rollhouse.Cluster) -> None:
    with ExitStack() as stack:

        def owner(name: str, **pace: Any) -> Owner:
            return stack.enter_context(closing(Owner(nodes.owner(name), "tallies:Tally", 2, pace=pace)))

        agents, charged, realtime = owner("ann", **AGENT), owner("cay", **CHARGED), owner("rea", **REALTIME)
        assert agents.run != charged.run != realtime.run
        agents.ask("step", [0, 0])
        charged.ask("step", [0, 0])
        realtime.ask("step", [0, 0])
        due = played(realtime, HZ, [0, 0]).max()
        assert agents.ask("latest")["ticks"] == [0, 0] and charged.ask("latest")["ticks"] == [0, 0]
        assert realtime.ask("pause") == ["paused", "paused"]
        assert agents.ask("states") == charged.ask("states") == ["playing", "playing"]
        rows = agents.ask("step", [0, 0])
        assert rows["ticks"] == [1, 1] and rows["first"] == [2, 2]
        rows = charged.ask("step", [0, 0])
        assert min(np.add(rows["ticks"], rows["late"])) >= due, "what the others did meanwhile was time in which it thought"
        stood = realtime.ask("latest")["ticks"]
        assert realtime.ask("latest")["ticks"] == stood
        assert session_of(cluster, agents.run) is None, "others' pools are not shown"
        with pytest.raises(RefusedError):
            cluster.close_pool(agents.run)
        assert realtime.ask("resume") == ["playing", "playing"]
        until(lambda: min(realtime.ask("latest")["ticks"]) > max(stood))


def test_an_owner_that_was_paused_gets_the_newest_row_and_what_went_by(nodes: LocalCluster, cluster: rollhouse.Cluster) -> None:
    with closing(Owner(nodes.url, "tallies:Tally", 2, pace=REALTIME)) as owner:
        before = np.array(owner.ask("step", [0, 0])["first"])
        owner.stop()
        known = until(lambda: (session := session_of(cluster, owner.run)) and session["steps"] > before.sum() + 2 * HZ and session["steps"])
        owner.wake()
        rows = owner.ask("step", [0, 0])
        now = np.array(rows["first"])
        assert (now - before == rows["ticks"]).all(), "the row is the newest, and nothing that went by is missing"
        assert now.sum() > known
        owner.end()
        for lane, newest in enumerate(now):
            (episode,) = recorded_of(cluster, owner.run, lane)
            went_by = slice(int(before[lane]), int(newest))
            assert math.isclose(rows["rewards"][lane], sum(episode.rewards[went_by]))


def test_no_end_is_lost_while_an_owner_is_paused(nodes: LocalCluster, cluster: rollhouse.Cluster) -> None:
    with closing(Owner(nodes.url, "CartPole-v1", 4, pace=REALTIME)) as owner:
        ends: list[list[float]] = [[] for _ in range(4)]
        for ended in range(1, 4):
            owner.ask("states")
            owner.stop()
            until(lambda: (session := session_of(cluster, owner.run)) and session["episodes"] == 4 * ended)
            owner.wake()
            assert owner.ask("states") == ["over"] * 4
            rows = owner.ask("step", [0] * 4)
            assert rows["ended"] == [True] * 4 and rows["rewards"] == rows["ticks"]
            for lane, ticks in enumerate(rows["ticks"]):
                ends[lane].append(ticks)
            rows = owner.ask("step", [0] * 4)
            assert rows["ended"] == [False] * 4 and rows["ticks"] == [0] * 4, "their next episodes begin"
        owner.end()
        for lane, lengths in enumerate(ends):
            recorded = [len(episode.rewards) for episode in recorded_of(cluster, owner.run, lane)]
            assert recorded[:3] == lengths


def test_lanes_of_killed_owners_stand_and_end_with_their_lease_and_one_that_is_back_in_time_goes_on(
    nodes: LocalCluster, cluster: rollhouse.Cluster
) -> None:
    """A node learns by its silence, after 15 s, that an owner over QUIC has gone."""
    with ExitStack() as stack:

        def owner(env: str, pace: dict[str, Any], **more: Any) -> Owner:
            return stack.enter_context(closing(Owner(nodes.url, env, 2, pace=pace, transport="quic", **more)))

        killed, thinker, away = owner("tallies:Tally", REALTIME), owner("tallies:Tally", AGENT), owner("tallies:Tally", REALTIME)
        clock = stack.enter_context(closing(Owner(nodes.owner("clock"), "Pendulum-v1", 1, pace=REALTIME, max_episode_steps=0)))
        for _ in range(5):
            thinker.ask("step", [0, 0])
        killed.ask("step", [0, 0])
        before = np.array(away.ask("step", [0, 0])["first"])
        clock.ask("step", [[0.0]])
        killed.kill()
        thinker.kill()
        away.stop()

        def have_gone() -> bool:
            sessions = [session_of(cluster, owner.run) for owner in (killed, thinker, away)]
            assert all(sessions), "a lease is longer than it takes to see that it runs"
            return all(session and session["attached"] is False for session in sessions)

        until(have_gone)
        # What was played before is known a second later at the latest.
        played(clock, HZ + HZ // 2, [[0.0]])
        stand = [(session_of(cluster, owner.run) or {})["steps"] for owner in (killed, away)]
        played(clock, HZ + HZ // 2, [[0.0]])
        assert [(session_of(cluster, owner.run) or {})["steps"] for owner in (killed, away)] == stand
        away.wake()
        rows = away.ask("step", [0, 0])
        now = np.array(rows["first"])
        assert (now - before == rows["ticks"]).all(), "the owner dials the same session again, and is told what it missed"
        until(lambda: min(away.ask("latest")["ticks"]) > 5)

        until(lambda: not any(session_of(cluster, owner.run) for owner in (killed, thinker)))
        closed = cluster.close_pool(killed.run, timeout=60)
        assert closed["ended"] == {"lease_ended": 1} and closed["stored"]
        assert cluster.close_pool(thinker.run, timeout=60)["stored"]
        recorded = [info for info in rollhouse.replays.open(cluster) if info.run in (killed.run, thinker.run)]
        assert [info.outcome for info in recorded] == ["disconnected"] * 4
        assert [info.length for info in recorded if info.run == thinker.run] == [5, 5]
        under_way = sum(info.length for info in recorded if info.run == killed.run) - stand[0]
        assert 0 <= under_way <= 2, "of each lane a tick, at most, that no answer had"
        away.end()
        for lane, newest in enumerate(now):
            (episode,) = recorded_of(cluster, away.run, lane)
            (back,) = np.flatnonzero(episode.step_columns["controls"] == STOOD)
            assert before[lane] < back < newest, "where it stood can be seen"


@pytest.mark.parametrize("on_loss", ["raise", "report"])
def test_a_node_that_is_killed_under_live_lanes_is_named_and_nothing_hangs(two_nodes: LocalCluster, on_loss: str) -> None:
    nothing = np.zeros((2, 1), np.float32)
    with rollhouse.connect(two_nodes.url, timeout=DEADLINE) as cluster:
        settings: dict[str, Any] = {"pace": REALTIME, "max_episode_steps": 0, "on_loss": on_loss, "spread": "single"}
        with cluster.make_vec("Pendulum-v1", 2, **settings) as envs:
            envs.reset(seed=1)
            until(lambda: (envs.latest()[4]["ticks"] > 5).all())
            node = envs.placements[0].node
            two_nodes.kill(node)
            if on_loss == "raise":
                with pytest.raises(LaneLostError, match="node_lost") as lost:
                    envs.step(nothing)
                assert lost.value.lanes == (0, 1) and lost.value.outcome == "node_lost"
            else:
                infos = envs.step(nothing)[4]
                assert infos["lost"].tolist() == ["node_lost"] * 2 and not infos["valid"].any()
        with cluster.make_vec("Pendulum-v1", 2, **settings) as envs:
            envs.reset(seed=1)
            until(lambda: (envs.latest()[4]["ticks"] > 5).all())
            assert envs.placements[0].node != node, "the game begins anew there, as another one"


def test_a_step_that_waits_for_a_tick_ends_with_its_node(two_nodes: LocalCluster) -> None:
    """The tick is due in a minute and a half."""
    pace = {"hz": 0.01, "clock": "realtime"}
    with closing(Owner(two_nodes.url, "CartPole-v1", 2, pace=pace, on_loss="report", spread="single")) as owner:
        with rollhouse.connect(two_nodes.url, timeout=DEADLINE) as cluster:
            session = until(lambda: session_of(cluster, owner.run))
        owner.tell("step", [0, 0])
        two_nodes.kill(session["node"])
        assert owner.hear()["ended"] == [True, True], "they are reported as lost"


def test_every_tick_reward_and_end_of_64_lanes_is_accounted_for(nodes: LocalCluster, cluster: rollhouse.Cluster) -> None:
    """Owners act as it comes, in any tick; each checks with every answer what its worlds have counted."""
    with ExitStack() as stack:
        owners = [stack.enter_context(closing(Owner(nodes.url, "tallies:Tally", 8, pace=REALTIME))) for _ in range(8)]
        for owner in owners:
            owner.tell("play", 4 * HZ, 3)
        told = [owner.hear() for owner in owners]
        for owner in owners:
            owner.end()
    for owner in owners:
        assert cluster.close_pool(owner.run, timeout=60)["stored"]
    recorded = rollhouse.replays.open(cluster)
    of_runs: dict[tuple[str, int], list[Any]] = {}
    for info in recorded:
        of_runs.setdefault((info.run, info.lane), []).append(info)
    for owner, lanes in zip(owners, told, strict=True):
        for lane, episodes in enumerate(lanes):
            infos = sorted(of_runs[owner.run, lane], key=lambda info: info.number)
            assert [info.length for info in infos[: len(episodes)]] == [ticks for ticks, _ in episodes]
            # What its owner had not been answered when it closed its pool may be one more end.
            assert sum(info.finished for info in infos) - len(episodes) in (0, 1)
            for info, (_, rewards) in zip(infos, episodes, strict=False):
                assert math.isclose(rewards, sum(recorded.read(info).rewards))


def test_a_lane_in_a_process_ticks_while_its_owner_asks_for_nothing(cluster: rollhouse.Cluster) -> None:
    with (
        cluster.make_vec("tallies:Tally", 1, pace=25, record=False) as envs,
        cluster.make_vec("Pendulum-v1", 1, pace=25, max_episode_steps=0) as other,
    ):
        envs.reset(seed=1)
        envs.step(np.zeros(1, np.int64))
        other.reset(seed=1)
        until(lambda: other.latest()[4]["ticks"][0] >= 50)
        infos = envs.step(np.zeros(1, np.int64))[4]
        assert infos["ticks"][0] > 25, infos


def test_a_lane_is_paused_whose_ticks_are_under_way_again_and_again_and_takes_commands(cluster: rollhouse.Cluster) -> None:
    with cluster.make_vec("tallies:Tally", 1, pace=1000, record=False) as envs:
        envs.reset(seed=1)
        for _ in range(20):
            assert envs.pause() == ("paused",)
            assert envs.resume() == ("playing",)
            assert len(envs.get_attr("np_random_seed")) == 1


def test_how_long_a_world_stood_without_its_owner_is_recorded(nodes: LocalCluster, cluster: rollhouse.Cluster) -> None:
    options = {"pace": REALTIME, "max_episode_steps": 0, "transport": "quic"}
    with closing(Owner(nodes.url, "Pendulum-v1", 1, **options)) as owner:
        owner.ask("step", [[0.0]])
        owner.stop()
        until(lambda: (session_of(cluster, owner.run) or {}).get("attached") is False)
        away = time.monotonic()
        until(lambda: time.monotonic() >= away + 0.5)
        owner.wake()
        owner.ask("step", [[0.0]])
        owner.end()
        (episode,) = recorded_of(cluster, owner.run, 0)
        (back,) = np.flatnonzero(episode.step_columns["controls"] == STOOD)
        assert episode.step_columns["stood_ms"][back] >= 500
