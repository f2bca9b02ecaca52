"""Scores: documents × labels, dense or sparse, and their ranking.

`predict` returns every score it has, never a global top-k: the paper ranks inside the frequent, few and zero groups, and
a global top-100 keeps none of the zero group's own top-10. Cut last, with `top`. A score of 0 means "not scored".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array, issparse

from labelwise.errors import BadScores
from labelwise.labels import Label, LabelSet

Order = Literal["authors", "lower_index"]

CHUNK = 1 << 18  # scores ranked at once: 2 MB of sort keys stay in the cache
CROWDED = 0.05  # share of labels with a score from which on sparse scores are ranked quicker as dense ones


@dataclass(frozen=True)
class Scores:
    """A (documents, labels) matrix of scores from 0 to 1; columns follow `labels`."""

    values: np.ndarray | csr_array
    labels: LabelSet

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.labels):
            raise BadScores(f"scores of shape {self.values.shape} do not fit a label set of {len(self.labels)}")
        # One precision for all: else scores that differ as float64 would tie in one place and not in another.
        object.__setattr__(self, "values", self.values.astype(np.float32, copy=False))
        data = np.asarray(self.values.data if self.sparse else self.values)
        # Both comparisons are false for NaN, so one pass finds everything.
        if data.size and not (np.min(data) >= 0 and np.max(data) <= 1):
            raise BadScores("scores must lie between 0 and 1 and be numbers (a NaN or an outlier is among them)")

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def sparse(self) -> bool:
        """Whether labels without a score take no memory."""
        return bool(issparse(self.values))

    def dense(self) -> np.ndarray:
        """The scores as an ordinary array."""
        return np.asarray(self.values.toarray() if self.sparse else self.values)  # type: ignore[union-attr]

    def rows(self, start: int, end: int) -> Scores:
        """The scores of some consecutive documents."""
        return Scores(self.values[start:end], self.labels)

    def ranking(
        self, k: int, among: np.ndarray | None = None, ties: Order = "authors", last: csr_array | None = None
    ) -> np.ndarray:
        """(documents, k) columns, best first, among the labels of a mask; -1 where nothing is left to rank.

        Of equal scores the higher column comes first ("authors", as a reversed ascending sort gives) or the lower one. With
        `last`, (documents, labels), its labels come last among equals, and labels without a score are not ranked; sparse scores
        rank scored labels only in any case.
        """
        columns = np.arange(len(self.labels)) if among is None else np.flatnonzero(among)
        if not isinstance(self.values, np.ndarray) and self.values.nnz < CROWDED * len(self) * len(self.labels):
            return _rank_sparse(self.values, k, columns, ties, last)
        ranked = np.full((len(self), k), -1, dtype=np.int64)
        step = max(1, CHUNK // max(1, len(columns)))
        for start in range(0, len(self), step):
            rows = slice(start, start + step)
            part = self.values[rows] if isinstance(self.values, np.ndarray) else self.values[rows].toarray()
            values = part if len(columns) == len(self.labels) else part[:, columns]
            behind = None if last is None else last[rows][:, columns].toarray()
            best = _rank_dense(values, min(k, len(columns)), ties, behind)
            if self.sparse:
                best = np.where(np.take_along_axis(values, best, axis=1) > 0, best, -1)
            ranked[rows, : best.shape[1]] = np.where(best >= 0, columns[best], -1) if len(columns) else best
        return ranked

    def top(self, k: int, threshold: float = 0.0, among: np.ndarray | None = None) -> list[list[tuple[Label, float]]]:
        """For each document its k best labels, of all or of a mask, with a score above the threshold, best first."""
        ranked = self.ranking(min(k, len(self.labels)), among, ties="lower_index")
        rows, places = np.nonzero(ranked >= 0)
        columns = ranked[rows, places]
        scores = at(self.values, rows, columns)
        kept = scores > threshold
        answer: list[list[tuple[Label, float]]] = [[] for _ in range(len(self))]
        for row, column, score in zip(*(found[kept].tolist() for found in (rows, columns, scores)), strict=True):
            answer[row].append((self.labels[column], score))
        return answer

    @staticmethod
    def stack(batches: Iterator[Scores] | Sequence[Scores]) -> Scores:
        """Scores of consecutive documents, one under the other."""
        from scipy.sparse import vstack

        parts = list(batches)
        if all(part.sparse for part in parts):
            return Scores(csr_array(vstack([part.values for part in parts], format="csr")), parts[0].labels)
        return Scores(np.concatenate([part.dense() for part in parts]), parts[0].labels)


def at(matrix: np.ndarray | csr_array, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The entries of a matrix at some places, dense or sparse, also where there are none (which scipy answers oddly)."""
    if len(rows) == 0:
        return np.zeros(0, dtype=matrix.dtype)
    if isinstance(matrix, np.ndarray) or not matrix.has_canonical_format:
        return np.asarray(matrix[rows, columns]).ravel()
    # scipy goes through all of a row for each place; a search by halves is many times as fast.
    width = matrix.shape[1]
    known = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)) * width + matrix.indices  # ascending
    wanted = rows.astype(np.int64) * width + columns
    places = np.searchsorted(known, wanted)
    there = np.append(known, -1)[places] == wanted
    found = np.zeros(len(rows), dtype=matrix.dtype)
    found[there] = matrix.data[places[there]]
    return found


def moved(scores: csr_array, known: LabelSet, wanted: LabelSet) -> csr_array:
    """Columns of the labels that training saw, moved to those of another label set."""
    if wanted is not known and wanted != known:
        place = wanted.columns(known.ids)
        rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
        columns = place[scores.indices]
        kept = columns >= 0
        scores = csr_array((scores.data[kept], (rows[kept], columns[kept])), shape=(scores.shape[0], len(wanted)))
    scores.sort_indices()
    return scores


def _rank_dense(values: np.ndarray, k: int, ties: Order, behind: np.ndarray | None) -> np.ndarray:
    """The bits of a non-negative float32 grow with its value, so (bits, not behind, column) in 64 bits order without a tie."""
    width = values.shape[1]
    columns = np.arange(width, dtype=np.int64)
    bits = (
        np.add(values, 0, dtype=np.float32).view(np.int32).astype(np.int64)
    )  # adding 0 turns -0.0, whose bits mislead, into 0.0
    keys = (bits << 33) | (columns if ties == "authors" else columns[::-1])
    if behind is not None:
        keys |= (~behind).astype(np.int64) << 32
    if k < width:
        keys = np.partition(keys, width - k, axis=1)[:, width - k :] if k else keys[:, :0]
    keys = np.sort(keys, axis=1)[:, ::-1]
    found = keys & 0xFFFFFFFF
    found = found if ties == "authors" else width - 1 - found
    return found if behind is None else np.where(keys >> 33 > 0, found, -1)


def _rank_sparse(values: csr_array, k: int, columns: np.ndarray, ties: Order, last: csr_array | None) -> np.ndarray:
    rows = np.repeat(np.arange(values.shape[0]), np.diff(values.indptr))
    among = np.zeros(values.shape[1], dtype=bool)
    among[columns] = True
    kept = among[values.indices] & (values.data > 0)
    rows, found, data = rows[kept], values.indices[kept].astype(np.int64), values.data[kept]
    behind = at(last, rows, found) if last is not None else np.zeros(len(rows), dtype=bool)
    order = np.lexsort((found if ties == "lower_index" else -found, behind, -data, rows))
    rows, found = rows[order], found[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, np.arange(values.shape[0]))[rows]
    ranked = np.full((values.shape[0], k), -1, dtype=np.int64)
    first = place < k
    ranked[rows[first], place[first]] = found[first]
    return ranked
