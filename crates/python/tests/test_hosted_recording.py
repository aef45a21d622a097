"""Hosted lanes are recorded step by step as they were delivered."""

from __future__ import annotations

import warnings
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate
from hosted_envs import ZOO, CountEnv, GameEnv, SeedsEnv, ZooEnv

import rollhouse
from rollhouse.hosted.verdicts import finite


def play(envs: rollhouse.HostedVectorEnv, steps: int, first_done: bool) -> dict[int, list[dict[str, list[Any]]]]:
    """Steps at random; the episodes of each lane that ended, as they were delivered."""
    mode = envs.autoreset_mode
    observations, _ = envs.reset(seed=3)
    envs.action_space.seed(0)

    def seen(lane: int) -> Any:
        return deepcopy(list(iterate(envs.observation_space, observations))[lane])

    def begun(lane: int) -> dict[str, list[Any]]:
        return {"observations": [seen(lane)], "actions": [], "rewards": []}

    open_episodes = [begun(lane) for lane in range(envs.num_envs)]
    ended: dict[int, list[dict[str, list[Any]]]] = {lane: [] for lane in range(envs.num_envs)}
    over = np.zeros(envs.num_envs, np.bool_)
    for _ in range(steps):
        actions = envs.action_space.sample()
        if first_done:
            envs.send(actions)
            observations, rewards, terminations, truncations, infos = envs.recv()
        else:
            observations, rewards, terminations, truncations, infos = envs.step(actions)
        was_over, over = over, terminations | truncations
        for lane in range(envs.num_envs):
            if mode is AutoresetMode.NEXT_STEP and was_over[lane]:
                open_episodes[lane] = begun(lane)
                continue
            same_step_end = mode is AutoresetMode.SAME_STEP and over[lane]
            last = infos["final_obs"][lane] if same_step_end else seen(lane)
            open_episodes[lane]["observations"].append(last)
            open_episodes[lane]["actions"].append(deepcopy(list(iterate(envs.action_space, actions))[lane]))
            open_episodes[lane]["rewards"].append(rewards[lane])
            if over[lane]:
                ended[lane].append(open_episodes[lane])
            if same_step_end:
                open_episodes[lane] = begun(lane)
        if mode is AutoresetMode.DISABLED and over.any():
            observations, _ = envs.reset(options={"reset_mask": over})
            for lane in np.flatnonzero(over):
                open_episodes[lane] = begun(lane)
    return ended


@pytest.mark.parametrize(
    ("name", "mode", "first_done"),
    [
        ("box", "NextStep", False),
        ("discrete", "SameStep", False),
        ("image", "Disabled", False),
        ("flags", "NextStep", True),
        ("binary", "SameStep", True),
        ("half", "SameStep", False),
        ("multi", "Disabled", False),
        ("discrete32", "NextStep", True),
    ],
)
def test_episodes_are_read_as_they_were_delivered(tmp_path: Path, name: str, mode: str, first_done: bool) -> None:
    # More lanes than a block of the recording has.
    fns = [partial(ZooEnv, ZOO[name], 9) for _ in range(66)]
    envs = rollhouse.vectorize(fns, workers=2, autoreset_mode=mode, record=True, data=tmp_path)
    ended = play(envs, 25, first_done)
    envs.close()
    assert envs.recording is not None and envs.recording.figures is not None
    replays = rollhouse.replays.open(envs.recording.path)
    listed = replays.list()
    assert len(listed) == envs.recording.figures["episodes"]
    for lane, episodes in ended.items():
        mine = sorted((info for info in listed if info.lane == lane), key=lambda info: info.number)
        assert mine[0].seed == 3 + lane and mine[1].seed is None
        for info, played in zip(mine, episodes, strict=False):
            assert info.env == "hosted_envs:ZooEnv" and info.length == len(played["actions"])
            episode = replays.read(info.id)
            for part, rows in played.items():
                read, wanted = getattr(episode, part), np.array(rows)
                assert np.array_equal(read, wanted), (info, part)
                # Bits are read as the bytes that they are.
                assert name == "binary" or part == "rewards" or read.dtype == wanted.dtype, (info, part)
        assert len(mine) >= len(episodes) > 0


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_an_episode_has_the_result_and_score_that_its_last_info_says(tmp_path: Path, mode: str) -> None:
    lanes, silent = len(GameEnv.INFOS), len(GameEnv.INFOS) - 1
    envs = rollhouse.vectorize([GameEnv] * lanes, workers=2, autoreset_mode=mode, record=True, data=tmp_path)
    envs.reset(seed=0)
    for episode in range(4):
        # What the episode before was given is not this one's.
        envs.step(np.arange(lanes) if episode % 2 == 0 else np.full(lanes, silent))
        if mode == "NextStep":
            envs.step(np.arange(lanes))
    (session,) = envs.statistics()["sessions"]
    assert session["results"] == {"win": 2, "lose": 2, "draw": 2}
    envs.close()
    recorded = rollhouse.replays.open(tmp_path)
    ended = [info for info in recorded if info.finished]
    assert len(ended) == 4 * lanes
    for info in ended:
        wanted = GameEnv.VERDICTS[info.lane if info.number % 2 == 0 else silent]
        assert (info.result, info.score) == wanted, (info, info.lane)
    assert [info.lane for info in recorded.list(result="win")] == [0, 0]


@pytest.mark.parametrize("score", [10**400, float("-inf"), True, "3", None, [1.0], 1j, np.bool_(True)])
def test_a_score_that_is_no_finite_number_is_left_out(score: Any) -> None:
    assert finite(score) is None


def test_episodes_of_lost_lanes_are_recorded_as_interrupted(tmp_path: Path) -> None:
    envs = rollhouse.vectorize([CountEnv] * 2, workers=2, on_loss="report", record=True, data=tmp_path)
    envs.reset(seed=0)
    envs.step([0, 0])
    envs.step([0, CountEnv.RAISE])
    envs.step([CountEnv.END, 0])
    envs.close()
    assert envs.recording is not None
    listed = rollhouse.replays.open(envs.recording.path).list()
    told = {info.lane: (info.outcome, info.length, info.return_) for info in listed}
    assert told == {0: ("terminated", 3, 3.0), 1: ("crashed", 1, 1.0)}


def columns_of(space: gymnasium.Space, values: list[Any], path: str = "") -> dict[str, np.ndarray]:
    """Values of a space, one array per column, by the path of the column."""
    if isinstance(space, gymnasium.spaces.Dict):
        parts = [(key, child, [value[key] for value in values]) for key, child in space.spaces.items()]
    elif isinstance(space, gymnasium.spaces.Tuple):
        parts = [(str(i), child, [value[i] for value in values]) for i, child in enumerate(space.spaces)]
    else:
        return {path: np.array(values)}
    return {
        name: column
        for key, child, below in parts
        for name, column in columns_of(child, below, f"{path}/{key}".lstrip("/")).items()
    }


@pytest.mark.parametrize(
    ("name", "mode", "first_done"),
    [
        ("dict", "NextStep", False),
        ("tuple", "SameStep", False),
        ("dict", "SameStep", True),
        ("tuple", "Disabled", False),
        ("half", "NextStep", False),
    ],
)
def test_nested_observations_and_rare_dtypes_are_read_column_by_column(
    tmp_path: Path, name: str, mode: str, first_done: bool
) -> None:
    fns = [partial(ZooEnv, ZOO[name], 9, False, gymnasium.spaces.Discrete(3)) for _ in range(3)]
    envs = rollhouse.vectorize(fns, workers=2, autoreset_mode=mode, record=True, data=tmp_path)
    space = envs.single_observation_space
    ended = play(envs, 25, first_done)
    envs.close()
    assert envs.recording is not None
    replays = rollhouse.replays.open(envs.recording.path)
    for lane, episodes in ended.items():
        mine = sorted((info for info in replays.list() if info.lane == lane), key=lambda info: info.number)
        for info, played in zip(mine, episodes, strict=False):
            episode = replays.read(info.id)
            read = episode.observations if isinstance(episode.observations, dict) else {"": episode.observations}
            expected = columns_of(space, played["observations"])
            assert list(read) == list(expected)
            for path, column in expected.items():
                assert np.array_equal(read[path], column), (info, path)
    shown = replays.list()[0].observation_space
    assert type(shown) is type(space) and len(columns_of(shown, [shown.sample()])) == len(expected)


def test_infos_that_a_recording_leaves_out_are_named_once(tmp_path: Path) -> None:
    fn = partial(ZooEnv, ZOO["box"], 100)
    envs = rollhouse.vectorize([fn] * 2, workers=1, record=True, data=tmp_path)
    with pytest.warns(UserWarning, match=r"left out: late, nested, options, steps(\x1b\[0m)?$"):
        envs.reset(seed=1)
    with pytest.warns(UserWarning, match=r"left out: action, first(\x1b\[0m)?$"):
        envs.step(envs.action_space.sample())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            envs.step(envs.action_space.sample())
    envs.close()


class Walker(CountEnv):
    """Says where it is."""

    def step(self, action: int):
        observation, *rest, _ = super().step(action)
        x = self.count * 0.5
        info = {"x": x, "forces": np.full(3, x, np.float32), "small": np.int8(self.count), "up": self.count > 1}
        if action == self.PRINT:
            info["forces"] = np.zeros(4, np.float32)
        if self.count == 3:
            del info["x"], info["up"]
        return observation, *rest, info


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_infos_that_are_asked_for_are_recorded_with_their_dtype_and_shape(tmp_path: Path, mode: str) -> None:
    asked = {"x": 0.0, "forces": np.zeros(3, np.float32), "small": np.int8(0), "up": False}
    envs = rollhouse.vectorize(
        [Walker] * 3, workers=2, autoreset_mode=mode, record=True, record_infos=asked, data=tmp_path
    )
    envs.reset(seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for action in [0, 0, 0, CountEnv.END]:
            envs.step([action] * 3)
    envs.close()
    assert envs.recording is not None
    replays = rollhouse.replays.open(envs.recording.path)
    ended = [info for info in replays.list() if info.outcome == "terminated"]
    assert len(ended) == 3
    for info in ended:
        infos = replays.read(info.id).infos
        assert {name: column.dtype.name for name, column in infos.items()} == {
            "x": "float64",
            "forces": "float32",
            "small": "int32",
            "up": "bool",
        }
        assert np.array_equal(infos["x"], [0.5, 1.0, np.nan, 2.0], equal_nan=True)
        assert infos["forces"].tolist() == [[x] * 3 for x in (0.5, 1.0, 1.5, 2.0)]
        assert infos["small"].tolist() == [1, 2, 3, 4] and infos["up"].tolist() == [False, True, False, True]


def test_an_info_of_another_shape_than_was_said_loses_its_lane_with_its_name(tmp_path: Path) -> None:
    asked = {"forces": np.zeros(3, np.float32)}
    envs = rollhouse.vectorize([Walker], workers=1, record=True, record_infos=asked, data=tmp_path)
    envs.reset(seed=1)
    with pytest.raises(ValueError, match="info 'forces' does not fit record_infos"):
        envs.step([CountEnv.PRINT])
    envs.close()


@pytest.mark.parametrize("asked", [{"x": "text"}, {"": 0.0}, {"x": np.uint64(1)}])
def test_infos_that_recordings_do_not_have_are_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="record_infos"):
        rollhouse.vectorize([Walker], workers=1, record=True, record_infos=asked, data=tmp_path)


@pytest.mark.parametrize("name", ["text", "graph", "mixed"])
def test_observations_that_are_not_made_of_columns_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="record: the observation space"):
        rollhouse.vectorize([partial(ZooEnv, ZOO[name])], workers=1, record=True, data=tmp_path)


HANDS = gymnasium.spaces.Dict(
    {
        "push": gymnasium.spaces.Box(-1, 1, (2, 2), np.float32),
        "half": ZOO["half"],
        "deep": gymnasium.spaces.Tuple((ZOO["multi"], gymnasium.spaces.Dict({"far": ZOO["scalar"], "way": ZOO["discrete"]}))),
        "bits": ZOO["binary"],
        "picture": ZOO["image"],
    }
)


@pytest.mark.parametrize(
    ("action", "mode", "first_done"),
    [
        (ZOO["dict"], "NextStep", False),
        (ZOO["tuple"], "SameStep", False),
        (HANDS, "Disabled", False),
        (HANDS, "NextStep", True),
        (gymnasium.spaces.Tuple((ZOO["discrete32"], ZOO["multi"])), "NextStep", False),
        (gymnasium.spaces.Dict({"one": ZOO["discrete"]}), "SameStep", False),
    ],
)
def test_actions_of_several_columns_are_read_by_part(
    tmp_path: Path, action: gymnasium.Space, mode: str, first_done: bool
) -> None:
    fns = [partial(ZooEnv, ZOO["box"], 9, False, action)] * 3
    envs = rollhouse.vectorize(fns, workers=2, autoreset_mode=mode, record=True, data=tmp_path)
    ended = play(envs, 25, first_done)
    envs.close()
    assert envs.recording is not None
    replays = rollhouse.replays.open(envs.recording.path)
    for lane, episodes in ended.items():
        mine = sorted((info for info in replays.list() if info.lane == lane), key=lambda info: info.number)
        assert len(mine) >= len(episodes) > 0
        for info, played in zip(mine, episodes, strict=False):
            read, expected = replays.read(info.id).actions, columns_of(action, played["actions"])
            assert isinstance(read, dict) and list(read) == list(expected)
            for path, column in expected.items():
                assert np.array_equal(read[path], column), (info, path)
    batch = next(iter(replays.batches(8, seed=0)))
    assert list(batch["actions"]) == list(expected) and all(len(part) == 8 for part in batch["actions"].values())


def test_actions_that_are_no_arrays_are_recorded_as_what_they_say(tmp_path: Path) -> None:
    action = gymnasium.spaces.Dict({"push": ZOO["scalar"], "way": ZOO["discrete"]})
    envs = rollhouse.vectorize([partial(ZooEnv, ZOO["box"], 99, False, action)] * 2, workers=1, record=True, data=tmp_path)
    envs.reset(seed=3)
    envs.step({"push": [0.5, -0.25], "way": [1, -2]})
    envs.close()
    replays = rollhouse.replays.open(tmp_path)
    read = {info.lane: replays.read(info.id).actions for info in replays}
    assert {lane: (actions["push"][0], actions["way"][0]) for lane, actions in read.items()} == {0: (0.5, 1), 1: (-0.25, -2)}


@pytest.mark.parametrize("name", ["mixed", "far"])
def test_actions_that_one_column_cannot_carry_are_refused(tmp_path: Path, name: str) -> None:
    far = gymnasium.spaces.Dict({"n": gymnasium.spaces.Discrete(3, start=2**60), "x": ZOO["box"]})
    env = partial(ZooEnv, ZOO["box"], 9, False, {"mixed": ZOO["mixed"], "far": far}[name])
    with pytest.raises(ValueError, match="record: the action space"):
        rollhouse.vectorize([env], workers=1, record=True, data=tmp_path)
    envs = rollhouse.vectorize([env], workers=1)
    envs.reset(seed=1)
    envs.step(envs.action_space.sample())
    envs.close()


def test_a_recorded_episode_begins_with_a_seed_though_none_was_given(tmp_path: Path) -> None:
    envs = rollhouse.vectorize([SeedsEnv] * 2, record=True, data=tmp_path)
    envs.reset()
    given = [seeds[0] for seeds in envs.get_attr("given")]
    envs.step(np.full(2, SeedsEnv.END))
    envs.close()
    assert envs.recording is not None and None not in given
    listed = rollhouse.replays.open(envs.recording.path).list()
    assert {info.lane: info.seed for info in listed if info.number == 0} == dict(enumerate(given))
