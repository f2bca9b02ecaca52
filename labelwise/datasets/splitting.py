"""Random splits and samples that come out the same on every machine.

`RandomState` is old, but its stream is frozen: a split made today must be the split made with the numpy of next year.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def split_at_random(items: Sequence[T], shares: Sequence[float], seed: int) -> list[list[T]]:
    """Items dealt out by shares that sum to 1, each part in the old order; with enough items no part is empty."""
    sizes = [round(len(items) * share) for share in shares[1:]]
    if len(items) >= len(shares):
        sizes = [max(1, size) for size in sizes]
    ends = np.cumsum([len(items) - sum(sizes), *sizes])
    order = np.random.RandomState(seed).permutation(len(items))
    parts = np.split(order, ends[:-1])
    return [[items[row] for row in np.sort(part)] for part in parts]


def sample_rows(count: int, size: int, seed: int) -> np.ndarray:
    """(size,), rows chosen at random out of `count`, in ascending order."""
    return np.sort(np.random.RandomState(seed).permutation(count)[:size])
