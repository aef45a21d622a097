"""Vector envs of built-in envs, wherever their lanes run: what they share."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rollhouse import _native
from rollhouse.errors import ActionTypeError, ClosedError, InvalidActionError, OptionsError
from rollhouse.vector import Step, VectorEnv

if TYPE_CHECKING:
    from rollhouse.tensors import TensorView

NAMESPACE = "rollhouse/"
"""What built-in envs are called in Gymnasium's registry, before their own id."""


class NativeVectorEnv(VectorEnv):
    """N lanes of a built-in env, whose arrays the native half makes.

    With ``copy=True`` every call returns fresh arrays. With ``copy=False`` it returns read-only views of the
    batch's memory, made once: what a step returned stays as it is until the second next ``step`` or ``reset``
    overwrites it. The memory lives for as long as any view of it, also after ``close``. Terminal observations in
    ``infos["final_obs"]`` are always copies.

    A seeded run gives the same episodes wherever its lanes run. Lanes that were never seeded are seeded from the
    system's randomness by the first ``reset``; ``np_random_seed`` tells how.

    Built-in envs have no renderer: ``render_mode`` is None and ``render`` returns None. Their generators are not
    NumPy's, so there is no ``np_random``.

    Attributes:
        copies: As ``copy`` was given.
        transport: How this process and the lanes talk: ``"embedded"``, ``"shm"``, ``"quic"`` or ``"mixed"``.
    """

    copies: bool
    transport: str

    # Set before `_adopt`.
    _env_spec: Mapping[str, Any]
    _max_episode_steps: int | None
    _options: list[dict[str, Any]]

    def _adopt(self, native: _native.NativeLanes, *, seed: int | Sequence[int] | None, copy: bool) -> None:
        """Takes the lanes over, once everything else of the env is there."""
        self.copies = bool(copy)
        self._first_seeds = None if seed is None else self._parse_seeds(seed)
        self._native = native
        self._own_actions: np.ndarray | None = None
        self._native_step: Callable[[Any], Step] = native.step
        if self.info_layout == "0.29":
            self._native_step = self._old_step
        if type(self).step is NativeVectorEnv.step:
            # Saves a call of Python's per step: a twentieth of a small batch.
            self.step = self._native_step  # type: ignore[method-assign]

    def step(self, actions: Any) -> Step:
        """As ``VectorEnv.step``; fastest with a C-contiguous array of the action space's own dtype."""
        # All checks are made behind this call: the overhead of a small batch is counted in nanoseconds.
        return self._native_step(actions)

    @property
    def actions(self) -> np.ndarray:
        """An array of actions to fill in and hand to ``step``: the memory that the node reads, if lanes are stepped
        through one, so that nothing is copied; else an ordinary array. Writing to it during a step decides which
        action is taken.
        """
        self._check_usable()
        column = self._native.actions
        if column is None:
            if self._own_actions is None:
                space = self.single_action_space
                shape, dtype = (self.num_envs, *(space.shape or ())), space.dtype
                self._own_actions = np.zeros(shape, dtype)
            return self._own_actions
        return column

    def torch(self, device: Any = None) -> TensorView:
        """The same env with ``reset``, ``step``, ``send`` and ``recv`` in tensors; needs PyTorch.

        Args:
            device: Where results go; None or ``"cpu"`` for tensors over the engine's own memory.
        """
        self._check_usable()
        from rollhouse.tensors import TensorView

        return TensorView(self, device)

    def _old_step(self, actions: Any) -> Step:
        return self._in_029(self._native.step(actions))

    def _in_029(self, step: Step) -> Step:
        from rollhouse.info_layout import infos_of_029

        return (*step[:4], infos_of_029(step[4], len(step[1])))

    def _step(self, actions: Any) -> Step:
        return self._native_step(actions)

    def _reset(
        self, seeds: list[int | None], mask: np.ndarray | None, options: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any]]:
        if options:
            raise OptionsError(
                f"options={options!r}: lanes of built-in envs take only 'reset_mask' when they are reset; "
                "other options are given when the env is made"
            )
        for lane, known in enumerate(self._lane_seeds):
            # A lane that was never seeded is, so that its episodes can be made again.
            if known is None and seeds[lane] is None and (mask is None or mask[lane]):
                first = self._first_seeds[lane] if self._first_seeds is not None else None
                seeds[lane] = int.from_bytes(os.urandom(6), "little") if first is None else first
        return self._native.reset(seeds, [] if mask is None else mask.tolist())

    def _send(self, actions: Any, env_ids: Any) -> None:
        lanes = np.arange(self.num_envs) if env_ids is None else np.asarray(env_ids)
        if lanes.ndim != 1 or (lanes.size and lanes.dtype.kind not in "iu"):
            raise TypeError(f"env_ids={env_ids!r} must be a sequence of lane indices")
        if lanes.size and not 0 <= lanes.min() <= lanes.max() < self.num_envs:
            bad = next(int(lane) for lane in lanes if not 0 <= lane < self.num_envs)
            raise IndexError(f"env_ids: lane {bad} of a batch of {self.num_envs}")
        self._native.send(actions, lanes.tolist())

    def _recv(self, min_envs: int | None, timeout: float | None) -> Step:
        step = self._native.recv(min_envs, timeout)
        return self._in_029(step) if self.info_layout == "0.29" else step

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if name == "render":
            return (None,) * self.num_envs
        if args or kwargs or name.startswith("_"):
            raise AttributeError(f"lanes of {self._env_spec['id']} have no method {name!r}")
        shared = {
            "action_space": self.single_action_space,
            "max_episode_steps": self._max_episode_steps,
            "metadata": self.metadata,
            "observation_space": self.single_observation_space,
            "render_mode": None,
            "spec": self.spec,
        }
        if name in shared:
            return (shared[name],) * self.num_envs
        if name == "np_random_seed":
            return self.np_random_seed
        if name not in self._env_spec["options"]:
            known = ", ".join(sorted([*shared, "np_random_seed", *self._env_spec["options"]]))
            raise AttributeError(f"lanes of {self._env_spec['id']} have no attribute {name!r}; they have {known}")
        default = self._env_spec["options"][name][0]
        per_lane = self._options if len(self._options) == self.num_envs else (self._options or [{}]) * self.num_envs
        return tuple(type(default)(options.get(name, default)) for options in per_lane)

    def _set_attr(self, name: str, values: list[Any]) -> None:
        self._call(name, (), {})
        raise AttributeError(
            f"attribute {name!r} of lanes of {self._env_spec['id']} is decided when the env is made"
        )

    def _close(self, **kwargs: Any) -> None:
        if hasattr(self, "_native"):
            self._native.close()

    def __del__(self) -> None:
        # Gymnasium before 1.3 closes here. The native half gives everything back when nobody can use it any
        # more, which may be later: a bound `step` outlives the env it was taken from.
        pass

    def _check_usable(self) -> None:
        # Forks are noticed by the native half.
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} is closed")


def make_space(space: Mapping[str, Any]) -> gymnasium.Space:
    """The Gymnasium space that ``env_spec`` describes."""
    if space["kind"] == "dict":
        return gymnasium.spaces.Dict([(name, make_space(part)) for name, part in space["spaces"]])
    if space["kind"] == "tuple":
        return gymnasium.spaces.Tuple([make_space(part) for part in space["spaces"]])
    if space["kind"] == "discrete":
        return gymnasium.spaces.Discrete(space["n"], start=space["start"])
    dtype = np.dtype(space["dtype"])
    low, high = (
        np.array(space[bound], dtype=np.float64).astype(dtype).reshape(space["shape"]) for bound in ("low", "high")
    )
    return gymnasium.spaces.Box(low, high, dtype=dtype.type)


def action_converter(space: gymnasium.Space) -> Callable[[Any, int], np.ndarray]:
    """A function of (actions, rows) that gives them as a C-contiguous array of the engine's own type.

    It raises ``InvalidActionError`` for a wrong number of them and ``ActionTypeError`` for a wrong type. Which
    values the space contains the engine checks.
    """
    discrete = isinstance(space, gymnasium.spaces.Discrete)
    row_shape = space.shape or ()
    dtype = np.dtype(np.int64 if discrete else space.dtype)
    kinds, what = ("iu", "integers") if discrete else ("fiu", "numbers")

    def convert(actions: Any, rows: int) -> np.ndarray:
        try:
            array = np.asarray(actions)
        except (ValueError, TypeError, RuntimeError) as error:
            raise ActionTypeError(f"actions={actions!r} cannot be made an array: {error}") from error
        if array.ndim == 0:
            raise ActionTypeError(f"actions={actions!r} must be one row per lane ({rows}), not a single value")
        if array.shape != (rows, *row_shape):
            raise InvalidActionError(f"actions have shape {array.shape}, must have {(rows, *row_shape)}")
        if array.dtype.kind not in kinds:
            raise ActionTypeError(f"actions have dtype {array.dtype}, must be {what} that fit {dtype}")
        if array.dtype == np.uint64 and discrete and array.size and array.max() > np.iinfo(np.int64).max:
            raise InvalidActionError(f"action {array.max()} is not in {space}")
        with np.errstate(over="ignore"):
            # What a double has beyond a single becomes infinite, which the engine refuses.
            return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])

    return convert


def lane_options_of(
    spec: Mapping[str, Any],
    shared: Mapping[str, Any],
    lane_options: Sequence[Mapping[str, Any]] | None,
    num_envs: int,
) -> list[dict[str, Any]]:
    """One dict of options for all lanes, or one per lane."""
    if lane_options is not None and len(lane_options) != num_envs:
        raise ValueError(f"lane_options has {len(lane_options)} dicts, must have one per lane ({num_envs})")
    lanes = [dict(shared)] if lane_options is None else [{**shared, **one} for one in lane_options]
    known = list(spec["options"])
    for name in (name for lane in lanes for name in lane):
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            takes = ", ".join(known) if known else "no options"
            raise OptionsError(f"unknown option {name!r}; {hint}{spec['id']} takes {takes}")
    # NumPy's scalars are not Python's.
    return [{name: plain(value) for name, value in lane.items()} for lane in lanes]


def plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={value!r} must be an integer")
    if value < 1:
        raise ValueError(f"{name}={value} must be at least 1")
    return int(value)
