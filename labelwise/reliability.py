"""How far probabilities can be trusted: expected calibration error, Brier score, and bins to draw.

The error is taken over bins of equal mass. Nearly all of these hold pairs that nobody would propose, so what is shown to
people has bins of equal width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

MASSES, WIDTHS = 15, 10  # bins of the error, and of the diagram


class Bin(NamedTuple):
    """Pairs of document and label with probabilities close to each other."""

    probability: float  # their mean
    right: float  # share of the pairs that are gold
    pairs: int


@dataclass(frozen=True)
class Reliability:
    """What was promised beside what came true."""

    error: float  # expected calibration error
    brier: float
    bins: tuple[Bin, ...]  # of equal width; empty ones are left out

    @classmethod
    def of(cls, probabilities: np.ndarray, right: np.ndarray) -> Self:
        """Measure the probabilities of some pairs, at least one, against which of them are right."""
        promised, true = probabilities.astype(np.float64), right.astype(np.float64)
        widths = np.linspace(0, 1, WIDTHS + 1)[1:-1]
        return cls(calibration_error(promised, true), float(np.mean((promised - true) ** 2)), bins(promised, true, widths))


def calibration_error(probabilities: np.ndarray, right: np.ndarray) -> float:
    """The mean distance of probability and truth over bins that hold about the same number of pairs; equal ones stay together."""
    edges = np.quantile(probabilities, np.linspace(0, 1, MASSES + 1)[1:-1])
    return sum(abs(one.probability - one.right) * one.pairs for one in bins(probabilities, right, edges)) / len(probabilities)


def bins(probabilities: np.ndarray, right: np.ndarray, edges: np.ndarray) -> tuple[Bin, ...]:
    """The pairs between consecutive edges; a probability on an edge belongs below it."""
    place, size = np.searchsorted(edges, probabilities), len(edges) + 1
    pairs = np.bincount(place, minlength=size)
    used = np.flatnonzero(pairs)
    promised = np.bincount(place, probabilities, size)[used] / pairs[used]
    true = np.bincount(place, right, size)[used] / pairs[used]
    return tuple(map(Bin, promised.tolist(), true.tolist(), pairs[used].tolist()))
