"""What lanes of built-in envs can be asked for by name: constants of their dynamics, seeds and generators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

import rollhouse

CLASSIC = ["Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]
LANES = 3


@pytest.fixture(params=["embedded", "cluster"])
def where(request: pytest.FixtureRequest) -> Iterator[Any]:
    """What has ``make_vec``: the package, or a cluster."""
    if request.param == "embedded":
        yield rollhouse
        return
    with rollhouse.connect(request.getfixturevalue("cluster_url")) as cluster:
        yield cluster


def make(where: Any, id: str, **arguments: Any) -> rollhouse.VectorEnv:
    return where.make_vec(id, LANES, record=False, **arguments)


def numbers_of(env: gymnasium.Env) -> dict[str, float]:
    """The numbers that a Gymnasium env has as attributes, but for what it draws with."""
    names = [name for name in dir(env) if not name.startswith("_") and "screen" not in name.lower()]
    values = {name: getattr(env, name, None) for name in names if name not in ("np_random", "np_random_seed")}
    return {name: value for name, value in values.items() if type(value) in (int, float)}


@pytest.mark.parametrize("id", CLASSIC)
def test_constants_have_the_names_and_values_of_gymnasiums_attributes(where: Any, id: str) -> None:
    envs = make(where, id)
    theirs = numbers_of(gymnasium.make(id).unwrapped)
    for name in rollhouse.env_spec(id)["options"]:
        theirs.pop(name, None)
    # How many actions there are is told by the space.
    theirs.pop("actions_num", None)
    assert rollhouse.env_spec(id)["constants"] == theirs
    for name, value in theirs.items():
        assert envs.get_attr(name) == (value,) * LANES
        assert all(type(number) is float for number in envs.call(name))
    envs.close()


def test_a_constant_cannot_be_set_and_the_error_says_what_can(where: Any) -> None:
    envs = make(where, "CartPole-v1")
    with pytest.raises(AttributeError, match="'gravity' .*read-only: the dynamics are compiled.*gymnasium:CartPole-v1"):
        envs.set_attr("gravity", [9.81, 3.72, 8.87])
    with pytest.raises(AttributeError, match="no attribute 'viscosity'; they have .*gravity.*np_random.*x_threshold"):
        envs.get_attr("viscosity")
    envs.close()
    pendulum = make(where, "Pendulum-v1")
    # An option, as it is an argument in Gymnasium.
    pendulum.set_attr("g", [9.81, 3.72, 8.87])
    assert pendulum.get_attr("g") == (9.81, 3.72, 8.87)
    pendulum.close()


@pytest.mark.parametrize("id", CLASSIC)
def test_generators_stand_where_gymnasiums_do(where: Any, id: str) -> None:
    envs = make(where, id)
    theirs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(id)] * LANES)
    states = lambda one: [generator.bit_generator.state for generator in one.np_random]  # noqa: E731
    envs.reset(seed=2**40)
    theirs.reset(seed=2**40)
    assert states(envs) == states(theirs)
    assert envs.get_attr("np_random")[1].bit_generator.state == theirs.np_random[1].bit_generator.state
    envs.reset()
    theirs.reset()
    assert states(envs) == states(theirs)
    # What is drawn from a copy changes no lane.
    drawn = envs.np_random[0].random()
    assert drawn == theirs.np_random[0].random() and envs.np_random[0].random() == drawn
    envs.close()


def test_half_a_word_that_is_left_over_is_told(where: Any) -> None:
    envs = make(where, "GridBreakout-v0", seed=1)
    envs.reset()
    kept = set()
    for _ in range(20):
        kept.update(generator.bit_generator.state["has_uint32"] for generator in envs.np_random)
        envs.step(np.ones(LANES, np.int64))
    assert kept <= {0, 1}
    envs.close()


def test_before_the_first_reset_the_seeds_are_those_it_will_give(where: Any) -> None:
    envs = make(where, "CartPole-v1")
    seeds = envs.np_random_seed
    assert len(set(seeds)) == LANES and seeds == envs.np_random_seed == envs.get_attr("np_random_seed")
    generators = envs.np_random
    first, _ = envs.reset()
    assert envs.np_random_seed == seeds
    drawn = np.array([generator.uniform(-0.05, 0.05, 4) for generator in generators], np.float32)
    np.testing.assert_array_equal(first, drawn)
    envs.close()
    given = make(where, "CartPole-v1", seed=5)
    assert given.np_random_seed == (5, 6, 7)
    given.reset(seed=8)
    assert given.np_random_seed == (8, 9, 10)
    given.close()


def test_what_draws_itself_says_how_fast() -> None:
    for id, fps in (("GridBreakout-v0", 15), ("CartPole-v1", 50)):
        envs = rollhouse.make_vec(id, 2, render_mode="rgb_array")
        assert envs.metadata["render_modes"] == ["rgb_array"] and envs.metadata["render_fps"] == fps
