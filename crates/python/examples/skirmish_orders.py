"""What the examples that play Skirmish-v0 share: the numbers of its orders and items, actions of orders, and what a row says of the map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

KINDS = (
    "no_op move attack_move attack stop harvest build train sell repair place_building cancel_production "
    "set_rally_point guard set_stance power_down set_primary patrol retreat scatter"
).split()
"""Kinds of orders, by their numbers."""
UNITS = ("rifle", "rocket", "buggy", "tank", "artillery", "harvester")
BUILDINGS = ("yard", "power_plant", "refinery", "barracks", "factory", "silo", "turret", "radar")
ITEMS = ("", *UNITS, *BUILDINGS)
"""What is built and trained, by its number."""
SIZES = {"yard": 3, "power_plant": 2, "refinery": 3, "barracks": 2, "factory": 3, "silo": 1, "turret": 1, "radar": 2}
"""Cells of a building's side."""
POWER = {"power_plant": 100, "refinery": -30, "barracks": -20, "factory": -30, "silo": -10, "turret": -20, "radar": -40}
COMBAT, IDLE = 97, 98
"""The subjects that mean all units that fight, and all that do nothing."""
MAX_ORDERS = 16
EVENTS = 10
TERRAIN, HEIGHT, ORE, PASSABLE, FOG, OWN_BUILDING, OWN_UNITS, ENEMY_BUILDING, ENEMY_UNITS = range(9)
"""Planes of ``spatial``."""

Cell = tuple[int, int]
Row = dict[str, Any]


def order(kind: str, subject: int = 0, *, cell: Cell = (0, 0), target: int = 0, item: str = "", queued: bool = False) -> dict[str, int]:
    """Returns an order as an action has it."""
    numbers = {"kind": KINDS.index(kind), "item": ITEMS.index(item), "queued": int(queued)}
    return {**numbers, "subject": subject, "target": target, "x": cell[0], "y": cell[1]}


def action(orders: Sequence[dict[str, int]] = (), ticks: int = 1) -> dict[str, Any]:
    """Returns an action of orders, the first 16 of them, that advances by ``ticks``."""
    until = {"all": 0, "conditions": (), "interrupts": np.zeros(EVENTS, np.uint8)}
    return {"check_every": 1, "orders": tuple(orders[:MAX_ORDERS]), "ticks": ticks, "until": until}


def batch(actions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the actions of all lanes as a vector env takes them."""
    until = {
        "all": np.array([one["until"]["all"] for one in actions]),
        "conditions": tuple(one["until"]["conditions"] for one in actions),
        "interrupts": np.stack([one["until"]["interrupts"] for one in actions]),
    }
    numbers = {name: np.array([one[name] for one in actions]) for name in ("check_every", "ticks")}
    return {**numbers, "orders": tuple(one["orders"] for one in actions), "until": until}


def row(observations: Any, lane: int) -> Row:
    """Returns the observation of a lane of a batch's."""
    if isinstance(observations, dict):
        return {name: row(part, lane) for name, part in observations.items()}
    return observations[lane]


def cell(thing: Row) -> Cell:
    """Returns where a unit is, or a building's upper left corner."""
    return int(thing["cell_x"]), int(thing["cell_y"])


def steps(one: Cell, other: Cell) -> int:
    """Returns the number of steps from one cell to another, where a step may be diagonal."""
    return max(abs(one[0] - other[0]), abs(one[1] - other[1]))


def kinds(things: Sequence[Row]) -> list[str]:
    """Returns the names of what units or buildings are."""
    return [ITEMS[int(thing["type"])] for thing in things]


def home(observation: Row) -> Cell:
    """Returns the middle of the first building of one's own."""
    if not observation["buildings"]:
        return 0, 0
    first = observation["buildings"][0]
    half = (SIZES[ITEMS[int(first["type"])]] - 1) // 2
    return int(first["cell_x"]) + half, int(first["cell_y"]) + half


def army(observation: Row) -> list[Row]:
    """Returns the units that fight."""
    return [unit for unit in observation["units"] if unit["can_attack"]]


def _nearest(cells: np.ndarray, to: Cell) -> Cell:
    """Returns the cell of an array [n, 2] of rows and columns that is nearest to another."""
    row, column = cells[np.argmin(np.square(cells - (to[1], to[0])).sum(1))]
    return int(column), int(row)


def free_near(observation: Row, to: Cell) -> Cell:
    """Returns the cell nearest to another on which a unit can stand, for all that the map says."""
    spatial = observation["spatial"]
    return _nearest(np.argwhere((spatial[..., PASSABLE] > 0) & (spatial[..., OWN_BUILDING] == 0)), to)


def site(observation: Row, near: Cell) -> Cell | None:
    """Returns where to place the building that is ready; ``None`` if none is, or it fits nowhere. It is the nearest cell to ``near``
    around which a way is left, if there is one: buildings side by side would lock harvesters in."""
    cells = np.argwhere(observation["masks"]["place"])
    if not len(cells):
        return None
    cells = cells[np.argsort(np.square(cells - (near[1], near[0])).sum(1), kind="stable")]
    ready = next(ITEMS[int(job["item"])] for job in observation["production"] if job["is_ready"])
    size, walls = SIZES[ready], observation["spatial"][..., OWN_BUILDING]
    apart = ((y, x) for y, x in cells if not walls[max(y - 1, 0) : y + size + 1, max(x - 1, 0) : x + size + 1].any())
    y, x = next(apart, cells[0])
    return int(x), int(y)


def across(observation: Row) -> Cell:
    """Returns where the enemy began: maps are the same from either side, turned by half a turn."""
    x, y = home(observation)
    return int(observation["map"]["width"]) - 1 - x, int(observation["map"]["height"]) - 1 - y


def goal(observation: Row) -> Cell:
    """Returns where to look for the enemy: at the nearest building that is known, else where it began, else where nothing is seen."""
    base = home(observation)
    known = [cell(building) for building in observation["enemy_buildings"]]
    if known:
        return free_near(observation, min(known, key=lambda there: steps(there, base)))
    start, spatial = across(observation), observation["spatial"]
    if spatial[start[1], start[0], FOG] == 0:
        return free_near(observation, start)
    hidden = np.argwhere((spatial[..., PASSABLE] > 0) & (spatial[..., FOG] < 1))
    if not len(hidden):
        return free_near(observation, start)
    # Another place every 250 ticks.
    y, x = hidden[int(observation["tick"]) // 250 * 7919 % len(hidden)]
    return int(x), int(y)
