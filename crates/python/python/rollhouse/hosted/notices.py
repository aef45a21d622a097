"""The warnings that a ``HostedVectorEnv`` gives, each once."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rollhouse.hosted.infos import Said

RECORDED_INFOS = ("result", "score", "final_obs", "final_info")
"""Keys of infos that are recorded with their episode, or are no info of an env's own."""


class Notices:
    """What has been warned of."""

    def __init__(self, infos: list[tuple[str, str, list[int]]]):
        """``infos`` are those that are recorded."""
        self._unpainted = self._not_finite = False
        # Keys of infos of which a recording has been said to have or to leave them out.
        self._known_infos: set[Any] = {*RECORDED_INFOS, *(name for name, *_ in infos)}
        self._recorded_paths = [name for name, *_ in infos if "/" in name]
        self._own: set[str] = set()

    def unpainted(self, said: Said) -> None:
        """Warns that an env gave no picture that was to be recorded."""
        if said.unpainted is not None and not self._unpainted:
            self._unpainted = True
            message = f"record_frames: a picture is missing in the recording, and others may be: {said.unpainted}"
            gymnasium.logger.warn(message)

    def not_finite(self, lanes: list[int], rewards: np.ndarray) -> None:
        """Warns of a reward that is no number."""
        if not self._not_finite and not np.isfinite(rewards).all():
            self._not_finite = True
            row = int(np.flatnonzero(~np.isfinite(rewards))[0])
            message = f"the env of lane {lanes[row]} gave a reward of {rewards[row]}: its episode's return is no number, and on a node it would lose its lane"
            gymnasium.logger.warn(message)

    def own_names(self, names: set[str]) -> None:
        """Warns of infos of envs that have names of ours, and were dropped."""
        new = names - self._own
        self._own |= new
        if new:
            listed = ", ".join(sorted(new))
            gymnasium.logger.warn(f"infos of envs under {listed} are left out: that is this package's name for something else")

    def left_out(self, infos: dict[str, Any]) -> None:
        """Warns of infos that the recording leaves out."""
        if self._known_infos.issuperset(infos):
            return
        new = infos.keys() - self._known_infos
        self._known_infos |= new
        # Each has a mask beside it, of its name with an underscore.
        named = {name.partition("/")[0] for name in self._recorded_paths}
        left_out = sorted(str(key) for key in new if not _is_mask(key, infos) and key not in named)
        if left_out:
            message = f"record: infos that record_infos does not name are left out: {', '.join(left_out)}"
            gymnasium.logger.warn(message)


def _is_mask(key: Any, infos: dict[Any, Any]) -> bool:
    """Returns whether an info is the mask of another one, whose name it has behind an underscore."""
    return isinstance(key, str) and key.startswith("_") and any(f"_{name}" == key for name in infos)
