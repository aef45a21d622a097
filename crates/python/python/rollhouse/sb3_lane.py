"""The env of a lane of ``rollhouse.sb3`` in its worker, which imports nothing of Stable-Baselines3: that takes half a gigabyte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium


class Lane(gymnasium.Wrapper):
    """The env of one lane in its worker, so that SB3 can ask some lanes and leave the others alone."""

    def __init__(self, env: gymnasium.Env, lane: int):
        super().__init__(env)
        self.sb3_lane = lane

    @staticmethod
    def make(
        lane: int,
        env_fn: Callable[..., gymnasium.Env],
        wrapper_class: Callable[[gymnasium.Env], gymnasium.Env] | None,
        options: dict[str, Any],
    ) -> Lane:
        env = env_fn(**options)
        return Lane(env if wrapper_class is None else wrapper_class(env), lane)

    def sb3_method(self, lanes: set[int], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.get_wrapper_attr(name)(*args, **kwargs) if self.sb3_lane in lanes else None

    def sb3_set(self, lanes: set[int], name: str, value: Any) -> None:
        if self.sb3_lane in lanes:
            setattr(self.env, name, value)

    def sb3_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper]) -> bool:
        wrapper: Any = self.env
        while isinstance(wrapper, gymnasium.Wrapper):
            if isinstance(wrapper, wrapper_class):
                return True
            wrapper = wrapper.env
        return False
