"""The prior: every document gets the labels that training saw most.

The least a method must beat, and a check on measures: its group scores show how far popularity alone goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from labelwise.corpus import Corpus, count_labels
from labelwise.labels import LabelSet
from labelwise.methods.base import fitted, model_folder, read_model, settings_from
from labelwise.progress import Progress
from labelwise.scores import Scores


@dataclass(frozen=True)
class PriorSettings:
    """The prior has no settings."""


class Prior:
    """Score = share of the training documents that have the label."""

    name: ClassVar[str] = "prior"
    Settings: ClassVar[type] = PriorSettings

    def __init__(self, settings: PriorSettings = PriorSettings()) -> None:
        self.settings = settings
        self._labels: LabelSet | None = None
        self._shares = np.zeros(0, dtype=np.float32)

    def fit(self, train: Corpus, dev: Corpus | None = None, *, progress: Progress | None = None) -> Self:
        """Count the labels of the training documents."""
        self._labels = train.labels
        self._shares = (count_labels(train) / max(1, len(train))).astype(np.float32)
        return self

    def predict(self, corpus: Corpus) -> Scores:
        """The same scores for every document."""
        known = fitted(self, self._labels)
        row = np.array([self._shares[known.column(id)] if id in known else 0 for id in corpus.labels.ids], dtype=np.float32)
        return Scores(np.broadcast_to(row, (len(corpus), len(row))), corpus.labels)

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write the counts."""
        with model_folder(folder, self, fitted(self, self._labels), force=force) as draft:
            np.savez(draft / "prior.npz", shares=self._shares)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the counts."""
        saved = read_model(folder)
        model = cls(settings_from(PriorSettings, saved, folder))
        model._labels, model._shares = saved.labels, saved.arrays("prior")["shares"]
        return model
