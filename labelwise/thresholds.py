"""Thresholds that keep a promise: the highest F1, a precision or a recall, as seen on development documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from labelwise.errors import BadSettings

POINTS = 200  # of a curve, at most
ENOUGH = 20  # right labels that a point stands on


class Point(NamedTuple):
    """What happens on the development documents when labels above a threshold are accepted."""

    threshold: float
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean of the two."""
        return 2 * self.precision * self.recall / ((self.precision + self.recall) or 1)


def curve(chances: np.ndarray, right: np.ndarray, gold: int) -> list[Point]:
    """Precision and recall at thresholds between which as many right pairs lie each time, highest threshold first.

    `gold` counts all gold labels, also those without a chance. F1 peaks only where a right pair is the last to be accepted.
    """
    order = np.argsort(-chances, kind="stable")
    chances, right = chances[order], right[order]
    found = int(right.sum())
    if not found:
        return []
    places = np.unique(np.linspace(min(ENOUGH, found), found, min(POINTS, found)).round().astype(np.int64))
    lowest = chances[np.flatnonzero(right)[places - 1]]
    accepted = np.unique(np.searchsorted(-chances, -lowest, side="right"))  # pairs, with all that are equal to the last
    hits = np.cumsum(right)[accepted - 1]
    thresholds = np.append(chances, 0)[accepted]  # the first that is left out: accepted pairs lie above it
    return list(map(Point, thresholds.tolist(), (hits / accepted).tolist(), (hits / gold).tolist()))


def parse(target: str) -> tuple[str, float]:
    """What is to be reached, and how much of it: "f1", "precision=0.9" or "recall=0.8"."""
    asked = re.fullmatch(r"(precision|recall)>?=(\d*\.?\d+)", target)
    if target != "f1" and (asked is None or float(asked[2]) > 1):
        raise BadSettings(f"threshold {target!r}: write f1, precision=0.9, recall=0.8, or a number from 0 to 1")
    return (asked[1], float(asked[2])) if asked else ("f1", 0.0)


def best_threshold(points: Sequence[Point], target: str) -> Point:
    """The point of highest F1, of most recall at a precision, or of most precision at a recall."""
    measure, least = parse(target)
    if not points:
        raise BadSettings(f"threshold {target}: no label that the model scored was right on the development documents")
    if measure == "f1":
        return max(points, key=attrgetter("f1"))
    reached = [point for point in points if getattr(point, measure) >= least]
    if not reached:
        best = max(points, key=attrgetter(measure))
        raise BadSettings(
            f"threshold {target}: not reached on the development documents; the highest {measure} is "
            f"{getattr(best, measure):.3f} (precision {best.precision:.3f}, recall {best.recall:.3f} above {best.threshold:.3f})"
        )
    return max(reached, key=attrgetter("recall" if measure == "precision" else "precision"))
