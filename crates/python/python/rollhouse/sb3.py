"""Vector envs for Stable-Baselines3.

from stable_baselines3 import PPO
from rollhouse.sb3 import make_vec_env

PPO("MlpPolicy", make_vec_env("CartPole-v1", 64, seed=0)).learn(1_000_000)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

import rollhouse
from rollhouse.hosted import of_id
from rollhouse.info_layout import lane_info
from rollhouse.lookup import is_learned
from rollhouse.masks import choices_of, flat
from rollhouse.sb3_lane import Lane
from rollhouse.vector import VectorEnv, rows_at

try:
    from stable_baselines3.common.vec_env import VecEnv, VecMonitor
except ImportError as error:
    raise ImportError("rollhouse.sb3 needs Stable-Baselines3: pip install 'stable-baselines3>=2.9'") from error

__all__ = ["Sb3VecEnv", "make_vec_env"]

MASKS = "action_masks"
"""The method by which SB3-contrib asks an env which actions it takes."""


def make_vec_env(
    env_id: str | Callable[[], gymnasium.Env],
    n_envs: int = 1,
    seed: int | None = None,
    *,
    monitor: bool = True,
    wrapper_class: Callable[[gymnasium.Env], gymnasium.Env] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> VecEnv:
    """Makes a Stable-Baselines3 ``VecEnv`` of ``n_envs`` lanes.

    Args:
        env_id: A built-in env, such as ``"CartPole-v1"``. An id as ``rollhouse.make_vec`` takes it (``"gymnasium:ID"``) or a
            function that makes an env are hosted in worker processes.
        n_envs: Lanes.
        seed: Lane i is seeded with ``seed + i`` at the first reset.
        monitor: Wraps the whole in SB3's ``VecMonitor``, which training needs to log returns.
        wrapper_class: Wraps the env of every lane; only for hosted envs.
        env_kwargs: Arguments with which the env is made.
        arguments: Further arguments of ``rollhouse.make_vec`` (``record=True``, ``threads``, ...), or of
            ``rollhouse.vectorize`` for hosted envs (``workers``, ``on_loss``, ...).
    """
    fixed = {"autoreset_mode", "info_layout"} & arguments.keys()
    if fixed:
        raise TypeError(f"{', '.join(sorted(fixed))}: decided by Stable-Baselines3")
    arguments.update(autoreset_mode=AutoresetMode.SAME_STEP, info_layout="gymnasium")
    options = dict(env_kwargs or {})
    if callable(env_id) or is_learned(env_id):
        name, fn = (None, env_id) if callable(env_id) else (env_id, of_id(env_id, options))
        made_with = options if callable(env_id) else {}
        lanes: list[Any] = [functools.partial(Lane.make, lane, fn, wrapper_class, made_with) for lane in range(n_envs)]
        for made in lanes:
            made.env_id = name
        envs: VectorEnv = rollhouse.vectorize(lanes, **arguments)
    elif wrapper_class is not None:
        raise ValueError(
            f"wrapper_class: lanes of {env_id} cannot be wrapped; those of 'gymnasium:{env_id}' can"
        )
    else:
        envs = rollhouse.make_vec(env_id, n_envs, **options, **arguments)
    vec_env = Sb3VecEnv(envs)
    if seed is not None:
        vec_env.seed(seed)
    return VecMonitor(vec_env) if monitor else vec_env


class Sb3VecEnv(VecEnv):
    """A ``rollhouse.VectorEnv`` as Stable-Baselines3 wants it.

    Rewards are float32 [N], dones bool [N], infos one dict per lane: with ``TimeLimit.truncated``, and where an
    episode ended with ``terminal_observation`` and the infos of its last step; those of the reset that followed
    are in ``reset_infos``. ``seed`` and ``set_options`` take effect at the next reset, once.

    SB3 learns from every row it gets. Under ``on_loss="report"`` a lost lane therefore looks to it like an episode
    that a time limit cut at its last observation, with reward 0; ``infos[i]["valid"]`` is False there.

    ``env_method("action_masks")`` returns the newest masks of envs that give them in their infos, which is how
    ``MaskablePPO`` of SB3-contrib asks for them.

    Args:
        envs: In SAME_STEP mode, not with ``info_layout="0.29"``. It is closed with this.
    """

    def __init__(self, envs: VectorEnv):
        mode = envs.metadata.get("autoreset_mode")
        if mode != AutoresetMode.SAME_STEP:
            raise ValueError(f"envs: autoreset_mode is {mode}, Stable-Baselines3 needs AutoresetMode.SAME_STEP")
        if getattr(envs, "info_layout", None) == "0.29":
            raise ValueError("envs: info_layout is '0.29', must be 'default' or 'gymnasium'")
        self.envs = envs
        self._actions: Any = None
        self._has_lanes: bool | None = None
        self._masks: np.ndarray | None = None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        """Resets all lanes, with the seeds and options that were set since the last reset, and returns observations."""
        seeds = self._seeds if any(seed is not None for seed in self._seeds) else None
        observations, infos = self.envs.reset(seed=seeds, options=self._options[0] or None)
        self._masks = None
        self._keep_masks(infos)
        self.reset_infos = self._lane_infos(infos, range(self.num_envs))
        # Lanes with options of their own begin once more, in groups of the same options.
        left = [lane for lane in range(self.num_envs) if self._options[lane] != self._options[0]]
        while left:
            options = self._options[left[0]]
            group = [lane for lane in left if self._options[lane] == options]
            left = [lane for lane in left if self._options[lane] != options]
            mask = np.zeros(self.num_envs, np.bool_)
            mask[group] = True
            observations, infos = self.envs.reset(seed=seeds, options={**options, "reset_mask": mask})
            self._keep_masks(infos)
            for lane, info in zip(group, self._lane_infos(infos, group), strict=True):
                self.reset_infos[lane] = info
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Keeps the actions for ``step_wait``, which steps."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Steps all lanes. Returns observations, rewards, dones, infos."""
        observations, rewards, terminations, truncations, infos = self.envs.step(self._actions)
        self._keep_masks(infos)
        dones = terminations | truncations
        ended = np.flatnonzero(dones)
        final_obs, has_final = infos.pop("final_obs", None), infos.pop("_final_obs", None)
        final_info = infos.pop("final_info", {})
        infos.pop("_final_info", None)
        lanes = self._lane_infos(infos, range(self.num_envs)) if infos else [{} for _ in range(self.num_envs)]
        for lane in ended.tolist():
            if has_final is not None and has_final[lane]:
                self.reset_infos[lane] = lanes[lane]
                lanes[lane] = lane_info(final_info, lane)
                lanes[lane]["terminal_observation"] = final_obs[lane]
            else:
                # The lane was lost: its last observation is in its row.
                lanes[lane]["terminal_observation"] = deepcopy(rows_at(observations, lane, self.envs.single_observation_space))
        for info, truncated in zip(lanes, (truncations & ~terminations).tolist(), strict=True):
            info["TimeLimit.truncated"] = truncated
        return observations, rewards.astype(np.float32), dones, lanes

    def close(self) -> None:
        """Closes the lanes."""
        self.envs.close()

    def __enter__(self) -> Sb3VecEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Returns the attribute of the lanes' envs."""
        if attr_name == "render_mode":
            values: Sequence[Any] = [self.envs.render_mode] * self.num_envs
        elif attr_name == MASKS and self._masks is not None:
            values = [functools.partial(self.env_method, MASKS, indices=lane) for lane in range(self.num_envs)]
        else:
            values = self.envs.get_attr(attr_name)
        return [values[lane] for lane in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets the attribute of the lanes' envs to ``value``."""
        lanes = self._lanes(indices)
        if self._tells_lanes_apart():
            self.envs.call("sb3_set", lanes, attr_name, value)
        else:
            self._all_or_none(lanes, indices)
            self.envs.set_attr(attr_name, [value] * self.num_envs)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls the method of the lanes' envs."""
        lanes = self._lanes(indices)
        if method_name == MASKS and self._masks is not None:
            values: Any = self._masks.copy()
        elif self._tells_lanes_apart():
            values = self.envs.call("sb3_method", lanes, method_name, method_args, method_kwargs)
        else:
            self._all_or_none(lanes, indices)
            values = self.envs.call(method_name, *method_args, **method_kwargs)
        return [values[lane] for lane in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        """Returns whether the lanes' envs have that wrapper; those of built-in envs never have one."""
        if self._tells_lanes_apart():
            wrapped: Sequence[bool] = self.envs.call("sb3_is_wrapped", wrapper_class)
        else:
            wrapped = [False] * self.num_envs
        return [wrapped[lane] for lane in self._get_indices(indices)]

    def _keep_masks(self, infos: dict[str, Any]) -> None:
        """Keeps the masks of the lanes that give one; a lane that was lost may do all until it is back."""
        given = infos.get("action_mask")
        if given is None:
            return
        told = infos["_action_mask"]
        masks = {lane: flat(given[lane]) for lane in np.flatnonzero(told).tolist()}
        for lane, mask in masks.items():
            if mask is None or len(mask) != choices_of(self.action_space):
                # What is no mask is an info like others.
                return
            if self._masks is None:
                self._masks = np.ones((self.num_envs, len(mask)), np.bool_)
            self._masks[lane] = mask

    def _tells_lanes_apart(self) -> bool:
        """Returns whether the lanes are those of ``make_vec_env`` in workers."""
        if self._has_lanes is None:
            try:
                self._has_lanes = self.envs.get_attr("sb3_lane") == tuple(range(self.num_envs))
            except AttributeError:
                self._has_lanes = False
        return self._has_lanes

    def _lanes(self, indices: Any) -> set[int]:
        return set(self._get_indices(indices))

    def _all_or_none(self, lanes: set[int], indices: Any) -> None:
        if len(lanes) != self.num_envs:
            raise ValueError(f"indices={indices!r}: lanes of this kind can only be asked all together")

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Returns the rendered frame of every lane."""
        frames = self.envs.render()
        return [None] * self.num_envs if frames is None else list(frames)

    def _lane_infos(self, infos: dict[str, Any], lanes: Iterable[int]) -> list[dict[str, Any]]:
        return [lane_info(infos, lane) for lane in lanes]

