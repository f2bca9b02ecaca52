"""TF-IDF over word n-grams: counted, pruned, then built, so that memory follows the features that are kept.

An n-gram cannot be more frequent than the two (n-1)-grams inside it. After each length the count of the last n-gram that would
still be kept is a floor for all longer ones, and n-grams with a part below the floor are never looked at. The result is
scikit-learn's for the same words: smoothed idf, raw counts, rows of length 1. Words and matrix lie in temporary files, mapped,
so that a corpus may be larger than memory. numba is imported with this module.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, pairwise, repeat
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from numba import njit
from scipy.sparse import csr_array, vstack

from labelwise.errors import BadSettings
from labelwise.features.spool import Spool
from labelwise.features.words import spans, words
from labelwise.progress import Progress, silent
from labelwise.settings import Range

CHUNK = 2000  # texts turned into words, and documents into rows, at once
BLOCK = 1 << 23  # words renumbered at once
PASS = 1 << 25  # places whose n-grams are counted at once: about a gigabyte while they are sorted


@dataclass(frozen=True)
class TfidfSettings:
    """Which n-grams become features."""

    ngrams: Annotated[int, Range(1, 8)] = 5
    """Longest n-gram, in words; shorter ones count too."""
    max_features: Annotated[int, Range(1, 2**31 - 1)] = 200_000
    """Keep this many n-grams, those with the highest count in the training texts."""
    min_count: Annotated[int, Range(1, 2**31 - 1)] = 1
    """Leave out n-grams that occur less often in the training texts."""
    stop_words: bool = True
    """Remove common English words before n-grams are made, so that n-grams bridge the gap."""
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
        ]
        for first, (node, start, end) in enumerate(placed):
            for following in [*placed[first + 1 : first + self.settings.ngrams], None]:
                if node < 0:
                    break
                if self._column[node] >= 0:
                    yield int(self._column[node]), start, end
                if following:
                    node, end = self._steps.get((node, following[0]), -1), following[2]

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
        return _count_rows(tokens, ends, self._column, *self._table, self.settings.ngrams)

    def _weighted(self, indptr: np.ndarray, columns: np.ndarray, values: np.ndarray) -> csr_array:
        """Counts times idf, each row divided by its length; done in place."""
        _weigh(indptr, columns, values, self.idf)
        starts = indptr.astype(np.int32 if indptr[-1] < 2**31 else np.int64)
        return csr_array((values, columns, starts), shape=(len(indptr) - 1, len(self)))

    def _grow(self, tokens: np.ndarray, ends: np.ndarray, spelt: list[str], progress: Progress) -> None:
        """Count n-grams length by length, keep the most frequent, and index them; tokens become nodes of the trie, in place."""
        limit, least = self.settings.max_features, self.settings.min_count
        counts = self._number_words(tokens, spelt)
        parent, last = [np.full(len(counts), -1, np.int32)], [np.arange(len(counts), dtype=np.int32)]
        nodes = _copied(tokens) if self.settings.ngrams > 1 else tokens  # the alive n-gram that starts at each place
        for length in progress(range(2, self.settings.ngrams + 1), "count n-grams", self.settings.ngrams - 1):
            grams, found = _frequent(nodes, tokens, ends, length, counts, limit, least)
            fresh = np.arange(len(counts), len(counts) + len(grams), dtype=np.int32)
            parent.append((grams >> 32).astype(np.int32))
            last.append((grams & 0xFFFFFFFF).astype(np.int32))
            counts = np.concatenate([counts, found])
            if not len(grams) or length == self.settings.ngrams:
                break
            _lengthen(nodes, tokens, ends, length, *_hash_table(grams, fresh))
        self._parent, self._last = np.concatenate(parent), np.concatenate(last)
        self._choose(counts)
        self._index()

    def _number_words(self, tokens: np.ndarray, spelt: list[str]) -> np.ndarray:
        """Give small numbers to frequent words and -1 to rare ones, in place; gives the counts of the words kept."""
        total = np.zeros(len(spelt), dtype=np.int64)
        for part in _parts(tokens):
            total += np.bincount(part, minlength=len(spelt))
        kept = np.flatnonzero(total >= _floor(total, self.settings.max_features, self.settings.min_count))
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
        self._table = _hash_table(self._parent[long].astype(np.int64) << 32 | self._last[long], long.astype(np.int32))

    def _path(self, node: int) -> list[int]:
        found = []
        while node >= 0:
            found.append(int(self._last[node]))
            node = int(self._parent[node])
        return found[::-1]


def _stop_words() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return ENGLISH_STOP_WORDS


def _floor(counts: np.ndarray, limit: int, least: int) -> int:
    """The count that an n-gram needs at least to be among the `limit` most frequent."""
    if len(counts) <= limit:
        return least
    return max(least, int(np.sort(counts)[-limit]))  # most counts are equal, which np.partition is slow with


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


def _frequent(
    nodes: np.ndarray, tokens: np.ndarray, ends: np.ndarray, length: int, counts: np.ndarray, limit: int, least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Keys, ascending, and counts of the n-grams of a length that are frequent enough beside the shorter ones.

    Only some nodes' n-grams are counted at once. The floor can but rise with every n-gram seen, so what is below it may go.
    """
    starts = np.append(0, np.cumsum(_openings(nodes, ends, length, len(counts))))  # keys by node that they begin with
    edges = np.unique(np.append(np.searchsorted(starts, np.arange(0, starts[-1], PASS)), len(counts)))
    grams, found = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for low, high in pairwise(edges):
        keys = _candidates(nodes, tokens, ends, length, low, high, starts[high] - starts[low])
        fresh, often = np.unique(keys, return_counts=True)
        floor = _floor(np.concatenate([counts, found, often]), limit, least)
        grams, found = np.concatenate([grams, fresh[often >= floor]]), np.concatenate([found, often[often >= floor]])
        grams, found = grams[found >= floor], found[found >= floor]
    return grams, found


@njit(cache=True, nogil=True)
def _openings(nodes, ends, length, size):  # type: ignore[no-untyped-def]
    """(nodes,) the places where a candidate, an n-gram of a length both of whose shorter parts are alive, begins with a node."""
    total = np.zeros(size, dtype=np.int64)
    for document in range(len(ends) - 1):
        for place in range(ends[document], ends[document + 1] - length + 1):
            if nodes[place] >= 0 and nodes[place + 1] >= 0:
                total[nodes[place]] += 1
    return total


@njit(cache=True, nogil=True)
def _candidates(nodes, tokens, ends, length, low, high, size):  # type: ignore[no-untyped-def]
    """Keys of the candidates that begin with a node from `low` to before `high`; there are `size` of them."""
    keys = np.empty(size, dtype=np.int64)
    filled = 0
    for document in range(len(ends) - 1):
        for place in range(ends[document], ends[document + 1] - length + 1):
            if low <= nodes[place] < high and nodes[place + 1] >= 0:
                keys[filled] = (np.int64(nodes[place]) << 32) | tokens[place + length - 1]
                filled += 1
    return keys


@njit(cache=True, nogil=True)
def _lengthen(nodes, tokens, ends, length, table, found):  # type: ignore[no-untyped-def]
    """Put in place of each n-gram the one that is a word longer, or -1 where that is not alive."""
    for document in range(len(ends) - 1):
        for place in range(ends[document], ends[document + 1]):
            longer = -1
            if place + length <= ends[document + 1] and nodes[place] >= 0 and nodes[place + 1] >= 0:
                longer = _look_up((np.int64(nodes[place]) << 32) | tokens[place + length - 1], table, found)
            nodes[place] = longer


@njit(cache=True, nogil=True)
def _slot(key, mask):  # type: ignore[no-untyped-def]
    """Where a key belongs in a hash table: its bits well mixed."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(mask))


@njit(cache=True, nogil=True)
def _hash_table(keys, values):  # type: ignore[no-untyped-def]
    """Open addressing, at most half full; -1 marks an empty place."""
    size = 4
    while size < 2 * len(keys):
        size *= 2
    table, found = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.int32)
    for item in range(len(keys)):
        place = _slot(keys[item], size - 1)
        while table[place] >= 0:
            place = (place + 1) & (size - 1)
        table[place], found[place] = keys[item], values[item]
    return table, found


@njit(cache=True, nogil=True)
def _look_up(key, table, found):  # type: ignore[no-untyped-def]
    """The value of a key, or -1."""
    mask = len(table) - 1
    slot = _slot(key, mask)
    while table[slot] >= 0 and table[slot] != key:
        slot = (slot + 1) & mask
    return found[slot] if table[slot] == key else np.int32(-1)


@njit(cache=True, nogil=True)
def _count_rows(tokens, ends, column, table, found, ngrams):  # type: ignore[no-untyped-def]
    """Row starts, columns and counts of the features of each document."""
    rows = len(ends) - 1
    longest = 0
    for row in range(rows):
        longest = max(longest, ends[row + 1] - ends[row])
    seen = np.empty(longest * ngrams, dtype=np.int32)
    indptr = np.zeros(rows + 1, dtype=np.int64)
    columns = np.empty(max(16, len(tokens)), dtype=np.int32)
    counts = np.empty(len(columns), dtype=np.float32)
    filled = 0
    for row in range(rows):
        size = 0
        for place in range(ends[row], ends[row + 1]):
            node = tokens[place]
            step = 1
            while node >= 0:
                if column[node] >= 0:
                    seen[size] = column[node]
                    size += 1
                if step == ngrams or place + step >= ends[row + 1] or tokens[place + step] < 0:
                    break
                node = _look_up((np.int64(node) << 32) | tokens[place + step], table, found)
                step += 1
        own = np.sort(seen[:size])
        if filled + size > len(columns):
            longer = np.empty(2 * (filled + size), dtype=np.int32)
            longer[:filled] = columns[:filled]
            columns = longer
            more = np.empty(len(longer), dtype=np.float32)
            more[:filled] = counts[:filled]
            counts = more
        for item in range(size):
            if item and own[item] == own[item - 1]:
                counts[filled - 1] += 1
            else:
                columns[filled], counts[filled] = own[item], 1
                filled += 1
        indptr[row + 1] = filled
    return indptr, columns[:filled].copy(), counts[:filled].copy()


@njit(cache=True, nogil=True)
def _weigh(indptr, columns, values, idf):  # type: ignore[no-untyped-def]
    """Counts times idf, each row divided by its length, in place."""
    for row in range(len(indptr) - 1):
        squares = 0.0
        for place in range(indptr[row], indptr[row + 1]):
            values[place] *= idf[columns[place]]
            squares += np.float64(values[place]) ** 2
        for place in range(indptr[row], indptr[row + 1]):
            values[place] /= np.sqrt(squares)
