"""Nets of skrl's agents, as files say them.

A model of skrl is its user's code: what its layers are called and how they are joined shows when it runs. So the layers of a net are those
that a model calls, in that order, and what is made of them has to give what the model gives. Nothing of skrl is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rollhouse.errors import PolicyError

ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "ELU": "elu", "SiLU": "silu"}
"""Modules of activations that files say, and their names there."""

PASSED = ("Flatten", "Identity", "Dropout")
"""Modules that change nothing of numbers in a row."""

OBSERVATIONS = 64
"""Observations of which a model and what is made of it are compared."""

Tensors = dict[str, np.ndarray]


def is_agent(given: Any) -> bool:
    """Returns whether that is an agent of skrl."""
    return isinstance(getattr(given, "models", None), Mapping) and hasattr(given, "checkpoint_modules")


def net_of(agent: Any) -> tuple[Tensors, dict[str, str]]:
    """Returns the tensors of an agent's net, and what its file says beside them: of ``policy`` and ``value``, or of ``q_network``, whose
    greatest output is taken. A value that looks at states, and not at observations, is left out.

    Raises:
        PolicyError: A model computes more than dense layers, or draws actions in another way than nodes do.
    """
    models = agent.models
    key = next((key for key in ("policy", "q_network") if models.get(key) is not None), None)
    if key is None:
        raise PolicyError(f"the agent has neither a policy nor a q_network, but {', '.join(models) or 'nothing'}")
    scaler = agent.checkpoint_modules.get("observation_preprocessor")
    policy = Traced.of(models[key], key)
    tensors = policy.tensors("policy" if key == "policy" else "q_net.q_net")
    if key == "policy":
        tensors.update(_drawn(models[key], policy))
    metadata = {"activation": policy.activation} if policy.activation else {}
    value = _value(agent, policy)
    if value is not None:
        tensors.update(value.tensors("value"))
    if scaler is not None:
        tensors.update(_scaling(scaler))
        metadata["obs_clip"] = _whole(scaler.clip_threshold)
    return tensors, metadata


def _value(agent: Any, policy: Traced) -> Traced | None:
    model = agent.models.get("value")
    if model is None:
        return None
    try:
        value = Traced.of(model, "value")
    except (PolicyError, KeyError, TypeError, AttributeError):
        # It looks at something else: a learner has no need of it on nodes.
        return None
    if value.activation not in (None, policy.activation) or value.inputs != policy.inputs:
        return None
    scaler = agent.checkpoint_modules.get("value_preprocessor")
    if scaler is not None:
        weights, bias = value.layers[-1]
        factor = np.sqrt(_numbers(scaler.running_variance))
        value.layers[-1] = weights * factor, bias * factor + _numbers(scaler.running_mean)
    return value


def _drawn(model: Any, policy: Traced) -> Tensors:
    """Returns what a policy has beside its layers, and refuses one whose actions are drawn in another way."""
    for name in ("_c_unnormalized_log_prob", "_mc_unnormalized_log_prob"):
        if getattr(model, name, True) is False:
            raise PolicyError("the policy's outputs are probabilities; nodes draw from logits")
    for name in ("_g_clip_mean_actions", "_mg_clip_mean_actions"):
        if getattr(model, name, False):
            raise PolicyError("the policy cuts means before it draws (clip_mean_actions=True); nodes cut what was drawn")
    if "net_output" in policy.beside:
        return {}
    if "log_std" not in policy.beside:
        raise PolicyError("the policy draws nothing; nodes draw quantities from means and deviations")
    log_std = np.atleast_2d(_numbers(policy.beside["log_std"]))
    if (log_std != log_std[0]).any():
        raise PolicyError("the policy's deviations depend on what it observes; nodes take them from skrl as they are for all")
    return {"log_std": log_std[0].astype(np.float32)}


def _scaling(scaler: Any) -> Tensors:
    # Nodes divide by the root of the variance and 1e-8, skrl by the root and then some.
    deviation = np.sqrt(_numbers(scaler.running_variance)) + scaler.epsilon
    variance = np.maximum(deviation**2 - 1e-8, 0)
    return {"obs_mean": _numbers(scaler.running_mean).astype(np.float32), "obs_var": variance.astype(np.float32)}


def _whole(clip: float) -> str:
    if clip != int(clip):
        raise PolicyError(f"clip_threshold={clip!r} of the observation's preprocessor is no whole number")
    return str(int(clip))


def _numbers(tensor: Any) -> np.ndarray:
    array = tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor
    return np.asarray(array, np.float64)


class Traced:
    """The dense layers that a model calls.

    Attributes:
        layers: Weights [outputs, inputs] and bias of each.
        activation: The activation between them; None of one layer.
        inputs: Number of inputs.
        beside: What the model gives beside its first output.
    """

    def __init__(self, layers: list[tuple[np.ndarray, np.ndarray]], activation: str | None, beside: Mapping[str, Any]):
        self.layers, self.activation, self.beside = layers, activation, beside
        self.inputs = layers[0][0].shape[1]

    @staticmethod
    def of(model: Any, role: str) -> Traced:
        """Runs a model for a role on observations, and compares what it gives with its layers.

        Raises:
            PolicyError: It is of more than dense layers with one activation.
        """
        size = int(np.prod(model.observation_space.shape))
        observations = 3 * np.random.default_rng(1).standard_normal((OBSERVATIONS, size)).astype(np.float32)
        called, outputs, beside = _run(model, role, observations)
        layers, kinds = [], []
        for number, part in enumerate(called):
            kind = type(part).__name__
            if kind == "Linear":
                weights = _numbers(part.weight)
                layers.append((weights, np.zeros(len(weights)) if part.bias is None else _numbers(part.bias)))
            elif kind in ACTIVATIONS and number + 1 < len(called):
                kinds.append(ACTIVATIONS[kind])
            elif kind not in PASSED:
                raise PolicyError(f"model {role!r} has a {kind} where a file has dense layers with tanh, relu, elu or silu between them")
        if not layers or len(set(kinds)) > 1 or len(kinds) != len(layers) - 1:
            raise PolicyError(f"model {role!r} calls {len(layers)} dense layers and {kinds or 'no activations'}; a file has one activation between all")
        traced = Traced(layers, kinds[0] if kinds else None, beside)
        found = traced.outputs(observations.astype(np.float64))
        if found is None or found.shape != outputs.shape or not np.allclose(found, outputs, rtol=1e-4, atol=1e-4):
            raise PolicyError(f"model {role!r} computes something else than the {len(layers)} dense layers that it calls")
        return traced

    def outputs(self, rows: np.ndarray) -> np.ndarray | None:
        """Returns what the layers make of rows of inputs; None if they do not fit together."""
        for number, (weights, bias) in enumerate(self.layers):
            if rows.shape[1] != weights.shape[1]:
                return None
            rows = rows @ weights.T + bias
            if number + 1 < len(self.layers):
                rows = _activated(self.activation, rows)
        return rows

    def tensors(self, name: str) -> Tensors:
        """Returns the layers under a name."""
        named: Tensors = {}
        for number, (weights, bias) in enumerate(self.layers):
            named[f"{name}.{number}.weight"] = weights.astype(np.float32)
            named[f"{name}.{number}.bias"] = bias.astype(np.float32)
        return named


def _run(model: Any, role: str, observations: np.ndarray) -> tuple[list[Any], np.ndarray, Mapping[str, Any]]:
    """Returns the modules that a model calls, in order, and what it gives: means, logits or values, and the rest."""
    if any(type(parameter).__name__ == "UninitializedParameter" for parameter in model.parameters()):
        # Its layers have no inputs before it has run once.
        model.init_state_dict(role=role)
    inputs = {"observations": next(iter(model.parameters())).new_tensor(observations), "states": None}
    called: list[Any] = []
    was_training = model.training
    model.eval()
    try:
        # Of a model of several roles one call may have begun what the next would not do again.
        model.act(inputs, role=role)
        parts = [part for part in model.modules() if not list(part.children())]
        hooks = [part.register_forward_hook(lambda part, *_: called.append(part)) for part in parts]
        try:
            output, beside = model.act(inputs, role=role)
        finally:
            for hook in hooks:
                hook.remove()
    finally:
        model.train(was_training)
    output = beside.get("mean_actions", beside.get("net_output", output))
    return called, _numbers(output), beside


def _activated(name: str | None, sums: np.ndarray) -> np.ndarray:
    if name == "tanh":
        return np.tanh(sums)
    if name == "relu":
        return np.maximum(sums, 0)
    if name == "elu":
        return np.where(sums < 0, np.expm1(np.minimum(sums, 0)), sums)
    return sums / (1 + np.exp(-sums))
