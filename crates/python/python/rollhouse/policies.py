"""Policies as nodes take them: built-in ones by their names, nets as files of safetensors or ONNX."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rollhouse import _native
from rollhouse.errors import PolicyError
from rollhouse.skrl_agent import ACTIVATIONS, is_agent, net_of

BUILTIN = ("random", "noop")
"""Policies that every node has."""

ENDINGS = (".safetensors", ".onnx")
"""Endings of files of nets."""

MAX_BYTES = 64 << 20
"""Bytes of the file of a policy that nodes take."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A policy that nodes can play by.

    Attributes:
        name: The name that is recorded with the episodes that it plays; of a built-in policy its own.
        file: The bytes of its file, of safetensors or ONNX; empty for a built-in policy.
        version: The version of its weights, which each step has that they choose. None for one more than the last.
        deterministic, temperature, epsilon: How it draws actions. None, of all three, for what its file says.
    """

    name: str
    file: bytes = b""
    version: int | None = None
    deterministic: bool | None = None
    temperature: float | None = None
    epsilon: float | None = None

    def _given(self, version: int, seed: int) -> tuple[str, int, int, tuple[bool, float, float] | None, bytes]:
        """Returns it as the native half takes it."""
        sampling = None
        if (self.deterministic, self.temperature, self.epsilon) != (None, None, None):
            temperature = 1.0 if self.temperature is None else float(self.temperature)
            sampling = (bool(self.deterministic), temperature, float(self.epsilon or 0.0))
        return self.name, version if self.version is None else self.version, seed, sampling, self.file


def is_of_cluster(policy: Any) -> bool:
    """Returns whether that is the name of a policy that a cluster would have."""
    return isinstance(policy, str) and policy not in BUILTIN and not policy.endswith(ENDINGS)


def policy_of(policy: Any, *, name: str = "policy", **drawing: Any) -> Policy:
    """Makes a policy of what nets come as.

    Args:
        policy: A ``Policy``; ``"random"`` or ``"noop"``; the path of a file of safetensors or ONNX, or its bytes; a torch module, a
            Stable-Baselines3 model, or its ``state_dict``, of a net of dense layers (docs/policies.md lists the names of layers that
            are known); an agent of skrl. A plain ``torch.nn.Sequential`` is taken for the layers to the actions.
        name: The name under which it is recorded.
        **drawing: ``version``, ``deterministic``, ``temperature`` and ``epsilon`` of the ``Policy``.

    Raises:
        PolicyError: It is nothing of that, or its file is too long.
    """
    if isinstance(policy, Policy):
        return replace(policy, **drawing)
    if isinstance(policy, str) and not policy.endswith(ENDINGS):
        return Policy(name=policy, **drawing)
    if isinstance(policy, (str, os.PathLike)):
        path = Path(policy)
        return _checked(Policy(name=path.stem, file=path.read_bytes(), **drawing))
    if isinstance(policy, (bytes, bytearray)):
        return _checked(Policy(name=name, file=bytes(policy), **drawing))
    return _checked(Policy(name=name, file=net_file(policy), **drawing))


def net_file(net: Any, **metadata: str) -> bytes:
    """Writes a net as a file of safetensors, with what the file says beside its tensors."""
    if is_agent(net):
        net, said = net_of(net)
        metadata = {**said, **metadata}
    if not isinstance(net, Mapping):
        # A model of Stable-Baselines3 has its net in `policy`.
        module = getattr(net, "policy", net) if hasattr(net, "get_parameters") else net
        if not hasattr(module, "state_dict"):
            raise PolicyError(f"{type(net).__name__} is no policy: no name, file, torch module or state_dict")
        metadata = {**_activation(module), **metadata}
        net = module.state_dict()
    tensors = {key: _array(key, value) for key, value in net.items()}
    if tensors and all(key.partition(".")[0].isdigit() for key in tensors):
        tensors = {f"policy.{key}": value for key, value in tensors.items()}
    return _safetensors(tensors, metadata)


def dialect_file(policy: Any, dialect: str, env: str) -> bytes:
    """Writes a net of dense layers as the ONNX that another program takes, as ``rollhouse policy export`` does with a dialect.

    Args:
        policy: What ``policy_of`` takes of dense nets.
        dialect: ``"unreal"``, ``"godot"`` or ``"mlagents"``.
        env: An env of this process, whose spaces say what the net's inputs and outputs are.

    Raises:
        ValueError: There is no such dialect.
        PolicyError: The policy has no file or does not fit the env, or the dialect has no place for it.
    """
    given = policy_of(policy)
    if not given.file:
        raise PolicyError(f"policy {given.name!r} has no file")
    return _native.policy_in_dialect(given.file, dialect, env)


def _activation(module: Any) -> dict[str, str]:
    """Returns the activation of a module's layers, if it is one that files say."""
    kinds = {type(part).__name__ for part in module.modules()} & ACTIVATIONS.keys()
    if len(kinds) > 1:
        raise PolicyError(f"the net has layers of {', '.join(sorted(kinds))}; a file has one activation")
    return {"activation": ACTIVATIONS[kind] for kind in kinds}


def _array(key: str, value: Any) -> np.ndarray:
    array = value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
    if array.dtype not in (np.float32, np.float64):
        raise PolicyError(f"tensor {key!r} has {array.dtype}; a net has float32 or float64")
    return np.ascontiguousarray(array)


def _safetensors(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    # The format: https://github.com/huggingface/safetensors#format
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for key, array in tensors.items():
        dtype = "F32" if array.dtype == np.float32 else "F64"
        header[key] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in tensors.values())


def _checked(policy: Policy) -> Policy:
    if len(policy.file) > MAX_BYTES:
        raise PolicyError(f"policy {policy.name!r} has {len(policy.file):,} bytes; nodes take at most {MAX_BYTES:,}")
    if not policy.file:
        raise PolicyError(f"the file of policy {policy.name!r} is empty")
    return policy
