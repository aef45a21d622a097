"""Placement groups, all of which have room at once."""

from __future__ import annotations

groups: list[PlacementGroup] = []
"""Those that were made."""


class PlacementGroup:
    """Bundles of resources."""

    def __init__(self, bundles: list[dict[str, float]], strategy: str):
        self.bundles, self.strategy, self.removed = bundles, strategy, False

    def wait(self, timeout_seconds: int) -> bool:
        return timeout_seconds > 0


def placement_group(bundles: list[dict[str, float]], strategy: str) -> PlacementGroup:
    groups.append(PlacementGroup(bundles, strategy))
    return groups[-1]


def remove_placement_group(group: PlacementGroup) -> None:
    group.removed = True
