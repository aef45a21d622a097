"""The vector env contract: resets, masks, autoreset, infos, attributes, life and death."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import rollhouse
from rollhouse import errors

MODES = list(AutoresetMode)


def make(lanes: int = 4, **arguments) -> rollhouse.VectorEnv:
    arguments.setdefault("valid", "needed" if "info_layout" in arguments else "always")
    return rollhouse.make_vec("CartPole-v1", lanes, **arguments)


def right(envs: rollhouse.VectorEnv) -> np.ndarray:
    return np.ones(envs.num_envs, dtype=np.int64)


def until_over(envs: rollhouse.VectorEnv) -> tuple:
    """Pushes right until an episode is over; that step's result."""
    while True:
        step = envs.step(right(envs))
        if (step[2] | step[3]).any():
            return step


# Registration and making.


def test_it_is_a_gymnasium_vector_env() -> None:
    envs = make(3)
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert envs.num_envs == 3
    assert envs.unwrapped is envs
    assert envs.spec is None
    envs.spec = gymnasium.spec("CartPole-v1")
    assert envs.spec.id == "CartPole-v1"


@pytest.mark.parametrize("id", ["CartPole-v1", "rollhouse/CartPole-v1"])
def test_ids_work_with_and_without_the_namespace(id: str) -> None:
    assert rollhouse.make_vec(id, 2).num_envs == 2


def test_gymnasium_makes_them_by_their_registered_ids() -> None:
    # Envs of plug-ins that other tests of this process have loaded keep the namespace that they have.
    for id in (id for id in rollhouse.env_ids() if "/" not in id):
        envs = gymnasium.make_vec(f"rollhouse/{id}", num_envs=3)
        assert isinstance(envs, rollhouse.EmbeddedVectorEnv)
        assert envs.spec.id == f"rollhouse/{id}"
        theirs = gymnasium.registry.get(id)
        if theirs is not None:
            assert envs.get_attr("max_episode_steps") == (theirs.max_episode_steps,) * 3
        obs, _ = envs.reset(seed=0)
        assert obs in envs.observation_space
        envs.close()


@pytest.mark.parametrize("copy", [True, False])
def test_an_image_is_a_batch_of_bytes_in_its_own_shape(copy: bool) -> None:
    envs = rollhouse.make_vec("GridBreakout-v0", 3, copy=copy, seed=1)
    assert envs.single_observation_space == gymnasium.spaces.Box(0, 255, (10, 10, 4), np.uint8)
    observations, _ = envs.reset()
    for _ in range(50):
        assert (observations.shape, observations.dtype) == ((3, 10, 10, 4), np.uint8)
        paddle, ball, _, bricks = (observations[..., channel] == 255 for channel in range(4))
        assert (paddle.sum(axis=(1, 2)) == 1).all() and paddle[:, 9].any(axis=1).all()
        assert (ball.sum(axis=(1, 2)) == 1).all()
        assert not bricks[:, [0, *range(4, 10)]].any()
        assert set(np.unique(observations)) == {0, 255}
        observations = envs.step(np.full(3, 2))[0]


def test_gymnasium_imports_the_package_by_module_prefix() -> None:
    program = (
        "import gymnasium; envs = gymnasium.make_vec('rollhouse:rollhouse/CartPole-v1', num_envs=2); "
        "print(envs.reset(seed=0)[0].shape)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "(2, 4)"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasium_vectorizes_single_envs_by_their_registered_ids(mode: str) -> None:
    envs = gymnasium.make_vec("rollhouse/CartPole-v1", num_envs=2, vectorization_mode=mode, sutton_barto_reward=True)
    again = gymnasium.make_vec(envs.spec)
    observations, _ = envs.reset(seed=3)
    np.testing.assert_array_equal(observations, make(2).reset(seed=3)[0])
    np.testing.assert_array_equal(observations, again.reset(seed=3)[0])
    assert (envs.step([0, 1])[1] == 0.0).all()
    envs.close()
    again.close()


def test_specs_of_registered_envs_are_data() -> None:
    spec = gymnasium.spec("rollhouse/CartPole-v1")
    assert gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(spec.to_json())).reset(seed=0)[0].shape == (4,)
    for made in (gymnasium.make("rollhouse/CartPole-v1"), gymnasium.make_vec("rollhouse/CartPole-v1", num_envs=2)):
        assert gymnasium.envs.registration.EnvSpec.from_json(made.spec.to_json()).id == "rollhouse/CartPole-v1"


@pytest.mark.parametrize("make_one", [gymnasium.make, gymnasium.make_vec])
def test_what_an_env_does_not_know_is_a_type_error_as_of_any_function(make_one) -> None:
    with pytest.raises(TypeError):
        make_one("rollhouse/CartPole-v1", sutton=True)


def test_gymnasium_passes_keywords_and_time_limits() -> None:
    envs = gymnasium.make_vec(
        "rollhouse/CartPole-v1", num_envs=2, max_episode_steps=3, autoreset_mode="SameStep", sutton_barto_reward=True
    )
    assert envs.autoreset_mode is AutoresetMode.SAME_STEP
    assert envs.get_attr("sutton_barto_reward") == (True, True)
    envs.reset(seed=0)
    envs.step([0, 1])
    envs.step([1, 0])
    assert envs.step([0, 1])[3].all()


def test_a_single_env_passes_gymnasiums_checker() -> None:
    env = gymnasium.make("rollhouse/CartPole-v1", disable_env_checker=True).unwrapped
    check_env(env, skip_render_check=True)
    drawn = gymnasium.make("rollhouse/CartPole-v1", render_mode="rgb_array", disable_env_checker=True).unwrapped
    check_env(drawn)


def test_a_single_env_plays_as_gymnasiums() -> None:
    ours, theirs = gymnasium.make("rollhouse/CartPole-v1"), gymnasium.make("CartPole-v1")
    assert np.allclose(ours.reset(seed=9)[0], theirs.reset(seed=9)[0], atol=1e-6)
    over = False
    while not over:
        our, their = ours.step(1), theirs.step(1)
        assert np.allclose(our[0], their[0], atol=1e-5)
        assert our[1:] == their[1:]
        over = our[2] or our[3]
    with pytest.raises(gymnasium.error.ResetNeeded):
        ours.unwrapped.step(1)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_the_mode_is_in_the_metadata_as_the_enum(mode: AutoresetMode) -> None:
    for given in (mode, mode.value):
        envs = make(2, autoreset_mode=given)
        assert envs.metadata["autoreset_mode"] is mode
        assert envs.autoreset_mode is mode
    assert rollhouse.VectorEnv.__dict__.get("metadata", {}) == {}
    assert gymnasium.vector.VectorEnv.metadata == {}


# Seeds.


def test_an_int_seeds_lanes_one_after_the_other() -> None:
    envs = make(3)
    by_int, _ = envs.reset(seed=40)
    assert envs.np_random_seed == (40, 41, 42)
    by_list, _ = envs.reset(seed=[40, 41, 42])
    assert np.array_equal(by_int, by_list)
    by_array, _ = envs.reset(seed=np.array([40, 41, 42]))
    assert np.array_equal(by_int, by_array)
    envs.reset()
    assert envs.np_random_seed == (40, 41, 42)


def test_a_lane_without_a_seed_in_the_list_draws_on() -> None:
    a, b = make(2), make(2)
    first, _ = a.reset(seed=[1, 2])
    b.reset(seed=[1, 2])
    again, _ = a.reset(seed=[1, None])
    drawn_on, _ = b.reset()
    assert np.array_equal(again[0], first[0])
    assert np.array_equal(again[1], drawn_on[1])


def test_the_seed_it_was_made_with_is_the_first_resets() -> None:
    seeded, _ = make(3).reset(seed=11)
    envs = make(3, seed=11)
    assert np.array_equal(envs.reset()[0], seeded)
    assert not np.array_equal(envs.reset()[0], seeded)
    assert envs.np_random_seed == (11, 12, 13)


def test_lanes_that_were_never_seeded_differ_and_can_be_made_again() -> None:
    envs = make(8)
    obs, _ = envs.reset()
    assert len(set(envs.np_random_seed)) == 8
    again, _ = make(8).reset(seed=list(envs.np_random_seed))
    assert np.array_equal(obs, again)


@pytest.mark.parametrize(
    ("seed", "error", "text"),
    [
        (-1, ValueError, "-1"),
        (2**64, ValueError, "18446744073709551616"),
        (2**64 - 2, ValueError, "must be from 0"),
        ([1, 2], ValueError, "num_envs=4 but got length=2"),
        ([1, 2, 3, "x"], TypeError, "'x'"),
        (1.5, TypeError, "seed=1.5"),
        ("abcd", TypeError, "seed='abcd'"),
        (True, TypeError, "seed=True"),
        ([0, 0, 0, -5], gymnasium.error.Error, "-5"),
    ],
)
def test_bad_seeds_are_named(seed, error, text) -> None:
    envs = make(4)
    before, _ = envs.reset(seed=0)
    with pytest.raises(error, match=text.replace("(", r"\(")):
        envs.reset(seed=seed)
    assert envs.np_random_seed == (0, 1, 2, 3)
    assert np.array_equal(envs.reset(seed=0)[0], before)


# Masks.


def test_a_partial_reset_leaves_the_other_lanes_alone() -> None:
    envs, twin = make(3), make(3)
    for one in (envs, twin):
        one.reset(seed=0)
        last = one.step(right(one))[0]
    mask = np.array([True, False, False])
    obs, infos = envs.reset(seed=[5, 6, 7], options={"reset_mask": mask})
    assert infos == {}
    assert envs.np_random_seed == (5, 1, 2)
    assert np.array_equal(obs[1:], last[1:])
    assert np.array_equal(obs[0], make(1).reset(seed=5)[0][0])
    assert np.array_equal(envs.step(right(envs))[0][1:], twin.step(right(twin))[0][1:])


def test_the_callers_options_keep_their_mask() -> None:
    envs = make(2)
    envs.reset(seed=0)
    options = {"reset_mask": np.array([True, False])}
    envs.reset(options=options)
    assert list(options) == ["reset_mask"]


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        ([True, False, False], TypeError, "must be a numpy array, got <class 'list'>"),
        (np.array([True]), ValueError, r"must have shape `\(3,\)`, got \(1,\)"),
        (np.array([[True, True, True]]), ValueError, r"must have shape `\(3,\)`, got \(1, 3\)"),
        (np.array([1, 1, 0]), TypeError, "must have `dtype=np.bool_`, got int64"),
        (np.array([False] * 3), ValueError, r"at least one True value, got reset_mask=\[False False False\]"),
    ],
)
def test_bad_masks_are_refused_in_gymnasiums_words(mask, error, text) -> None:
    with pytest.raises(error, match=text):
        make(3).reset(options={"reset_mask": mask})


def test_unknown_reset_options_are_named() -> None:
    with pytest.raises(errors.OptionsError, match="'gravity'; CartPole-v1 takes"):
        make(2).reset(options={"gravity": -0.1})
    with pytest.raises(errors.OptionsError, match="'low' has 3 values, must have 1 or 2"):
        make(2).reset(options={"low": [0.0] * 3})
    with pytest.raises(errors.OptionsError, match="`low`"):
        make(2).reset(options={"low": "deep"})
    with pytest.raises(errors.OptionsError, match="must be at most `high`"):
        make(2).reset(options={"low": 1.0})
    with pytest.raises(TypeError, match="options=3"):
        make(2).reset(options=3)


def test_options_of_a_reset_are_those_lanes_own_until_others_are_given() -> None:
    envs = make(3)
    envs.reset(seed=0)
    envs.reset(options={"low": np.array([0.0, 0.01, 0.02]), "high": 0.03})
    assert envs.get_attr("low") == (0.0, 0.01, 0.02)
    mask = np.array([False, True, False])
    observations, _ = envs.reset(options={"low": 0.029, "reset_mask": mask})
    assert envs.get_attr("low") == (0.0, 0.029, 0.02)
    assert (observations[1] >= np.float32(0.029)).all()
    observations, _ = envs.reset(seed=4)
    assert (observations[2] >= np.float32(0.02)).all() and (observations <= np.float32(0.03)).all()


# Autoreset.


def test_next_step_marks_reset_rows_as_not_valid() -> None:
    envs = make(4)
    envs.reset(seed=0)
    _, _, terminations, truncations, infos = until_over(envs)
    assert infos["valid"].all()
    over = terminations | truncations
    obs, rewards, terminations, truncations, infos = envs.step(right(envs))
    assert np.array_equal(infos["valid"], ~over)
    assert infos["_valid"].all()
    assert not rewards[over].any()
    assert not (terminations | truncations)[over].any()
    assert (np.abs(obs[over]) <= 0.05).all()


def test_next_step_ignores_the_action_of_a_reset_row() -> None:
    envs = make(4)
    envs.reset(seed=0)
    over = np.logical_or(*until_over(envs)[2:4])
    envs.step(np.where(over, 77, 1))
    with pytest.raises(ValueError, match="77"):
        envs.step(np.full(4, 77))


def test_an_explicit_reset_clears_what_autoreset_had_to_do() -> None:
    # Gymnasium's AsyncVectorEnv(shared_memory=False) gives observation 0 and reward 0 here.
    envs = make(4)
    envs.reset(seed=0)
    until_over(envs)
    envs.reset(seed=0)
    obs, rewards, *_, infos = envs.step(right(envs))
    twin = make(4)
    twin.reset(seed=0)
    assert np.array_equal(obs, twin.step(right(twin))[0])
    assert (rewards == 1.0).all()
    assert infos["valid"].all()


@pytest.mark.parametrize("copy", [True, False])
def test_final_observations_are_never_aliased(copy: bool) -> None:
    # Envs that reuse their buffers show the reset's values in final_obs with AsyncVectorEnv.
    envs = make(16, autoreset_mode="SameStep", copy=copy)
    envs.reset(seed=0)
    obs, _, _, _, infos = until_over(envs)
    over = infos["_final_obs"]
    last = {lane: infos["final_obs"][lane].copy() for lane in np.flatnonzero(over)}
    assert all((np.abs(row[[0, 2]]) > [2.4, 0.2]).any() for row in last.values())
    for lane in last:
        assert not np.shares_memory(infos["final_obs"][lane], obs)
        infos["final_obs"][lane][:] = infos["final_obs"][lane]
    kept = infos["final_obs"]
    for _ in range(50):
        envs.step(right(envs))
    envs.reset(seed=3)
    assert all(np.array_equal(kept[lane], row) for lane, row in last.items())


def test_disabled_refuses_to_step_a_finished_episode_and_moves_nothing() -> None:
    # AsyncVectorEnv silently steps the finished env.
    envs = make(4, autoreset_mode="Disabled")
    envs.reset(seed=0)
    obs, _, terminations, truncations, _ = until_over(envs)
    lane = int(np.flatnonzero(terminations | truncations)[0])
    with pytest.raises(gymnasium.error.ResetNeeded, match=f"lane {lane}"):
        envs.step(right(envs))
    after, _ = envs.reset(options={"reset_mask": terminations | truncations})
    going_on = ~(terminations | truncations)
    assert np.array_equal(after[going_on], obs[going_on])
    envs.step(right(envs))


def test_a_step_before_the_first_reset_is_refused() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        make(2).step([0, 1])


# Infos.


def test_the_gymnasium_layout_has_gymnasiums_keys_only() -> None:
    envs = make(4, info_layout="gymnasium")
    envs.reset(seed=0)
    for _ in range(60):
        assert envs.step(right(envs))[4] == {}


def test_the_layout_of_029_has_its_names() -> None:
    envs = make(4, info_layout="0.29", autoreset_mode="SameStep")
    envs.reset(seed=0)
    infos = until_over(envs)[4]
    over = infos["_final_observation"]
    assert set(infos) == {"final_observation", "_final_observation", "final_info", "_final_info"}
    assert all((infos["final_info"][lane] == {}) == over[lane] for lane in range(4))


def test_infos_are_fresh_dicts() -> None:
    envs = make(2, copy=False)
    envs.reset(seed=0)
    infos = envs.step([0, 1])[4]
    infos["mine"] = 1
    assert "mine" not in envs.step([0, 1])[4]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.value)
def test_info_channels_have_masks_and_terminal_infos_of_their_own(mode: AutoresetMode) -> None:
    envs = rollhouse.make_vec("test/Noise-v0", 6, autoreset_mode=mode, valid="always")
    (name, dtype, _), *_ = rollhouse.env_spec("test/Noise-v0")["info_channels"]
    obs, infos = envs.reset(seed=0)
    assert infos == {}
    seen = 0
    for _ in range(400):
        obs, rewards, terminations, truncations, infos = envs.step(right(envs))
        over = terminations | truncations
        stepped = infos["valid"] & ~(over & (mode is AutoresetMode.SAME_STEP))
        if stepped.any():
            assert np.array_equal(infos["_" + name], stepped)
            assert infos[name].dtype == np.dtype(dtype)
            assert not infos[name][~stepped].any()
            assert np.allclose(rewards[stepped], -np.abs(infos[name][stepped]))
        if mode is AutoresetMode.SAME_STEP and over.any():
            seen += 1
            final = infos["final_info"]
            assert np.array_equal(final["_" + name], over)
            assert np.allclose(rewards[over], -np.abs(final[name][over]))
            assert not final[name][~over].any()
    assert seen > 0 or mode is AutoresetMode.NEXT_STEP


# Lost lanes.


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_lane_whose_env_panics_is_reported_and_comes_back(mode: AutoresetMode, copy: bool, capfd) -> None:
    options = [{}, {"panic_at": 3}, {}]
    envs = rollhouse.make_vec("test/Faulty-v0", 3, autoreset_mode=mode, lane_options=options, copy=copy)
    envs.reset(seed=0)
    envs.step(right(envs))
    last = envs.step(right(envs))[0].copy()
    obs, rewards, terminations, truncations, infos = envs.step(right(envs))
    assert obs[1] == last[1]
    assert rewards.tolist() == [1.0, 0.0, 1.0]
    assert terminations.tolist() == [False] * 3
    assert truncations.tolist() == [False, True, False]
    assert infos["lost"].tolist() == [None, "crashed", None]
    assert infos["_lost"].tolist() == infos["lost"].astype(bool).tolist()
    assert infos["valid"].tolist() == [True, False, True]
    # Back-off of a second: the next step finds it still away, and its flags say nothing new.
    *_, terminations, truncations, infos = envs.step(right(envs))
    assert not (terminations | truncations).any() and "lost" not in infos
    assert infos["valid"].tolist() == [True, False, True]
    capfd.readouterr()


def test_a_lost_lane_raises_when_asked_to_and_the_others_go_on(capfd) -> None:
    options = [{}, {"panic_at": 2}]
    envs = rollhouse.make_vec("test/Faulty-v0", 2, lane_options=options, on_loss="raise")
    envs.reset(seed=0)
    envs.step(right(envs))
    with pytest.raises(errors.LaneLostError, match="lane 1") as caught:
        envs.step(right(envs))
    assert caught.value.lanes == (1,)
    assert caught.value.outcome == "crashed"
    *_, infos = envs.step(right(envs))
    assert infos["valid"].tolist() == [True, False]
    capfd.readouterr()


def test_losses_raise_by_default_only_where_episodes_cannot_be_made_again() -> None:
    assert rollhouse.make_vec("test/Noise-v0", 1).on_loss == "raise"
    assert make(1).on_loss == "report"


# Attributes.


def test_attributes_of_lanes() -> None:
    envs = rollhouse.make_vec("CartPole-v1", 2, lane_options=[{"sutton_barto_reward": True}, {}])
    assert envs.get_attr("sutton_barto_reward") == (True, False)
    assert envs.call("max_episode_steps") == (500, 500)
    assert envs.get_attr("observation_space") == (envs.single_observation_space,) * 2
    with pytest.raises(AttributeError, match="no attribute 'viscosity'; they have .*force_mag"):
        envs.get_attr("viscosity")
    envs.set_attr("sutton_barto_reward", [False, True])
    assert envs.get_attr("sutton_barto_reward") == (False, True)
    envs.reset(seed=0)
    assert envs.step([0, 0])[1].tolist() == [1.0, 0.0]
    with pytest.raises(AttributeError, match="read-only"):
        envs.set_attr("max_episode_steps", 7)
    with pytest.raises(AttributeError, match="no attribute 'viscosity'"):
        envs.set_attr("viscosity", 1.0)
    with pytest.raises(ValueError, match="Got `3` values for 2 environments"):
        envs.set_attr("sutton_barto_reward", [True] * 3)


def test_a_state_that_is_set_is_where_lanes_go_on() -> None:
    envs, twin = make(3), make(3)
    for one in (envs, twin):
        one.reset(seed=0)
    states = envs.get_attr("state")
    assert [(state.shape, state.dtype) for state in states] == [((4,), np.float64)] * 3
    envs.set_attr("state", [states[2]] * 3)
    ours, theirs = envs.step(right(envs))[0], twin.step(right(twin))[0]
    assert all(np.array_equal(row, theirs[2]) for row in ours)
    with pytest.raises(errors.OptionsError, match="state of lane 0: state has 1 doubles, must have 4"):
        envs.set_attr("state", [[1.0]] * 3)


def test_recorded_lanes_keep_options_and_states(tmp_path) -> None:
    envs = rollhouse.make_vec("CartPole-v1", 2, record=True, data=tmp_path)
    for call in (
        lambda: envs.set_attr("low", 0.0),
        lambda: envs.set_attr("state", [[0.0] * 4] * 2),
    ):
        with pytest.raises(errors.OptionsError, match="recorded lanes keep"):
            call()
    envs.close()


def test_recordings_have_the_options_that_resets_gave_and_are_searched_by_them(tmp_path) -> None:
    envs = rollhouse.make_vec("CartPole-v1", 3, record=True, data=tmp_path, lane_options=[{"low": -0.04}, {}, {}])
    envs.reset(seed=0)
    mask = np.array([True, False, True])
    envs.reset(options={"low": np.array([-0.03, 0.0, -0.01]), "reset_mask": mask})
    for _ in range(60):
        envs.step(right(envs))
    envs.reset(options={"low": {"choice": [-0.02 - 1e-5 * at for at in range(100)]}})
    envs.close()
    recorded = rollhouse.replays.open(tmp_path)
    assert recorded.verify().ok
    lows = {(info.lane, info.number): info.options["low"] for info in recorded}
    assert (lows[0, 0], lows[0, 1], lows[1, 0], lows[2, 0], lows[2, 1]) == (-0.04, -0.03, -0.05, -0.05, -0.01)
    last = [max(number for lane, number in lows if lane == of) for of in range(3)]
    assert all(-0.03 <= lows[lane, last[lane]] <= -0.02 for lane in range(3))
    of_that = recorded.list(options={"low": -0.01})
    assert of_that and all(info.lane == 2 and info.number > 0 for info in of_that)
    assert len(recorded.filter(options={"low": np.float64(-0.03)}).list()) == sum(low == -0.03 for low in lows.values())


def test_lanes_under_way_cannot_be_looked_at() -> None:
    envs = make(2)
    envs.reset(seed=0)
    envs.send([0], [1])
    with pytest.raises(errors.OutstandingError):
        envs.get_attr("state")
    with pytest.raises(errors.OutstandingError):
        envs.statistics()
    envs.recv()


def test_statistics_count_steps_and_episodes() -> None:
    envs = make(4)
    envs.reset(seed=0)
    for _ in range(40):
        envs.step(right(envs))
    statistics = envs.statistics()
    assert statistics["episodes"] > 0
    assert 0 < statistics["steps"] < 160
    (session,) = statistics["sessions"]
    assert session["timings"]["batches"] == 40
    assert session["returns"]["mean"] == session["lengths"]["mean"]


@pytest.mark.parametrize("id", rollhouse.env_ids())
def test_every_env_draws_itself(id: str) -> None:
    spec = rollhouse.env_spec(id)
    width, height = spec["render_size"]
    envs = rollhouse.make_vec(id, 2, render_mode="rgb_array")
    assert envs.render_mode == "rgb_array"
    assert envs.metadata["render_modes"] == ["rgb_array"] and envs.metadata["render_fps"] == spec["render_fps"]
    envs.reset(seed=0)
    frames = envs.render()
    assert [(frame.shape, frame.dtype) for frame in frames] == [((height, width, 3), np.uint8)] * 2
    single = gymnasium.make(f"rollhouse/{id}", render_mode="rgb_array")
    assert single.metadata["render_fps"] == spec["render_fps"]
    single.reset(seed=0)
    assert np.array_equal(single.render(), frames[0])
    small = rollhouse.make_vec(id, 2, render_mode="rgb_array", render_size=(64, 48))
    small.reset(seed=0)
    for _ in range(3):
        actions = small.action_space.sample()
        small.step(actions)
        envs.step(actions)
    assert [frame.shape for frame in small.render()] == [(48, 64, 3)] * 2
    # Drawing changed nothing of what was drawn.
    assert np.array_equal(envs.get_attr("state"), small.get_attr("state"))


@pytest.mark.parametrize("id", ["CartPole-v1", "MountainCarContinuous-v0", "MountainCar-v0", "Pendulum-v1", "Acrobot-v1"])
def test_images_have_the_size_and_the_speed_of_gymnasiums(id: str) -> None:
    ours, theirs = rollhouse.env_spec(id), gymnasium.make(id).unwrapped
    assert ours["render_fps"] == theirs.metadata["render_fps"]
    names = ("screen_width", "screen_height") if hasattr(theirs, "screen_width") else ("screen_dim", "SCREEN_DIM")
    sides = [getattr(theirs, name) for name in names if hasattr(theirs, name)]
    assert ours["render_size"] == (sides[0], sides[-1])


def test_a_window_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(ValueError, match="'human' is neither None nor 'rgb_array'; .*HumanRendering"):
        rollhouse.make_vec("GridBreakout-v0", 2, render_mode="human")


def test_nothing_is_rendered() -> None:
    envs = make(2)
    envs.reset()
    assert envs.render_mode is None
    assert envs.render() is None
    with pytest.raises(ValueError, match="render_mode"):
        rollhouse.make_vec("test/Noise-v0", 2, render_mode="rgb_array")


# Copies and views.


def test_copies_stay_as_they_are() -> None:
    envs = make(4)
    obs, _ = envs.reset(seed=0)
    results = [obs, *envs.step(right(envs))[:4]]
    kept = [result.copy() for result in results]
    for result in results:
        assert result.flags.owndata and result.flags.writeable
    for _ in range(20):
        envs.step(right(envs))
    assert all(np.array_equal(a, b) for a, b in zip(results, kept, strict=True))


def test_views_stay_until_the_second_next_step() -> None:
    envs = make(4, copy=False)
    envs.reset(seed=0)
    for _ in range(20):
        obs, rewards, terminations, truncations, infos = envs.step(right(envs))
        kept = [array.copy() for array in (obs, rewards, terminations, truncations, infos["valid"])]
        envs.step(right(envs))
        shown = (obs, rewards, terminations, truncations, infos["valid"])
        assert all(np.array_equal(a, b) for a, b in zip(shown, kept, strict=True))
        for array in shown:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


def test_views_are_made_once() -> None:
    envs = make(4, copy=False)
    envs.reset(seed=0)
    steps = [envs.step(right(envs)) for _ in range(4)]
    for index in range(4):
        assert steps[0][index] is steps[2][index]
        assert steps[1][index] is steps[3][index]
        assert steps[0][index] is not steps[1][index]


def test_views_outlive_the_env() -> None:
    envs = make(2000, copy=False)
    obs, _ = envs.reset(seed=0)
    kept = obs.copy()
    envs.close()
    gone = weakref.ref(envs)
    del envs
    gc.collect()
    assert gone() is None
    filler = [np.full(8000, 7.0, dtype=np.float32) for _ in range(50)]
    assert np.array_equal(obs, kept)
    del filler


def test_a_bound_step_outlives_the_name_of_its_env() -> None:
    envs = make(2)
    envs.reset(seed=0)
    step = envs.step
    del envs
    gc.collect()
    assert step([0, 1])[4]["valid"].all()


def test_results_are_in_their_spaces() -> None:
    for id in ("CartPole-v1", "Pendulum-v1"):
        envs = rollhouse.make_vec(id, 3)
        obs, _ = envs.reset(seed=0)
        assert obs in envs.observation_space
        for _ in range(50):
            assert envs.step(envs.action_space.sample())[0] in envs.observation_space


# Life and death.


def test_closing_again_does_nothing_and_use_after_it_is_refused() -> None:
    envs = make(2)
    envs.reset(seed=0)
    assert not envs.closed
    envs.close()
    envs.close()
    assert envs.closed
    for use in (
        lambda: envs.reset(),
        lambda: envs.step([0, 1]),
        lambda: envs.send([0, 1]),
        lambda: envs.recv(),
        lambda: envs.get_attr("spec"),
        lambda: envs.set_attr("x", 1),
        lambda: envs.render(),
        lambda: envs.torch(),
    ):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="closed"):
            use()


def test_it_is_neither_pickled_nor_copied() -> None:
    envs = make(1)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            attempt(envs)


def test_what_is_refused_while_it_is_made_leaves_nothing_to_close(capfd) -> None:
    with pytest.raises(ValueError, match="info_layout='new'"):
        make(2, info_layout="new")
    with pytest.raises(ValueError, match="num_envs=0"):
        make(0)
    gc.collect()
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_is_refused_and_ends_in_peace(threads: int, tmp_path) -> None:
    program = f"""
import os, sys
import numpy as np
import rollhouse
from rollhouse.errors import ForkedError
envs = rollhouse.make_vec("CartPole-v1", 600, threads={threads}, record=True, data={str(tmp_path)!r})
envs.reset(seed=0)
actions = np.ones(600, dtype=np.int64)
envs.step(actions)
child = os.fork()
if child == 0:
    uses = [lambda: envs.step(actions), lambda: envs.reset(), lambda: envs.send(actions), lambda: envs.recv()]
    for use in uses:
        try:
            use()
        except ForkedError as error:
            assert "forked" in str(error)
        else:
            os._exit(3)
    rollhouse.make_vec("CartPole-v1", 2).reset(seed=0)
    envs.close()
    del envs
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
envs.step(actions)
envs.close()
assert envs.recording.figures["episodes"] >= 600
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_one_thread_at_a_time(capfd) -> None:
    # A converter of actions that comes back to the env while it is inside a step is the same mistake.
    envs = make(2)
    envs.reset(seed=0)

    class Reentrant:
        def __array__(self, dtype=None, copy=None):
            envs.step([0, 1])
            return np.array([0, 1])

    envs.step(Reentrant())
    assert envs.step([0, 1])[4]["valid"].all()
