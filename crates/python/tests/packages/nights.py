"""NetHack with a seed: NLE's `reset` takes one and does not use it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

LARGEST = 2**63 - 1


class Score(gymnasium.Wrapper):
    """`NetHackScore-v0`, whose episodes follow from the seed."""

    def __init__(self) -> None:
        import nle  # noqa: F401 registers it

        super().__init__(gymnasium.make("NetHackScore-v0"))
        self._seeds = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self._seeds = np.random.default_rng(seed)
        core, disp = (int(drawn) for drawn in self._seeds.integers(LARGEST, size=2))
        self.env.unwrapped.seed(core=core, disp=disp, reseed=False)  # type: ignore[attr-defined]
        return self.env.reset(options=options)
