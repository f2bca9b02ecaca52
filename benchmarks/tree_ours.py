"""Our label trees, one system per run, measured as their peers are; benchmarks/trees.py starts it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from tree_measure import BEAM, main

WARM = 500  # documents of the training that brings the kernels in


class Ours:
    """Trees of one kind, through the kernels alone."""

    engines = ("",)

    def __init__(self, kind: str, trees: int = 1, discount: float = 1.0) -> None:
        self.kind, self.trees, self.discount = kind, trees, discount

    def prepare(self, features: csr_matrix, gold: csr_matrix, folder: Path, threads: int) -> None:
        self.folder = folder
        self.features, self.gold = csr_array(features[:WARM]), csr_array(gold[:WARM].astype(bool))
        self.train(threads)
        self.features, self.gold = csr_array(features), csr_array(gold.astype(bool))

    def train(self, threads: int) -> dict[str, float]:
        from labelwise.trees.model import train_tree

        self.models = []
        building = 0.0
        started = time.perf_counter()
        grow = self._grower()
        for seed in range(self.trees):
            begun = started if seed == 0 else time.perf_counter()
            tree = grow(seed)
            building += time.perf_counter() - begun
            self.models.append(train_tree(self.features, self.gold, tree, threads=threads, seed=seed))
        return {"tree_seconds": building, "solve_seconds": time.perf_counter() - started - building}

    def _grower(self) -> Any:
        from labelwise.trees.clustering import balanced_tree, label_vectors, wide_tree

        if self.kind == "pecos":
            from tree_floor import pecos_tree

            return lambda seed: pecos_tree(self.folder.parent / "pecos")
        vectors = label_vectors(self.features, self.gold)
        grow = {"balanced": balanced_tree, "wide": wide_tree}[self.kind]
        return lambda seed: grow(vectors, seed=seed)

    def save(self, folder: Path) -> None:
        for number, model in enumerate(self.models):
            (folder / str(number)).mkdir(exist_ok=True)
            model.save(folder / str(number))

    def load(self, folder: Path, engine: str, threads: int) -> None:
        from labelwise.trees.model import TreeModel

        self.models = [TreeModel.load(folder / str(number)) for number in range(self.trees)]

    def predict(self, features: csr_matrix, top: int, threads: int) -> csr_array:
        found = [model.predict(features, beam=BEAM, discount=self.discount, threads=threads) for model in self.models]
        return found[0] if self.trees == 1 else sum(found[1:], found[0]) / np.float32(self.trees)

    def scores(self, answer: csr_array) -> csr_matrix:
        return csr_matrix(answer)


SYSTEMS = {
    "labelwise-pecos-tree": Ours("pecos"),
    "labelwise-parabel-1": Ours("balanced"),
    "labelwise-parabel-3": Ours("balanced", trees=3),
    "labelwise-bonsai-1": Ours("wide", discount=0.98),
    "labelwise-bonsai-3": Ours("wide", trees=3, discount=0.98),
}

if __name__ == "__main__":
    main(SYSTEMS)
