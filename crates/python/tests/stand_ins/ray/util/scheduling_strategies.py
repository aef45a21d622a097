"""Where an actor goes."""

from __future__ import annotations

from typing import Any


class PlacementGroupSchedulingStrategy:
    """Into a bundle of a group."""

    def __init__(self, group: Any, placement_group_bundle_index: int):
        self.group, self.index = group, placement_group_bundle_index
