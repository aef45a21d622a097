"""TorchRL's ``GymWrapper`` around our vector envs gives the transitions of Gymnasium's own envs."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import rollhouse

pytest.importorskip("torchrl")
pytestmark = pytest.mark.adapters("torchrl", "torch")

from torchrl.envs import GymWrapper  # noqa: E402
from torchrl.envs.utils import check_env_specs  # noqa: E402

MODES = ["SameStep", "Disabled"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_its_specs_are_right(env_id: str, mode: str) -> None:
    envs = GymWrapper(rollhouse.make_vec(env_id, 3, autoreset_mode=mode, seed=0))
    check_env_specs(envs)
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_rollouts_are_chains_of_gymnasiums_transitions(mode: str) -> None:
    lanes, steps = 4, 200
    envs = GymWrapper(rollhouse.make_vec("CartPole-v1", lanes, autoreset_mode=mode))
    envs.set_seed(11)
    rollout = envs.rollout(steps, break_when_any_done=False)
    observations = rollout["observation"].numpy()
    following = rollout["next", "observation"].numpy()
    terminated = rollout["next", "terminated"].numpy()[..., 0]
    done = rollout["next", "done"].numpy()[..., 0]
    actions = rollout["action"].numpy()
    actions = actions.argmax(-1) if actions.ndim == 3 else actions
    assert observations.shape == (lanes, steps, 4)
    assert done.sum() > lanes
    single = gymnasium.make("CartPole-v1").unwrapped
    single.reset(seed=0)
    for lane in range(lanes):
        for t in range(steps):
            single.state = observations[lane, t].astype(np.float64)
            single.steps_beyond_terminated = None
            expected, _, over, _, _ = single.step(actions[lane, t])
            np.testing.assert_allclose(following[lane, t], expected, rtol=1e-4, atol=1e-5)
            # A pole at the very limit in single precision may have fallen or not.
            if abs(abs(expected[2]) - single.theta_threshold_radians) > 1e-4:
                assert terminated[lane, t] == over
            if t + 1 < steps:
                if done[lane, t]:
                    assert (np.abs(observations[lane, t + 1]) <= 0.05).all(), "the next episode begins"
                else:
                    np.testing.assert_array_equal(observations[lane, t + 1], following[lane, t])
    envs.close()


def test_next_step_mode_is_refused_by_torchrl_itself() -> None:
    with pytest.raises(RuntimeError, match="(?i)autoreset"):
        GymWrapper(rollhouse.make_vec("CartPole-v1", 2))
