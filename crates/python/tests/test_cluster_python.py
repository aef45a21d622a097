"""Python envs on the nodes of a cluster: learned when they are asked for, and the same arrays as in Gymnasium."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from local_cluster import PORTS, LocalCluster, rollhouse_program
from mazes import envs as mazes
from python_nodes import (
    ALLOWED,
    THREE,
    ended,
    play,
    python_nodes,
    python_settings,
    recorded_of,
    same,
    same_spaces,
    search_path,
    workers_of,
)

import rollhouse
from rollhouse.errors import ActionTypeError, InvalidActionError, LaneLostError, RefusedError
from rollhouse.vector import rows_at

LANES = 5
LIMIT = 17


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("id", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "Blackjack-v1"])
def test_lanes_on_nodes_give_what_gymnasium_gives(cluster: rollhouse.Cluster, id: str, mode: AutoresetMode) -> None:
    there = cluster.make_vec(f"gymnasium:{id}", LANES, autoreset_mode=mode, max_episode_steps=LIMIT, spread="even")
    assert len({placement.node for placement in there.placements}) == 2
    assert {placement.transport for placement in there.placements} == {cluster.transport}
    here = SyncVectorEnv([partial(gymnasium.make, id, max_episode_steps=LIMIT)] * LANES, autoreset_mode=mode)
    assert there.single_action_space == here.single_action_space
    assert there.single_observation_space == here.single_observation_space
    assert play(there, here, mode) > LANES
    there.close()


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ["Maze", "Arm", "Panel", "Hands", "Wide"])
def test_a_package_of_ones_own_with_arguments_gives_the_same(cluster: rollhouse.Cluster, name: str, mode: AutoresetMode) -> None:
    there = cluster.make_vec(f"mazes.envs:{name}", LANES, env_kwargs={"size": 9}, autoreset_mode=mode, spread="even")
    here = SyncVectorEnv([partial(getattr(mazes, name), size=9)] * LANES, autoreset_mode=mode)
    assert there.single_action_space == here.single_action_space
    assert there.single_observation_space == here.single_observation_space
    assert play(there, here, mode) > LANES
    if name == "Panel" and mode is AutoresetMode.NEXT_STEP:
        for wrong in ([[-1, 0]] * LANES, [[0, 256]] * LANES):
            with pytest.raises(InvalidActionError, match="is not in MultiBinary"):
                there.step(wrong)
    there.close()


def test_small_types_are_shown_as_the_envs_own(cluster: rollhouse.Cluster) -> None:
    there = cluster.make_vec("mazes.envs:Small", 3, env_kwargs={"size": 9})
    here = SyncVectorEnv([partial(mazes.Small, size=9)] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    same_spaces(there, here)
    assert there.single_observation_space["way"].dtype == np.int8 and there.single_action_space.dtype == np.int16
    assert play(there, here, AutoresetMode.NEXT_STEP, steps=30) > 0
    there.close()


@pytest.mark.parametrize("kwargs", [{}, {"nested": False}, {"nested": False, "dtype": "uint32"}], ids=str)
def test_narrow_choices_are_shown_and_reach_the_env_in_its_own_type(
    cluster: rollhouse.Cluster, kwargs: dict[str, Any]
) -> None:
    arguments = {"size": 9, **kwargs}
    there = cluster.make_vec("mazes.envs:Narrow", 3, env_kwargs=arguments)
    here = SyncVectorEnv([partial(mazes.Narrow, **arguments)] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    same_spaces(there, here)
    here.action_space.seed(4)
    ours, theirs = there.reset(seed=4)[0], here.reset(seed=4)[0]
    shown, taken, over = [], [], np.zeros(3, bool)
    while not over[1]:
        shown.append(theirs)
        same(ours, theirs)
        taken.append(here.action_space.sample())
        (ours, reward, *ends, _), (theirs, wanted, *_) = there.step(taken[-1]), here.step(taken[-1])
        same(reward, wanted)
        over = ends[0] | ends[1]
    run = there.run
    there.close()
    episode = recorded_of(cluster, run, lane=1)[0]
    for name in ("way", "both") if not kwargs else (None,):
        seen, wanted = episode.observations, [one if name is None else one[name] for one in shown]
        same((seen if name is None else seen[name])[: len(shown)], np.array([one[1] for one in wanted]))
    for name in ("way", "pick") if not kwargs else (None,):
        acted, wanted = episode.actions, [one if name is None else one[name] for one in taken]
        same(acted if name is None else acted[name], np.array([one[1] for one in wanted]))


def test_actions_of_several_columns_are_checked_by_part_and_recorded_as_what_they_are(
    cluster: rollhouse.Cluster,
) -> None:
    envs = cluster.make_vec("mazes.envs:Hands", 2, env_kwargs={"size": 99}, autoreset_mode="Disabled")
    envs.action_space.seed(3)
    right = envs.action_space.sample()
    for wrong, words in [
        ({**right, "way": np.array([5, 7])}, "actions of way: lane 1 is given .*7.*, which is not in Discrete"),
        ({**right, "push": np.zeros((2, 2, 3))}, "push: actions have shape"),
    ]:
        with pytest.raises(InvalidActionError, match=words):
            envs.step(wrong)
    for wrong, words in [
        ({**right, "wing": np.zeros(2)}, "nothing is called wing"),
        ({key: right[key] for key in ("push", "way", "far")}, "none for grip"),
        ({**right, "grip": right["grip"][:1]}, "must be a tuple of 2 batches"),
        (np.zeros(2), "ndarray given, must be a dict"),
    ]:
        with pytest.raises(ActionTypeError, match=words):
            envs.step(wrong)
    envs.reset(seed=5)
    taken = []
    for _ in range(3):
        taken.append(envs.action_space.sample())
        envs.step(taken[-1])
    carried = envs.actions
    carried[:] = 0
    assert carried.shape == (2, 4 + 1 + 5 + 1) and carried.dtype == np.float64
    run = envs.run
    envs.close()
    [episode] = recorded_of(cluster, run, lane=1)
    same(episode.actions["push"], np.array([one["push"][1] for one in taken]))
    same(episode.actions["way"], np.array([one["way"][1] for one in taken]))
    same(episode.actions["grip/0"], np.array([one["grip"][0][1] for one in taken]))
    same(episode.actions["grip/1"], np.array([one["grip"][1][1] for one in taken]))
    same(episode.actions["far"], np.array([one["far"][1] for one in taken]))


@pytest.mark.parametrize("id", ["CartPole-v1", "Blackjack-v1"])
def test_first_done_gives_each_lane_what_gymnasium_gives_it(cluster: rollhouse.Cluster, id: str) -> None:
    there = cluster.make_vec(f"gymnasium:{id}", LANES, seed=9, spread="even", valid="always")
    lanes = [gymnasium.make(id) for _ in range(LANES)]
    first = there.reset()[0]
    for lane, env in enumerate(lanes):
        same(rows_at(first, lane), env.reset(seed=9 + lane)[0])
    over = [False] * LANES
    for step in range(60):
        actions = (np.arange(LANES) + step) % 2
        for env_ids in ([4, 0], [1, 3, 2]):
            there.send(actions[env_ids], env_ids)
        received = 0
        while received < LANES:
            observations, rewards, terminations, truncations, infos = there.recv(1)
            for row, lane in enumerate(infos["env_id"]):
                received += 1
                if over[lane]:
                    theirs: Any = (lanes[lane].reset()[0], 0.0, False, False)
                else:
                    theirs = lanes[lane].step(actions[lane])
                same(rows_at(observations, row), theirs[0])
                assert (rewards[row], terminations[row], truncations[row]) == theirs[1:4]
                over[lane] = terminations[row] or truncations[row]
    there.close()


def test_lanes_on_nodes_are_drawn_by_their_envs(cluster: rollhouse.Cluster) -> None:
    there = cluster.make_vec(
        "mazes.envs:Painted", LANES, env_kwargs={"size": 9}, render_mode="rgb_array", spread="even", record=False
    )
    here = SyncVectorEnv([partial(mazes.Painted, size=9, render_mode="rgb_array")] * LANES)
    there.reset(seed=5)
    here.reset(seed=5)
    for step in range(20):
        actions = (np.arange(LANES) + step) % 2 + 5
        there.step(actions)
        here.step(actions)
        ours, theirs = there.render(), here.render()
        assert isinstance(ours, tuple) and len(ours) == LANES
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    assert there.metadata["render_modes"] == ["rgb_array"]
    there.close()
    with pytest.raises(RefusedError, match="render_mode"):
        cluster.make_vec("mazes.envs:Maze", 1, env_kwargs={"size": 9}, render_mode="rgb_array")
    plain = cluster.make_vec("mazes.envs:Painted", 1, env_kwargs={"size": 9}, record=False)
    plain.reset(seed=1)
    assert plain.render() is None
    plain.close()


def test_nodes_tell_which_kinds_they_host_and_sessions_end_with_their_workers(nodes: LocalCluster) -> None:
    cluster = rollhouse.connect(nodes.url, timeout=120)
    kinds = [sorted(node["kinds"]) for node in cluster.nodes()]
    assert kinds == [sorted(f"{name}:*" for name in ("gymnasium", *ALLOWED))] * 2
    offered = {env["env"]: env for env in cluster.envs()}
    assert set(kinds[0]) <= set(offered)
    assert offered["gymnasium:*"]["nodes"] == offered["CartPole-v1"]["nodes"] == 2
    assert offered["gymnasium:*"]["dynamics"] is None and offered["CartPole-v1"]["dynamics"]
    processes = [nodes.process_id(name) for name in ("one", "two")]
    before = {worker for process in processes for worker in workers_of(process)}
    envs = cluster.make_vec("gymnasium:CartPole-v1", 4, spread="single")
    after = {worker for process in processes for worker in workers_of(process)}
    workers = [os.pidfd_open(worker) for worker in after - before]
    assert len(workers) == 2
    envs.close()
    for worker in workers:
        assert ended(worker)
    cluster.close()


@pytest.mark.parametrize(
    ("id", "kwargs", "code", "words"),
    [
        ("os:path", {}, "not_found", "package `os`"),
        ("gymnasium:ale_py:ALE/Pong-v5", {}, "not_found", "`gymnasium` and `ale_py`"),
        ("gymnasium:NoSuch-v0", {}, "not_found", "NoSuch"),
        ("mazes.envs:Nothing", {}, "not_found", "no class of envs 'Nothing'"),
        ("broken:World", {}, "not_found", "no library of that name"),
        ("mazes.envs:Maze", {"size": 9, "width": 3}, "bad_request", "width"),
        ("mazes.envs:Maze", {}, "unsupported", "size"),
        ("mazes.envs:Wide", {"size": 9, "columns": 65}, "unsupported", "65 columns, at most 64"),
        ("mazes.envs:Narrow", {"size": 9, "dtype": "uint64"}, "unsupported", "Discrete of uint64 cannot be hosted"),
        ("CartPole-v1", {"size": 9}, "bad_request", "env_kwargs"),
        ("mazes.envs:Maze", {"size": "9" * 20_000}, "bad_request", "env_kwargs"),
    ],
)
def test_what_cannot_be_hosted_is_refused_with_the_reason(
    nodes: LocalCluster, id: str, kwargs: dict[str, Any], code: str, words: str
) -> None:
    check_refusal(nodes, id, kwargs, code, words)


def check_refusal(nodes: LocalCluster, id: str, kwargs: dict[str, Any], code: str, words: str) -> None:
    cluster = rollhouse.connect(nodes.url, timeout=120)
    with pytest.raises(RefusedError, match=re.escape(words)) as refused:
        cluster.make_vec(id, 2, env_kwargs=kwargs)
    assert refused.value.code == code
    with pytest.raises(ValueError, match="env_kwargs"):
        cluster.make_vec(id, 2, env_kwargs={"call": print})
    assert not any(session["env"] == id for session in cluster.sessions())
    cluster.close()


def test_no_module_of_a_nodes_working_folder_and_no_function_of_a_package_is_reached(tmp_path: Path) -> None:
    # Symptom: whoever could write into a node's working folder, or knew a function of an allowed package that imports
    # what it is told, ran code of his own there. Cause and fix: as in test_env_worker; and workers find no module there.
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w').close()\nimport gymnasium\n")
    (tmp_path / "numpy.py").write_text("raise ImportError('planted')")
    with closing(python_nodes(tmp_path, "planted", names=("one",))) as nodes:
        with rollhouse.connect(nodes.url, timeout=120) as cluster:
            loader = "gymnasium.envs.registration:load_env_creator"
            for id, kwargs in [
                ("planted:Env", {}),
                ("gymnasium:planted:Env-v0", {}),
                (loader, {"name": "planted:Env"}),
                ("gymnasium.envs.registration:make", {"name": "planted:Env-v0"}),
            ]:
                with pytest.raises(RefusedError, match="import failed"):
                    cluster.make_vec(id, 1, env_kwargs=kwargs)
            assert not (tmp_path / "trace").exists()
            envs = cluster.make_vec("gymnasium:CartPole-v1", 1)
            envs.reset(seed=1)
            envs.close()


def test_sessions_whose_lanes_are_being_launched_are_told_as_such(nodes: LocalCluster, tmp_path: Path) -> None:
    id, pipe = "mazes.envs:Patient", tmp_path / "pipe"
    os.mkfifo(pipe)

    def of_it(cluster: rollhouse.Cluster) -> list[dict[str, Any]]:
        return [one for one in cluster.sessions() if one["env"] == id]

    with rollhouse.connect(nodes.url, timeout=120) as trainer, rollhouse.connect(nodes.url) as watcher:
        with ThreadPoolExecutor(1) as thread:
            made = thread.submit(trainer.make_vec, id, 2, env_kwargs={"size": 9, "pipe": str(pipe)})
            while not (launched := of_it(watcher)):
                assert not made.done(), made.result()
            line = [str(rollhouse_program()), "sessions", "--connect", nodes.url]
            told = subprocess.run(line, capture_output=True, text=True, check=True).stdout
            # Whoever opens it for reading waits for a writer; here is one until all are made.
            writer = os.open(pipe, os.O_RDWR)
            envs = made.result()
            os.close(writer)
        assert all(report["launching"] for report in launched)
        assert "nobody yet: it is launched" in told
        there = of_it(watcher)
        assert there and not any(report["launching"] for report in there)
        envs.close()


def test_lanes_that_try_to_connect_are_told_with_their_retries_until_they_have(hasty: LocalCluster, tmp_path: Path) -> None:
    id, server = "mazes.envs:Client", tmp_path / "server"

    def retries(cluster: rollhouse.Cluster) -> int:
        return max([one["connecting"] for one in cluster.sessions() if one["env"] == id], default=0)

    with rollhouse.connect(hasty.url, timeout=120) as trainer, rollhouse.connect(hasty.url) as watcher:
        with ThreadPoolExecutor(1) as thread:
            made = thread.submit(trainer.make_vec, id, 2, env_kwargs={"size": 9, "server": str(server)}, spread="single")
            # Its first node learns the env, longer than a launch may take.
            while retries(watcher) < 10:
                assert not made.done(), made.result()
            line = [str(rollhouse_program()), "sessions", "--connect", hasty.url]
            shown = subprocess.run(line, capture_output=True, text=True, check=True).stdout
            server.touch()
            envs = made.result()
        assert re.search("nobody yet: connecting, retry [0-9]+", shown)
        envs.reset(seed=1)
        # And again as its lanes reset, for longer than a lane may take.
        server.unlink()
        with ThreadPoolExecutor(1) as thread:
            reset = thread.submit(envs.reset, seed=2)
            while retries(watcher) < 2:
                assert not reset.done(), reset.result()
            server.touch()
            reset.result()
        while retries(watcher):
            pass
        here = SyncVectorEnv([partial(mazes.Maze, 9)] * 2)
        same(envs.reset(seed=3)[0], here.reset(seed=3)[0])
        envs.close()


def test_an_env_that_cannot_connect_is_refused_with_the_last_failure(tmp_path: Path) -> None:
    with closing(python_nodes(tmp_path, "mazes", names=("one",), connect_retries="2")) as nodes:
        with rollhouse.connect(nodes.url, timeout=120) as cluster:
            with pytest.raises(RefusedError, match="2 retries .* ConnectionRefusedError: nobody listens") as refused:
                cluster.make_vec("mazes.envs:Client", 2, env_kwargs={"size": 9, "server": str(tmp_path / "none")})
            assert refused.value.code == "unsupported"


def test_a_worker_that_dies_as_its_session_starts_is_started_once_more(nodes: LocalCluster, tmp_path: Path) -> None:
    # The first one is made to learn the env, the two lanes have a worker each.
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        for name, dies in [("once", [2]), ("again", [2, 4])]:
            kwargs = {"size": 9, "calls": str(tmp_path / name), "dies": dies}
            if name == "once":
                envs = cluster.make_vec("mazes.envs:Stumbling", 2, env_kwargs=kwargs, spread="single")
                envs.reset(seed=1)
                assert envs.step([5, 5])[0].shape == (2, 4)
                envs.close()
            else:
                with pytest.raises(RefusedError, match="exit status: 3; its last output: it stumbles"):
                    cluster.make_vec("mazes.envs:Stumbling", 2, env_kwargs=kwargs, spread="single")


def test_a_killed_worker_costs_its_lanes_and_they_come_back(nodes: LocalCluster) -> None:
    cluster = rollhouse.connect(nodes.url, timeout=120)
    others = [worker for name in ("one", "two") for worker in workers_of(nodes.process_id(name))]
    envs = cluster.make_vec("gymnasium:CartPole-v1", 4, spread="single", on_loss="report", valid="always")
    here = SyncVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 4)
    same(envs.reset(seed=3)[0], here.reset(seed=3)[0])
    actions = np.zeros(4, np.int64)
    same(envs.step(actions)[0], here.step(actions)[0])
    workers = workers_of(nodes.process_id(envs.placements[0].node))
    os.kill(next(worker for worker in workers if worker not in others), signal.SIGKILL)
    lost: list[int] = []
    back = np.zeros(4, bool)
    while not back.all():
        ours, theirs = envs.step(actions), here.step(actions)
        if "lost" in ours[4]:
            lost = np.flatnonzero(ours[4]["_lost"]).tolist()
            assert [ours[4]["lost"][lane] for lane in lost] == ["crashed"] * 2
        others = [lane for lane in range(4) if lane not in lost]
        same(ours[0][others], theirs[0][others])
        back = ours[4]["valid"] if lost else back
    assert lost in ([0, 1], [2, 3])
    envs.close()
    cluster.close()


def test_lanes_of_a_killed_node_are_lost_its_workers_end_and_a_reset_goes_on_elsewhere(tmp_path: Path) -> None:
    with closing(python_nodes(tmp_path, "mazes")) as two:
        cluster = rollhouse.connect(two.url, timeout=120)
        envs = cluster.make_vec("mazes.envs:Maze", 4, env_kwargs={"size": 30}, spread="single")
        assert envs.on_loss == "raise"
        envs.reset(seed=1)
        actions = np.full(4, 5)
        envs.step(actions)
        killed = envs.placements[0].node
        workers = [os.pidfd_open(worker) for worker in workers_of(two.process_id(killed))]
        assert len(workers) == 2
        two.kill(killed)
        with pytest.raises(LaneLostError) as lost:
            for _ in range(100):
                envs.step(actions)
        assert lost.value.lanes == (0, 1, 2, 3) and lost.value.outcome == "node_lost"
        for worker in workers:
            assert ended(worker)
        envs.reset(seed=1)
        assert envs.placements[0].node != killed
        envs.step(actions)
        envs.close()
        cluster.close()


def test_lanes_of_a_pool_are_of_one_env_where_nodes_have_others_under_its_id(tmp_path: Path) -> None:
    variables = {}
    for name, size in [("one", 2), ("two", 3)]:
        (tmp_path / name).mkdir()
        source = f"import gymnasium\nclass World(gymnasium.Env):\n    observation_space = gymnasium.spaces.Discrete({size})\n"
        (tmp_path / name / "worlds.py").write_text(source + "    action_space = gymnasium.spaces.Discrete(2)\n")
        variables[name] = search_path(tmp_path / name)
    with closing(LocalCluster(tmp_path, rollhouse_program(), python_settings("worlds"), variables)) as two:
        cluster = rollhouse.connect(two.url, timeout=120)
        with closing(cluster.make_vec("worlds:World", 4, spread="even")) as envs:
            assert envs.single_observation_space.n in {2, 3}
            assert envs.num_envs == 4
        cluster.close()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node of two workers a session that gives up a launch after 5 s, and a lane after 2 s, two fifths of `hang_after`."""
    limits = {"launch_within": "5 s", "memory": "1 GiB"}
    folder = tmp_path_factory.mktemp("hasty")
    settings = ["node.hang_after=5 s"]
    with closing(python_nodes(folder, "mazes", "endless", names=("one",), settings=settings, **limits)) as cluster:
        yield cluster


def test_a_package_that_never_ends_to_import_is_refused_with_what_it_said(hasty: LocalCluster) -> None:
    check_refusal(hasty, "endless:World", {}, "unsupported", "here it stays")


def test_memory_and_time_of_a_lane_are_bounded_and_the_others_go_on(hasty: LocalCluster) -> None:
    with rollhouse.connect(hasty.url, timeout=120) as cluster:
        for env, outcome in [("Greedy", "crashed"), ("Slow", "hung")]:
            envs = cluster.make_vec(f"mazes.envs:{env}", 2, env_kwargs={"size": 4096}, on_loss="report", valid="always")
            envs.reset(seed=1)
            infos = envs.step([5, 6])[4]
            assert infos["_lost"].tolist() == [False, True] and infos["lost"][1] == outcome, env
            assert envs.step([5, 5])[4]["valid"].tolist() == [True, False]
            envs.close()


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node of two workers a session that gives up a lane after 8 s, two fifths of `hang_after`."""
    folder = tmp_path_factory.mktemp("strict")
    with closing(python_nodes(folder, "mazes", names=("one",), settings=["node.hang_after=20 s"])) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("how", "lost"),
    [
        ("shape", ["crashed", None]),
        ("dtype", ["crashed", None]),
        ("three", ["crashed", None]),
        ("reward", ["crashed", None]),
        ("words", ["crashed", None]),
        ("prints", [None, None]),
        ("exits", ["crashed", "crashed"]),
        ("forks", ["crashed", "crashed"]),
        ("deaf", ["hung", "hung"]),
        ("scribbles", ["crashed", "crashed"]),
        ("fills", ["crashed", "crashed"]),
    ],
)
def test_an_env_that_does_what_none_should_costs_its_own_lanes_and_changes_no_other_number(
    request: pytest.FixtureRequest, tmp_path: Path, how: str, lost: list[str | None]
) -> None:
    # Two are waited for as long as a lane may take, and for none of the others' rows does it matter how long that is.
    strict = request.getfixturevalue("hasty" if how in ("deaf", "scribbles") else "strict")
    kwargs = {"size": 30, "how": how, "mark": str(tmp_path / "mark")}
    with rollhouse.connect(strict.url, timeout=120) as cluster:
        before = set(workers_of(strict.process_id("one")))
        there = cluster.make_vec(
            "mazes.envs:Wild", 4, env_kwargs=kwargs, on_loss="report", valid="always", record=False
        )
        workers = [os.pidfd_open(worker) for worker in set(workers_of(strict.process_id("one"))) - before]
        assert len(workers) == 2
        here = SyncVectorEnv([partial(mazes.Maze, size=30)] * 2)
        same(there.reset(seed=5)[0][2:], here.reset(seed=[7, 8])[0])
        told: set[int] = set()
        over = np.zeros(2, bool)
        for step in range(40):
            actions = np.full(4, 5)
            actions[0] = 6 if step == 3 else 5
            *rows, infos = there.step(actions)
            expected = here.step(actions[2:])[:4]
            for ours, theirs in zip(rows, expected, strict=True):
                same(ours[2:], theirs)
            for lane in np.flatnonzero(infos.get("_lost", [])):
                told.add(int(lane))
                assert infos["lost"][lane] == lost[lane], step
            # The row after an episode's end is a reset.
            same(infos["valid"][2:], ~over)
            over = expected[2]
        mates = {lane for lane, word in enumerate(lost) if word}
        assert {0} & mates <= told <= mates, "a mate's row may have been there before its worker ended"
        gone = select.select(workers, [], [], 0 if None in lost else 60)[0]
        assert len(gone) == (1 if None not in lost else 0)
        if how == "forks":
            child = int((tmp_path / "mark").read_text())
            with suppress(ProcessLookupError):
                assert ended(os.pidfd_open(child))
        there.close()
        assert all(ended(worker) for worker in workers)
        # The one that was started again as well.
        for worker in workers_of(strict.process_id("one")):
            with suppress(ProcessLookupError):
                assert ended(os.pidfd_open(worker))


def test_a_rollout_on_nodes_records_the_episodes_that_gymnasium_plays(nodes: LocalCluster) -> None:
    line = [str(rollhouse_program()), "rollout", "--connect", nodes.url, "--env", "gymnasium:CartPole-v1"]
    line += ["--lanes", "4", "--episodes", "10", "--seed", "3", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["episodes"], told["stored"], told["nodes"]) == (10, True, 2), done.stdout
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        recorded = rollhouse.replays.open(cluster)
        episodes = list(recorded.filter(lambda info: info.run == told["run"]).read_many())
        assert len(episodes) == 10
        env = gymnasium.make("CartPole-v1")
        for episode in episodes:
            observation, _ = env.reset(seed=episode.seed)
            for step, action in enumerate(episode.actions):
                same(episode.observations[step], observation)
                observation, _, terminated, truncated, _ = env.step(action)
            same(episode.observations[-1], observation)
            assert terminated or truncated
    refused = subprocess.run([*line, "--env-kwargs", '{"nonsense": 1}'], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "nonsense" in refused.stderr, refused.stderr
    of_here = subprocess.run([*line, "--workers", "2"], capture_output=True, text=True, check=False)
    assert of_here.returncode == 2 and "--workers" in of_here.stderr


def test_a_node_records_and_counts_the_results_and_scores_that_python_envs_give(tmp_path: Path) -> None:
    with closing(python_nodes(tmp_path, "mazes", names=("one",))) as nodes:
        check_results_and_scores(nodes)


def check_results_and_scores(nodes: LocalCluster) -> None:
    line = [str(rollhouse_program()), "rollout", "--connect", nodes.url, "--env", "mazes.envs:Maze"]
    line += ["--env-kwargs", '{"size": 7}', "--lanes", "4", "--episodes", "30", "--seed", "3", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        recorded = rollhouse.replays.open(cluster)
        episodes = list(recorded.filter(lambda info: info.run == json.loads(done.stdout)["run"]))
        assert {info.result for info in episodes} == {"win", "lose"}
        for info in episodes:
            place = recorded.read(info).observations[-1][0]
            assert (info.result, info.score) == ("win" if place else "lose", place)
    figures = nodes.figures("one")
    assert figures["rollhouse_episode_scores_total"] == len(episodes)
    assert figures["rollhouse_episode_score_points"] == sum(info.score for info in episodes)
    won = sum(info.result == "win" for info in episodes)
    assert figures['rollhouse_episode_results_total{result="win"}'] == won
    listing = [str(rollhouse_program()), "replay", "ls", "--connect", nodes.url, "--result", "lose", "--json"]
    listed = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {json.loads(one)["id"] for one in listed} >= {info.id for info in episodes if info.result == "lose"}


@pytest.mark.adapters("mujoco", "ale_py")
@pytest.mark.parametrize("id", ["HalfCheetah-v5", "ale_py:ALE/Pong-v5"])
def test_a_simulator_and_a_game_on_three_nodes_give_what_gymnasium_gives(tmp_path: Path, id: str) -> None:
    with closing(python_nodes(tmp_path, "ale_py", names=THREE)) as nodes:
        with rollhouse.connect(nodes.url, timeout=120) as cluster:
            there = cluster.make_vec(f"gymnasium:{id}", 6, autoreset_mode="SameStep", spread="even")
            assert {placement.node for placement in there.placements} == set(THREE)
            here = SyncVectorEnv([partial(gymnasium.make, id)] * 6, autoreset_mode=AutoresetMode.SAME_STEP)
            assert there.single_action_space == here.single_action_space
            assert there.single_observation_space == here.single_observation_space
            assert play(there, here, AutoresetMode.SAME_STEP, 2500) >= 6
            there.close()


@pytest.mark.adapters("ale_py")
def test_a_worker_of_a_game_on_three_nodes_that_is_killed_changes_no_other_number(tmp_path: Path) -> None:
    with closing(python_nodes(tmp_path, "ale_py", names=THREE)) as nodes:
        with rollhouse.connect(nodes.url, timeout=120) as cluster:
            id, lanes = "ale_py:ALE/Pong-v5", 6
            there = cluster.make_vec(f"gymnasium:{id}", lanes, spread="even", on_loss="report")
            here = SyncVectorEnv([partial(gymnasium.make, id)] * lanes)
            same(there.reset(seed=1)[0], here.reset(seed=1)[0])
            here.action_space.seed(2)
            lost: set[int] = set()
            for step in range(1200):
                if step == 400:
                    os.kill(workers_of(nodes.process_id("two"))[0], signal.SIGKILL)
                actions = here.action_space.sample()
                ours, theirs = there.step(actions), here.step(actions)
                lost |= set(np.flatnonzero(ours[4].get("_lost", [])).tolist())
                others = [lane for lane in range(lanes) if lane not in lost]
                for mine, of_theirs in zip(ours[:4], theirs[:4], strict=True):
                    same(mine[others], of_theirs[others])
            assert len(lost) == 1
            there.close()


@pytest.mark.adapters("stable_baselines3", "torch")
def test_ppo_learns_on_python_lanes_of_two_nodes_one_of_whose_workers_is_killed(nodes: LocalCluster) -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecMonitor

    from rollhouse.sb3 import Sb3VecEnv

    others = workers_of(nodes.process_id("one"))
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        envs = cluster.make_vec(
            "gymnasium:CartPole-v1", 8, seed=1, autoreset_mode="SameStep", spread="even", on_loss="report"
        )
        assert len({placement.node for placement in envs.placements}) == 2
        mine = [worker for worker in workers_of(nodes.process_id("one")) if worker not in others]
        model = PPO("MlpPolicy", VecMonitor(Sb3VecEnv(envs)), n_steps=256, batch_size=256, seed=0, device="cpu")
        model.learn(10_000)
        os.kill(mine[0], signal.SIGKILL)
        model.learn(40_000, reset_num_timesteps=False)
        envs.close()
    reached, _ = evaluate_policy(model, Monitor(gymnasium.make("CartPole-v1")), n_eval_episodes=10)
    assert reached > 200


def test_up_from_a_python_environment_hosts_gymnasium_with_no_setting(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "rollhouse", "up", "--data", str(tmp_path / "up")]
    line += [f"--set={key}=127.0.0.1:0" for key in PORTS]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            with rollhouse.connect(process.stdout.readline().strip(), timeout=120) as cluster:
                assert [node["kinds"] for node in cluster.nodes()] == [["gymnasium:*"]]
                envs = cluster.make_vec("gymnasium:FrozenLake-v1", 3, env_kwargs={"is_slippery": False})
                assert envs.reset(seed=0)[0].tolist() == [0, 0, 0]
                assert envs.step([2, 1, 0])[0].tolist() == [1, 4, 0]
                envs.close()
        finally:
            process.terminate()


