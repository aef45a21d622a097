"""``infos["valid"]`` is there when a row is no transition, or when it was asked for.

Symptom: infos of every step had one key more than Gymnasium's, and its own tests, which compare whole infos, failed. Cause:
``valid`` was always told. Fix: one rule for all classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

import rollhouse

LANES = 3
Make = Callable[..., rollhouse.VectorEnv]


@pytest.fixture(params=["embedded", "hosted", "cluster"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes vector envs of CartPole of one class."""
    made: list[Any] = []

    def one(**arguments: Any) -> rollhouse.VectorEnv:
        if request.param == "embedded":
            envs = rollhouse.make_vec("CartPole-v1", LANES, **arguments)
        elif request.param == "hosted":
            functions = [partial(gymnasium.make, "CartPole-v1")] * LANES
            envs = rollhouse.vectorize(functions, workers=1, **arguments)
        else:
            cluster = rollhouse.connect(request.getfixturevalue("cluster_url"))
            envs = cluster.make_vec("CartPole-v1", LANES, record=False, **arguments)
        made.append(envs)
        return envs

    yield one
    for envs in made:
        envs.close()


def over_and_infos(envs: rollhouse.VectorEnv, steps: int = 60) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Of each step, which lanes it reset and its infos; lanes of Disabled envs are reset when they are over."""
    envs.reset(seed=0)
    over = np.zeros(LANES, np.bool_)
    for step in range(steps):
        *_, terminations, truncations, infos = envs.step(np.arange(step, step + LANES) % 2)
        yield over if envs.autoreset_mode.value == "NextStep" else np.zeros(LANES, np.bool_), infos
        over = terminations | truncations
        if over.any() and envs.autoreset_mode.value == "Disabled":
            envs.reset(options={"reset_mask": over})


def test_it_is_told_of_the_steps_that_reset_a_lane(make: Make) -> None:
    told = 0
    for reset, infos in over_and_infos(make()):
        assert ("valid" in infos) == ("_valid" in infos) == reset.any()
        if reset.any():
            told += 1
            assert infos["valid"].tolist() == (~reset).tolist() and infos["_valid"].all()
    assert told > 0


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_where_every_row_is_a_transition_it_is_not_told(make: Make, mode: str) -> None:
    assert all("valid" not in infos for _, infos in over_and_infos(make(autoreset_mode=mode)))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("layout", ["default", "gymnasium", "0.29"])
def test_who_asks_for_it_is_told_always(make: Make, layout: Any, mode: str) -> None:
    for reset, infos in over_and_infos(make(valid="always", info_layout=layout, autoreset_mode=mode), 40):
        assert infos["valid"].tolist() == (~reset).tolist() and infos["_valid"].all()


@pytest.mark.parametrize("layout", ["gymnasium", "0.29"])
def test_gymnasiums_layouts_leave_it_out(make: Make, layout: Any) -> None:
    assert all(infos == {} for _, infos in over_and_infos(make(info_layout=layout)))


def test_rows_that_are_received_apart_are_told_apart(make: Make) -> None:
    envs = make()
    envs.reset(seed=0)
    told = 0
    over = np.zeros(LANES, np.bool_)
    for _ in range(40):
        envs.send(np.ones(LANES, np.int64))
        left = LANES
        while left:
            *_, terminations, truncations, infos = envs.recv(min_envs=1)
            lanes = infos["env_id"]
            left -= len(lanes)
            assert ("valid" in infos) == over[lanes].any()
            if "valid" in infos:
                told += 1
                assert infos["valid"].tolist() == (~over[lanes]).tolist()
            over[lanes] = terminations | truncations
    assert told > 0


def test_another_word_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="valid='never' is not one of needed, always"):
        make(valid="never")


def test_gymnasium_and_trainers_can_ask_for_it() -> None:
    envs = gymnasium.make_vec("rollhouse/CartPole-v1", num_envs=2, valid="always")
    envs.reset(seed=0)
    assert envs.step([0, 1])[4]["valid"].all()
    envs.close()
