"""Documents with gold labels: Document, Corpus, Splits, and the label groups that splits define.

A Corpus holds any sequence of documents. Files past a size limit are read lazily, a document at a time, so a million and a
half products need memory for their gold matrix and line offsets only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, overload

import numpy as np
from scipy.sparse import csr_array

from labelwise.errors import BadCorpus, UnknownLabel
from labelwise.hierarchy import Hierarchy
from labelwise.labels import LabelSet

SCORES = 1 << 23  # asked of a method at once: 32 MB when dense


@dataclass(frozen=True, slots=True)
class Document:
    """One text with its gold labels."""

    id: str
    text: str
    labels: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()


class LazyDocuments(Sequence[Document]):
    """Documents that are made when they are asked for, from their row."""

    def __init__(self, rows: Sequence[int], make: Callable[[int], Document]) -> None:
        self._rows, self._make = rows, make

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, item: int) -> Document: ...
    @overload
    def __getitem__(self, item: slice) -> LazyDocuments: ...
    def __getitem__(self, item: int | slice) -> Document | LazyDocuments:
        return LazyDocuments(self._rows[item], self._make) if isinstance(item, slice) else self._make(self._rows[item])


@dataclass(frozen=True, slots=True)
class CorpusInfo:
    """What `corpus.toml` says: a name, and how this corpus is reported."""

    name: str = "corpus"
    k: int = 5
    """Cut-off of the ranking measures."""
    few: int = 50
    """Labels with at most this many training documents are few-shot."""


class Corpus(Sequence[Document]):
    """Documents over one label set."""

    def __init__(
        self,
        documents: Sequence[Document],
        labels: LabelSet,
        info: CorpusInfo = CorpusInfo(),
        *,
        gold: csr_array | None = None,
    ) -> None:
        self.documents = documents
        self.labels = labels
        self.info = info
        self._gold = gold

    @overload
    def __getitem__(self, item: int) -> Document: ...
    @overload
    def __getitem__(self, item: slice) -> Corpus: ...
    def __getitem__(self, item: int | slice) -> Document | Corpus:
        if isinstance(item, slice):
            gold = None if self._gold is None else self._gold[item]
            return Corpus(self.documents[item], self.labels, self.info, gold=gold)
        return self.documents[item]

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def __repr__(self) -> str:
        return f"Corpus({self.info.name!r}, {len(self)} documents, {len(self.labels)} labels)"

    def gold(self) -> csr_array:
        """(documents, labels), true where a document has a label."""
        if self._gold is None:
            indptr, columns = [0], []
            for document in self.documents:
                try:
                    columns += sorted({self.labels.column(label) for label in document.labels})
                except UnknownLabel as error:
                    raise UnknownLabel(f"document {document.id!r}: {error}") from None
                indptr.append(len(columns))
            self._gold = gold_matrix(indptr, columns, len(self.labels))
        return self._gold

    def batches(self, size: int) -> Sequence[Corpus]:
        """The corpus in consecutive pieces of at most `size` documents."""
        return [self[start : start + size] for start in range(0, len(self), size)]

    def to_score(self) -> Sequence[Corpus]:
        """The corpus in consecutive pieces whose scores need little memory."""
        return self.batches(batch_size(len(self.labels)))

    def spread(self, count: int) -> Corpus:
        """So many of the documents, evenly spread over the corpus; all of them for 0, or where there are no more."""
        if not 0 < count < len(self):
            return self
        rows = evenly(count, len(self))
        return Corpus(LazyDocuments(rows.tolist(), lambda row: self[row]), self.labels, self.info, gold=self.gold()[rows])

    def with_labels(self, labels: LabelSet) -> Corpus:
        """The same documents over another label set; gold labels outside it are left out."""
        if labels is self.labels or labels == self.labels:
            return self
        old = self.gold().tocoo()
        moved = labels.columns(self.labels.ids)
        columns = moved[old.col]
        kept = columns >= 0
        gold = csr_array((np.ones(kept.sum(), dtype=bool), (old.row[kept], columns[kept])), shape=(len(self), len(labels)))
        return relabel(self, gold, labels)


class Splits(NamedTuple):
    """Training, development and test documents over one shared label set."""

    train: Corpus
    dev: Corpus
    test: Corpus

    @property
    def labels(self) -> LabelSet:
        """The shared label set."""
        return self.train.labels

    @property
    def info(self) -> CorpusInfo:
        """What the corpus says of itself."""
        return self.train.info

    def split(self, name: str) -> Corpus:
        """The split of that name, which must have documents."""
        if name not in self._fields:
            raise BadCorpus(f"there is no split {name!r}; the splits are train, dev and test")
        corpus: Corpus = getattr(self, name)
        if not len(corpus):
            raise BadCorpus(f"corpus {self.info.name!r} has no {name} documents; add {name}.jsonl or choose another split")
        return corpus

    def map(self, change: Callable[[Corpus], Corpus]) -> Splits:
        """Each split changed in the same way."""
        return Splits(*(change(corpus) for corpus in self))

    def closed(self) -> Splits:
        """The same documents with every ancestor of a gold label made gold (the AMAZON13K guideline)."""
        hierarchy = Hierarchy(self.labels)
        return self.map(lambda corpus: relabel(corpus, hierarchy.close(corpus.gold())))


GROUPS = ("all", "frequent", "few", "zero")
PARTS = GROUPS[1:]  # those a label is in one of; its group's number is the place in here


@dataclass(frozen=True)
class Groups:
    """Labels by how often training saw them: boolean masks over the label set.

    `all` holds the labels in use in any split; labels of the thesaurus that no document has are scored, never ranked.
    """

    threshold: int
    counts: np.ndarray = field(repr=False)  # (labels,), training documents
    all: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, splits: Splits, few: int | None = None) -> Groups:
        """The groups that these splits define; `few` is the corpus's own threshold unless given."""
        counts = count_labels(splits.train)
        used = counts + count_labels(splits.dev) + count_labels(splits.test)
        return cls(splits.info.few if few is None else few, counts, used > 0)

    @property
    def frequent(self) -> np.ndarray:
        """More training documents than the threshold."""
        return self.counts > self.threshold

    @property
    def few(self) -> np.ndarray:
        """From one training document up to the threshold."""
        return (self.counts >= 1) & (self.counts <= self.threshold)

    @property
    def zero(self) -> np.ndarray:
        """In use, but not in training."""
        return self.all & (self.counts == 0)

    def masks(self) -> dict[str, np.ndarray]:
        """The four masks by name."""
        return {name: getattr(self, name) for name in GROUPS}

    def names(self) -> np.ndarray:
        """For each label its group's name; 'unused' where no document has it."""
        return np.select([self.frequent, self.few, self.zero], ["frequent", "few", "zero"], "unused")


def group_numbers(train: Corpus) -> np.ndarray:
    """(labels,), the number of each label's group, by the corpus's own threshold; labels without a document are zero labels."""
    counts = count_labels(train)
    return np.select([counts > train.info.few, counts > 0], [0, 1], 2).astype(np.int8)


def batch_size(labels: int) -> int:
    """How many documents to score at once, over so many labels."""
    return max(256, SCORES // max(1, labels))


def evenly(count: int, length: int) -> np.ndarray:
    """So many of the first `length` numbers, evenly spread."""
    return np.arange(count) * length // max(1, count)


def count_labels(corpus: Corpus) -> np.ndarray:
    """(labels,), how many documents have each label."""
    return np.bincount(corpus.gold().indices, minlength=len(corpus.labels))


def fingerprint(corpus: Corpus) -> str:
    """A digest of document ids and gold labels: what shares it was made on the same documents."""
    digest = hashlib.sha256()
    for document in corpus:
        digest.update("\0".join([document.id, *sorted(set(document.labels)), "\n"]).encode())
    return digest.hexdigest()[:16]


def gold_matrix(indptr: Sequence[int] | np.ndarray, columns: Sequence[int] | np.ndarray, labels: int) -> csr_array:
    """A (documents, labels) boolean matrix from row starts and columns."""
    indices = np.asarray(columns, dtype=np.int32)
    return csr_array(
        (np.ones(len(indices), dtype=bool), indices, np.asarray(indptr, dtype=np.int64)), shape=(len(indptr) - 1, labels)
    )


def relabel(corpus: Corpus, gold: csr_array, labels: LabelSet | None = None) -> Corpus:
    """The same documents with other gold labels, over another label set if given."""
    labels = corpus.labels if labels is None else labels
    names = labels.ids
    gold.sort_indices()

    def document(row: int) -> Document:
        own = gold.indices[gold.indptr[row] : gold.indptr[row + 1]]
        return replace(corpus[row], labels=tuple(names[column] for column in own))

    return Corpus(LazyDocuments(range(len(corpus)), document), labels, corpus.info, gold=gold)
