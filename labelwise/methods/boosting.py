"""Boosted trees for yes or no, small ones: every level of a tree asks the same question of all rows.

A tree is then a short list of questions and a table with a value for each pattern of answers: it is quick to fit and to ask, and
cannot follow noise far. numba is imported with this module.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numba import njit

from labelwise.progress import Progress, silent

BINS = 64  # values of a feature that are told apart, at most
QUESTIONS = 6  # of a tree
SHARE = 0.5  # of the rows that a tree is grown on, drawn anew for each: half the time, and trees no worse
RATE = 0.15  # how much of what it finds a tree adds
SPARE = 50.0  # added to the weight of a leaf, so that leaves of few rows say little


class Boosted(NamedTuple):
    """The sum of all trees."""

    features: np.ndarray  # (trees, questions), which feature is asked for
    edges: np.ndarray  # (trees, questions), whether it lies above this
    values: np.ndarray  # (trees, patterns of answers)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """(rows,) what the trees add to log-odds, from (rows, features)."""
        return _ask(np.ascontiguousarray(rows, dtype=np.float32), self.features, self.edges, self.values)


def boost(
    rows: np.ndarray,
    hits: np.ndarray,
    start: np.ndarray,
    trees: int,
    progress: Progress = silent,
    task: str = "grow trees",
    threads: int = 1,
) -> Boosted:
    """Trees that, added to log-odds `start`, make hits likely and others unlikely; each step goes along the Newton direction.

    The result does not depend on the number of threads.
    """
    rows = np.asarray(rows, dtype=np.float32)
    edges = [_edges(column) for column in rows.T]
    width = 1 + max(len(own) for own in edges)
    bins = np.stack([np.searchsorted(own, column).astype(np.uint8) for own, column in zip(edges, rows.T, strict=True)])
    model = Boosted(
        np.zeros((trees, QUESTIONS), dtype=np.int32),
        np.full((trees, QUESTIONS), np.inf, dtype=np.float32),
        np.zeros((trees, 1 << QUESTIONS), dtype=np.float32),
    )
    logits, random = start.astype(np.float64), np.random.default_rng(0)
    with ThreadPoolExecutor(threads) as pool:
        for tree in progress(range(trees), task, trees):
            drawn = np.flatnonzero(random.random(len(rows)) < SHARE)
            slopes, curves = _slopes(logits[drawn], hits[drawn])
            parts = np.array_split(bins[:, drawn], min(len(bins), threads))
            leaves = np.zeros(len(rows), dtype=np.uint8)
            for level in range(QUESTIONS):
                told = leaves[drawn], slopes, curves, 1 << level, width
                feature, bin_ = _question(np.concatenate(list(pool.map(_sums, parts, *([same] * len(parts) for same in told)))))
                if bin_ < len(edges[feature]):
                    model.features[tree, level], model.edges[tree, level] = feature, edges[feature][bin_]
                leaves = (leaves << 1) | (bins[feature] > bin_)
            total = _sums(leaves[None, drawn], np.zeros_like(drawn), slopes, curves, 1, 1 << QUESTIONS)[0, 0]
            model.values[tree] = RATE * total[:, 0] / (total[:, 1] + SPARE)
            logits += model.values[tree][leaves]
    return model


def _edges(values: np.ndarray) -> np.ndarray:
    """Values that part the others into bins of about equal size."""
    return np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1], method="lower"))


def _question(sums: np.ndarray) -> tuple[int, int]:
    """The feature, and the last bin of the lower side, that tell most in all leaves together."""
    below = np.cumsum(sums, axis=2)
    above = below[:, :, -1:] - below
    gain = (below[..., 0] ** 2 / (below[..., 1] + SPARE) + above[..., 0] ** 2 / (above[..., 1] + SPARE)).sum(axis=1)
    feature, last = np.unravel_index(np.argmax(gain), gain.shape)
    return int(feature), int(last)


@njit(cache=True, nogil=True)
def _slopes(logits, hits):  # type: ignore[no-untyped-def]
    """By how much the likelihood of each row grows with its log-odds, and how that bends."""
    slopes, curves = np.empty(len(logits)), np.empty(len(logits))
    for row in range(len(logits)):
        chance = 1 / (1 + np.exp(-logits[row]))
        slopes[row], curves[row] = hits[row] - chance, chance * (1 - chance)
    return slopes, curves


@njit(cache=True, nogil=True)
def _sums(bins, leaves, slopes, curves, size, width):  # type: ignore[no-untyped-def]
    """(features, leaves, bins, 2) slopes and curves of the rows of each leaf and bin."""
    sums = np.zeros((len(bins), size, width, 2))
    for feature in range(len(bins)):
        for row in range(len(leaves)):
            place = sums[feature, leaves[row], bins[feature, row]]
            place[0] += slopes[row]
            place[1] += curves[row]
    return sums


@njit(cache=True, nogil=True)
def _ask(rows, features, edges, values):  # type: ignore[no-untyped-def]
    total = np.zeros(len(rows))
    for row in range(len(rows)):
        for tree in range(len(features)):
            leaf = 0
            for level in range(features.shape[1]):
                leaf = (leaf << 1) | int(rows[row, features[tree, level]] > edges[tree, level])
            total[row] += values[tree, leaf]
    return total
