"""The vector env of another package as the lanes of one worker, which step together."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse.hosted.columns import Columns
from rollhouse.lane_words import ANEW, NOTHING, RESET, SEEDED, STEP
from rollhouse.vector_maker import MAX_SEED, mode_of

Rows = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
"""Observations, rewards, terminations, truncations and infos of all lanes."""


class StepsTogetherError(RuntimeError):
    """Lanes were to do what lanes that step together cannot."""


class Tasks(NamedTuple):
    """What a command has the lanes do: for each its word (``rollhouse.lane_words``), the seed of a reset, or None, and the options
    of all."""

    words: np.ndarray
    seeds: list[int | None]
    options: dict[str, Any] | None


def tasks_of(command: bytes, count: int, options: dict[str, Any] | None = None) -> Tasks:
    """Returns what a command has ``count`` lanes do."""
    words = np.frombuffer(command, np.uint8, count)
    if max(command[:count]) < SEEDED:
        return Tasks(words, [None] * count, options)
    seeds = np.frombuffer(command, "<u8", count, count).tolist()
    return Tasks(words, [seed if task in (SEEDED, ANEW) else None for task, seed in zip(words.tolist(), seeds, strict=True)], options)


class ForeignVector:
    """A vector env that does what commands tell its lanes.

    ```text
             begin                 step, all lanes      begin
      fresh ───────▶ playing ──────────────┐    playing ──────▶ playing
                        ▲                  │
                        └──────────────────┘            any ── put_away ──▶ away ── begin, made anew ──▶ playing
    ```

    In NEXT_STEP the reset of a lane whose episode is over is what its next step does. A lane that a command leaves out is
    stepped with the others: its row is nobody's, and it can be used again once an episode of it begins.

    Attributes:
        vector: The vector env; None while it is away.
        mode: Its autoreset mode.
        count: The number of its lanes.
    """

    def __init__(self, id: str, make: Callable[[Sequence[int] | None], Any], is_seeded: Callable[[], bool]):
        """``make`` makes it, with seeds if ``is_seeded`` says that those are given it then."""
        self._id, self._make, self._is_seeded = id, make, is_seeded
        self.vector: Any = make(None)
        self.mode = mode_of(id, self.vector)
        self.count: int = self.vector.num_envs
        self._fresh = True
        self._over = np.zeros(self.count, np.bool_)
        self._missed = np.zeros(self.count, np.bool_)
        # What one lane shows, of all lanes.
        self.columns = Columns(self.vector.single_observation_space, self.count)

    def check_spaces(self) -> None:
        """Raises ``TypeError`` for a space whose values are not made of columns."""
        for name in ("single_observation_space", "single_action_space"):
            space = getattr(self.vector, name)
            if not isinstance(space, gymnasium.Space) or Columns(space, 1).others:
                raise TypeError(f"{self._id}: {name} is {space}, and lanes that step together have Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple")

    def do(self, tasks: Tasks, actions: Callable[[], Any]) -> tuple[Rows, np.ndarray]:
        """Does what the lanes are told. Returns their rows, and which of them begin an episode.

        Raises:
            StepsTogetherError: It is nothing that lanes do together.
            Exception: What the vector env raises.
        """
        stepping, left_out = tasks.words == STEP, tasks.words == NOTHING
        autoresets = self.mode is AutoresetMode.NEXT_STEP and bool(self._over.all()) and bool((tasks.words == RESET).all())
        if stepping.any() or (autoresets and tasks.options is None):
            return self._step(stepping, left_out, actions())
        observations, infos = self._begin(tasks, left_out)
        none = np.zeros(self.count, np.bool_)
        return (observations, np.zeros(self.count), none, none, infos), ~left_out

    def _step(self, stepping: np.ndarray, left_out: np.ndarray, actions: Any) -> tuple[Rows, np.ndarray]:
        if self.vector is None:
            raise StepsTogetherError(f"the lanes of {self._id} step together, and their vector env was put away")
        if stepping.all() and not self._over.any() and not self._missed.any():
            rows = self.vector.step(actions)
            if self.mode is AutoresetMode.NEXT_STEP:
                self._over = rows[2] | rows[3]
            return rows, ~stepping
        began = self._over if self.mode is AutoresetMode.NEXT_STEP else np.zeros(self.count, np.bool_)
        wrong = np.flatnonzero(~left_out & ((stepping == began) | (stepping & self._missed)))
        if wrong.size:
            told = "reset" if not stepping[wrong[0]] else "stepped"
            raise StepsTogetherError(f"the lanes of {self._id} step together: lane {wrong[0]} cannot be {told} now without the others")
        observations, rewards, terminations, truncations, infos = self.vector.step(actions)
        terminations, truncations = terminations & ~began, truncations & ~began
        if self.mode is AutoresetMode.NEXT_STEP:
            rewards = np.where(began, 0.0, rewards)
            self._over = terminations | truncations
        self._missed = (self._missed & ~began) | left_out
        return (observations, rewards, terminations, truncations, infos), began

    def _begin(self, tasks: Tasks, left_out: np.ndarray) -> tuple[Any, dict[str, Any]]:
        anew = self.vector is None or bool((tasks.words == ANEW).any())
        options = tasks.options
        whole = not left_out.any() or anew or self._fresh
        if not whole:
            if self.mode is not AutoresetMode.DISABLED:
                lanes = ", ".join(map(str, np.flatnonzero(~left_out)))
                raise StepsTogetherError(f"the lanes of {self._id} step together: lanes {lanes} cannot be reset without the others")
            options = {**(options or {}), "reset_mask": ~left_out}
        seeds = tasks.seeds if any(seed is not None for seed in tasks.seeds) else None
        made_with = None
        if self._is_seeded() and seeds is not None:
            # Seeds of the engine's own are greater than those of a vector env.
            made_with, seeds = [secrets.randbelow(MAX_SEED) if seed is None else seed & MAX_SEED for seed in seeds], None
        if anew or made_with is not None:
            self.put_away()
            self.vector = self._make(made_with)
        observations, infos = self._reset(seeds, options)
        self._fresh = False
        self._over = np.zeros(self.count, np.bool_)
        self._missed = left_out if whole else self._missed & left_out
        return observations, infos

    def _reset(self, seeds: Sequence[int | None] | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        given: dict[str, Any] = {} if options is None else {"options": options}
        if seeds is None:
            return self.vector.reset(**given)
        first = seeds[0]
        if first is not None and list(seeds) == list(range(first, first + len(seeds))):
            # As Gymnasium's vector envs number them.
            return self.vector.reset(seed=first, **given)
        try:
            return self.vector.reset(seed=list(seeds), **given)
        except (TypeError, ValueError, gymnasium.error.Error):
            if first is None:
                raise
            # It has one generator for all lanes.
            return self.vector.reset(seed=first, **given)

    def put_away(self) -> None:
        """Closes the vector env. That it fails to close is no matter: it is broken, or of no more use."""
        vector, self.vector = self.vector, None
        self._fresh = True
        try:
            if vector is not None:
                vector.close()
        except Exception:
            pass


def lane_of(value: Any, lane: int) -> Any:
    """Returns a lane's part of a batch: of arrays, and of dicts and tuples of them."""
    if isinstance(value, dict):
        return {key: lane_of(part, lane) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(lane_of(part, lane) for part in value)
    return value[lane]
