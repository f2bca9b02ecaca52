"""TF-IDF over word n-grams: counted, pruned, then built, so that memory follows the features that are kept.

An n-gram cannot be more frequent than the two (n-1)-grams inside it. After each length the count of the last n-gram that would
still be kept is a floor for all longer ones, and n-grams with a part below the floor are never looked at. The result is
scikit-learn's for the same words: smoothed idf, raw counts, rows of length 1. Words and matrix lie in temporary files, mapped,
so that a corpus may be larger than memory. numba is imported with this module.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, repeat
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from labelwise.errors import BadSettings
from labelwise.features.ngrams import count_rows, floor, frequent, hash_table, lengthen, weigh
from labelwise.features.spool import Spool
from labelwise.features.words import first_words, spans, words
from labelwise.progress import Progress, silent
from labelwise.settings import Range

CHUNK = 2000  # texts turned into words, and documents into rows, at once
BLOCK = 1 << 23  # words renumbered at once


@dataclass(frozen=True)
class TfidfSettings:
    """Which n-grams become features."""

    ngrams: Annotated[int, Range(1, 8, tried=(1, 5))] = 5
    """Longest n-gram, in words; shorter ones count too."""
    max_features: Annotated[int, Range(1, 2**31 - 1)] = 200_000
    """Keep this many n-grams, those with the highest count in the training texts."""
    min_count: Annotated[int, Range(1, 2**31 - 1)] = 1
    """Leave out n-grams that occur less often in the training texts."""
    stop_words: bool = True
    """Remove common English words before n-grams are made, so that n-grams bridge the gap."""
    beginning: Annotated[int, Range(0, 2**31 - 1)] = 0
    """Words at the beginning of a text that are read, stop words that are removed not counted; 0 for the whole text."""
    pattern: str = ""
    """Regular expression of a word; the offline tokenizer's words when empty."""


class Tfidf:
    """Texts to rows of TF-IDF values; columns by falling count in the training texts."""

    def __init__(self, settings: TfidfSettings = TfidfSettings()) -> None:
        self.settings = settings
        self._words: dict[str, int] = {}
        self._stops = _stop_words() if settings.stop_words else frozenset[str]()
        self._cut = re.compile(settings.pattern).findall if settings.pattern else None
        # A trie: nodes 0 to len(words) are words; every other node is (shorter n-gram, word).
        self._parent = self._last = self._column = np.zeros(0, dtype=np.int32)
        self._table: tuple[np.ndarray, np.ndarray] = (np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int32))
        self._steps: dict[tuple[int, int], int] | None = None
        self.idf = np.zeros(0, dtype=np.float32)

    def __len__(self) -> int:
        return len(self.idf)

    def fit(self, texts: Iterable[str], *, progress: Progress = silent) -> Self:
        """Choose the n-grams and measure how rare they are."""
        self.fit_transform(texts, progress=progress)
        return self

    def fit_transform(self, texts: Iterable[str], *, progress: Progress = silent) -> csr_array:
        """`fit`, then `transform` of the same texts, which are read only once; the matrix lies in a temporary file."""
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        tokens, sizes = Spool(np.int32), array("q", [0])
        for chunk in _chunks(progress(texts, "read words", None), CHUNK):
            found, own = self._read(chunk)
            tokens.append(np.fromiter(map(numbers.__getitem__, found), np.int32, sum(own)))
            sizes.extend(own)
        places, ends = tokens.mapped(), np.cumsum(sizes)
        self._grow(places, ends, list(numbers), progress)
        return self._build(places, ends, progress)

    def transform(self, texts: Iterable[str]) -> csr_array:
        """(texts, features) float32 with 32-bit indices, rows of length 1, or 0 where nothing is known."""
        blocks = [self._rows(block) for block in _chunks(texts, CHUNK)]
        empty = csr_array((0, len(self)), dtype=np.float32)
        return csr_array(vstack(blocks, format="csr")) if blocks else empty

    def names(self, columns: Iterable[int]) -> list[str]:
        """The n-grams behind columns, as words with blanks between them."""
        nodes = np.empty(len(self), dtype=np.int64)
        nodes[self._column[self._column >= 0]] = np.flatnonzero(self._column >= 0)
        spelt = list(self._words)
        return [" ".join(spelt[number] for number in self._path(int(nodes[column]))) for column in columns]

    def occurrences(self, text: str) -> Iterator[tuple[int, int, int]]:
        """(column, start, end) of every known n-gram of a text, in characters."""
        if self._steps is None:
            long = np.flatnonzero(self._parent >= 0)
            pairs = zip(self._parent[long].tolist(), self._last[long].tolist(), strict=True)
            self._steps = dict(zip(pairs, long.tolist(), strict=True))
        found = [match.span() for match in re.finditer(self.settings.pattern, text)] if self.settings.pattern else spans(text)
        placed = [
            (self._words.get(word, -1), start, end)
            for start, end in found
            if (word := text[start:end].lower()) not in self._stops
        ][: self.settings.beginning or None]
        for first, (node, start, end) in enumerate(placed):
            for following in [*placed[first + 1 : first + self.settings.ngrams], None]:
                if node < 0:
                    break
                if self._column[node] >= 0:
                    yield int(self._column[node]), start, end
                if following:
                    node, end = self._steps.get((node, following[0]), -1), following[2]

    def spread(self, text: str, values: Mapping[int, float]) -> list[tuple[int, int, float]]:
        """(start, end, value) of the n-grams of a text that have a value but 0, shared out among the places where each stands."""
        places = list(self.occurrences(text))
        often = Counter(column for column, _, _ in places)
        return [(start, end, values[column] / often[column]) for column, start, end in places if values.get(column)]

    def save(self, folder: Path) -> None:
        """Write words.txt and tfidf.npz into a folder that is being made."""
        (folder / "words.txt").write_text("\n".join(self._words), encoding="utf-8", newline="\n")
        np.savez(folder / "tfidf.npz", parent=self._parent, last=self._last, column=self._column, idf=self.idf)

    @classmethod
    def load(cls, folder: Path, settings: TfidfSettings) -> Self:
        """Read what `save` wrote."""
        features = cls(settings)
        text = (folder / "words.txt").read_text(encoding="utf-8")
        features._words = {word: number for number, word in enumerate(text.split("\n") if text else [])}
        with np.load(folder / "tfidf.npz", allow_pickle=False) as stored:
            features._parent, features._last, features._column, features.idf = (
                stored[name] for name in ("parent", "last", "column", "idf")
            )
        features._index()
        return features

    def _tokens(self, text: str) -> list[str]:
        if self.settings.beginning:
            each = self._cut(text.lower()) if self._cut else first_words(text)
            return list(islice((word for word in each if word not in self._stops), self.settings.beginning))
        found = self._cut(text.lower()) if self._cut else words(text)
        return [word for word in found if word not in self._stops] if self._stops else found

    def _read(self, texts: Sequence[str]) -> tuple[Iterator[str], list[int]]:
        """The words of all texts one after the other, and how many each has."""
        rows = [self._tokens(text) for text in texts]
        return chain.from_iterable(rows), [len(row) for row in rows]

    def _rows(self, texts: Sequence[str]) -> csr_array:
        found, sizes = self._read(texts)
        tokens = np.fromiter(map(self._words.get, found, repeat(-1)), np.int32, sum(sizes))
        return self._weighted(*self._count(tokens, np.cumsum([0, *sizes], dtype=np.int64)))

    def _count(self, tokens: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row starts, columns and counts of the features of each document."""
        return count_rows(tokens, ends, self._column, *self._table, self.settings.ngrams)

    def _weighted(self, indptr: np.ndarray, columns: np.ndarray, values: np.ndarray) -> csr_array:
        """Counts times idf, each row divided by its length; done in place."""
        weigh(indptr, columns, values, self.idf)
        starts = indptr.astype(np.int32 if indptr[-1] < 2**31 else np.int64)
        return csr_array((values, columns, starts), shape=(len(indptr) - 1, len(self)))

    def _grow(self, tokens: np.ndarray, ends: np.ndarray, spelt: list[str], progress: Progress) -> None:
        """Count n-grams length by length, keep the most frequent, and index them; tokens become nodes of the trie, in place."""
        limit, least = self.settings.max_features, self.settings.min_count
        counts = self._number_words(tokens, spelt)
        parent, last = [np.full(len(counts), -1, np.int32)], [np.arange(len(counts), dtype=np.int32)]
        nodes = _copied(tokens) if self.settings.ngrams > 1 else tokens  # the alive n-gram that starts at each place
        for length in progress(range(2, self.settings.ngrams + 1), "count n-grams", self.settings.ngrams - 1):
            grams, found = frequent(nodes, tokens, ends, length, counts, limit, least)
            fresh = np.arange(len(counts), len(counts) + len(grams), dtype=np.int32)
            parent.append((grams >> 32).astype(np.int32))
            last.append((grams & 0xFFFFFFFF).astype(np.int32))
            counts = np.concatenate([counts, found])
            if not len(grams) or length == self.settings.ngrams:
                break
            lengthen(nodes, tokens, ends, length, *hash_table(grams, fresh))
        self._parent, self._last = np.concatenate(parent), np.concatenate(last)
        self._choose(counts)
        self._index()

    def _number_words(self, tokens: np.ndarray, spelt: list[str]) -> np.ndarray:
        """Give small numbers to frequent words and -1 to rare ones, in place; gives the counts of the words kept."""
        total = np.zeros(len(spelt), dtype=np.int64)
        for part in _parts(tokens):
            total += np.bincount(part, minlength=len(spelt))
        kept = np.flatnonzero(total >= floor(total, self.settings.max_features, self.settings.min_count))
        kept = kept[np.argsort(-total[kept], kind="stable")]
        number = np.full(len(spelt), -1, dtype=np.int32)
        number[kept] = np.arange(len(kept), dtype=np.int32)
        for part in _parts(tokens):
            part[:] = number[part]
        self._words = {spelt[old]: new for new, old in enumerate(kept.tolist())}
        return total[kept]

    def _build(self, tokens: np.ndarray, ends: np.ndarray, progress: Progress) -> csr_array:
        """The rows of the training texts, and the idf that they give."""
        columns, values, sizes = Spool(np.int32), Spool(np.float32), [np.zeros(1, dtype=np.int64)]
        frequency = np.zeros(int((self._column >= 0).sum()), dtype=np.int64)
        for first in progress(range(0, len(ends) - 1, CHUNK), "build rows"):
            own = ends[first : first + CHUNK + 1]
            indptr, found, counts = self._count(tokens[own[0] : own[-1]], own - own[0])
            columns.append(found)
            values.append(counts)
            sizes.append(np.diff(indptr))
            frequency += np.bincount(found, minlength=len(frequency))
        self.idf = (np.log(len(ends) / (1 + frequency)) + 1).astype(np.float32)
        return self._weighted(np.cumsum(np.concatenate(sizes)), columns.mapped(), values.mapped())

    def _choose(self, counts: np.ndarray) -> None:
        """Columns for the n-grams with the highest counts; of equal ones the shorter comes first."""
        order = np.argsort(-counts, kind="stable")[: self.settings.max_features]
        if not len(order):
            raise BadSettings(
                f"no n-gram occurs {self.settings.min_count} times (min_count) in the training texts; lower min_count"
                + (", or keep stop words (stop_words=false)" if self.settings.stop_words else "")
            )
        self._column = np.full(len(counts), -1, dtype=np.int32)
        self._column[order] = np.arange(len(order), dtype=np.int32)

    def _index(self) -> None:
        self._steps = None
        long = np.flatnonzero(self._parent >= 0)
        self._table = hash_table(self._parent[long].astype(np.int64) << 32 | self._last[long], long.astype(np.int32))

    def _path(self, node: int) -> list[int]:
        found = []
        while node >= 0:
            found.append(int(self._last[node]))
            node = int(self._parent[node])
        return found[::-1]


def _stop_words() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return ENGLISH_STOP_WORDS


def _chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    several = iter(texts)
    while chunk := list(islice(several, size)):
        yield chunk


def _parts(tokens: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(tokens), BLOCK):
        yield tokens[first : first + BLOCK]


def _copied(tokens: np.ndarray) -> np.ndarray:
    spool = Spool(tokens.dtype)
    for part in _parts(tokens):
        spool.append(part)
    return spool.mapped()
