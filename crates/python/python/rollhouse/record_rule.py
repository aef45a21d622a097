"""Which episodes are recorded."""

from __future__ import annotations

from typing import Any

SAMPLE = "sample:"


def record_rule(record: Any, *, trace: bool = True) -> str:
    """Returns the word of a rule as the command line has it: ``none``, ``all``, ``trace`` or ``sample:P``.

    Args:
        record: False, True, ``"trace"`` or ``"sample:P"`` to record each episode with probability P.
        trace: Whether ``"trace"`` says more than True.

    Raises:
        ValueError: It is something else.
    """
    if record in (False, True):
        return "all" if record else "none"
    if record == "trace" and trace:
        return "trace"
    if isinstance(record, str) and record.startswith(SAMPLE):
        try:
            if 0.0 <= float(record.removeprefix(SAMPLE)) <= 1.0:
                return record
        except ValueError:
            pass
    known = "False, True, 'trace' or 'sample:P'" if trace else "False, True or 'sample:P'"
    raise ValueError(f"record={record!r} must be {known}, P being a probability from 0 to 1")
