"""What the lanes of a ``HostedVectorEnv`` can do that step together, because they are those of a vector env."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse.errors import SeedError, UnsupportedError
from rollhouse.hosted.crew import EnvFn
from rollhouse.vector_maker import VectorMaker


class Together:
    """The rules of lanes that step together. What they cannot do is refused before anything is sent.

    Attributes:
        id: The id of the vector env.
        mode: Its autoreset mode.
        max_seed: The greatest seed of a lane, if it is made with seeds; None if its resets take them.
    """

    def __init__(self, id: str):
        self.id = id
        self.mode = AutoresetMode.NEXT_STEP
        self.max_seed: int | None = None

    @classmethod
    def of(cls, env_fns: Sequence[EnvFn]) -> Together | None:
        """Returns the rules for lanes that these functions make; None for envs of their own.

        Raises:
            UnsupportedError: Some lanes step together, and not with all others.
        """
        first: Any = next((fn for fn in env_fns if isinstance(fn, VectorMaker)), None)
        if first is None:
            return None
        if any(fn is not first for fn in env_fns):
            raise UnsupportedError(f"env_fns: the lanes of {first.env_id} step together, so that all functions are one and the same")
        return cls(first.env_id)

    def check(self, observation_mode: Any, record_frames: int | None) -> None:
        """Raises ``UnsupportedError`` for arguments that they do not have."""
        if observation_mode != "same":
            raise self._refusal(f"observation_mode={observation_mode!r}", "they have one observation space")
        if record_frames is not None:
            raise self._refusal(f"record_frames={record_frames!r}", "no lane is drawn by itself")

    def learn(self, facts: tuple[AutoresetMode, int | None], mode: AutoresetMode) -> None:
        """Takes what its worker tells of the vector env, which is wanted in a mode.

        Raises:
            UnsupportedError: It has another mode.
        """
        self.mode, self.max_seed = facts
        self.check_mode(mode)

    def check_mode(self, mode: AutoresetMode) -> None:
        """Raises ``UnsupportedError`` for a mode that is not the vector env's."""
        if self.mode is not mode:
            raise self._refusal(f"autoreset_mode={mode.value!r}", f"their vector env has {self.mode.value!r}")

    def check_limit(self, max_episode_steps: int | None) -> None:
        """Raises ``UnsupportedError`` for a time limit that would be the engine's."""
        if max_episode_steps is not None:
            raise self._refusal(f"max_episode_steps={max_episode_steps}", "env_kwargs gives their vector env its own")

    def check_sent(self, lanes: Sequence[int], num_envs: int) -> None:
        """Raises ``UnsupportedError`` unless all lanes are sent."""
        if 0 < len(lanes) < num_envs:
            raise self._refusal(f"send: {len(lanes)} of {num_envs} lanes", "all are sent at once")

    def check_reset(self, seeds: Sequence[int | None], mask: np.ndarray | None) -> None:
        """Checks a reset.

        Raises:
            UnsupportedError: Some lanes are left out, and the vector env is not in DISABLED mode.
            SeedError: Some have no seed, and the vector env is made with seeds.
        """
        if mask is not None and self.mode is not AutoresetMode.DISABLED:
            lanes = ", ".join(map(str, np.flatnonzero(~mask)[:8]))
            raise self._refusal(f"reset_mask leaves out lanes {lanes}", "they are reset together")
        if self.max_seed is None:
            return
        if mask is not None and any(seed is not None for seed in seeds):
            raise self._refusal("seed of some lanes", "their vector env is made anew with seeds")
        given = sum(seed is not None for seed in seeds)
        if 0 < given < len(seeds):
            raise SeedError(f"seed: {len(seeds) - given} lanes have none, and {self.id} is made with the seeds of all")

    def _refusal(self, what: str, why: str) -> UnsupportedError:
        return UnsupportedError(f"{what}: the lanes of {self.id} step together: {why}")
