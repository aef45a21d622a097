"""A package whose modules have more than envs: functions, what other packages made, and what it registers."""

import functools
from pathlib import Path

import gymnasium
from balls import Ball
from gymnasium.envs.registration import WrapperSpec, register

Foreign = Ball
"""A class of another package."""


def opened(path: str, **kwargs) -> Ball:
    """Makes an env and leaves a trace."""
    Path(path).write_text("called")
    return Ball(**kwargs)


env = functools.partial(opened)
"""By PettingZoo's name, and no function."""


class Opener:
    """No env, whose constructor leaves a trace."""

    def __init__(self, path: str):
        Path(path).write_text("called")


class Wrapped(gymnasium.Wrapper):
    """An env that is a wrapper of the package's own."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))


if "doors/Foreign-v0" not in gymnasium.registry:
    register("doors/Foreign-v0", "balls:Ball")
    register("doors/Opened-v0", "doors:opened")
    register(
        "doors/Beside-v0",
        "doors:Wrapped",
        additional_wrappers=(WrapperSpec("Ball", "balls:Ball", {}),),
    )
