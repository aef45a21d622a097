"""One lane as a ``gymnasium.Env``, for libraries that take single envs; ``make_vec`` is the main use of this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array

from rollhouse.embedded import EmbeddedVectorEnv
from rollhouse.errors import UnknownOptionError
from rollhouse.native_env import RENDER_FPS
from rollhouse.vector import rows_at


class SingleEnv(gymnasium.Env):
    """A built-in env, as ``gymnasium.make("rollhouse/ID")`` makes it.

    It has no time limit of its own: Gymnasium's ``TimeLimit`` wrapper counts steps. Each step costs about a
    microsecond more than a lane of a vector env.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": RENDER_FPS}

    def __init__(self, env_id: str, render_mode: str | None = None, render_size: Sequence[int] | None = None, **options: Any):
        try:
            self._envs = EmbeddedVectorEnv(
                env_id,
                1,
                autoreset_mode=AutoresetMode.DISABLED,
                threads=1,
                max_episode_steps=0,
                info_layout="gymnasium",
                on_loss="raise",
                options=options,
                render_mode=render_mode,
                render_size=render_size,
            )
        except UnknownOptionError as error:
            # In the words by which trainers know that they can go without it.
            message = f"__init__() got an unexpected keyword argument {error.keyword!r}: {error}"
            raise UnknownOptionError(message, error.keyword) from None
        drawn = ("render_modes", "render_fps")
        self.metadata = {**self.metadata, **{key: self._envs.metadata[key] for key in drawn if key in self._envs.metadata}}
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        obs, infos = self._envs.reset(seed=seed, options=options)
        return rows_at(obs, 0, self.observation_space), infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Steps once. Over the end of an episode it raises ``ResetNeededError``."""
        obs, rewards, terminations, truncations, infos = self._envs.step(self._batched(action))
        single = {key: value[0] for key, value in infos.items() if not key.startswith("_")}
        row = rows_at(obs, 0, self.observation_space)
        return row, float(rewards[0]), bool(terminations[0]), bool(truncations[0]), single

    def _batched(self, action: Any) -> Any:
        """Returns the action of one lane as those of all."""
        space = self.action_space
        if isinstance(space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple, gymnasium.spaces.Sequence, gymnasium.spaces.Text)):
            row: Any = create_empty_array(space, 1, fn=np.zeros)
            return concatenate(space, [action], row)
        return np.expand_dims(np.asarray(action), 0)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Returns the lane as an image, or None when ``render_mode`` is None."""
        images = self._envs.render()
        return None if images is None else images[0]

    def close(self) -> None:
        """Ends the lane. Closing again does nothing."""
        self._envs.close()
