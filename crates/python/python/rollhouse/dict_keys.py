"""The names that columns have for the keys of Dict spaces, which the native half makes keys of again (``dict_key.rs``)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def name_of(key: Any) -> str | None:
    """Returns the name for a key: a text stands for itself, a number in brackets, and a text that stands in brackets in another
    pair of them. None for other keys.
    """
    if isinstance(key, str):
        return f"[{key}]" if key.startswith("[") and key.endswith("]") and len(key) > 1 else key
    if isinstance(key, (int, np.integer)):
        return f"[{int(key)}]"
    if isinstance(key, (float, np.floating)) and math.isfinite(key):
        return f"[{float(key)!r}]"
    return None
