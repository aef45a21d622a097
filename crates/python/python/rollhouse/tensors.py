"""A vector env in PyTorch tensors, over the batch's own memory."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rollhouse.native_env import NativeVectorEnv

if TYPE_CHECKING:
    from rollhouse.vector import VectorEnv

TensorStep = tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]


class TensorView:
    """``reset``, ``step``, ``send``, ``recv``, ``close`` and the spaces of a ``VectorEnv``, in tensors.

    Observations have the space's dtype (those of a Dict or Tuple space are a dict or tuple of tensors), rewards are float64
    and flags bool. In infos, ``valid`` is a tensor;
    everything else stays NumPy.

    On the CPU a tensor shares the memory of the array that the env would have returned: with ``copy=False`` the
    engine's own, which the second next step overwrites. Do not write to it.

    On a CUDA device results are tensors of their own, copied there from the engine's memory, which is pinned
    once, without waiting for the copy: work queued on the current stream sees them complete.

    Attributes:
        envs: The vector env, which has everything else.
        num_envs, observation_space, action_space, single_observation_space, single_action_space: Those of ``envs``.
        device: The device that results are on.
        pinned: Whether the engine's memory is pinned.
    """

    def __init__(self, envs: VectorEnv, device: torch.device | str | None = None):
        self.envs = envs
        self.num_envs = envs.num_envs
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        self.single_observation_space = envs.single_observation_space
        self.single_action_space = envs.single_action_space
        self.device = torch.device("cpu" if device is None else device)
        self.pinned = False
        # Lanes of worker processes give arrays of Python's.
        self._native = envs._native if isinstance(envs, NativeVectorEnv) else None
        self._on_cpu = self.device.type == "cpu"
        # Tensors of arrays that come again, with the arrays, whose ids are theirs only while they live.
        self._known: dict[int, tuple[np.ndarray, torch.Tensor]] = {}
        self._remembers = isinstance(envs, NativeVectorEnv) and (not self._on_cpu or not envs.copies)
        # Copies under way from the slot that the next step, and the one after it, overwrite.
        self._copies: list[Any] = []
        if self.device.type == "cuda" and self._native is not None:
            self.pinned = _pin(self, self._native.addresses)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets as ``VectorEnv.reset`` does; ``options["reset_mask"]`` may be a bool tensor."""
        if options is not None and isinstance(options.get("reset_mask"), torch.Tensor):
            options = {**options, "reset_mask": options["reset_mask"].cpu().numpy()}
        while self._copies:
            self._copies.pop().synchronize()
        obs, infos = self.envs.reset(seed=seed, options=options)
        return _of_each(obs, self._tensor if self._on_cpu else self._fresh), infos

    def step(self, actions: torch.Tensor) -> TensorStep:
        """Steps as ``VectorEnv.step`` does; fastest with a contiguous int64 (Discrete) or float32 (Box) tensor."""
        if self._native is None:
            return self._tensors(self.envs.step(_array(actions)))
        self._await_copies()
        native = self._native.step if self._on_cpu else self._native.step_views
        return self._tensors(native(_array(actions)))

    def send(self, actions: torch.Tensor, env_ids: Any = None) -> None:
        """Sends actions as ``VectorEnv.send`` does."""
        if isinstance(env_ids, torch.Tensor):
            env_ids = env_ids.cpu().numpy()
        self.envs.send(_array(actions), env_ids)

    def recv(self, min_envs: int | None = None, timeout: float | None = 60.0) -> TensorStep:
        """Receives results as ``VectorEnv.recv`` does; in infos ``env_id`` is a tensor too."""
        *arrays, infos = self.envs.recv(min_envs, timeout)
        infos["env_id"] = self._fresh(infos["env_id"])
        if "valid" in infos:
            infos["valid"] = self._fresh(infos["valid"])
        obs, rewards, terminations, truncations = (_of_each(array, self._fresh) for array in arrays)
        return obs, rewards, terminations, truncations, infos

    def close(self) -> None:
        """Closes the vector env."""
        self.envs.close()

    def __enter__(self) -> TensorView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tensors(self, step: Any) -> TensorStep:
        obs, rewards, terminations, truncations, infos = step
        tensor = self._tensor
        if "valid" in infos:
            infos["valid"] = tensor(infos["valid"])
        result = (_of_each(obs, tensor), tensor(rewards), tensor(terminations), tensor(truncations), infos)
        self._copies_begun()
        return result

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        """Makes a tensor from an array that the engine returned."""
        if not self._remembers:
            return self._fresh(array)
        known = self._known.get(id(array))
        if known is None:
            # Lost lanes make steps return arrays that do not come again: those are not kept.
            shared = _shared(array)
            if not array.flags.owndata or not array.flags.writeable:
                self._known[id(array)] = (array, shared)
        else:
            shared = known[1]
        return shared if self._on_cpu else shared.to(self.device, non_blocking=self.pinned)

    def _fresh(self, array: np.ndarray) -> torch.Tensor:
        tensor = _shared(array)
        return tensor if self._on_cpu else tensor.to(self.device)

    def _copies_begun(self) -> None:
        if self.pinned:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(self.device))
            self._copies.append(event)

    def _await_copies(self) -> None:
        """Waits for copies: the next step writes to the slot of the last but one, so copies from that must have
        arrived.
        """
        if len(self._copies) > 1:
            self._copies.pop(0).synchronize()


def _of_each(value: Any, tensor: Callable[[np.ndarray], torch.Tensor]) -> Any:
    """Makes tensors of an array, or of each array of a dict or tuple. Texts, and single numbers of a sequence, stay what they are."""
    if isinstance(value, dict):
        return {key: _of_each(part, tensor) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_of_each(part, tensor) for part in value)
    return tensor(value) if isinstance(value, np.ndarray) and value.dtype != object else value


def _array(actions: torch.Tensor) -> Any:
    # On the CPU this shares memory; from a device it waits.
    return actions.detach().cpu().numpy() if isinstance(actions, torch.Tensor) else actions


def shared_tensors(value: Any) -> Any:
    """Returns arrays, and dicts and tuples of them, as tensors of the same memory; anything else as it is."""
    if isinstance(value, dict):
        return {key: shared_tensors(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(shared_tensors(part) for part in value)
    return _shared(value) if isinstance(value, np.ndarray) else value


def _shared(array: np.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():
        # That views are read-only is said in the class's documentation.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _pin(view: TensorView, addresses: tuple[int, int]) -> bool:
    """Pins the engine's memory until the view is gone. Returns False, with a warning, if the driver refuses."""
    start, end = addresses
    cudart: Any = torch.cuda.cudart()
    error = cudart.cudaHostRegister(start, end - start, 0)
    if int(error) != 0:
        warnings.warn(f"the engine's memory is not pinned: {error}; copies to {view.device} wait", stacklevel=4)
        return False
    unregister: Callable[[int], Any] = cudart.cudaHostUnregister
    # Holding the native engine keeps the memory where it is until it is unpinned.
    weakref.finalize(view, _unpin, unregister, start, view._native)
    return True


def _unpin(unregister: Callable[[int], Any], start: int, native: Any) -> None:
    torch.cuda.synchronize()
    unregister(start)
    del native
