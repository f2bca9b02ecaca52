"""The labels of a group that may come first for a document: what one model or several make of them, and which are gold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from labelwise.metrics import ndcg
from labelwise.scores import Scores, at


class Pool(NamedTuple):
    """Of each document the best labels of a group, by any of the models."""

    scores: np.ndarray  # (models, documents, labels), 0 where a document has fewer
    hits: np.ndarray  # (documents, labels), whether the label is gold
    gold: np.ndarray  # (documents,), gold labels of the group, in the pool or not
    columns: np.ndarray  # (documents, labels), which labels these are; -1 where a document has fewer

    @classmethod
    def of(cls, several: Sequence[Scores], gold: csr_array, among: np.ndarray, depth: int) -> Pool:
        """Those that are among the first `depth` of the group for some model."""
        columns = np.concatenate([scores.ranking(min(depth, int(among.sum())), among) for scores in several], axis=1)
        columns.sort(axis=1)
        columns[:, 1:][columns[:, 1:] == columns[:, :-1]] = -1  # proposed by several models
        rows, places = np.nonzero(columns >= 0)
        found = columns[rows, places]
        scores = np.zeros((len(several), *columns.shape), dtype=np.float32)
        for own, given in zip(scores, several, strict=True):
            own[rows, places] = at(given.values, rows, found)
        hits = np.zeros(columns.shape, dtype=bool)
        hits[rows, places] = at(gold, rows, found)
        return cls(scores, hits, gold @ among.astype(np.int64), columns.astype(np.int32))

    def rows(self, which: slice | np.ndarray) -> Pool:
        """Those of some documents."""
        return Pool(self.scores[:, which], self.hits[which], self.gold[which], self.columns[which])

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the first model, the scores of all pairs that have one, and whether they are gold."""
        said = self.scores[0] > 0
        return self.scores[0][said], self.hits[said]


def joined(pools: Sequence[Pool], axis: int) -> Pool:
    """Pools of other documents one under the other (axis 0), or of other labels side by side (axis 1)."""
    scores, hits, gold, columns = zip(*pools, strict=True)
    counts = np.concatenate(gold) if axis == 0 else np.sum(gold, axis=0)
    return Pool(
        np.concatenate(scores, axis=axis + 1), np.concatenate(hits, axis=axis), counts, np.concatenate(columns, axis=axis)
    )


def quality(values: np.ndarray, hits: np.ndarray, gold: np.ndarray, k: int) -> float:
    """The mean nDCG@k over documents with gold labels; a label without a score is no hit."""
    best, found = first(values, hits, k)
    inside = gold > 0
    return float(ndcg((found & (best > 0))[inside], gold[inside], k).mean()) if inside.any() else 0.0


def first(values: np.ndarray, hits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(documents, k) the highest values, and whether they are hits; of equal values, hits come last."""
    keys = (values.view(np.int32) << 1) | ~hits  # the bits of a float from 0 to 1 grow with its value
    if k < keys.shape[1]:
        keys = np.partition(keys, -k, axis=1)[:, -k:]
    keys = np.sort(keys, axis=1)[:, ::-1]
    return (keys >> 1).view(np.float32), (keys & 1) == 0
