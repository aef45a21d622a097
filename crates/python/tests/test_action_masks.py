"""Masks of the actions that a lane may take next: there at every reset and step, and heeded by a node's own policy."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from local_cluster import LocalCluster, rollhouse_program

import rollhouse
from rollhouse.errors import RefusedError

LANES = 5
MASKED = "test/Masked-v0"
TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"
MODES = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)


def same_masks(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Asserts that infos have the same masks, to the dtype."""
    assert ("action_mask" in ours) == ("action_mask" in theirs)
    if "action_mask" in theirs:
        assert ours["action_mask"].dtype == theirs["action_mask"].dtype == np.int8
        shown = theirs["_action_mask"]
        np.testing.assert_array_equal(ours["_action_mask"], shown)
        np.testing.assert_array_equal(ours["action_mask"][shown], theirs["action_mask"][shown])


@MODES
def test_masks_on_nodes_are_those_that_gymnasium_gives(cluster: rollhouse.Cluster, mode: AutoresetMode) -> None:
    there = cluster.make_vec(f"gymnasium:{TAXI}", LANES, autoreset_mode=mode, max_episode_steps=9, spread="even")
    here = SyncVectorEnv([partial(gymnasium.make, TAXI, max_episode_steps=9)] * LANES, autoreset_mode=mode)
    ours, theirs = there.reset(seed=3), here.reset(seed=3)
    np.testing.assert_array_equal(ours[0], theirs[0])
    same_masks(ours[1], theirs[1])
    assert theirs[1]["action_mask"].shape == (LANES, 6)
    rng = np.random.default_rng(1)
    for _ in range(60):
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in ours[1]["action_mask"]])
        ours, theirs = there.step(actions)[0::4], here.step(actions)[0::4]
        np.testing.assert_array_equal(ours[0], theirs[0])
        same_masks(ours[1], theirs[1])
        over = here._terminations if mode is AutoresetMode.DISABLED else np.zeros(LANES, bool)
        over = over | (here._truncations if mode is AutoresetMode.DISABLED else over)
        if over.any():
            options = {"reset_mask": over}
            again, theirs_again = there.reset(options=dict(options)), here.reset(options=dict(options))
            same_masks(again[1], theirs_again[1])
            np.testing.assert_array_equal(again[1]["_action_mask"], over)
            ours[1]["action_mask"][over] = again[1]["action_mask"][over]
    there.close()


@MODES
@pytest.mark.parametrize("where", ["here", "quic", "shm"])
def test_an_env_of_ours_says_what_it_allows_wherever_it_is(nodes: LocalCluster, where: Any, mode: AutoresetMode) -> None:
    if where == "here":
        envs: Any = rollhouse.make_vec(MASKED, LANES, autoreset_mode=mode)
    else:
        envs = rollhouse.connect(nodes.url, transport=where).make_vec(MASKED, LANES, autoreset_mode=mode, spread="even")
    observations, infos = envs.reset(seed=1)
    ends = 0
    for step in range(80):
        assert infos["_action_mask"].all() and infos["action_mask"].dtype == np.int8
        cells = observations[:, 0].astype(int)
        wanted = (cells[:, None] + np.arange(4)) % 2 == 0
        np.testing.assert_array_equal(infos["action_mask"], wanted)
        actions = np.array([np.flatnonzero(mask)[step % 2] for mask in infos["action_mask"]])
        observations, _, terminations, truncations, infos = envs.step(actions)
        over = terminations | truncations
        ends += int(over.sum())
        if mode is AutoresetMode.DISABLED and over.any():
            began = envs.reset(options={"reset_mask": over})
            np.testing.assert_array_equal(began[1]["_action_mask"], over)
            observations = began[0]
            infos["action_mask"][over] = began[1]["action_mask"][over]
        elif mode is AutoresetMode.SAME_STEP and over.any():
            assert "action_mask" not in infos.get("final_info", {})
    assert ends > 20
    envs.close()


def test_the_policy_of_a_rollout_takes_only_what_is_allowed(nodes: LocalCluster, tmp_path: Path) -> None:
    def run(*line: str) -> str:
        done = subprocess.run([str(rollhouse_program()), *line], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("rollout", "--env", MASKED, "--lanes", "70", "--episodes", "300", "--seed", "5", "--data", "here")
    told = [json.loads(line) for line in run("replay", "ls", "--json", "--limit", "1000", "--data", "here").splitlines()]
    assert len(told) == 300 and {episode["result"] for episode in told} == {"win"}
    assert run("replay", "verify", "--data", "here")
    # One that may not does: these are the actions of a policy without masks.
    envs = rollhouse.make_vec(MASKED, 70)
    envs.reset(seed=5)
    lost = [envs.step(envs.action_space.sample())[2].any() for _ in range(5)]
    assert any(lost)
    done = run("rollout", "--connect", nodes.url, "--env", "shops:Shop", "--lanes", "6", "--steps", "120", "--json")
    told = json.loads(done.splitlines()[-1])
    # Its env breaks off at an action that its mask forbids.
    assert told["steps"] == 120 and "crashed" not in json.dumps(told)


@pytest.mark.parametrize(("bad", "length", "words"), [(2, 4, "is no mask of 5"), (1, 2, "is no mask of 5")])
def test_what_is_no_mask_costs_the_lane_that_gives_it(
    cluster: rollhouse.Cluster, bad: int, length: int, words: str
) -> None:
    kwargs = {"bad": bad, "length": length}
    envs = cluster.make_vec("shops:Shop", 2, env_kwargs=kwargs, autoreset_mode="Disabled", on_loss="report")
    _, infos = envs.reset(seed=0)
    np.testing.assert_array_equal(infos["action_mask"], [[0, 1, 1, 0, 1]] * 2)
    for _ in range(2):
        infos = envs.step(np.array([[1, 0]] * 2))[4]
        assert infos["_action_mask"].all()
    infos = envs.step(np.array([[1, 0]] * 2))[4]
    assert list(infos["lost"]) == ["crashed", "crashed"]
    assert not infos["_action_mask"].any() if "_action_mask" in infos else True
    envs.close()


def test_a_mask_of_another_size_than_the_action_space_is_refused(nodes: LocalCluster, tmp_path: Path) -> None:
    cluster = rollhouse.connect(nodes.url, timeout=120)
    with pytest.raises(RefusedError, match="a mask of 3 actions, it has 5"):
        cluster.make_vec("shops:Small", 2)
