"""Options that Python envs declare: given to each episode, drawn, recorded, and kept when workers and nodes are lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import balls
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from local_cluster import LocalCluster, rollhouse_program
from python_nodes import python_nodes, search_path, workers_of

import rollhouse
from rollhouse.errors import RefusedError, UnknownOptionError
from rollhouse.hosted.declared import declared_options

LANES = 4
STEPS = 60
DRAWN = {
    "gravity": {"uniform": [9, 10.5]},
    "bounces": {"integers": [2, 5]},
    "name": {"choice": ["a", "bb", "ccc"]},
    "wind": [3, 4.5],
}


def as_shown(options: Any) -> list[float]:
    """What an observation of an episode with these options begins with."""
    return [options["gravity"], options["bounces"], len(options["name"]), options["wind"][1], options["tough"]]


def told_by(envs: Any) -> list[dict[str, Any]]:
    """The options that each lane's newest episode has, as the vector env tells them."""
    names = ("gravity", "bounces", "name", "wind", "tough")
    told = {name: [one.tolist() if isinstance(one, np.ndarray) else one for one in envs.get_attr(name)] for name in names}
    return [{name: told[name][lane] for name in names} for lane in range(envs.num_envs)]


def shown_by(envs: Any, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> list[list[float]]:
    """Plays, asserts that every row has the options that its lane tells, and returns what the rows of resets show."""
    observations, _ = envs.reset(seed=7)
    first = observations[:, :5].tolist()
    ended = np.zeros(envs.num_envs, bool)
    for _ in range(STEPS):
        assert observations[:, :5].tolist() == [as_shown(told) for told in told_by(envs)]
        began = ended
        observations, _, ended, _, _ = envs.step(np.zeros(envs.num_envs, np.int64))
        if mode is not AutoresetMode.NEXT_STEP:
            began = ended
        if mode is AutoresetMode.DISABLED and ended.any():
            observations, _ = envs.reset(options={"reset_mask": ended.copy()})
        first += observations[began, :5].tolist()
    return first


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("env", ["Ball", "Sure"])
def test_each_episode_on_a_node_gets_values_of_its_own_which_its_recording_tells(
    cluster: rollhouse.Cluster, env: str, mode: AutoresetMode
) -> None:
    envs = cluster.make_vec(f"balls:{env}", LANES, options=DRAWN, autoreset_mode=mode, spread="even")
    assert len(envs.placements) == 2
    shown = shown_by(envs, mode)
    assert len({tuple(row) for row in shown}) == len(shown) > 3 * LANES, "no two episodes draw the same"
    assert all(9 <= row[0] < 10.5 and 2 <= row[1] <= 5 and 1 <= row[2] <= 3 for row in shown)
    assert {row[2] for row in shown} == {1, 2, 3} and {(row[3], row[4]) for row in shown} == {(4.5, 0.0)}
    again = cluster.make_vec(f"balls:{env}", LANES, options=DRAWN, autoreset_mode=mode, spread="single", record=False)
    assert shown_by(again, mode) == shown, "the same seeds draw the same, wherever lanes are"
    again.close()
    envs.close()
    assert cluster.close_pool(envs.run, timeout=60)["stored"]
    recorded = rollhouse.replays.open(cluster).filter(lambda info: info.run == envs.run and info.finished)
    seen = set()
    for info in recorded:
        first = recorded.read(info).observations[0]
        assert first[:5].tolist() == as_shown(info.options)
        seen.add(tuple(first[:5].tolist()))
    assert len(seen) > 2 * LANES and seen <= {tuple(row) for row in shown}


def test_what_is_not_given_is_as_the_env_declares_it(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("balls:Ball", LANES, bounces=2, tough=True)
    assert told_by(envs) == [{"gravity": 9.8, "bounces": 2, "name": "plain", "wind": [0, 1], "tough": True}] * LANES
    assert {tuple(row) for row in shown_by(envs)} == {(9.8, 2, 5, 1, 1)}
    envs.close()


@pytest.mark.parametrize("env", ["Sure", "Still"])
def test_lanes_that_go_on_elsewhere_have_the_options_they_had(tmp_path: Path, env: str) -> None:
    two = python_nodes(tmp_path, "balls")
    try:
        with rollhouse.connect(two.url, timeout=120) as cluster:
            options = {**DRAWN, "bounces": {"integers": [3, 30]}}
            left = cluster.make_vec(f"balls:{env}", LANES, options=options, spread="single", record=False)
            kept = cluster.make_vec(f"balls:{env}", LANES, options=options, spread="single", record=False)
            assert left.on_loss == "resume"
            assert left.reset(seed=3)[0].tolist() == kept.reset(seed=3)[0].tolist()
            actions, rows = np.zeros(LANES, np.int64), []
            for _ in range(100):
                rows.append(kept.step(actions))
            kept.close()
            first = left.placements[0].node
            for step, row in enumerate(rows):
                if step == 50:
                    two.kill(first)
                for ours, theirs in zip(left.step(actions)[:4], row[:4], strict=True):
                    assert ours.tolist() == theirs.tolist(), step
            assert left.placements[0].node != first
            assert len({row[0][0, 0] for row in rows}) > 3
            left.close()
    finally:
        two.close()


def test_lanes_of_a_worker_that_was_killed_come_back_with_their_options(nodes: LocalCluster) -> None:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        others = {worker for name in ("one", "two") for worker in workers_of(nodes.process_id(name))}
        options = {**DRAWN, "name": "lasting"}
        envs = cluster.make_vec("balls:Ball", 4, options=options, spread="single", on_loss="report", valid="always")
        envs.reset(seed=3)
        actions, back = np.zeros(4, np.int64), np.zeros(4, bool)
        new = set(workers_of(nodes.process_id(envs.placements[0].node))) - others
        os.kill(new.pop(), signal.SIGKILL)
        lost = np.zeros(4, bool)
        while not back.all():
            infos = envs.step(actions)[4]
            lost |= infos.get("_lost", False)
            back = infos["valid"] if lost.any() else back
        assert lost.tolist() in ([True, True, False, False], [False, False, True, True])
        for _ in range(20):
            observations = envs.step(actions)[0]
            assert observations[:, :5].tolist() == [as_shown(told) for told in told_by(envs)]
            assert {len("lasting")} == {*observations[:, 2]}
        envs.close()


def test_options_of_a_reset_hold_until_others_are_given(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("balls:Ball", LANES, record=False)
    worker = {"gravity": [float(lane + 1) for lane in range(LANES)], "name": "xy"}
    observations, _ = envs.reset(seed=1, options=worker)
    for _ in range(12):
        assert observations[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0] and {*observations[:, 2]} == {2.0}
        observations = envs.step(np.zeros(LANES, np.int64))[0]
    mask = np.array([True, False, True, False])
    observations, _ = envs.reset(options={"reset_mask": mask, "gravity": {"uniform": [20, 30]}})
    assert all(20 <= gravity < 30 for gravity in observations[mask, 0]) and observations[1, 0] == 2.0
    with pytest.raises(RefusedError, match=r"gravity=-1\.0, name='xy': ValueError: a ball has to fall down"):
        envs.reset(options={"gravity": -1})
    with pytest.raises(RefusedError, match="reset it as well"):
        envs.set_attr("gravity", [5.0] * LANES)
    assert envs.get_attr("gravity")[1] == 2.0
    envs.close()


def test_recorded_lanes_have_options_of_their_own_and_those_of_resets(cluster: rollhouse.Cluster) -> None:
    own = [{"gravity": float(lane + 1)} for lane in range(LANES)]
    envs = cluster.make_vec("balls:Ball", LANES, lane_options=own)
    observations, _ = envs.reset(seed=1)
    assert observations[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    mask = np.array([True, False, True, False])
    observations, _ = envs.reset(options={"reset_mask": mask, "gravity": 7.0})
    assert observations[:, 0].tolist() == [7.0, 2.0, 7.0, 4.0]
    with pytest.raises(RefusedError, match="a ball has to fall down"):
        envs.reset(options={"gravity": -1})
    with pytest.raises(RefusedError, match="recorded lanes keep the options"):
        envs.set_attr("gravity", [5.0] * LANES)
    for _ in range(20):
        observations = envs.step(np.zeros(LANES, np.int64))[0]
        assert observations[:, 0].tolist() == [7.0, 2.0, 7.0, 4.0]
    envs.close()
    assert cluster.close_pool(envs.run, timeout=60)["stored"]
    recorded = rollhouse.replays.open(cluster).filter(lambda info: info.run == envs.run)
    number = {lane: 0 for lane in range(LANES)}
    for info in recorded.list():
        wanted = [1.0, 2.0, 3.0, 4.0][info.lane] if number[info.lane] == 0 else [7.0, 2.0, 7.0, 4.0][info.lane]
        assert info.options["gravity"] == wanted == recorded.read(info).observations[0][0]
        number[info.lane] += 1
    assert all(number[lane] > 2 for lane in (0, 2))
    assert {info.lane for info in recorded.list(options={"gravity": 7})} == {0, 2}
    assert {info.lane for info in recorded.list(options={"gravity": 3.0})} == {2}
    assert recorded.list(options={"gravity": 5.5}) == []


def test_options_that_an_env_refuses_at_its_hundredth_reset_change_nothing(cluster: rollhouse.Cluster) -> None:
    envs = cluster.make_vec("balls:Ball", 2)
    envs.reset(seed=1)
    for _ in range(99):
        envs.reset(options={"gravity": [2.0, 3.0]})
    with pytest.raises(RefusedError, match=r"gravity=-1\.0: ValueError: a ball has to fall down"):
        envs.reset(options={"gravity": [4.0, -1.0]})
    observations, _ = envs.reset()
    assert observations[:, 0].tolist() == [2.0, 3.0]
    envs.close()


def test_lanes_that_a_reset_gave_options_go_on_elsewhere_with_them(tmp_path: Path) -> None:
    two = python_nodes(tmp_path, "balls")
    try:
        with rollhouse.connect(two.url, timeout=120) as cluster:
            pools = [cluster.make_vec("balls:Sure", LANES, spread="single", transport="quic") for _ in range(2)]
            left, kept = pools
            given = {"gravity": [1.5, 2.5, 3.5, 4.5], "reset_mask": np.array([True, True, False, True])}
            for envs in pools:
                envs.reset(seed=3)
                envs.reset(options=dict(given))
            actions = np.zeros(LANES, np.int64)
            rows = [kept.step(actions) for _ in range(60)]
            first = left.placements[0].node
            for step, row in enumerate(rows):
                if step == 30:
                    kept.close()
                    two.kill(first)
                for ours, theirs in zip(left.step(actions)[:4], row[:4], strict=True):
                    assert ours.tolist() == theirs.tolist(), step
            assert left.placements[0].node != first
            assert [*left.get_attr("gravity")][:2] == [1.5, 2.5]
            left.close()
    finally:
        two.close()


@pytest.mark.parametrize(
    ("id", "options", "words"),
    [
        ("balls:Ball", {"mass": 1}, "unknown option `mass`; known are gravity, bounces, name, wind, tough"),
        ("balls:Ball", {"gravity": "much"}, 'option `gravity` takes a finite number, got "much"'),
        ("balls:Ball", {"bounces": {"uniform": [1, 2]}}, "option `bounces` takes an integer"),
        ("balls:Ball", {"gravity": -2.5}, "the options are refused: gravity=-2.5: ValueError: a ball has to fall"),
        ("balls:Ball", {"gravity": {"uniform": [-1, 9]}}, "the options are refused: gravity=-1.0: ValueError"),
        ("gymnasium:CartPole-v1", {"gravity": 9}, "unknown option `gravity`; this env takes none"),
        ("balls:Odd", {}, "metadata['options']['shape']: a dict has a default"),
        ("balls:Many", {}, 'metadata["options"]: 65 options given, at most 64'),
    ],
)
def test_what_an_env_does_not_take_is_refused_by_name(
    nodes: LocalCluster, id: str, options: dict[str, Any], words: str
) -> None:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        with pytest.raises(RefusedError, match=re.escape(words)) as refused:
            cluster.make_vec(id, 2, options=options)
        assert refused.value.code == ("bad_request" if options else "unsupported")


@pytest.mark.parametrize("env", ["Ball", "Sure"])
@pytest.mark.parametrize("where", ["here", "nodes"])
def test_a_rollout_draws_options_and_its_episodes_tell_them(
    nodes: LocalCluster, tmp_path: Path, where: str, env: str
) -> None:
    python = ["--python", sys.executable, "--allow", "balls", "--workers", "2"]
    place = ["--data", str(tmp_path)] if where == "here" else ["--connect", nodes.url]
    line = [str(rollhouse_program()), "rollout", *place, "--env", f"balls:{env}", *(python if where == "here" else [])]
    line += ["--lanes", "3", "--episodes", "12", "--seed", "3", "--json"]
    path = os.environ | search_path()

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        given = [word for option in options for word in ("--option", option)]
        return subprocess.run([*line, *given], capture_output=True, text=True, timeout=300, check=False, env=path)

    done = run('gravity={"uniform": [9, 10.5]}', 'name={"choice": ["a", "bb"]}', "wind=[7, 8]")
    assert done.returncode == 0, done.stderr
    recorded = rollhouse.replays.open(tmp_path if where == "here" else nodes.url)
    run_of_it = json.loads(done.stdout).get("run")
    infos = list(recorded.filter(lambda info: run_of_it in (None, info.run)))
    assert len(infos) == 12
    for info in infos:
        assert recorded.read(info).observations[0][:5].tolist() == as_shown(info.options)
    assert len({info.options["gravity"] for info in infos}) == 12
    show = [str(rollhouse_program()), "replay", "show", infos[0].id, *place]
    shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert f"gravity = {infos[0].options['gravity']} (drawn: " in shown, shown
    refused = run("gravity=-1")
    # The sessions of a rollout on nodes are open before their lanes are made.
    assert refused.returncode == (2 if where == "here" else 1), refused.stderr
    assert "gravity=-1.0: ValueError: a ball has to fall" in refused.stderr, refused.stderr
    unknown = run("mass=1")
    assert unknown.returncode == 2 and "unknown option `mass`; known are gravity" in unknown.stderr, unknown.stderr


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["gravity"], "is a list, must be a dict"),
        ({1: 2}, "1 is no name"),
        ({"x": {"default": 1, "low": 0}}, "'x'"),
        ({"x": None}, "'x'"),
        ({"x": float("nan")}, "'x'"),
        ({"x": [1.0, float("inf")]}, "'x'"),
        ({"x": [[1.0]]}, "'x'"),
        ({"x": [True]}, "'x'"),
        ({"x": 2**63}, "'x'"),
    ],
)
def test_what_is_no_option_is_told_by_its_name(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        declared_options({"options": given})


def test_defaults_of_numpy_are_those_of_python() -> None:
    declared = declared_options({"options": {"a": np.float32(0.5), "b": np.arange(3), "c": np.int64(4), "d": True}})
    assert [(one["name"], one["default"], type(one["default"])) for one in declared] == [
        ("a", 0.5, float), ("b", [0.0, 1.0, 2.0], list), ("c", 4, int), ("d", True, bool),
    ]  # fmt: skip
    assert declared_options(None) == declared_options({"render_modes": []}) == []


def rows_of(envs: Any, mode: AutoresetMode, **first: Any) -> list[list[Any]]:
    """Plays, and returns all that is shown."""
    rows = [[envs.reset(**first)[0].tolist()]]
    for _ in range(STEPS):
        observations, rewards, terminated, truncated, _ = envs.step(np.zeros(envs.num_envs, np.int64))
        rows.append([observations.tolist(), rewards.tolist(), terminated.tolist(), truncated.tolist()])
        if mode is AutoresetMode.DISABLED and terminated.any():
            rows.append([envs.reset(options={"reset_mask": terminated.copy()})[0].tolist()])
    return rows


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_lanes_of_this_machine_have_the_options_that_they_have_on_nodes_and_record_them(
    nodes: LocalCluster, tmp_path: Path, mode: AutoresetMode
) -> None:
    with rollhouse.connect(nodes.url, timeout=120) as cluster:
        there = cluster.make_vec("balls:Ball", LANES, options=DRAWN, autoreset_mode=mode, record=False)
        expected = rows_of(there, mode, seed=7)
        there.close()
    ours: dict[str, Any] = {"options": DRAWN, "autoreset_mode": mode, "workers": 2}
    here = rollhouse.make_vec("balls:Ball", LANES, record=True, data=tmp_path, **ours)
    assert rows_of(here, mode, seed=7) == expected
    here.close()
    infos = [info for info in rollhouse.replays.open(tmp_path).list() if info.finished]
    assert len(infos) > 3 * LANES and len({info.options["gravity"] for info in infos}) == len(infos)
    for info in infos:
        first = rollhouse.replays.open(tmp_path).read(info).observations[0]
        assert first[:5].tolist() == as_shown(info.options)


def test_lanes_of_this_machine_take_options_for_one_lane_and_from_a_reset() -> None:
    envs = rollhouse.vectorize([balls.Ball] * LANES, lane_options=[{"gravity": lane + 1.0} for lane in range(LANES)])
    observations, _ = envs.reset(seed=1)
    assert observations[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0] and {*observations[:, 2]} == {len("plain")}
    mask = np.array([True, False, True, False])
    observations, _ = envs.reset(options={"reset_mask": mask, "gravity": {"uniform": [20, 30]}, "name": "xy"})
    for _ in range(12):
        assert all(20 <= gravity < 30 for gravity in observations[mask, 0]) and observations[1, 0] == 2.0
        assert observations[:, 2].tolist() == [2.0, 5.0, 2.0, 5.0]
        observations = envs.step(np.zeros(LANES, np.int64))[0]
    with pytest.raises(UnknownOptionError, match="unknown option 'mass'"):
        envs.reset(options={"mass": 1})
    with pytest.raises(ValueError, match="a ball has to fall down"):
        envs.reset(options={"gravity": -1.0})
    envs.close()


@pytest.mark.parametrize(
    ("id", "options", "words"),
    [
        ("balls:Ball", {"mass": 1}, "unknown option 'mass'; balls:Ball takes gravity, bounces, name, wind, tough"),
        ("balls:Ball", {"gravity": "much"}, 'option `gravity` takes a finite number, got "much"'),
        ("balls:Ball", {"bounces": {"uniform": [1, 2]}}, "option `bounces` takes an integer"),
        ("gymnasium:CartPole-v1", {"gravity": 9}, "unknown option 'gravity'; gymnasium:CartPole-v1 takes no options"),
        ("balls:Odd", {}, "metadata['options']['shape']: a dict has a default"),
        ("balls:Many", {}, "metadata['options']: 65 options given, at most 64"),
    ],
)
def test_what_an_env_of_this_machine_does_not_take_is_refused_by_name(
    id: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        rollhouse.make_vec(id, 2, options=options)
