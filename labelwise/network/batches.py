"""Training examples as flat arrays on the device, and batches of similar length cut from them without a loop in Python."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from labelwise.network.token_encoders import Tokens

WINDOW = 64  # batches that are sorted by length together: enough to save padding, few enough to stay shuffled


class Examples:
    """Documents as numbers of words, with their gold labels."""

    def __init__(self, numbers: Sequence[np.ndarray], gold: csr_array, ids: Sequence[str], k: int = 5) -> None:
        self.lengths = np.array([len(row) for row in numbers], dtype=np.int64)
        self.ids, self.k, self.labels = ids, k, gold.shape[1]
        flat = np.concatenate([*numbers, np.zeros(1, dtype=np.int32)])  # never empty
        self._tokens, self._token_starts = _flat(flat, np.append(0, np.cumsum(self.lengths)))
        self._gold, self._gold_starts = _flat(np.append(gold.indices, 0), gold.indptr)

    def __len__(self) -> int:
        return len(self.lengths)

    def to(self, device: torch.device) -> Self:
        """Move the arrays to where the network is."""
        for name in ("_tokens", "_token_starts", "_gold", "_gold_starts"):
            setattr(self, name, getattr(self, name).to(device))
        return self

    def digest(self) -> str:
        """A short name for these very documents and labels."""
        digest = hashlib.sha256()
        for array in (self._tokens, self._token_starts, self._gold, self._gold_starts):
            digest.update(array.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def counts(self) -> Tensor:
        """(labels,), documents of each label."""
        return torch.bincount(self._gold[:-1].long(), minlength=self.labels)

    def batch(self, rows: np.ndarray) -> tuple[Tokens, Tensor]:
        """Tokens and (batch, labels) targets of some documents."""
        at = torch.from_numpy(rows).to(self._tokens.device)
        numbers, lengths = _padded(self._tokens, self._token_starts, at, int(self.lengths[rows].max(initial=1)))
        starts = self._gold_starts[at]
        sizes = self._gold_starts[at + 1] - starts
        owners = torch.repeat_interleave(torch.arange(len(at), device=at.device), sizes)
        places = torch.arange(len(owners), device=at.device) - (sizes.cumsum(0) - sizes)[owners] + starts[owners]
        targets = torch.zeros(len(rows), self.labels, device=at.device)
        targets[owners, self._gold[places].long()] = 1
        return Tokens(numbers.long(), lengths), targets


def bucketed(lengths: np.ndarray, size: int, order: tuple[int, ...] | None, *, buckets: bool = True) -> list[np.ndarray]:
    """Rows in batches of similar length, shuffled by `order`; without an order, the longest first, for prediction."""
    if order is None:
        return _cut(np.argsort(-lengths, kind="stable"), size)
    random = np.random.default_rng(order)
    rows = random.permutation(len(lengths))
    if not buckets:
        return _cut(rows, size)
    batches = []
    for window in _cut(rows, size * WINDOW):
        batches += _cut(window[np.argsort(-lengths[window], kind="stable")], size)
    return [batches[place] for place in random.permutation(len(batches))]


def _cut(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _flat(values: np.ndarray, starts: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(values.astype(np.int32)), torch.from_numpy(np.asarray(starts, dtype=np.int64))


def _padded(flat: Tensor, starts: Tensor, rows: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """(rows, longest) values filled up with 0, and how many of each row are real."""
    sizes = starts[rows + 1] - starts[rows]
    places = torch.arange(longest, device=flat.device)
    real = places < sizes[:, None]
    return torch.where(real, flat[(starts[rows, None] + places).clamp(max=len(flat) - 1)], 0), sizes
