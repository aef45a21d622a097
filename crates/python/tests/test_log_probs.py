"""Log-probabilities that come with rollouts are those of PyTorch's distributions, to 1e-5, however actions are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollhouse
from rollhouse.policies import net_file, policy_of

pytestmark = pytest.mark.adapters("torch")

DRAWINGS = [
    {},
    {"temperature": 0.4},
    {"temperature": 3.0},
    {"epsilon": 0.3},
    {"epsilon": 1.0},
    {"temperature": 0.4, "epsilon": 0.3},
    {"deterministic": True},
    {"deterministic": True, "epsilon": 0.3},
]


def _net(inputs: int, outputs: int, **more: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(outputs)

    def layer(inputs: int, outputs: int) -> np.ndarray:
        return rng.normal(0, 1.4 / inputs**0.5, (outputs, inputs)).astype(np.float32)

    return {"policy.0.weight": layer(inputs, 16), "policy.1.weight": layer(16, outputs), **more}


def _outputs(net: dict[str, np.ndarray], observations: np.ndarray) -> Any:
    import torch

    hidden = np.tanh(observations.astype(np.float64) @ net["policy.0.weight"].T)
    return torch.from_numpy(hidden @ net["policy.1.weight"].T)


def _played(env: str, net: dict[str, np.ndarray], drawing: dict[str, Any], **metadata: str) -> tuple[Any, Any, Any, Any]:
    """Observations, actions as they were drawn, masks and log-probabilities of 1,000 steps."""
    policy = policy_of(net_file(net, **metadata), **drawing)
    with rollhouse.rollouts(env, 50, policy=policy, fragment=20, staleness=0, seed=3) as played:
        batch = played.next()

    def rows(array: np.ndarray) -> np.ndarray:
        return array.reshape(1000, -1)

    masks = None if batch.masks is None else rows(batch.masks[:-1]) != 0
    return rows(batch.observations[:-1]), rows(batch.notes.get("drawn_action", batch.actions)), masks, rows(batch.log_probs)[:, 0]


def _named(drawing: dict[str, Any]) -> str:
    return " ".join(f"{name} {value}" for name, value in drawing.items()) or "as it is"


@pytest.mark.parametrize("drawing", DRAWINGS, ids=_named)
@pytest.mark.parametrize(("env", "inputs", "actions"), [("CartPole-v1", 4, 2), ("Acrobot-v1", 6, 3), ("test/Masked-v0", 1, 4)])
def test_choices_have_those_of_a_categorical_distribution(env: str, inputs: int, actions: int, drawing: dict[str, Any]):
    import torch
    from torch.distributions import Categorical

    net = _net(inputs, actions)
    observations, taken, masks, log_probs = _played(env, net, drawing)
    logits = _outputs(net, observations) / drawing.get("temperature", 1.0)
    if masks is not None:
        assert not masks.all() and masks[np.arange(1000), taken[:, 0]].all()
        logits = logits.masked_fill(~torch.from_numpy(masks.copy()), -torch.inf)
    probabilities = Categorical(logits=logits).probs
    if drawing.get("deterministic"):
        probabilities = torch.nn.functional.one_hot(probabilities.argmax(-1), actions).double()
    allowed = torch.isfinite(logits).double()
    epsilon = drawing.get("epsilon", 0.0)
    probabilities = (1 - epsilon) * probabilities + epsilon * allowed / allowed.sum(-1, keepdim=True)
    wanted = Categorical(probs=probabilities).log_prob(torch.from_numpy(taken[:, 0].copy()))
    np.testing.assert_allclose(log_probs, wanted, atol=1e-5)
    if drawing == {"deterministic": True}:
        assert (log_probs == 0).all()
    elif drawing.get("epsilon") != 1.0:
        assert len(np.unique(log_probs)) > 1


QUANTITIES = [
    ("Pendulum-v1", _net(3, 1, log_std=np.float32([-0.4]))),
    ("MountainCarContinuous-v0", _net(2, 2)),
    ("Echo-v0", _net(100, 12, log_std=np.linspace(-0.5, 1, 12).astype(np.float32))),
]
"""Nets by envs: deviations beside the net, of it, and of several elements."""


@pytest.mark.parametrize("drawing", [{}, {"temperature": 0.4}, {"temperature": 3.0}, {"deterministic": True}], ids=_named)
@pytest.mark.parametrize(("env", "net"), QUANTITIES, ids=[env for env, _ in QUANTITIES])
def test_quantities_have_those_of_a_normal_distribution(env: str, net: dict[str, np.ndarray], drawing: dict[str, Any]):
    import torch
    from torch.distributions import Normal

    observations, drawn, _, log_probs = _played(env, net, drawing)
    outputs = _outputs(net, observations)
    mean, log_std = (outputs, torch.from_numpy(net["log_std"]).double()) if "log_std" in net else outputs.chunk(2, -1)
    if drawing.get("deterministic"):
        np.testing.assert_allclose(drawn, mean, atol=1e-5)
        assert (log_probs == 0).all()
        return
    normal = Normal(mean, log_std.exp() * drawing.get("temperature", 1.0))
    wanted = normal.log_prob(torch.from_numpy(drawn.astype(np.float64))).sum(-1)
    np.testing.assert_allclose(log_probs, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("drawing", [{}, {"temperature": 0.4}, {"temperature": 2.0}, {"deterministic": True}], ids=_named)
def test_squashed_quantities_have_those_of_a_transformed_normal_distribution(drawing: dict[str, Any]):
    import torch
    from torch.distributions import Normal, TanhTransform, TransformedDistribution

    net = _net(3, 1, log_std=np.float32([-0.4]))
    observations, taken, _, log_probs = _played("Pendulum-v1", net, drawing, squashed="true")
    mean = _outputs(net, observations)
    squashed = torch.from_numpy(taken.astype(np.float64) / 2)
    if drawing.get("deterministic"):
        np.testing.assert_allclose(squashed, mean.tanh(), atol=1e-5)
        assert (log_probs == 0).all()
        return
    deviation = torch.from_numpy(net["log_std"]).double().exp() * drawing.get("temperature", 1.0)
    normal = Normal(mean, deviation)
    wanted = TransformedDistribution(normal, TanhTransform()).log_prob(squashed).sum(-1)
    # Nodes add 1e-6 to what they take the logarithm of, as Stable-Baselines3 does, and singles of an action have too few bits near
    # the bounds to say what was drawn.
    correction = torch.log((1 - squashed**2 + 1e-6) / (1 - squashed**2)).sum(-1)
    clear = (squashed.abs() < 0.9).all(-1)
    assert clear.sum() > 400
    np.testing.assert_allclose(log_probs[clear], (wanted - correction)[clear], rtol=1e-5, atol=1e-5)
