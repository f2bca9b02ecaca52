"""PARABEL and BONSAI: label trees over TF-IDF features (SPEC 2.1-2.3), and one classifier per label without a tree.

Three trees of different seeds, their scores averaged. A label without a training document is in no tree and scores 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from scipy.sparse import csr_array

from labelwise.corpus import Corpus, Document
from labelwise.errors import BadCorpus
from labelwise.features.tfidf import Tfidf, TfidfSettings
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import Explanation, Span, fitted, model_folder, read_model, settings_from
from labelwise.progress import Progress, silent
from labelwise.scores import Scores, moved
from labelwise.settings import Range, cores
from labelwise.storage import write_bytes
from labelwise.trees.clustering import balanced_tree, label_vectors, wide_tree
from labelwise.trees.model import TreeModel, predict, train_tree
from labelwise.trees.tree import LabelTree

BATCH = 16_384  # documents read and searched at once


@dataclass(frozen=True)
class LinearSettings:
    """What all linear methods have in common."""

    loss: Literal["squared-hinge", "logistic"] = "squared-hinge"
    """What a mistake costs."""
    cost: Annotated[float, Range(1e-3, 1e3, log=True, tried=10)] = 1.0
    """C, the weight of mistakes against that of large weights."""
    eps: Annotated[float, Range(1e-4, 1.0, log=True)] = 0.1
    """A classifier is done when its projected gradients spread by at most this."""
    passes: Annotated[int, Range(1, 1000)] = 20
    """Most passes over the documents."""
    prune: Annotated[float, Range(0.0, 1.0, tried=(0.01, 0.2))] = 0.1
    """Weights up to this size are dropped."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 1
    """Same seed, same model."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """Processor cores to use; 0 for all. The model does not depend on it."""
    features: TfidfSettings = field(default_factory=lambda: TfidfSettings(ngrams=2))


@dataclass(frozen=True)
class TreeSettings(LinearSettings):
    """What Parabel and Bonsai have in common; features are the paper's."""

    features: TfidfSettings = field(default_factory=TfidfSettings)
    trees: Annotated[int, Range(1, 100)] = 3
    """Trees whose scores are averaged."""
    beam: Annotated[int, Range(1, 1000)] = 10
    """Nodes that are kept on each level."""
    power: Annotated[int, Range(2, 3)] = 2
    """A node's score is exp(-max(0, 1 - margin)^power); the paper has 2."""


@dataclass(frozen=True)
class ParabelSettings(TreeSettings):
    """Balanced binary trees."""

    leaf: Annotated[int, Range(1, 10_000, tried=4)] = 100
    """Most labels of a leaf."""
    branching: Literal[2, 4, 8, 16, 32] = 2
    """Children of a node; the paper has 2, more make training faster."""


@dataclass(frozen=True)
class BonsaiSettings(TreeSettings):
    """Wide and shallow trees."""

    clusters: Annotated[int, Range(2, 10_000, tried=4)] = 100
    """Children of a node, at most."""
    depth: Annotated[int, Range(1, 10)] = 2
    """Levels of the tree, the labels counted; 2 parts the labels once."""
    discount: Annotated[float, Range(0.0, 1.0)] = 0.98
    """What the score of the parent counts for."""


class _Forest:
    """Trees over TF-IDF features; subclasses say how a tree is made."""

    name: ClassVar[str]
    Settings: ClassVar[type] = LinearSettings

    def __init__(self, settings: Any = None) -> None:
        self.settings = type(self).Settings() if settings is None else settings
        self.work: Path | None = None  # where finished trees are kept while training goes on
        self._labels: LabelSet | None = None
        self._features = Tfidf(self.settings.features)
        self._trees: list[TreeModel] = []

    def _make_tree(self, gold: csr_array, vectors: Callable[[], csr_array], seed: int) -> LabelTree:
        raise TypeError("say how a tree is made")

    def fit(self, train: Corpus, dev: Corpus | None = None, *, progress: Progress | None = None) -> Self:
        """Make features, then tree after tree."""
        show, gold = progress or silent, train.gold()
        if not gold.nnz:
            raise BadCorpus(f"no training document of {train.info.name!r} has a label, so there is nothing to learn")
        features = Tfidf(self.settings.features)
        rows = features.fit_transform((document.text for document in train), progress=show)
        vectors = cache(lambda: label_vectors(rows, gold))  # the same for every tree, and for none where all were kept
        trees = [self._train(rows, gold, vectors, number, show) for number in range(self._number)]
        self._labels, self._features, self._trees = train.labels, features, trees
        return self

    def predict(self, corpus: Corpus) -> Scores:
        """Sparse scores of the labels that the beam reaches."""
        parts = [self._score(corpus[first : first + BATCH]) for first in range(0, max(1, len(corpus)), BATCH)]
        return parts[0] if len(parts) == 1 else Scores.stack(parts)

    def explain(self, document: Document, label: Label) -> Explanation:
        """The n-grams of the document by weight × value, summed along the paths to the label."""
        known = fitted(self, self._labels)
        row = self._features.transform([document.text])
        value = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        spoke: dict[int, float] = {}
        for model in self._trees if label.id in known else []:
            for step in model.path(known.column(label.id)):
                weights = model.weights(*step)
                for feature in value.keys() & weights.keys():
                    spoke[feature] = spoke.get(feature, 0) + weights[feature] * value[feature] / len(self._trees)
        spans = tuple(Span(*found) for found in self._features.spread(document.text, spoke))
        score = self.predict(Corpus([document], LabelSet([Label(label.id, label.name)])))
        return Explanation(label, float(score.dense()[0, 0]), spans)

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write features and trees."""
        with model_folder(folder, self, fitted(self, self._labels), force=force) as draft:
            self._features.save(draft)
            for number, model in enumerate(self._trees):
                np.savez_compressed(draft / f"tree-{number}.npz", **model.arrays())  # type: ignore[arg-type]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read features and trees."""
        saved = read_model(folder)
        model = cls(settings_from(cls.Settings, saved, folder))
        model._labels = saved.labels
        model._features = Tfidf.load(folder, model.settings.features)
        model._trees = [TreeModel.from_arrays(saved.arrays(f"tree-{number}")) for number in range(model._number)]
        return model

    @property
    def _number(self) -> int:
        return getattr(self.settings, "trees", 1)

    @property
    def _threads(self) -> int:
        return cores(self.settings.threads)

    def _search(self) -> dict[str, Any]:
        chosen = {name: getattr(self.settings, name) for name in ("beam", "discount", "power") if hasattr(self.settings, name)}
        return chosen | ({"power": 0} if self.settings.loss == "logistic" else {})

    def _score(self, batch: Corpus) -> Scores:
        known = fitted(self, self._labels)
        rows = self._features.transform(document.text for document in batch)
        scores = predict(self._trees, rows, threads=self._threads, **self._search())
        return Scores(moved(scores, known, batch.labels), batch.labels)

    def _train(
        self, rows: csr_array, gold: csr_array, vectors: Callable[[], csr_array], number: int, progress: Progress
    ) -> TreeModel:
        given = self.settings
        kept = self._kept(rows, gold, number)
        if kept is not None and kept.is_file():
            with np.load(kept, allow_pickle=False) as stored:
                return TreeModel.from_arrays({name: stored[name] for name in stored.files})
        tree = self._make_tree(gold, vectors, given.seed + number)
        model = train_tree(
            rows,
            gold,
            tree,
            C=given.cost,
            eps=given.eps,
            passes=given.passes,
            logistic=given.loss == "logistic",
            threshold=given.prune,
            threads=self._threads,
            seed=given.seed + number,
            progress=progress,
            task=f"train tree {number + 1} of {self._number}",
        )
        if kept is not None:
            buffer = BytesIO()
            np.savez(buffer, **model.arrays())  # type: ignore[arg-type]
            write_bytes(kept, buffer.getvalue(), force=True)
        return model

    def _kept(self, rows: csr_array, gold: csr_array, number: int) -> Path | None:
        """Where a finished tree is kept; the name tells data and settings, so that no other training takes it for its own."""
        if self.work is None:
            return None
        settings = {
            name: value
            for name, value in asdict(self.settings).items()
            if name not in ("threads", "trees", "beam", "discount", "power")
        }
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for array in (rows.indptr, rows.indices, rows.data, gold.indptr, gold.indices):
            digest.update(np.ascontiguousarray(array).data)
        return self.work / f"tree-{number}-{digest.hexdigest()[:16]}.npz"


class Parabel(_Forest):
    """Balanced binary label trees with linear classifiers (Prabhu et al. 2018)."""

    name: ClassVar[str] = "parabel"
    Settings: ClassVar[type] = ParabelSettings

    def _make_tree(self, gold: csr_array, vectors: Callable[[], csr_array], seed: int) -> LabelTree:
        return balanced_tree(
            vectors(),
            max_leaf=self.settings.leaf,
            branching=self.settings.branching,
            seed=seed,
            threads=self._threads,
        )


class Bonsai(_Forest):
    """Wide and shallow label trees with linear classifiers (Khandagale et al. 2020)."""

    name: ClassVar[str] = "bonsai"
    Settings: ClassVar[type] = BonsaiSettings

    def _make_tree(self, gold: csr_array, vectors: Callable[[], csr_array], seed: int) -> LabelTree:
        return wide_tree(vectors(), k=self.settings.clusters, depth=self.settings.depth, seed=seed, threads=self._threads)


class Linear(_Forest):
    """One linear classifier per label, against all documents: no tree to go wrong in, and slower for it."""

    name: ClassVar[str] = "linear"
    Settings: ClassVar[type] = LinearSettings

    def _make_tree(self, gold: csr_array, vectors: Callable[[], csr_array], seed: int) -> LabelTree:
        seen = np.unique(gold.indices).astype(np.int32)
        return LabelTree((np.zeros(len(seen), dtype=np.int32),), seen)
