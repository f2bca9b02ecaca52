"""Counting n-grams of numbered words: which are frequent, and how often each stands in each document (numba)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numba import njit

PASS = 1 << 25  # places whose n-grams are counted at once: about a gigabyte while they are sorted


def floor(counts: np.ndarray, limit: int, least: int) -> int:
    """The count that an n-gram needs at least to be among the `limit` most frequent."""
    if len(counts) <= limit:
        return least
    return max(least, int(np.sort(counts)[-limit]))  # most counts are equal, which np.partition is slow with


def frequent(
    nodes: np.ndarray, tokens: np.ndarray, ends: np.ndarray, length: int, counts: np.ndarray, limit: int, least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Keys, ascending, and counts of the n-grams of a length that are frequent enough beside the shorter ones.

    Only some nodes' n-grams are counted at once. The floor can but rise with every n-gram seen, so what is below it may go.
    """
    starts = np.append(0, np.cumsum(openings(nodes, ends, length, len(counts))))  # keys by node that they begin with
    edges = np.unique(np.append(np.searchsorted(starts, np.arange(0, starts[-1], PASS)), len(counts)))
    grams, found = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for low, high in pairwise(edges):
        keys = candidates(nodes, tokens, ends, length, low, high, starts[high] - starts[low])
        fresh, often = np.unique(keys, return_counts=True)
        least = floor(np.concatenate([counts, found, often]), limit, least)
        grams, found = np.concatenate([grams, fresh[often >= least]]), np.concatenate([found, often[often >= least]])
        grams, found = grams[found >= least], found[found >= least]
    return grams, found


@njit(cache=True, nogil=True)
def openings(nodes, ends, length, size):  # type: ignore[no-untyped-def]
    """(nodes,) the places where a candidate, an n-gram of a length both of whose shorter parts are alive, begins with a node."""
    total = np.zeros(size, dtype=np.int64)
    for document in range(len(ends) - 1):
        for place in range(ends[document], ends[document + 1] - length + 1):
            if nodes[place] >= 0 and nodes[place + 1] >= 0:
                total[nodes[place]] += 1
    return total


@njit(cache=True, nogil=True)
def candidates(nodes, tokens, ends, length, low, high, size):  # type: ignore[no-untyped-def]
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
def lengthen(nodes, tokens, ends, length, table, found):  # type: ignore[no-untyped-def]
    """Put in place of each n-gram the one that is a word longer, or -1 where that is not alive."""
    for document in range(len(ends) - 1):
        for place in range(ends[document], ends[document + 1]):
            longer = -1
            if place + length <= ends[document + 1] and nodes[place] >= 0 and nodes[place + 1] >= 0:
                longer = look_up((np.int64(nodes[place]) << 32) | tokens[place + length - 1], table, found)
            nodes[place] = longer


@njit(cache=True, nogil=True)
def home(key, mask):  # type: ignore[no-untyped-def]
    """Where a key belongs in a hash table: its bits well mixed."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(mask))


@njit(cache=True, nogil=True)
def hash_table(keys, values):  # type: ignore[no-untyped-def]
    """Open addressing, at most half full; -1 marks an empty place."""
    size = 4
    while size < 2 * len(keys):
        size *= 2
    table, found = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.int32)
    for item in range(len(keys)):
        place = home(keys[item], size - 1)
        while table[place] >= 0:
            place = (place + 1) & (size - 1)
        table[place], found[place] = keys[item], values[item]
    return table, found


@njit(cache=True, nogil=True)
def look_up(key, table, found):  # type: ignore[no-untyped-def]
    """The value of a key, or -1."""
    mask = len(table) - 1
    slot = home(key, mask)
    while table[slot] >= 0 and table[slot] != key:
        slot = (slot + 1) & mask
    return found[slot] if table[slot] == key else np.int32(-1)


@njit(cache=True, nogil=True)
def count_rows(tokens, ends, column, table, found, ngrams):  # type: ignore[no-untyped-def]
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
                node = look_up((np.int64(node) << 32) | tokens[place + step], table, found)
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
def weigh(indptr, columns, values, idf):  # type: ignore[no-untyped-def]
    """Counts times idf, each row divided by its length, in place."""
    for row in range(len(indptr) - 1):
        squares = 0.0
        for place in range(indptr[row], indptr[row + 1]):
            values[place] *= idf[columns[place]]
            squares += np.float64(values[place]) ** 2
        for place in range(indptr[row], indptr[row + 1]):
            values[place] /= np.sqrt(squares)
