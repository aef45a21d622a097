"""The interpreter that runs other processes of this package, and how they begin."""

from __future__ import annotations

import os
import sys
from typing import Any

NOWHERE = "import sys; sys.path[:] = [path for path in sys.path if path]"
"""What such a process does first: it finds no module in the folder that it is started in, which is nobody's package."""

COMMAND = f"{NOWHERE}; from rollhouse_command import main; main()"
"""The program of a process that runs the ``rollhouse`` command."""


def interpreter(python: str | os.PathLike[str] | None = None, way_out: str = "") -> str:
    """Returns the interpreter that ``python`` names, or this process's own.

    Args:
        python: A path; None for this process's own.
        way_out: What the caller's caller can do; added to the message.

    Raises:
        InterpreterError: This process has none: it is a program with Python inside, which would run itself a second time.
    """
    if python is not None:
        return os.fspath(python)
    executable: Any = sys.executable
    if any(NOWHERE in word for word in sys.argv[1:]):
        why = f"sys.executable={executable!r} is no interpreter: this process was started as one and ran the program instead"
    elif getattr(sys, "frozen", False) or "__compiled__" in vars(sys.modules["__main__"]):
        why = f"this program was frozen: sys.executable={executable!r} is the program itself and no interpreter"
    elif not executable:
        why = f"sys.executable={executable!r} names no interpreter"
    elif not os.access(executable, os.X_OK):
        why = f"sys.executable={executable!r} is no file that can be run"
    else:
        return str(executable)
    # Launchers do without Gymnasium, which the errors want.
    from rollhouse.errors import InterpreterError

    raise InterpreterError(f"{why}, so that no worker process can be started{way_out}")


def search_path() -> list[str]:
    """Returns where this process finds modules. What is no text there, as a Path, finds none."""
    return [path for path in sys.path if isinstance(path, str)]


def folders_of(*modules: str) -> list[str]:
    """Returns the folders in which packages lie that this process has imported, each once."""
    files = [getattr(sys.modules.get(name), "__file__", None) for name in modules]
    folders = [os.path.dirname(os.path.dirname(os.path.abspath(file))) for file in files if file]
    return list(dict.fromkeys(folders))
