"""The first reset leaves no lane out, wherever lanes run.

Symptom: after a first reset with a mask the lanes left out gave zeros as valid rows (embedded), a cluster refused even a
mask of all lanes, and hosted lanes raised only once they were stepped. Cause: each class had a rule of its own. Fix: one
rule, where the mask is read.
"""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest

import rollhouse
from rollhouse.errors import ResetNeededError

HERE = ["embedded", "hosted"]


@pytest.fixture(params=[*HERE, "cluster"])
def envs(request: pytest.FixtureRequest):
    if request.param == "embedded":
        made = rollhouse.make_vec("CartPole-v1", 3, valid="always")
    elif request.param == "hosted":
        made = rollhouse.vectorize([partial(gymnasium.make, "CartPole-v1")] * 3, workers=2, valid="always")
    else:
        cluster = rollhouse.connect(request.getfixturevalue("cluster_url"))
        made = cluster.make_vec("CartPole-v1", 3, record=False, valid="always")
    yield made
    made.close()


def test_a_mask_that_leaves_lanes_out_is_refused_until_all_have_begun(envs: rollhouse.VectorEnv) -> None:
    part = {"reset_mask": np.array([True, False, True])}
    for _ in range(2):
        with pytest.raises(ResetNeededError, match="lane 1, which has not been reset"):
            envs.reset(options=part)
    with pytest.raises(ResetNeededError):
        envs.step(np.zeros(3, np.int64))
    observations, _ = envs.reset(seed=4)
    masked, _ = envs.reset(seed=9, options=part)
    assert (masked[1] == observations[1]).all() and (masked[::2] != observations[::2]).all()
    assert envs.step(np.zeros(3, np.int64))[4]["valid"].all()


def test_a_mask_of_all_lanes_is_a_reset_of_all(envs: rollhouse.VectorEnv) -> None:
    masked, _ = envs.reset(seed=4, options={"reset_mask": np.ones(3, np.bool_)})
    assert envs.step(np.zeros(3, np.int64))[4]["valid"].all()
    np.testing.assert_array_equal(masked, envs.reset(seed=4)[0])
