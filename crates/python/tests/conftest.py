"""What all tests share."""

from __future__ import annotations

import importlib.util
import os

import pytest

TEST_ALL = "ROLLHOUSE_TEST_ALL"
"""The environment variable that `cargo xtask test --all` sets."""

# Packages that only `cargo xtask test --all` installs, by marker.
HEAVY = {
    "torch": ("torch",),
    "examples": ("torch", "stable_baselines3"),
    "adapters": ("torch", "stable_baselines3", "torchrl", "pettingzoo", "minari"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs a package that is not installed, naming it, and what takes long unless all tests are wanted."""
    everything = bool(os.environ.get(TEST_ALL))
    for item in items:
        if item.get_closest_marker("soak") is not None and not everything:
            item.add_marker(pytest.mark.skip(reason="a minute of faults; runs with `cargo xtask test --all`"))
        for marker, packages in HEAVY.items():
            wanted = item.get_closest_marker(marker)
            if wanted is None:
                continue
            # A test of one adapter names its own packages: @pytest.mark.adapters("pettingzoo").
            missing = [name for name in wanted.args or packages if importlib.util.find_spec(name) is None]
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed"))
