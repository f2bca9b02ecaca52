"""Our label trees, one system per run, measured as their peers are; benchmarks/trees.py starts it.

Kernels come from their cache on disk, as from a user's second run on: a small training brings them in, off the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from tree_floor import pecos_tree
from tree_measure import BEAM, System, main

from labelwise.trees.clustering import balanced_tree, label_vectors, wide_tree
from labelwise.trees.model import TreeModel, predict, train_tree
from labelwise.trees.tree import LabelTree

WARM = 500  # documents of the training that brings the kernels in


class Ours:
    """Trees of one kind, through the kernels alone."""

    engines: tuple[str, ...] = ("",)

    def __init__(self, kind: str, trees: int = 1, **search: float) -> None:
        self.kind, self.trees, self.search = kind, trees, search

    def prepare(self, features: csr_matrix, gold: csr_matrix, folder: Path, threads: int) -> None:
        self.folder, self.features, self.gold = folder, csr_array(features), csr_array(gold.astype(bool))
        few = self.gold[:WARM]
        few = few[:, np.unique(few.indices)]
        vectors = label_vectors(self.features[:WARM], few)
        for tree in (balanced_tree(vectors), wide_tree(vectors)):
            train_tree(self.features[:WARM], few, tree, threads=threads)

    def train(self, threads: int) -> dict[str, float]:
        self.models = []
        building = 0.0
        started = time.perf_counter()
        grow = self._grower(threads)
        for seed in range(self.trees):
            begun = started if seed == 0 else time.perf_counter()
            tree = grow(seed)
            building += time.perf_counter() - begun
            self.models.append(train_tree(self.features, self.gold, tree, threads=threads, seed=seed))
        return {"tree_seconds": building, "solve_seconds": time.perf_counter() - started - building}

    def _grower(self, threads: int) -> Callable[[int], LabelTree]:
        if self.kind == "pecos":
            tree = pecos_tree(self.folder.parent / "pecos")
            return lambda seed: tree
        vectors = label_vectors(self.features, self.gold)
        if self.kind == "wide":
            return lambda seed: wide_tree(vectors, seed=seed, threads=threads)
        branching = 16 if self.kind == "balanced-16" else 2
        return lambda seed: balanced_tree(vectors, branching=branching, seed=seed, threads=threads)

    def save(self, folder: Path) -> None:
        for number, model in enumerate(self.models):
            np.savez_compressed(folder / f"tree-{number}.npz", **model.arrays())

    def load(self, folder: Path, engine: str, threads: int) -> None:
        self.models = []
        for number in range(self.trees):
            with np.load(folder / f"tree-{number}.npz", allow_pickle=False) as stored:
                self.models.append(TreeModel.from_arrays({name: stored[name] for name in stored.files}))

    def predict(self, features: csr_matrix, top: int, threads: int) -> csr_array:
        return predict(self.models, features, beam=BEAM, threads=threads, **self.search)

    def scores(self, answer: csr_array) -> csr_matrix:
        return csr_matrix(answer)


SYSTEMS: dict[str, System] = {
    "labelwise-pecos-tree": Ours("pecos", power=3),  # with PECOS' own score, exp(-hinge³)
    "labelwise-16-ary-1": Ours("balanced-16", power=3),
    "labelwise-16-ary-3": Ours("balanced-16", trees=3, power=3),
    "labelwise-parabel-1": Ours("balanced"),
    "labelwise-parabel-3": Ours("balanced", trees=3),
    "labelwise-bonsai-1": Ours("wide", discount=0.98),
    "labelwise-bonsai-3": Ours("wide", trees=3, discount=0.98),
}

if __name__ == "__main__":
    main(SYSTEMS)
