"""Vector envs for Tianshou.

from rollhouse.tianshou import VectorEnv

collector = Collector(policy, VectorEnv(rollhouse.make_vec("CartPole-v1", 64)), VectorReplayBuffer(20_000, 64))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

import rollhouse
from rollhouse.info_layout import lane_info
from rollhouse.vector import rows_at

try:
    from tianshou.env import BaseVectorEnv
except ImportError as error:
    raise ImportError("rollhouse.tianshou needs Tianshou: pip install tianshou") from error

__all__ = ["VectorEnv"]


class VectorEnv(BaseVectorEnv):
    """A ``rollhouse.VectorEnv`` as Tianshou wants it: with a length, and with calls for some of its lanes.

    Tianshou begins episodes itself, so lanes whose episode is over are reset by its collectors and not by autoreset.

    Args:
        envs: In NEXT_STEP or DISABLED mode. It is closed with this.
    """

    def __init__(self, envs: rollhouse.VectorEnv):
        if envs.autoreset_mode is gymnasium.vector.AutoresetMode.SAME_STEP:
            raise ValueError("envs: autoreset_mode is SameStep, and Tianshou resets lanes itself")
        # Not the base's, which makes workers for functions that make envs.
        self.envs = envs
        self.env_num = self.wait_num = envs.num_envs
        self.is_async = self.is_closed = False
        self.waiting_id: list[int] = []
        self._seed: Any = None

    def __len__(self) -> int:
        return self.env_num

    def __getattribute__(self, name: str) -> Any:
        # The base asks its workers for these.
        if name in ("observation_space", "action_space"):
            return [getattr(self.envs, f"single_{name}")] * self.env_num
        return object.__getattribute__(self, name)

    def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[Any, np.ndarray]:
        """Begins an episode in the lanes of ``env_id``, or in all. Returns their observations and one dict of infos for
        each.
        """
        lanes = self._lanes(env_id)
        seed, self._seed = kwargs.pop("seed", self._seed), None
        options = dict(kwargs.pop("options", None) or {})
        if kwargs:
            raise TypeError(f"reset takes seed and options, not {', '.join(kwargs)}")
        if len(lanes) < self.env_num:
            options["reset_mask"] = np.isin(np.arange(self.env_num), lanes)
            if isinstance(seed, (list, tuple)):
                seed = _spread(seed, lanes, self.env_num)
        observations, infos = self.envs.reset(seed=seed, options=options or None)
        return rows_at(observations, lanes, self.envs.single_observation_space), _dicts(infos, lanes, lanes)

    def step(self, action: Any, id: Any = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Steps the lanes of ``id``, or all. Returns observations, rewards, terminations, truncations, one dict of
        infos for each.
        """
        lanes = self._lanes(id)
        actions = np.asarray(action)
        if len(lanes) == self.env_num and (lanes == np.arange(self.env_num)).all():
            *arrays, infos = self.envs.step(actions)
            rows = lanes
        else:
            self.envs.send(actions, lanes)
            *arrays, infos = self.envs.recv()
            order = {lane: row for row, lane in enumerate(infos["env_id"].tolist())}
            rows = np.array([order[lane] for lane in lanes.tolist()], np.intp)
        observations, *ends = arrays
        observations = rows_at(observations, rows, self.envs.single_observation_space)
        rewards, terminations, truncations = (array[rows] for array in ends)
        return observations, rewards, terminations, truncations, _dicts(infos, rows, lanes)

    def seed(self, seed: int | Sequence[int] | None = None) -> list[Any]:
        """Seeds the next reset: lane i with ``seed + i``, or each with its own."""
        self._seed = seed
        return [None if seed is None else [seed + i if isinstance(seed, int) else seed[i]] for i in range(len(self))]

    def render(self, **kwargs: Any) -> list[Any]:
        """Returns the rendered frame of every lane."""
        frames = self.envs.render()
        return [None] * self.env_num if frames is None else list(frames)

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:
        """Returns the attribute of the lanes' envs."""
        values = self.envs.get_attr(key)
        return [values[lane] for lane in self._lanes(id)]

    def set_env_attr(self, key: str, value: Any, id: Any = None) -> None:
        """Sets the attribute of the lanes' envs."""
        lanes = set(self._lanes(id).tolist())
        values = [value if lane in lanes else old for lane, old in enumerate(self.envs.get_attr(key))]
        self.envs.set_attr(key, values)

    def close(self) -> None:
        """Closes the lanes."""
        self.is_closed = True
        self.envs.close()

    def _lanes(self, ids: Any) -> np.ndarray:
        return np.arange(self.env_num) if ids is None else np.atleast_1d(np.asarray(ids, dtype=np.int64))


def _spread(seeds: Sequence[int], lanes: np.ndarray, count: int) -> list[int | None]:
    given = dict(zip(lanes.tolist(), seeds, strict=True))
    return [given.get(lane) for lane in range(count)]


def _dicts(infos: dict[str, Any], rows: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Returns one dict for each row, with the lane that it belongs to."""
    dicts = [{**lane_info(infos, row), "env_id": lane} for row, lane in zip(rows.tolist(), lanes.tolist(), strict=True)]
    return np.array(dicts, dtype=object)
