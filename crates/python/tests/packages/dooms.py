"""VizDoom's basic scenario as a game that waits for nobody: mode ASYNC_PLAYER, 35 tics a second by its own clock."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SHAPE = (120, 160, 3)


class Basic(gymnasium.Env):
    """Shows the newest screen, and the tic at which the game is; a step presses buttons until the next one."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 35}
    observation_space = spaces.Dict(
        {"screen": spaces.Box(0, 255, SHAPE, np.uint8), "tic": spaces.Box(0, 2**31, (1,), np.int64)}
    )
    action_space = spaces.MultiBinary(3)

    def __init__(self, render_mode: str | None = None) -> None:
        import vizdoom

        self.render_mode = render_mode
        self._game = game = vizdoom.DoomGame()
        game.load_config(os.path.join(vizdoom.scenarios_path, "basic.cfg"))
        game.set_window_visible(False)
        game.set_mode(vizdoom.Mode.ASYNC_PLAYER)
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
        game.init()
        self._screen = np.zeros(SHAPE, np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._game.set_seed(seed)
        self._game.new_episode()
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        reward = self._game.make_action([float(pressed) for pressed in action])
        over, in_time = self._game.is_episode_finished(), not self._game.is_episode_timeout_reached()
        return self._seen(), reward, over and in_time, over and not in_time, {}

    def render(self) -> np.ndarray:
        return self._screen

    def close(self) -> None:
        self._game.close()

    def _seen(self) -> dict[str, np.ndarray]:
        state = self._game.get_state()
        # There is none behind the end.
        if state is not None:
            self._screen = state.screen_buffer.copy()
        return {"screen": self._screen, "tic": np.array([self._game.get_episode_time()])}
