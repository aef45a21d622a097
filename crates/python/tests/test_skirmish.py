"""Skirmish-v0 in Python: nested spaces, orders, methods, and a recording that verifies."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

import rollhouse
from local_cluster import rollhouse_program
from rollhouse.errors import CallError

EXAMPLES = Path(__file__).parent.parent / "examples"


def _still(ticks: int = 1) -> dict[str, Any]:
    """An action without orders."""
    until = {"all": 0, "conditions": (), "interrupts": np.zeros(10, np.uint8)}
    return {"orders": (), "ticks": ticks, "until": until, "check_every": 1}


def _actions(envs: Any, *lanes: dict[str, Any]) -> Any:
    empty = create_empty_array(envs.single_action_space, len(lanes), fn=np.zeros)
    return concatenate(envs.single_action_space, lanes, empty)


def _rows(envs: Any, observations: Any) -> list[dict[str, Any]]:
    return list(iterate(envs.observation_space, observations))


def test_a_base_is_built_by_methods_and_its_game_verifies(tmp_path: Path):
    envs = rollhouse.make_vec("Skirmish-v0", 1, record=True, data=tmp_path, autoreset_mode="SameStep")
    with envs:
        observations, _ = envs.reset(seed=3)
        assert envs.single_observation_space.contains(_rows(envs, observations)[0])
        before = envs.call_method(0, "get_game_state")
        envs.call_method(0, "build_and_place", {"building_type": "power_plant"})
        rewards = 0.0
        for _ in range(10):
            observations, reward, terminations, truncations, infos = envs.step(_actions(envs, _still(50)))
            rewards += float(reward[0])
        after = envs.call_method(0, "get_game_state")
        row = _rows(envs, observations)[0]
        assert len(row["buildings"]) == 2 and infos["ticks_advanced"][0] == 50
        assert row["economy"]["cash"] < 4000 and row["tick"] == 500
        assert np.isfinite(rewards) and not terminations.any() and not truncations.any()
        assert before["tick"] == 0 and after["tick"] == 500
        with pytest.raises(CallError, match="5000"):
            envs.call_method(0, "advance", {"ticks": 5001})
    done = subprocess.run(
        [rollhouse_program(), "replay", "verify", "--all", "--data", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0 and "all of them are as recorded" in done.stdout, done.stdout + done.stderr


def test_orders_of_equal_seeds_are_the_same_game_here_and_on_a_cluster(cluster_url: str):
    order = {"kind": 2, "subject": 97, "target": 0, "x": 10, "y": 10, "item": 0, "queued": 0}
    marching = {**_still(200), "orders": (order,)}
    with rollhouse.connect(cluster_url) as cluster:
        played = []
        for make in (rollhouse.make_vec, cluster.make_vec):
            with make("Skirmish-v0", 2) as envs:
                envs.reset(seed=[5, 6])
                rows = [envs.step(_actions(envs, marching, _still(200)))[:2] for _ in range(3)]
                played.append([(shown["spatial"].copy(), rewards.copy()) for shown, rewards in rows])
    for (one, reward), (other, there) in zip(*played, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(reward, there)


@pytest.mark.parametrize("opponent", ["beginner", "easy"])
@pytest.mark.parametrize("map", ["duel", "river", "highlands"])
def test_the_scripted_example_beats_the_two_weakest_opponents_on_every_map(tmp_path: Path, opponent: str, map: str):
    command = [sys.executable, EXAMPLES / "live_skirmish.py", "--opponent", opponent, "--map", map, "--games", "4"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"4 games against {opponent} on {map}: 4 won, 0 lost, 0 drawn\n", done.stdout + done.stderr
    assert done.returncode == 0


def test_the_scripted_example_wins_a_live_game_whose_recording_verifies(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.syspath_prepend(EXAMPLES)
    live_skirmish = importlib.import_module("live_skirmish")
    with rollhouse.connect(cluster_url) as cluster:
        with cluster.make_vec("Skirmish-v0", 1, pace=1000, opponent="beginner") as envs:
            assert live_skirmish.play_live(envs, seed=1, think=0) == "won"
            run = envs.run
        said = re.search(r"won after (\d+) ticks, \d+ s and (\d+) actions; at most (\d+) ticks", capsys.readouterr().out)
        # Ticks go by without an action.
        assert said is not None and int(said[1]) > int(said[2]) > 100 and int(said[3]) > 1
        assert cluster.close_pool(run, timeout=60)["stored"]
    (game,) = [info for info in rollhouse.replays.open(cluster_url) if info.run == run and info.finished]
    assert game.length == int(said[1])
    command = [rollhouse_program(), "replay", "verify", game.id, "--connect", cluster_url]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "as recorded" in done.stdout, done.stdout + done.stderr
