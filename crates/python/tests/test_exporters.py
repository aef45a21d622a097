"""Nets of PyTorch, Stable-Baselines3, CleanRL and skrl play on nodes as they do where they learn: of 1,000 observations each has the same
actions, log-probabilities and values, to 1e-5."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rollhouse
from rollhouse.errors import PolicyError
from rollhouse.policies import policy_of

Original = Callable[[Any, Any], tuple[Any, Any, Any]]
"""Of observations and actions: the likeliest actions, the logarithms of the actions' probabilities, and values; None where there are none."""


def _assert_near(found: np.ndarray, wanted: Any) -> None:
    wanted = np.asarray(wanted.detach() if hasattr(wanted, "detach") else wanted, np.float64).reshape(found.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def _thousand(env: str, given: Any, **drawing: Any) -> tuple[np.ndarray, np.ndarray, rollhouse.Batch]:
    """1,000 observations, actions as they were drawn, and all that was noted."""
    policy = policy_of(given, **drawing)
    with rollhouse.rollouts(env, 50, policy=policy, fragment=20, staleness=0, seed=3) as played:
        batch = played.next()
    assert batch.valid.all()
    observations = batch.observations[:-1].reshape(1000, -1).copy()
    return observations, batch.notes.get("drawn_action", batch.actions).reshape(1000, -1).copy(), batch


def _assert_plays(env: str, given: Any, original: Original) -> None:
    import torch

    observations, actions, _ = _thousand(env, given, deterministic=True)
    likeliest, _, _ = original(torch.from_numpy(observations), torch.from_numpy(actions))
    _assert_near(actions, likeliest)
    assert len(np.unique(actions)) > 1
    observations, actions, batch = _thousand(env, given)
    _, log_probs, values = original(torch.from_numpy(observations), torch.from_numpy(actions))
    if log_probs is not None:
        _assert_near(batch.log_probs.reshape(-1), log_probs)
    assert (batch.values is None) == (values is None)
    if values is not None:
        _assert_near(batch.values.reshape(-1), values)


def _of_distributions(policy: Callable[[Any], Any], value: Callable[[Any], Any] | None = None) -> Original:
    """What a function that gives distributions is as an original."""
    from torch.distributions import Categorical

    def original(observations: Any, actions: Any) -> tuple[Any, Any, Any]:
        distribution = policy(observations)
        values = None if value is None else value(observations)
        if isinstance(distribution, Categorical):
            return distribution.logits.argmax(-1), distribution.log_prob(actions[:, 0]), values
        return distribution.mean, distribution.log_prob(actions).sum(-1), values

    return original


def _centred(net: Any) -> Any:
    """Takes biases away, so that what begins around zero is acted on in different ways."""
    import torch

    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, torch.nn.Linear):
                part.bias.zero_()
    return net


def _mlp(*sizes: int, activation: Any = None) -> Any:
    from torch import nn

    layers: list[Any] = []
    for inputs, outputs in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(inputs, outputs), (activation or nn.Tanh)()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.adapters("torch")
@pytest.mark.parametrize("activation", ["Tanh", "ReLU", "ELU", "SiLU"])
def test_a_sequence_of_torch_is_the_layers_to_the_actions(activation: str):
    import torch
    from torch.distributions import Categorical

    torch.manual_seed(1)
    net = _centred(_mlp(4, 64, 2, activation=getattr(torch.nn, activation)))
    _assert_plays("CartPole-v1", net, _of_distributions(lambda seen: Categorical(logits=net(seen))))


@pytest.mark.adapters("torch")
@pytest.mark.parametrize(
    ("env", "names"),
    [
        ("CartPole-v1", ("policy", "value", None)),
        ("Pendulum-v1", ("policy", "value", "log_std")),
        ("CartPole-v1", ("actor", "critic", None)),
        ("Pendulum-v1", ("actor_mean", "critic", "actor_logstd")),
    ],
    ids=["ours", "ours of quantities", "CleanRL's", "CleanRL's of quantities"],
)
def test_an_agent_of_torch_is_known_by_the_names_of_its_layers(env: str, names: tuple[str, str, str | None]):
    import torch
    from torch.distributions import Categorical, Normal

    torch.manual_seed(2)
    policy, value, log_std = names
    spec = rollhouse.env_spec(env)
    inputs = spec["observation_space"]["shape"][0]
    agent = torch.nn.Module()
    agent.add_module(policy, _mlp(inputs, 64, 64, 1 if log_std else 2))
    agent.add_module(value, _mlp(inputs, 64, 64, 1))
    if log_std:
        # CleanRL's has an axis of rows.
        deviations = torch.full((1, 1) if log_std == "actor_logstd" else (1,), -0.3)
        agent.register_parameter(log_std, torch.nn.Parameter(deviations))

    def distribution(seen: Any) -> Any:
        outputs = getattr(agent, policy)(seen)
        return Normal(outputs, getattr(agent, log_std).exp()) if log_std else Categorical(logits=outputs)

    _assert_plays(env, agent, _of_distributions(distribution, getattr(agent, value)))


@pytest.mark.adapters("torch", "stable_baselines3")
@pytest.mark.parametrize(
    ("algorithm", "env"), [("PPO", "CartPole-v1"), ("A2C", "Pendulum-v1"), ("PPO", "Pendulum-v1"), ("DQN", "CartPole-v1"), ("SAC", "Pendulum-v1")]
)
def test_a_model_of_stable_baselines3_plays_as_it_predicts(algorithm: str, env: str):
    import stable_baselines3
    import torch

    model = getattr(stable_baselines3, algorithm)("MlpPolicy", env, seed=4, device="cpu")
    with torch.no_grad():
        # Untrained nets have outputs that are nearly the same for all.
        last = {"DQN": lambda: model.policy.q_net.q_net[-1], "SAC": lambda: model.policy.actor.mu}
        last.get(algorithm, lambda: model.policy.action_net)().weight *= 20
        if algorithm == "DQN":
            _centred(model.policy.q_net)

    def original(observations: Any, actions: Any) -> tuple[Any, Any, Any]:
        likeliest = model.predict(observations.numpy(), deterministic=True)[0]
        if algorithm in ("DQN", "SAC"):
            return likeliest, None, None
        # The means themselves: what is predicted is cut to the bounds.
        means = likeliest if env == "CartPole-v1" else model.policy.get_distribution(observations).mode()
        values, log_probs, _ = model.policy.evaluate_actions(observations, actions if env != "CartPole-v1" else actions[:, 0])
        return means, log_probs, values

    _assert_plays(env, model, original)


@pytest.mark.adapters("torch", "stable_baselines3")
def test_squashed_quantities_have_the_log_probabilities_of_soft_actor_critics():
    import torch
    from stable_baselines3 import SAC

    actor = SAC("MlpPolicy", "Pendulum-v1", seed=5, device="cpu").policy.actor.double()
    given = {f"actor.{key}": value for key, value in actor.state_dict().items()}
    observations, actions, batch = _thousand("Pendulum-v1", given)
    squashed = torch.from_numpy(actions.astype(np.float64) / 2)
    hidden = actor.latent_pi(torch.from_numpy(observations).double())
    mean, log_std = actor.mu(hidden), actor.log_std(hidden)
    wanted = actor.action_dist.proba_distribution(mean, log_std).log_prob(squashed)
    # Singles of an action have too few bits beyond to say what was drawn.
    clear = np.abs(squashed.numpy()[:, 0]) < 0.9
    assert clear.sum() > 500
    _assert_near(batch.log_probs.reshape(-1)[clear], wanted[torch.from_numpy(clear)])


def _skrl_agent(kind: str, env: Any) -> Any:
    import torch
    from skrl.agents.torch.dqn import DQN, DQN_CFG
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.resources.preprocessors.torch import RunningStandardScaler
    from skrl.utils.model_instantiators.torch import categorical_model, deterministic_model, gaussian_model, shared_model

    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}
    network = [{"name": "net", "input": "OBSERVATIONS", "layers": [32, 32], "activations": "elu"}]
    if kind == "DQN":
        q_network = deterministic_model(**spaces, network=network, output="ACTIONS")
        models = {"q_network": q_network, "target_q_network": deterministic_model(**spaces, network=network, output="ACTIONS")}
        return DQN(models=models, cfg=DQN_CFG(), **spaces)
    cfg = PPO_CFG()
    if kind == "shared":
        parts = [{"network": network, "output": "ACTIONS", "initial_log_std": -0.4}, {"network": network, "output": "ONE"}]
        model = shared_model(**spaces, structure=["GaussianMixin", "DeterministicMixin"], roles=["policy", "value"], parameters=parts)
        return PPO(models={"policy": model, "value": model}, cfg=cfg, **spaces)
    make = categorical_model if kind == "categorical" else gaussian_model
    models = {"policy": make(**spaces, network=network, output="ACTIONS"), "value": deterministic_model(**spaces, network=network, output="ONE")}
    if kind == "scaled":
        cfg.observation_preprocessor = cfg.value_preprocessor = RunningStandardScaler
        cfg.observation_preprocessor_kwargs = {"size": env.observation_space, "device": "cpu"}
        cfg.value_preprocessor_kwargs = {"size": 1, "device": "cpu"}
    agent = PPO(models=models, cfg=cfg, **spaces)
    if kind == "scaled":
        agent._observation_preprocessor(torch.randn(100, 3) * torch.tensor([1.0, 2.0, 5.0]) + 0.3, train=True)
        agent._value_preprocessor(torch.randn(100, 1) * 3 + 7, train=True)
    return agent


@pytest.mark.adapters("torch", "skrl")
@pytest.mark.parametrize("kind", ["gaussian", "scaled", "shared", "categorical", "DQN"])
def test_an_agent_of_skrl_plays_as_it_acts(kind: str):
    import gymnasium
    import torch

    torch.manual_seed(6)
    env = "CartPole-v1" if kind in ("categorical", "DQN") else "Pendulum-v1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agent = _skrl_agent(kind, gymnasium.make(env))
    if env == "CartPole-v1":
        # Its layers have no inputs before it has run once.
        policy_of(agent)
        _centred(next(iter(agent.models.values())))

    def original(observations: Any, actions: Any) -> tuple[Any, Any, Any]:
        if kind == "DQN":
            values, _ = agent.models["q_network"].act({"observations": observations}, role="q_network")
            return values.argmax(-1), None, None
        inputs = {"observations": agent._observation_preprocessor(observations), "states": None, "taken_actions": actions}
        _, beside = agent.policy.act(inputs, role="policy")
        value, _ = agent.value.act(inputs, role="value")
        likeliest = beside["net_output"].argmax(-1) if kind == "categorical" else beside["mean_actions"]
        return likeliest, beside["log_prob"], agent._value_preprocessor(value, inverse=True)

    _assert_plays(env, agent, original)


class _Linear:
    """A layer in NumPy, as much of torch's as an exporter looks at."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray | None):
        self.weight, self.bias, self.hooks = weight, bias, []

    def children(self) -> list[Any]:
        return []

    def register_forward_hook(self, hook: Any) -> Any:
        self.hooks.append(hook)
        return SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        outputs = self.compute(rows)
        for hook in self.hooks:
            hook(self, rows, outputs)
        return outputs

    def compute(self, rows: np.ndarray) -> np.ndarray:
        return rows @ self.weight.T + (0 if self.bias is None else self.bias)


class _Tanh(_Linear):
    def __init__(self) -> None:
        super().__init__(np.zeros((0, 0)), None)

    def compute(self, rows: np.ndarray) -> np.ndarray:
        return np.tanh(rows)


_Linear.__name__, _Tanh.__name__ = "Linear", "Tanh"


class _Weights(np.ndarray):
    def new_tensor(self, array: np.ndarray) -> np.ndarray:
        return array


class _Model:
    """A model as skrl has them: what it computes is its user's."""

    training = True
    observation_space = SimpleNamespace(shape=(4,))

    def __init__(self, outputs: int, beside: dict[str, Any], scale: float = 1.0):
        rng = np.random.default_rng(outputs)
        self.parts = [_Linear(rng.standard_normal((8, 4)), rng.standard_normal(8)), _Tanh(), _Linear(rng.standard_normal((outputs, 8)), None)]
        self.beside, self.scale = beside, scale

    def eval(self) -> None:
        self.training = False

    def train(self, training: bool) -> None:
        self.training = training

    def modules(self) -> list[Any]:
        return self.parts

    def parameters(self) -> list[Any]:
        return [np.zeros(1).view(_Weights)]

    def act(self, inputs: dict[str, Any], *, role: str) -> tuple[Any, dict[str, Any]]:
        rows = inputs["observations"]
        for part in self.parts:
            rows = part(rows)
        rows = rows * self.scale
        return rows, {key: rows if value is None else value for key, value in self.beside.items()}


def _agent(**models: Any) -> Any:
    return SimpleNamespace(models=models, checkpoint_modules={})


def test_an_agent_is_taken_by_the_layers_that_its_models_call():
    policy, value = _Model(2, {"net_output": None}), _Model(1, {})
    observations, actions, batch = _thousand("CartPole-v1", _agent(policy=policy, value=value))
    logits, _ = policy.act({"observations": observations.astype(np.float64)}, role="policy")
    wanted = np.take_along_axis(logits - np.log(np.exp(logits).sum(-1, keepdims=True)), actions, -1)
    _assert_near(batch.log_probs.reshape(-1, 1), wanted)
    _assert_near(batch.values.reshape(-1, 1), value.act({"observations": observations}, role="value")[0])
    assert policy.training and not policy.parts[0].hooks, "it is as it was"


def test_an_agent_that_computes_more_than_its_layers_is_refused():
    def refused(words: str, **models: Any) -> None:
        with pytest.raises(PolicyError, match=words):
            policy_of(_agent(**models))

    refused("computes something else than the 2 dense layers that it calls", policy=_Model(2, {"net_output": None}, scale=2.0))
    refused("the policy draws nothing", policy=_Model(2, {}))
    uneven = np.arange(64.0)[:, None]
    refused("deviations depend on what it observes", policy=_Model(1, {"mean_actions": None, "log_std": uneven}))
    odd = _Model(2, {"net_output": None})
    odd.parts.append(_Tanh())
    refused("has a Tanh where a file has dense layers", policy=odd)
    probabilities = _Model(2, {"net_output": None})
    probabilities._c_unnormalized_log_prob = False
    refused("outputs are probabilities", policy=probabilities)
    refused("neither a policy nor a q_network, but critic", critic=_Model(1, {}))
    left_out = _agent(policy=_Model(2, {"net_output": None}), value=_Model(1, {}, scale=2.0))
    assert _thousand("CartPole-v1", left_out)[2].values is None
