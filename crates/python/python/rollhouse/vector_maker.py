"""How a vector env of another package is made, of its id ``vector:package:name``."""

from __future__ import annotations

import importlib
import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from rollhouse import lookup
from rollhouse.lookup import REGISTERED, VECTOR

MAX_SEED = 2**31 - 1
"""Greatest seed with which a vector env can be made."""

OWN_MAKER = "make_gymnasium"
"""The function of a package, as EnvPool has it, that makes its vector envs of an id."""


class VectorMaker:
    """A function that makes vector envs of an id, all alike.

    Attributes:
        env_id: The id.
        seeded: Whether a vector env is given its lanes' seeds as it is made, and not by its resets. Known once one was made.
    """

    def __init__(
        self,
        env_id: str,
        kwargs: Mapping[str, Any],
        max_episode_steps: int | None = None,
        maker: Callable[..., Any] | None = None,
    ):
        """``maker`` is the function or class that the id names, where no other process can import it."""
        if max_episode_steps == 0:
            raise ValueError(f"max_episode_steps=0: the lanes of {env_id} step together, and their time limit is the vector env's own")
        self.env_id = env_id
        self.seeded = False
        self._kwargs = dict(kwargs)
        if max_episode_steps is not None:
            self._kwargs["max_episode_steps"] = max_episode_steps
        self._maker = maker

    def __call__(
        self,
        num_envs: int,
        mode: AutoresetMode | None = None,
        seeds: Sequence[int] | None = None,
        load: Callable[[str], Any] = importlib.import_module,
        check: Callable[[Any], None] = lambda called: None,
    ) -> Any:
        """Makes a vector env.

        Args:
            num_envs: The number of its lanes.
            mode: The autoreset mode that is wanted; given to a function that has an argument ``autoreset_mode``.
            seeds: The seeds of its lanes if it is given them as it is made; None for others each time.
            load: Imports a module, or raises.
            check: Is given what is to be called, or its module's name, and raises if that may not be.

        Raises:
            AttributeError: The package has nothing of the name.
            TypeError: What was made is no vector env.
            ValueError: It has another number of lanes, or tells no autoreset mode.
            Exception: What the package raises.
        """
        module, _, name = self.env_id.removeprefix(VECTOR).partition(":")
        kwargs = dict(self._kwargs)
        maker = self._maker
        if maker is None:
            package = load(module)
            maker = getattr(package, name, None) if name.isidentifier() else None
            if maker is None and callable(own := getattr(package, OWN_MAKER, None)):
                maker = _of_name(own, name)
                self.seeded = True
                if seeds is not None:
                    kwargs["seed"] = list(seeds)
                # Without one a package has the same each time, in all workers.
                kwargs.setdefault("seed", secrets.randbelow(MAX_SEED - num_envs))
                check(own)
            elif maker is None:
                maker = _registered(module, name, load, check)
            else:
                check(maker)
        if not callable(maker):
            raise AttributeError(f"{self.env_id}: {name!r} of module {module!r} makes nothing")
        if mode is not None and "autoreset_mode" not in kwargs and _takes_mode(maker):
            kwargs["autoreset_mode"] = mode
        made = maker(num_envs=num_envs, **kwargs)
        _check(self.env_id, made, num_envs)
        return made


def _of_name(maker: Callable[..., Any], name: str) -> Callable[..., Any]:
    return lambda **kwargs: maker(name, **kwargs)


def _registered(module: str, name: str, load: Callable[[str], Any], check: Callable[[Any], None]) -> Callable[..., Any]:
    """Returns what makes vector envs of an id of Gymnasium's registry, by the entry that is registered for those."""
    id = REGISTERED + (name if module == "gymnasium" else f"{module}:{name}")
    check("gymnasium")
    spec = lookup.find(id, load)
    entry = spec.vector_entry_point
    if entry is None:
        raise AttributeError(f"{spec.id} has no vector env of its own: 'gymnasium:{spec.id}' runs its lanes one by one")
    check(entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "") or "")
    return lambda **kwargs: gymnasium.make_vec(spec, vectorization_mode="vector_entry_point", **kwargs)


def _takes_mode(maker: Callable[..., Any]) -> bool:
    try:
        return "autoreset_mode" in inspect.signature(maker).parameters
    except (ValueError, TypeError):
        return False


def _check(id: str, made: Any, num_envs: int) -> None:
    wanted = ("reset", "step", "num_envs", "single_observation_space", "single_action_space", "metadata")
    missing = [name for name in wanted if not hasattr(made, name)]
    if missing:
        raise TypeError(f"{id} gives a {type(made).__name__}, which is no vector env: it has no {', '.join(missing)}")
    if made.num_envs != num_envs:
        raise ValueError(f"{id} gives a vector env of {made.num_envs} lanes, where {num_envs} are wanted")
    mode_of(id, made)


def mode_of(id: str, made: Any) -> AutoresetMode:
    """Returns the autoreset mode that a vector env has.

    Raises:
        ValueError: It tells none.
    """
    given = (made.metadata or {}).get("autoreset_mode")
    try:
        return AutoresetMode(given)
    except ValueError:
        raise ValueError(f'{id}: its metadata["autoreset_mode"] is {given!r}, which is no autoreset mode') from None


def limit_of(made: Any) -> int | None:
    """Returns the time limit that a vector env tells of itself."""
    config = getattr(made, "config", None)
    for given in (getattr(made, "spec", None), config):
        limit = given.get("max_episode_steps") if isinstance(given, Mapping) else getattr(given, "max_episode_steps", None)
        if isinstance(limit, int) and 0 < limit < 2**32:
            return limit
    return None
