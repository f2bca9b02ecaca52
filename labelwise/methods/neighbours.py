"""Labels of the training documents that are most like a document: nothing is trained, so a corpus is learned in seconds.

Every training document is kept, and a document is compared with all of them; that is quick up to some hundred thousand. numba is
imported with this module.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from labelwise.corpus import Corpus, Document
from labelwise.errors import BadCorpus
from labelwise.features.tfidf import Tfidf, TfidfSettings
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import Explanation, Span, fitted, model_folder, read_model, settings_from
from labelwise.progress import Progress, silent
from labelwise.scores import Scores, moved
from labelwise.settings import Range, cores

BATCH = 4096  # documents compared at once


@dataclass(frozen=True)
class NeighboursSettings:
    """Whose labels count, and for how much."""

    nearest: Annotated[int, Range(1, 1000, log=True, tried=(10, 100))] = 50
    """Training documents that lend their labels."""
    power: Annotated[float, Range(0.0, 16.0, tried=(1.0, 6.0))] = 4.0
    """A document lends its labels by its likeness to this power: the higher, the more the very nearest count."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """Processor cores to use; 0 for all."""
    features: TfidfSettings = field(default_factory=lambda: TfidfSettings(ngrams=3))


class Kept(NamedTuple):
    """The training documents."""

    features: csr_array  # (features, documents), of length 1 each
    gold: csr_array  # (documents, labels)


class Neighbours:
    """Score = the share of the nearest training documents that have the label, by likeness."""

    name: ClassVar[str] = "neighbours"
    Settings: ClassVar[type] = NeighboursSettings

    def __init__(self, settings: NeighboursSettings = NeighboursSettings()) -> None:
        self.settings = settings
        self._labels: LabelSet | None = None
        self._features = Tfidf(settings.features)
        self._kept: Kept | None = None

    def fit(self, train: Corpus, dev: Corpus | None = None, *, progress: Progress | None = None) -> Self:
        """Keep the training documents."""
        gold = csr_array(train.gold(), dtype=np.float32)
        if not gold.nnz:
            raise BadCorpus(f"no training document of {train.info.name!r} has a label, so there is nothing to learn")
        features = Tfidf(self.settings.features)
        rows = features.fit_transform((document.text for document in train), progress=progress or silent)
        self._labels, self._features, self._kept = train.labels, features, Kept(csr_array(rows.T), gold)
        return self

    def predict(self, corpus: Corpus) -> Scores:
        """Sparse scores of the labels that some neighbour has."""
        known, kept = self._ready()
        parts = []
        for start in range(0, max(1, len(corpus)), BATCH):
            batch = corpus[start : start + BATCH]
            rows = self._features.transform(document.text for document in batch)
            scores = csr_array(self._shares(rows) @ kept.gold)
            np.minimum(scores.data, 1, out=scores.data)  # rounding may have gone past it
            parts.append(Scores(moved(scores, known, corpus.labels), corpus.labels))
        return parts[0] if len(parts) == 1 else Scores.stack(parts)

    def explain(self, document: Document, label: Label) -> Explanation:
        """The n-grams that the document has in common with its neighbours that have the label; they sum to the score."""
        known, kept = self._ready()
        row = self._features.transform([document.text])
        shares = self._shares(row)
        column = known.columns([label.id])
        having = np.flatnonzero(kept.gold[shares.indices][:, column].toarray()[:, 0]) if column[0] >= 0 else column[:0]
        common = kept.features[row.indices][:, shares.indices[having]].toarray() * row.data[:, None]  # (features, neighbours)
        parts = common / common.sum(axis=0) @ shares.data[having]
        spoke = dict(zip(row.indices.tolist(), parts.tolist(), strict=True))
        spans = tuple(Span(*found) for found in self._features.spread(document.text, spoke))
        return Explanation(label, min(1.0, float(shares.data[having].sum())), spans)

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write features and training documents."""
        known, kept = self._ready()
        with model_folder(folder, self, known, force=force) as draft:
            self._features.save(draft)
            np.savez_compressed(
                draft / "documents.npz",
                data=kept.features.data,
                indices=kept.features.indices,
                indptr=kept.features.indptr,
                labels=kept.gold.indices,
                ends=kept.gold.indptr,
            )

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read features and training documents."""
        saved = read_model(folder)
        model, stored = cls(settings_from(NeighboursSettings, saved, folder)), saved.arrays("documents")
        model._labels, model._features = saved.labels, Tfidf.load(folder, model.settings.features)
        size, ones = len(stored["ends"]) - 1, np.ones(len(stored["labels"]), dtype=np.float32)
        features = csr_array((stored["data"], stored["indices"], stored["indptr"]), shape=(len(model._features), size))
        model._kept = Kept(features, csr_array((ones, stored["labels"], stored["ends"]), shape=(size, len(saved.labels))))
        return model

    def _ready(self) -> tuple[LabelSet, Kept]:
        known = fitted(self, self._labels)
        assert self._kept is not None
        return known, self._kept

    def _shares(self, rows: csr_array) -> csr_array:
        """(documents, training documents) what each neighbour has to say; rows sum to 1, or to 0 where nothing is alike."""
        others = self._ready()[1].features
        size, threads = others.shape[1], cores(self.settings.threads)
        count = min(self.settings.nearest, size)

        def part(edges: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
            own = rows.indptr[edges[0] : edges[1] + 1], rows.indices, rows.data
            return _nearest(*own, others.indptr, others.indices, others.data, size, count)

        edges = pairwise(np.linspace(0, rows.shape[0], min(threads, rows.shape[0]) + 1).astype(np.int64).tolist())
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(part, edges)) or [part((0, 0))]
        nearest, likeness = (np.concatenate(several) for several in zip(*found, strict=True))
        worth = (likeness / np.maximum(likeness.max(axis=1, keepdims=True), np.finfo(np.float32).tiny)) ** self.settings.power
        worth = np.where(likeness > 0, worth, 0)
        worth /= np.maximum(worth.sum(axis=1, keepdims=True), 1)
        at, place = np.nonzero(worth)
        return csr_array((worth[at, place], (at, nearest[at, place])), shape=(len(worth), size))


@njit(cache=True, nogil=True)
def _nearest(starts, features, values, other_starts, others, other_values, size, count):  # type: ignore[no-untyped-def]
    """(documents, count) those that are most alike, and their likeness; of equals the first. What is left over has likeness 0."""
    found = np.zeros((len(starts) - 1, count), dtype=np.int64)
    likeness = np.zeros((len(starts) - 1, count), dtype=np.float32)
    total = np.zeros(size, dtype=np.float32)
    for row in range(len(starts) - 1):
        total[:] = 0
        for place in range(starts[row], starts[row + 1]):
            feature = features[place]
            for at in range(other_starts[feature], other_starts[feature + 1]):
                total[others[at]] += values[place] * other_values[at]
        least = 0  # where the least of those found so far stands, the last one of equals
        for other in range(size):
            if total[other] > likeness[row, least]:
                found[row, least], likeness[row, least] = other, total[other]
                for place in range(count):
                    worse = likeness[row, place] - likeness[row, least]
                    if worse < 0 or (worse == 0 and found[row, place] > found[row, least]):
                        least = place
    return found, likeness
