"""A file of scores, a line of JSON each, so that an evaluation goes on where it stood when its process ended."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rollhouse.policies import Policy


class ResultsFile:
    """Scores by what was played. Each line is durable before the next score is played; one that a crash has torn is passed over."""

    def __init__(self, path: str | os.PathLike[str]):
        self._path = Path(path)
        self._known: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._is_torn = False
        if self._path.exists():
            text = self._path.read_text()
            self._is_torn = bool(text) and not text.endswith("\n")
            for line in text.splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            row = json.loads(line)
            returns = np.array([np.nan if of is None else of for of in row["returns"]], dtype=np.float64)
            self._known[row["key"]] = returns, np.array(row["lengths"], dtype=np.int64)
        except (ValueError, KeyError, TypeError):
            return

    def get(self, key: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns what was played under that key: returns and lengths."""
        return self._known.get(key)

    def put(self, key: str, policy: Policy, returns: np.ndarray, lengths: np.ndarray) -> None:
        """Adds a score. It is on the disk on return."""
        self._known[key] = returns, lengths
        totals = [None if np.isnan(of) else float(of) for of in returns]
        row = {"key": key, "policy": policy.name, "version": policy.version, "returns": totals, "lengths": lengths.tolist()}
        with self._path.open("a") as file:
            file.write(("\n" if self._is_torn else "") + json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._is_torn = False


def key_of(policy: Policy, played: Mapping[str, Any]) -> str:
    """Returns what stands for a policy and all that decides what it plays."""
    chosen = [policy.name, policy.version, policy.deterministic, policy.temperature, policy.epsilon]
    text = json.dumps([chosen, dict(played)], sort_keys=True, default=repr)
    return hashlib.sha256(policy.file + b"\0" + text.encode()).hexdigest()
