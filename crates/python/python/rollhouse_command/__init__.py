"""The ``rollhouse`` command, as the console script of the package runs it.

A package of its own, because ``rollhouse`` imports Gymnasium and NumPy, which the command does not need and would take
longer to import than most commands take.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path
from types import ModuleType


def main() -> None:
    """Runs the command of this process's arguments and exits with its code."""
    native = _native()
    # Ctrl-C is the command's own: Python's handler would only note it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A frozen program is none.
    python = None if getattr(sys, "frozen", False) else sys.executable or None
    if sys.argv[1:2] == ["up"] and importlib.util.find_spec("gymnasium") is None:
        # A node hosts Python envs only if there can be any.
        python = None
    sys.exit(native.run_command(["rollhouse", *sys.argv[1:]], python))


def _native() -> ModuleType:
    """``rollhouse._native``, without what the package around it imports."""
    if "rollhouse" in sys.modules:
        from rollhouse import _native

        return _native
    package = importlib.util.find_spec("rollhouse")
    for folder in (package.submodule_search_locations if package else None) or ():
        for file in Path(folder).glob("_native*.so"):
            spec = importlib.util.spec_from_file_location("rollhouse._native", file)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                return module
    raise ImportError("the package rollhouse has no native half here: install it anew")
