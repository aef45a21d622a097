"""Batches of recordings as a PyTorch dataset; importing this module imports PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset

from rollhouse.replays.batches import Batches


class BatchDataset(IterableDataset):
    """The batches of ``Batches`` as dicts of tensors over the same memory.

    For ``DataLoader(dataset, batch_size=None)``, with worker processes or without: each yields its share.
    """

    def __init__(self, batches: Batches):
        super().__init__()
        self._batches = batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(_tensors, self._batches)


def _tensors(rows: Any) -> Any:
    if isinstance(rows, dict):
        return {key: _tensors(value) for key, value in rows.items()}
    return torch.from_numpy(rows)
