"""Vector envs for Stable-Baselines3.

    from stable_baselines3 import PPO
    from rollhouse.sb3 import make_vec_env

    PPO("MlpPolicy", make_vec_env("CartPole-v1", 64, seed=0)).learn(1_000_000)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

import rollhouse
from rollhouse.info_layout import lane_info
from rollhouse.vector import VectorEnv

try:
    from stable_baselines3.common.vec_env import VecEnv, VecMonitor
except ImportError as error:
    raise ImportError("rollhouse.sb3 needs Stable-Baselines3: pip install 'stable-baselines3>=2.9'") from error

__all__ = ["Sb3VecEnv", "make_vec_env"]


def make_vec_env(
    env_id: str, n_envs: int = 1, seed: int | None = None, *, monitor: bool = True, **arguments: Any
) -> VecEnv:
    """A Stable-Baselines3 ``VecEnv`` of ``n_envs`` lanes.

    Args:
        env_id: As for ``rollhouse.make_vec``: a built-in env, or ``"gymnasium:ID"`` for any other in workers.
        n_envs: Lanes.
        seed: Lane i is seeded with ``seed + i`` at the first reset.
        monitor: Wraps it in SB3's ``VecMonitor``, which training needs to log returns.
        arguments: Further ones of ``rollhouse.make_vec``: ``record=True``, ``threads``, ...
    """
    fixed = {"autoreset_mode", "info_layout"} & arguments.keys()
    if fixed:
        raise TypeError(f"{', '.join(sorted(fixed))}: decided by Stable-Baselines3")
    envs = rollhouse.make_vec(
        env_id, n_envs, autoreset_mode=AutoresetMode.SAME_STEP, info_layout="gymnasium", **arguments
    )
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
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        """Resets all lanes, with the seeds and options that were set since the last reset; gives observations."""
        seeds = self._seeds if any(seed is not None for seed in self._seeds) else None
        observations, infos = self.envs.reset(seed=seeds, options=self._options[0] or None)
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
            for lane, info in zip(group, self._lane_infos(infos, group), strict=True):
                self.reset_infos[lane] = info
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Keeps the actions for ``step_wait``, which steps."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Steps all lanes: observations, rewards, dones, infos."""
        observations, rewards, terminations, truncations, infos = self.envs.step(self._actions)
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
                lanes[lane]["terminal_observation"] = _row(observations, lane)
        for info, truncated in zip(lanes, (truncations & ~terminations).tolist(), strict=True):
            info["TimeLimit.truncated"] = truncated
        return observations, rewards.astype(np.float32), dones, lanes

    def close(self) -> None:
        """Closes the lanes."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The attribute of the lanes' envs."""
        if attr_name == "render_mode":
            values: Sequence[Any] = [self.envs.render_mode] * self.num_envs
        else:
            values = self.envs.get_attr(attr_name)
        return [values[lane] for lane in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets the attribute of the lanes' envs to ``value``; others are set to what they have."""
        chosen = set(self._get_indices(indices))
        if chosen == set(range(self.num_envs)):
            values = [value] * self.num_envs
        else:
            kept = self.envs.get_attr(attr_name)
            values = [value if lane in chosen else kept[lane] for lane in range(self.num_envs)]
        self.envs.set_attr(attr_name, values)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Calls the method of the lanes' envs."""
        lanes = list(self._get_indices(indices))
        if lanes != list(range(self.num_envs)):
            raise ValueError(f"indices={indices!r}: methods are called on all lanes or on none")
        return list(self.envs.call(method_name, *method_args, **method_kwargs))

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        """Whether the lanes' envs are wrapped so; those of built-in envs never are."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """The rendered frame of every lane."""
        frames = self.envs.render()
        return [None] * self.num_envs if frames is None else list(frames)

    def _lane_infos(self, infos: dict[str, Any], lanes: Iterable[int]) -> list[dict[str, Any]]:
        return [lane_info(infos, lane) for lane in lanes]


def _row(observations: Any, lane: int) -> Any:
    if isinstance(observations, dict):
        return {key: _row(value, lane) for key, value in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_row(value, lane) for value in observations)
    return np.copy(observations[lane])
