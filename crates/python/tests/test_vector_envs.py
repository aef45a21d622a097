"""Vector envs of other packages, whose lanes step together, as lanes here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from python_nodes import same
from swarms import SwarmVector

import rollhouse
from rollhouse.errors import ActionTypeError, InvalidActionError, LaneLostError, SeedError, UnsupportedError

SWARM = "vector:swarms:SwarmVector"

MODES = list(AutoresetMode)


def same_infos(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Asserts that infos are equal but for masks, which every array has here."""
    for key, value in theirs.items():
        if isinstance(value, dict):
            same_infos(ours[key], value)
        else:
            same(ours[key], value)
    assert {key for key in ours if not key.startswith("_")} == {key for key in theirs if not key.startswith("_")}


def same_steps(ours: Any, theirs: Any, steps: int, infos: bool = True, seed: int = 5) -> int:
    """Steps both with the same actions and asserts that they are equal; returns how many episodes ended."""
    mine, other = ours.reset(seed=seed), theirs.reset(seed=seed)
    same(mine[0], other[0])
    if infos:
        same_infos(mine[1], other[1])
    ends = 0
    mode = theirs.metadata["autoreset_mode"]
    ours.action_space.seed(3)
    for _ in range(steps):
        actions = ours.action_space.sample()
        if isinstance(ours.single_action_space, gymnasium.spaces.Discrete):
            actions %= 2
        mine, other = ours.step(actions), theirs.step(actions)
        same(mine[0], other[0])
        same(mine[1], np.asarray(other[1], np.float64))
        same(mine[2], other[2])
        same(mine[3], other[3])
        if infos:
            same_infos(mine[4], other[4])
        over = other[2] | other[3]
        ends += int(over.sum())
        if mode is AutoresetMode.DISABLED and over.any():
            mask = {"reset_mask": over}
            same(ours.reset(options=dict(mask))[0], theirs.reset(options=dict(mask))[0])
    return ends


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("parts", [False, True], ids=["box", "dict"])
def test_lanes_give_what_the_vector_env_gives(mode: AutoresetMode, parts: bool) -> None:
    # More lanes than a block of the engine has.
    with rollhouse.make_vec(SWARM, 70, autoreset_mode=mode, parts=parts, info_layout="gymnasium") as ours:
        assert same_steps(ours, SwarmVector(70, mode, parts=parts), 40) > 300


def test_lanes_of_gymnasiums_own_vector_env_are_hosted() -> None:
    theirs = gymnasium.make_vec("CartPole-v1", 6, vectorization_mode="vector_entry_point")
    with rollhouse.make_vec("vector:gymnasium:CartPole-v1", 6, info_layout="gymnasium") as ours:
        assert ours.single_observation_space == theirs.single_observation_space
        assert same_steps(ours, theirs, 120) > 6


def test_lanes_are_spread_over_vector_envs_if_workers_are_named() -> None:
    with rollhouse.make_vec(SWARM, 5, workers=2, info_layout="gymnasium") as ours:
        ours.reset(seed=5)
        halves = [SwarmVector(2), SwarmVector(3)]
        halves[0].reset(seed=5)
        halves[1].reset(seed=7)
        for _ in range(12):
            steps = [half.step(np.zeros(half.num_envs, np.int64)) for half in halves]
            observations, _, _, _, infos = ours.step(np.zeros(5, np.int64))
            same(observations, np.concatenate([step[0] for step in steps]))
            same(infos["count"], np.concatenate([step[4]["count"] for step in steps]))
            same(infos["_count"], np.concatenate([step[4]["_count"] for step in steps]))
            same(infos["nested"]["half"], np.concatenate([step[4]["nested"]["half"] for step in steps]))


def test_functions_of_lanes_may_be_the_id_of_a_vector_env() -> None:
    with rollhouse.vectorize([SWARM] * 4) as envs:
        assert envs.reset(seed=1)[0].shape == (4, 3)
    with pytest.raises(UnsupportedError, match="all functions are one and the same"):
        rollhouse.vectorize([SWARM, "gymnasium:CartPole-v1"])


def test_all_lanes_are_sent_and_received_together() -> None:
    theirs = SwarmVector(4)
    with rollhouse.make_vec(SWARM, 4) as ours:
        ours.reset(seed=2)
        theirs.reset(seed=2)
        for _ in range(9):
            ours.send(np.ones(4, np.int64))
            mine = ours.recv(1)
            assert mine[4]["env_id"].tolist() == [0, 1, 2, 3]
            same(mine[0], theirs.step(np.ones(4, np.int64))[0])


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda envs: envs.send(np.zeros(2, np.int64), [0, 1]), "send: 2 of 4 lanes"),
        (lambda envs: envs.reset(options={"reset_mask": np.array([True, False, True, True])}), "reset_mask leaves out lanes 1"),
    ],
    ids=["send", "mask"],
)
def test_what_lanes_do_alone_is_refused_by_name_and_costs_nothing(use: Any, what: str) -> None:
    with rollhouse.make_vec(SWARM, 4) as envs:
        envs.reset(seed=0)
        with pytest.raises(UnsupportedError, match=f"{what}.*: the lanes of {SWARM} step together"):
            use(envs)
        assert envs.step(np.zeros(4, np.int64))[0][:, 1].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"autoreset_mode": "SameStep"}, UnsupportedError, "'SameStep': the lanes of .* step together: their vector env has 'NextStep'"),
        ({"record_frames": 1, "record": True}, UnsupportedError, "record_frames=1: the lanes of .* step together"),
        ({"max_episode_steps": 0}, ValueError, "max_episode_steps=0"),
    ],
    ids=["mode", "frames", "no limit"],
)
def test_what_the_vector_env_does_not_have_is_refused_by_name(arguments: dict[str, Any], error: type, message: str, tmp_path: Path) -> None:
    if "record" in arguments:
        arguments["data"] = tmp_path
    with pytest.raises(error, match=message):
        rollhouse.make_vec("vector:gymnasium:CartPole-v1", 2, **arguments)


@pytest.mark.parametrize(
    ("id", "error", "message"),
    [
        ("vector:swarms:Nothing", AttributeError, "Nothing"),
        ("vector:gymnasium:Blackjack-v1", AttributeError, "no vector env of its own: 'gymnasium:Blackjack-v1'"),
        ("vector:swarms:Unmarked", ValueError, "no autoreset mode"),
        ("vector:hosted_envs:CountEnv", TypeError, "num_envs"),
    ],
)
def test_what_makes_no_vector_env_is_refused(id: str, error: type, message: str) -> None:
    with pytest.raises((error, gymnasium.error.Error), match=message):
        rollhouse.make_vec(id, 2)


def test_actions_of_another_type_are_cast_and_others_refused() -> None:
    with rollhouse.make_vec(SWARM, 3) as envs:
        envs.reset(seed=0)
        assert envs.step([1, 0, 3])[0][:, 2].tolist() == [1, 0, 3]
        assert envs.step(np.array([2, 2, 2], np.int32))[0][:, 2].tolist() == [2, 2, 2]
        with pytest.raises(InvalidActionError):
            envs.step([0, 0, 9])
        with pytest.raises(ActionTypeError):
            envs.step([0.5, 0.5, 0.5])


def test_episodes_are_recorded_in_full_as_they_were_delivered(tmp_path: Path) -> None:
    with rollhouse.make_vec(SWARM, 66, record=True, data=tmp_path, record_infos={"count": 0, "nested/half": 0.0}) as envs:
        envs.reset(seed=9)
        for step in range(30):
            envs.step(np.full(66, step % 3))
    recorded = rollhouse.replays.open(tmp_path)
    whole = [episode for episode in recorded.list() if episode.outcome != "cancelled"]
    assert len(whole) > 200
    assert {episode.env for episode in whole} == {SWARM}
    for info in whole[:40]:
        episode = recorded.read(info)
        length = 4 + info.lane % 3
        assert info.outcome == ("truncated" if info.lane % 2 else "terminated")
        assert len(episode.rewards) == length
        assert episode.observations[:, 1].tolist() == list(range(length + 1))
        assert episode.observations[1:, 2].tolist() == episode.actions.tolist()
        assert episode.infos["count"].tolist() == list(range(1, length + 1))
        assert episode.infos["nested/half"].tolist() == [count / 2 for count in range(1, length + 1)]
        np.testing.assert_array_equal(episode.rewards, episode.actions + np.arange(1, length + 1) * 0.5)


@pytest.mark.parametrize("lanes", [3, 70])
@pytest.mark.parametrize("action", [SwarmVector.RAISE, SwarmVector.EXIT], ids=["raise", "exit"])
def test_a_crash_loses_all_lanes_which_come_back_together(action: int, lanes: int) -> None:
    with rollhouse.make_vec(SWARM, lanes, on_loss="report", valid="always") as envs:
        envs.reset(seed=1)
        envs.step(np.zeros(lanes, np.int64))
        actions = np.zeros(lanes, np.int64)
        actions[1] = action
        infos = envs.step(actions)[4]
        assert infos["lost"].tolist() == ["crashed"] * lanes
        waited = 0
        while not infos["valid"].any():
            observations, _, _, _, infos = envs.step(np.zeros(lanes, np.int64))
            waited += 1
            assert waited < 10_000_000
        assert infos["valid"].all()
        assert observations[:, 1].tolist() == [1] * lanes


def test_a_crash_raises_and_a_reset_goes_on() -> None:
    with rollhouse.make_vec(SWARM, 3) as envs:
        envs.reset(seed=1)
        with pytest.raises(ZeroDivisionError, match="told to raise") as raised:
            envs.step(np.array([0, SwarmVector.RAISE, 0]))
        assert isinstance(raised.value.__cause__, LaneLostError) and raised.value.__cause__.lanes == (0, 1, 2)
        again = envs.reset(seed=1)[0]
        same(again, SwarmVector(3).reset(seed=1)[0])
        assert envs.step(np.zeros(3, np.int64))[0][:, 1].tolist() == [1, 1, 1]


def test_a_vector_env_that_hangs_loses_all_lanes() -> None:
    with rollhouse.make_vec(SWARM, 3, step_timeout=1) as envs:
        envs.reset(seed=1)
        with pytest.raises(LaneLostError) as raised:
            envs.step(np.full(3, SwarmVector.HANG))
        assert raised.value.outcome == "hung" and raised.value.lanes == (0, 1, 2)


def test_calls_ask_the_vector_env() -> None:
    with rollhouse.make_vec(SWARM, 3) as envs:
        envs.reset(seed=1)
        assert envs.get_attr("resets") == (1, 1, 1)
        assert envs.get_attr("lengths") == (4, 5, 6)
        with pytest.raises(AttributeError, match="nothing_of_that_name"):
            envs.get_attr("nothing_of_that_name")


HAS_ENVPOOL = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="envpool is not installed")


@HAS_ENVPOOL
@pytest.mark.parametrize("id", ["HalfCheetah-v4", "Pong-v5", "CartPole-v1"])
def test_lanes_of_envpool_give_what_it_gives(id: str) -> None:
    import envpool

    with rollhouse.make_vec(f"vector:envpool:{id}", 4, max_episode_steps=30, info_layout="gymnasium") as ours:
        theirs = envpool.make_gymnasium(id, num_envs=4, seed=6, max_episode_steps=30)

        class Seeded:
            metadata = theirs.metadata
            step = staticmethod(theirs.step)

            @staticmethod
            def reset(seed: int) -> Any:
                assert seed == 6
                return theirs.reset()

        assert same_steps(ours, Seeded, 70, seed=6) >= 8


@HAS_ENVPOOL
def test_seeds_of_envpool_make_it_anew_and_are_bounded() -> None:
    with rollhouse.make_vec("vector:envpool:CartPole-v1", 3) as envs:
        first = envs.reset(seed=[4, 9, 2])[0]
        envs.reset()
        same(envs.reset(seed=[4, 9, 2])[0], first)
        with pytest.raises(SeedError, match="from 0 to 2147483647"):
            envs.reset(seed=2**31)
        with pytest.raises(SeedError, match="1 lanes have none"):
            envs.reset(seed=[1, None, 2])
    with rollhouse.make_vec("vector:envpool:CartPole-v1", 3) as envs, rollhouse.make_vec("vector:envpool:CartPole-v1", 3) as others:
        assert (envs.reset()[0] != others.reset()[0]).any()
