"""Makes the infos of hosted lanes from what each env returned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np

from rollhouse.hosted.info_columns import Column, add_columns, unpack

class Said(dict[int, tuple[Any, dict[str, Any]]]):
    """The infos of some lanes. By lane: its terminal observation and info if its episode ended and the next began, and
    its info.

    Attributes:
        packed: Numbers, which are not by lane: of a worker its first lane, how many it has, its columns, and its keys.
        frames: Pictures to be recorded: a lane, whether it is of what a reset gave, the packed picture.
        unpainted: Why an env gave none that was to be recorded, of the first that did not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.packed: list[tuple[int, int, list[Column], list[str]]] = []
        self.frames: list[tuple[int, bool, bytes]] = []
        self.unpainted: str | None = None

    def add(self, first: int, count: int, said: dict[str, Any]) -> None:
        """Adds the infos from a worker."""
        for local, final, info in said.get("infos", ()):
            self[first + local] = (final, info)
        if "columns" in said:
            self.packed.append((first, count, said["columns"], said["keys"]))
        self.frames += [(first + local, began, packed) for local, began, packed in said.get("frames", ())]
        self.unpainted = self.unpainted or said.get("unpainted")

    def unpack(self) -> None:
        """Adds the packed numbers to the infos of their lanes."""
        for first, count, columns, _ in self.packed:
            for local, numbers in unpack(columns, count).items():
                final, info = self.get(first + local, (None, {}))
                self[first + local] = (final, {**numbers, **info})
        self.packed = []


def batch_infos(envs: gymnasium.vector.VectorEnv, lanes: list[int], said: Said) -> dict[str, Any]:
    """Makes the infos of some lanes, a row each, in the layout of the installed Gymnasium."""
    infos: dict[str, Any] = {}
    if said.packed:
        objects = {key for _, info in said.values() for key in info}
        if objects and any(key in objects for _, _, columns, _ in said.packed for key, *_ in columns):
            # The lanes of one worker gave numbers where those of another gave something else.
            said.unpack()
        said.packed.sort(key=lambda worker: worker[0])
        rows = None
        if len(lanes) != envs.num_envs:
            rows = np.zeros(envs.num_envs, dtype=np.intp)
            rows[lanes] = np.arange(len(lanes))
        for first, count, columns, _ in said.packed:
            add_columns(infos, columns, first, count, rows, len(lanes))
    if said:
        # Its own `_add_info`, for as many rows as there are.
        adder = envs
        if len(lanes) != envs.num_envs:
            adder = gymnasium.vector.VectorEnv()
            adder.num_envs = len(lanes)
        for row, lane in enumerate(lanes):
            final, info = said.get(lane, (None, None))
            if final is not None:
                infos = adder._add_info(infos, {"final_obs": final[0], "final_info": final[1]}, row)
            if info:
                infos = adder._add_info(infos, info, row)
        keys = [key for *_, columns, keys in said.packed for key in keys or (key for key, *_ in columns)]
        if keys:
            # As if lane by lane had been added.
            order = dict.fromkeys([*keys, *(key for key in infos if not key.startswith("_"))])
            infos = {name: infos[name] for key in order for name in (key, "_" + key)}
    return infos


def say_valid(infos: dict[str, Any], valid: np.ndarray, show: str, *, are_lost: bool = False) -> None:
    """Adds ``valid``, bool [k], which tells the rows that are transitions, where it is wanted.

    Args:
        infos: Added to.
        valid: Whether each row is a transition.
        show: The result of ``rollhouse.vector.show_valid``.
        are_lost: Whether lanes are.
    """
    if are_lost or show == "always" or (show == "needed" and not valid.all()):
        infos["valid"], infos["_valid"] = valid, np.ones(len(valid), dtype=np.bool_)


def add_lost(infos: dict[str, Any], rows: Iterable[int], outcomes: Iterable[str], count: int) -> None:
    """Adds the outcomes of lost lanes at their rows of ``count``."""
    told, mask = np.full(count, None, dtype=object), np.zeros(count, dtype=np.bool_)
    for row, outcome in zip(rows, outcomes, strict=True):
        told[row], mask[row] = outcome, True
    infos["lost"], infos["_lost"] = told, mask
