"""Hosted lanes do exactly what Gymnasium's SyncVectorEnv does."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from multiprocessing import TimeoutError as CallTimeout
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hosted_envs import ZOO, CountEnv, SeedsEnv, ZooEnv

import rollhouse
from rollhouse.errors import (
    ActionTypeError,
    ForkedError,
    InvalidActionError,
    LaneLostError,
    NothingOutstandingError,
    OutstandingError,
    ResetNeededError,
)

MODES = list(AutoresetMode)


def same(one: Any, two: Any, where: str = "") -> None:
    """Asserts equality of values and of types, down to the last bit."""
    assert type(one) is type(two), f"{where}: {type(one)} and {type(two)}"
    if isinstance(one, np.ndarray):
        assert one.dtype == two.dtype and one.shape == two.shape, where
        if one.dtype == object:
            for index in np.ndindex(one.shape):
                same(one[index], two[index], f"{where}{index}")
        else:
            assert one.tobytes() == two.tobytes(), f"{where}: {one} and {two}"
    elif isinstance(one, dict):
        assert list(one) == list(two), f"{where}: {list(one)} and {list(two)}"
        for key in one:
            same(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(two), where
        for index, (a, b) in enumerate(zip(one, two, strict=True)):
            same(a, b, f"{where}[{index}]")
    else:
        assert one == two, f"{where}: {one} and {two}"


def run_both(env_fns: list[Any], mode: AutoresetMode, steps: int, seed: int = 3, **kwargs: Any) -> None:
    """Steps both classes with the same actions and compares all that they return."""
    ours = rollhouse.vectorize(env_fns, autoreset_mode=mode, info_layout="gymnasium", **kwargs)
    theirs = SyncVectorEnv(env_fns, autoreset_mode=mode)
    try:
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        ours.action_space.seed(seed)
        same(ours.reset(seed=seed, options={"o": 1}), theirs.reset(seed=seed, options={"o": 1}), "reset")
        for step in range(steps):
            actions = ours.action_space.sample()
            one, two = ours.step(actions), theirs.step(actions)
            same(one, two, f"step {step}")
            over = one[2] | one[3]
            if mode is AutoresetMode.DISABLED and over.any():
                masks = [{"reset_mask": over.copy()} for _ in range(2)]
                same(ours.reset(options=masks[0]), theirs.reset(options=masks[1]), f"reset after step {step}")
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("mode", MODES)
def test_cartpole_is_bit_for_bit_sync_vector_envs_over_10000_steps(mode: AutoresetMode) -> None:
    run_both([partial(gymnasium.make, "CartPole-v1")] * 2, mode, 10_000, workers=2)


@pytest.mark.parametrize(("name", "mode"), [(name, MODES[i % 3]) for i, name in enumerate(ZOO)])
def test_every_space_and_info_is_bit_for_bit_sync_vector_envs(name: str, mode: AutoresetMode) -> None:
    """With nested infos that come and go."""
    run_both([partial(ZooEnv, ZOO[name], length) for length in (5, 9, 13)], mode, 60, workers=1)


@pytest.mark.parametrize("mode", MODES)
def test_all_spaces_in_one_are_bit_for_bit_sync_vector_envs(mode: AutoresetMode) -> None:
    run_both([partial(ZooEnv, gymnasium.spaces.Dict(ZOO), 9 + i) for i in range(4)], mode, 50, workers=2)


@pytest.mark.parametrize("mode", MODES)
def test_long_episodes_of_columns_beside_texts_are_bit_for_bit_sync_vector_envs(mode: AutoresetMode) -> None:
    run_both([partial(ZooEnv, ZOO["mixed"], 40 + i) for i in range(5)], mode, 300, workers=2)


@pytest.fixture(scope="module")
def counters() -> Any:
    """Three counters in two workers, not reset. Tests leave them without anything pending."""
    envs = rollhouse.vectorize([CountEnv] * 3, workers=2, valid="always")
    yield envs
    envs.close()


def test_actions_that_are_no_exact_arrays_reach_the_envs_as_sync_vector_env_passes_them() -> None:
    fns = [partial(ZooEnv, ZOO["discrete"])] * 3
    ours = rollhouse.vectorize(fns, workers=2, info_layout="gymnasium")
    theirs = SyncVectorEnv(fns)
    same(ours.reset(seed=1), theirs.reset(seed=1))
    for actions in ([0, 1, 2], (np.int64(-2), 1, 0), np.array([1, 2, 0], np.int32), np.array([0, 1, 2])):
        same(ours.step(actions), theirs.step(actions), repr(actions))
    ours.close()


def test_valid_marks_the_rows_that_are_transitions(counters: Any) -> None:
    counters.reset()
    for actions, valid in [([0, 6, 0], [1, 1, 1]), ([0, 0, 0], [1, 0, 1]), ([6, 6, 0], [1, 1, 1]), ([0, 0, 0], [0, 0, 1])]:
        infos = counters.step(np.array(actions))[4]
        assert infos["valid"].tolist() == [bool(v) for v in valid] and infos["_valid"].all()


def test_first_done_steps_give_the_lanes_rows(counters: Any) -> None:
    counters.reset()
    counters.send(np.array([0, 0]), [2, 0])
    counters.send([0], [1])
    with pytest.raises(OutstandingError, match="lane 2"):
        counters.send([0], [2])
    got: dict[int, float] = {}
    while len(got) < 3:
        observations, rewards, *_, infos = counters.recv(min_envs=1)
        assert rewards.tolist() == [1.0] * len(rewards) and infos["valid"].all()
        got.update(zip(infos["env_id"].tolist(), observations[:, 0], strict=True))
    assert got == {0: 1.0, 1: 1.0, 2: 1.0}
    with pytest.raises(NothingOutstandingError):
        counters.recv()
    # Lanes of both parities go on together.
    counters.send([0], [1])
    assert counters.recv()[0].tolist() == [[2.0]]
    assert counters.step(np.array([0, 0, 0]))[0].tolist() == [[2.0], [3.0], [2.0]]


def test_first_done_gives_what_lockstep_gives() -> None:
    fns = [partial(ZooEnv, ZOO["mixed"], 4 + i) for i in range(4)]
    ours, other = (rollhouse.vectorize(fns, workers=2) for _ in range(2))
    same(ours.reset(seed=5), other.reset(seed=5))
    rng = np.random.default_rng(0)
    ours.action_space.seed(0)
    for _ in range(40):
        actions = ours.action_space.sample()
        expected = other.step(actions)
        lanes = rng.permutation(4).tolist()
        chosen = [{"word": actions["word"][i], "box": actions["box"][i], "t": (actions["t"][0][i],)} for i in lanes]
        batch = {
            "word": tuple(c["word"] for c in chosen),
            "box": np.stack([c["box"] for c in chosen]),
            "t": (tuple(c["t"][0] for c in chosen),),
        }
        ours.send(batch, lanes)
        result = ours.recv()
        assert result[4].pop("env_id").tolist() == [0, 1, 2, 3]
        same(result, expected)
    ours.close()
    other.close()


def test_copies_stay_and_views_last_until_the_second_next_step() -> None:
    for copy in (True, False):
        envs = rollhouse.vectorize([CountEnv] * 2, workers=1, copy=copy)
        envs.reset()
        frames = [envs.step(np.zeros(2, np.int64))[0] for _ in range(3)]
        assert frames[1][0] == 2.0 and frames[2][0] == 3.0
        assert frames[0][0] == (1.0 if copy else 3.0)
        envs.close()


def test_terminal_observations_and_infos_are_snapshots_even_of_envs_that_reuse_them() -> None:
    envs = rollhouse.vectorize([partial(ZooEnv, ZOO["box"], 3, True)] * 2, workers=1, autoreset_mode="SameStep")
    envs.reset(seed=1)
    seen = 0
    for _ in range(20):
        infos = envs.step(envs.action_space.sample())[4]
        for lane in np.flatnonzero(infos.get("_final_info", np.zeros(2, bool))):
            if "_steps" in infos["final_info"] and infos["final_info"]["_steps"][lane]:
                assert infos["final_info"]["steps"][lane] > 0 and infos["steps"][lane] == 0
                seen += 1
    assert seen
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_reset_without_a_seed_gives_envs_none(mode: AutoresetMode) -> None:
    envs = rollhouse.vectorize([SeedsEnv] * 3, workers=2, autoreset_mode=mode)
    try:
        envs.reset()
        assert envs.get_attr("given") == ([None],) * 3
        envs.reset(seed=[None, 7, None])
        envs.step(np.full(3, SeedsEnv.END))
        if mode is AutoresetMode.DISABLED:
            envs.reset()
        else:
            envs.step(np.full(3, SeedsEnv.FINE))
        assert [given[:3] for given in envs.get_attr("given")] == [[None, None, None], [None, 7, None], [None, None, None]]
    finally:
        envs.close()


def test_envs_made_anew_after_no_seed_was_given_have_seeds_of_their_own() -> None:
    envs = rollhouse.vectorize([SeedsEnv] * 4, workers=2)
    try:
        envs.reset()
        with pytest.raises(ZeroDivisionError):
            envs.step(np.full(4, SeedsEnv.RAISE))
        envs.reset()
        seeds = [given for (given,) in envs.get_attr("given")]
        assert None not in seeds and len(set(seeds)) == 4
    finally:
        envs.close()


def test_calls_attributes_and_seeds_reach_every_env(counters: Any) -> None:
    counters.set_attr("fail_in_reset", ["/a", "/b", "/c"])
    assert counters.get_attr("fail_in_reset") == ("/a", "/b", "/c")
    counters.set_attr("fail_in_reset", None)
    counters.reset(seed=11)
    assert counters.np_random_seed == (11, 12, 13)
    assert [g.bit_generator.state for g in counters.np_random] == [
        np.random.default_rng(s).bit_generator.state for s in (11, 12, 13)
    ]
    with pytest.raises(AttributeError, match="nothing_like_it") as caught:
        counters.call("nothing_like_it")
    assert "get_wrapper_attr" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="Values must be a list"):
        counters.set_attr("count", [1, 2])
    counters.step(np.zeros(3, np.int64))


def test_asynchronous_calls_are_checked_like_gymnasiums(counters: Any) -> None:
    counters.reset()
    for name in ("reset", "step", "call"):
        with pytest.raises(NoAsyncCallError):
            getattr(counters, f"{name}_wait")()
    counters.step_async(np.zeros(3, np.int64))
    for call in (lambda: counters.step_async([0] * 3), counters.reset, lambda: counters.call("count")):
        with pytest.raises(AlreadyPendingCallError):
            call()
    assert counters.step_wait()[0].tolist() == [[1.0]] * 3
    counters.call_async("count")
    assert counters.call_wait() == (1.0, 1.0, 1.0)


def test_a_wait_that_timed_out_can_be_taken_up_again() -> None:
    envs = rollhouse.vectorize([CountEnv], step_timeout=2.0, on_loss="report")
    envs.reset()
    envs.step_async([CountEnv.HANG])
    with pytest.raises(CallTimeout, match="step_wait"):
        envs.step_wait(timeout=0.01)
    assert envs.step_wait()[4]["lost"].tolist() == ["hung"]
    envs.close()


def test_bad_actions_are_refused_before_anything_moves(counters: Any) -> None:
    counters.reset()
    cases: list[tuple[Any, type[Exception], str]] = [
        (np.array([0, 8, 0]), InvalidActionError, "lane 1.*8.*from 0 to 7"),
        ([0, 0, -1], InvalidActionError, "lane 2"),
        (np.zeros(2, np.int64), InvalidActionError, "2 were given for 3 lanes"),
        (np.zeros(3), ActionTypeError, "float64"),
        (0, ActionTypeError, "not a batch"),
        (None, ActionTypeError, "not a batch"),
    ]
    for actions, error, message in cases:
        with pytest.raises(error, match=message):
            counters.step(actions)
        with pytest.raises(error):
            counters.send(actions)
    assert counters.step(np.zeros(3, np.int64))[0].tolist() == [[1.0]] * 3
    boxes = rollhouse.vectorize([partial(gymnasium.make, "Pendulum-v1")], workers=1)
    boxes.reset()
    for bad in (np.nan, np.inf):
        with pytest.raises(InvalidActionError, match="finite"):
            boxes.step(np.array([[bad]], np.float32))
    boxes.step(np.array([[1000.0]], np.float32))
    boxes.close()


def test_steps_before_a_reset_and_over_finished_lanes_are_refused() -> None:
    envs = rollhouse.vectorize([CountEnv] * 2, workers=1, autoreset_mode="Disabled")
    with pytest.raises(ResetNeededError):
        envs.step([0, 0])
    envs.reset()
    envs.step([0, CountEnv.END])
    for step in (envs.step, envs.send):
        with pytest.raises(ResetNeededError, match="lane 1"):
            step(np.zeros(2, np.int64))
    mask = {"reset_mask": np.array([False, True])}
    assert envs.reset(options=mask)[0].tolist() == [[1.0], [0.0]] and "reset_mask" in mask
    assert envs.step([0, 0])[0].tolist() == [[2.0], [1.0]]
    envs.close()


def test_a_closed_env_and_one_of_the_parent_process_say_so() -> None:
    envs = rollhouse.vectorize([CountEnv], workers=1)
    envs.reset()
    child = os.fork()
    if child == 0:
        try:
            envs.step([0])
        except ForkedError:
            envs.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert envs.step([0])[0].tolist() == [[1.0]]
    envs.close()
    envs.close()
    with pytest.raises(ClosedEnvironmentError):
        envs.step([0])


class _NeverMade:
    def __call__(self) -> Any:
        import time

        while True:
            time.sleep(1)


class _NotPicklable:
    def __reduce__(self) -> Any:
        raise ValueError("not this one")

    def __call__(self) -> Any:
        return CountEnv()


def _raises() -> Any:
    raise FileNotFoundError("no rom")


def _dies() -> Any:
    sys.exit(4)


def test_env_fns_that_cannot_make_envs_are_told_with_lane_and_reason() -> None:
    with pytest.raises(TypeError, match=r"env_fns\[1\].*cannot be pickled.*not this one"):
        rollhouse.vectorize([CountEnv, _NotPicklable()])
    with pytest.raises(TypeError, match=r"env_fns\[0\]"):
        rollhouse.vectorize([3])
    with pytest.raises(ValueError, match="0 functions"):
        rollhouse.vectorize([])
    with pytest.raises(FileNotFoundError, match="no rom") as caught:
        rollhouse.vectorize([_raises])
    assert isinstance(caught.value.__cause__, LaneLostError) and "_raises" in str(caught.value.__cause__)
    with pytest.raises(LaneLostError, match="exit status: 4"):
        rollhouse.vectorize([_dies])
    with pytest.raises(LaneLostError, match="launch_timeout=2") as lost:
        rollhouse.vectorize([_NeverMade()], launch_timeout=2.0)
    assert lost.value.outcome == "hung"


def _answers_late() -> gymnasium.Env:
    from rollhouse.worker_program import LaneWorker

    work = LaneWorker.work

    def slowly(self: LaneWorker, number: int, payload: bytes) -> bytes:
        answer = work(self, number, payload)
        time.sleep(0.3)
        return answer

    LaneWorker.work = slowly  # type: ignore[method-assign]
    return gymnasium.make("CartPole-v1")


def test_a_call_waits_for_the_answer_of_a_worker_whose_rows_are_there() -> None:
    # Symptom: on a busy machine `get_attr` after a step raised RuntimeError, "worker 0 is not idle". Cause: rows are taken as soon as
    # they are there, before their worker has answered. Fix: calls wait until no worker has anything to do.
    with rollhouse.vectorize([_answers_late], workers=1) as envs:
        envs.reset(seed=1)
        envs.step(np.array([0]))
        assert envs.get_attr("render_mode") == (None,)


def test_lanes_of_one_function_have_one_worker_until_the_others_are_needed() -> None:
    for need in (lambda envs: envs.reset(seed=1), lambda envs: envs.get_attr("spec")):
        envs = rollhouse.vectorize([CountEnv] * 4, workers=4)
        assert len(envs._crew.workers.process_ids()) == 1
        need(envs)
        assert len(set(envs._crew.workers.process_ids())) == 4
        envs.close()
    unused = rollhouse.vectorize([CountEnv] * 4, workers=4)
    unused.close()


class _OnlyOnce:
    """Makes one env; whoever asks again gets what ``then`` makes."""

    def __init__(self, path: str, then: Any):
        self.path, self.then = path, then

    def __call__(self) -> Any:
        try:
            with open(self.path, "x"):
                return CountEnv()
        except FileExistsError:
            return self.then()


def test_a_worker_that_fails_late_closes_the_vector_env(tmp_path: Any) -> None:
    for name, then, error, words in (
        ("raises", _raises, FileNotFoundError, "no rom"),
        ("dies", _dies, LaneLostError, "exit status: 4"),
        ("differs", partial(gymnasium.make, "CartPole-v1"), RuntimeError, r"env_fns\[1\]"),
    ):
        fn = _OnlyOnce(str(tmp_path / name), then)
        envs = rollhouse.vectorize([fn, fn], workers=2)
        with pytest.raises(error, match=words):
            envs.reset()
        assert envs.closed
        with pytest.raises(ClosedEnvironmentError):
            envs.reset()


def test_make_vec_hosts_what_gymnasium_knows() -> None:
    envs = rollhouse.make_vec("gymnasium:CartPole-v1", 3, workers=1, max_episode_steps=4, sutton_barto_reward=True)
    assert envs.spec.id == "CartPole-v1" and envs.get_attr("_sutton_barto_reward") == (True,) * 3
    first = envs.reset(seed=1)[0]
    assert np.array_equal(first, envs.reset(seed=1)[0])
    truncations = [envs.step(np.array([i % 2] * 3))[3] for i in range(4)]
    assert truncations[3].all() and not truncations[2].any()
    envs.close()
    with pytest.raises(ValueError, match="threads"):
        rollhouse.make_vec("gymnasium:CartPole-v1", 1, threads=2)


def test_metadata_and_modes_belong_to_the_vector_env_alone() -> None:
    class OwnEnv(CountEnv):
        # Not that of its base, which Gymnasium's vector envs write into.
        metadata: dict[str, Any] = {"render_modes": []}

    envs = rollhouse.vectorize([OwnEnv])
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert OwnEnv.metadata == {"render_modes": []}
    envs.close()
    with pytest.raises(ValueError, match="on_loss"):
        rollhouse.vectorize([CountEnv], on_loss="ignore")


def test_envs_may_print(counters: Any) -> None:
    counters.reset()
    assert counters.step([CountEnv.PRINT] * 3)[0].tolist() == [[1.0]] * 3


def test_what_the_lanes_have_done_is_told_as_of_built_in_envs() -> None:
    envs = rollhouse.vectorize([CountEnv] * 2, workers=1)
    envs.reset()
    for action in ([0, 0], [CountEnv.END, 0], [0, 0]):
        envs.step(np.array(action))
    told = envs.statistics()
    assert (told["steps"], told["episodes"]) == (5, 1)
    (session,) = told["sessions"]
    assert session["outcomes"] == {"terminated": 1} and session["returns"]["sum"] == 2.0
    envs.send(np.array([0]), [1])
    with pytest.raises(OutstandingError):
        envs.statistics()
    envs.recv()
    envs.close()
