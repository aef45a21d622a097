"""Functions that make envs, sent to the workers of nodes: what a node hosts is a class, and Gymnasium's tests give functions."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import gymnasium

Fn = Callable[[], gymnasium.Env]


def pack(env_fns: Sequence[Fn]) -> str:
    """Returns functions as a text, of which JSON is made."""
    return base64.b64encode(cloudpickle.dumps(list(env_fns))).decode()


class SentEnv(gymnasium.Env):
    """The env that one of the functions makes: the option ``lane`` says which, from the first reset on.

    The option ``attributes`` is a JSON object of what an episode's env is to have. An env that is not ``seeded`` by the test is not
    seeded here: a pool seeds all lanes.
    """

    metadata = {"render_modes": ["rgb_array"], "options": {"lane": 0, "attributes": "{}", "seeded": True}}

    def __init__(self, functions: str, render_mode: str | None = None):
        self._functions: list[Fn] = cloudpickle.loads(base64.b64decode(functions))
        self._lane: int | None = None
        self.env = self._functions[0]()
        if self.env.render_mode != render_mode:
            raise ValueError(f"the env draws by render_mode={self.env.render_mode!r}, and {render_mode!r} is asked for")
        self.render_mode = render_mode
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the env of the lane."""
        given = options or self.metadata["options"]
        if self._lane is None and given["lane"]:
            self.env.close()
            self.env = self._functions[given["lane"]]()
            spaces = self.env.observation_space, self.env.action_space
            if spaces != (self.observation_space, self.action_space):
                raise ValueError(f"lane {given['lane']} has other spaces than lane 0")
        self._lane = given["lane"]
        for name, value in json.loads(given["attributes"]).items():
            setattr(self.env, name, value)
        return self.env.reset(seed=seed if given["seeded"] else None, options=None)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps it."""
        return self.env.step(action)

    def render(self) -> Any:
        """Draws it."""
        return self.env.render()

    def close(self) -> None:
        """Closes it."""
        self.env.close()
