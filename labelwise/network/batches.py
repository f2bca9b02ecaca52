"""Training examples as flat arrays on the device, and batches of similar length cut from them without a loop in Python."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from labelwise.network.token_encoders import Tokens
from labelwise.network.transfer import send

WINDOW = 64  # batches that are sorted by length together: enough to save padding, few enough to stay shuffled


class Examples:
    """Documents as numbers of words, with their gold labels; words lie on the device, lengths and labels here.

    What ELMo makes of the words, a row for each, is far larger: it stays where it is, and goes to the device batch by batch.
    """

    def __init__(
        self,
        numbers: Sequence[np.ndarray],
        gold: csr_array,
        ids: Sequence[str],
        k: int = 5,
        context: np.ndarray | None = None,
    ) -> None:
        self.lengths = np.array([len(row) for row in numbers], dtype=np.int64)
        self.ids, self.k, self.labels, self.gold, self.context = ids, k, gold.shape[1], gold, context
        self._starts = np.append(0, np.cumsum(self.lengths))
        self._words = torch.from_numpy(np.concatenate([*numbers, np.zeros(1, dtype=np.int32)]))  # never empty

    def __len__(self) -> int:
        return len(self.lengths)

    def to(self, device: torch.device) -> Self:
        """Move the words to where the network is."""
        self._words = self._words.to(device)
        return self

    def digest(self) -> str:
        """A short name for these very documents and labels."""
        digest = hashlib.sha256()
        for array in (self._words.cpu().numpy(), self._starts, self.gold.indices, self.gold.indptr):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def counts(self) -> np.ndarray:
        """(labels,), documents of each label."""
        return np.bincount(self.gold.indices, minlength=self.labels)

    def with_gold(self, gold: csr_array) -> Examples:
        """The same documents with other labels, clusters say."""
        found = copy(self)
        found.gold, found.labels = gold, gold.shape[1]
        return found

    def batch(self, rows: np.ndarray) -> tuple[Tokens, Tensor]:
        """Tokens and (batch, labels) targets of some documents; nothing in here waits for the device."""
        device, gold = self._words.device, self.gold[rows].tocoo()
        targets = torch.zeros(len(rows), self.labels, device=device)
        targets[_sent(gold.row, device), _sent(gold.col, device)] = 1
        return self.tokens(rows), targets

    def numbers(self, rows: np.ndarray) -> Tensor:
        """(batch, most), the numbers of the documents' labels, ascending, filled up with the number of labels there are."""
        counts = np.diff(self.gold.indptr)[rows]
        found = np.full((len(rows), max(1, int(counts.max(initial=0)))), self.labels)
        found[np.arange(found.shape[1]) < counts[:, None]] = self.gold[rows].indices
        return _sent(np.sort(found, axis=1), self._words.device)

    def tokens(self, rows: np.ndarray) -> Tokens:
        """Tokens of some documents."""
        device, lengths = self._words.device, self.lengths[rows]
        starts, sizes = _sent(self._starts[rows], device), _sent(lengths, device)
        places = torch.arange(max(1, int(lengths.max(initial=0))), device=device)
        real = places < sizes[:, None]
        numbers = torch.where(real, self._words[(starts[:, None] + places).clamp(max=len(self._words) - 1)], 0)
        return Tokens(numbers.long(), torch.from_numpy(lengths), self._context(rows, device))

    def _context(self, rows: np.ndarray, device: torch.device) -> Tensor | None:
        if self.context is None:
            return None
        return filled([self.context[self._starts[row] : self._starts[row + 1]] for row in rows], device)


def filled(rows: Sequence[np.ndarray], device: torch.device) -> Tensor:
    """(batch, length, …) values of documents, filled up with 0, on the device."""
    shape = len(rows), max(1, *map(len, rows)), *rows[0].shape[1:]
    kind = torch.from_numpy(np.empty(0, rows[0].dtype)).dtype
    found = torch.empty(shape, dtype=kind, pin_memory=device.type == "cuda")  # from the start: `send` would copy it there
    for document, values in zip(found.numpy(), rows, strict=True):
        document[: len(values)] = values
        document[len(values) :] = 0
    return send(found, device)


def bucketed(lengths: np.ndarray, size: int, order: tuple[int, ...], *, buckets: bool = True) -> list[np.ndarray]:
    """Rows in batches of similar length, shuffled by `order`."""
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


def _sent(values: np.ndarray, device: torch.device) -> Tensor:
    return send(torch.from_numpy(values.astype(np.int64)), device)
