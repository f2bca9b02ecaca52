"""A trained label tree: linear classifiers at its nodes, and beam search through them (SPEC 12.2, 12.4).

Training goes node by node, costliest first, on threads; the result does not depend on their number. Weights are kept per node as
rows of features with the children they speak for, found at prediction by a bitmap of the node's features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from labelwise.progress import Progress, silent
from labelwise.trees.beam import average, best, bitmaps, expand, reached
from labelwise.trees.solver import harvest, localise, signs_of, solve
from labelwise.trees.tree import LabelTree

BLOCK = 64  # lanes solved side by side
PIECE = 256  # lanes of a node that are one task
PART = 4096  # documents searched at once: enough to use the weights of a node again and again while they are in the cache


@dataclass(frozen=True)
class Layer:
    """The classifiers of one level, node by node of the level above."""

    chunks: np.ndarray  # (nodes above + 1,), where the features of each node start
    features: np.ndarray  # ascending within a node
    rows: np.ndarray  # (features + 1,), where the weights of each feature start
    lanes: np.ndarray  # which child of the node a weight is for
    values: np.ndarray
    bias: np.ndarray  # (nodes,)


@dataclass(frozen=True)
class TreeModel:
    """A tree with its classifiers."""

    tree: LabelTree
    layers: tuple[Layer, ...]
    features: int
    labels: int
    _maps: list[Any] = field(default_factory=list, repr=False, compare=False)

    def predict(
        self, features: csr_array, *, beam: int = 10, discount: float = 1.0, power: int = 2, threads: int = 1
    ) -> csr_array:
        """(documents, labels) scores from 0 to 1 of the labels that the beam reaches.

        A child's log-score is -max(0, 1 - margin)^power, or with a power of 0, for logistic classifiers, -log(1 + exp(-margin)).
        """
        return predict([self], features, beam=beam, discount=discount, power=power, threads=threads)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything as named arrays, to be saved."""
        plain: dict[str, np.ndarray] = {"labels": self.tree.labels, "size": np.array([self.features, self.labels])}
        for level, (parents, layer) in enumerate(zip(self.tree.parents, self.layers, strict=True)):
            sizes = np.diff(layer.rows)
            small = {**vars(layer), "rows": sizes.astype(_smallest(sizes.max(initial=0)))}
            plain |= {f"{level}.parents": parents, **{f"{level}.{name}": array for name, array in small.items()}}
        return plain

    @classmethod
    def from_arrays(cls, plain: Mapping[str, np.ndarray]) -> TreeModel:
        """The model whose `arrays` these are."""
        depth = sum(name.endswith(".parents") for name in plain)
        tree = LabelTree(tuple(plain[f"{level}.parents"] for level in range(depth)), plain["labels"])
        layers = []
        for level in range(depth):
            parts = {name: plain[f"{level}.{name}"] for name in ("chunks", "features", "rows", "lanes", "values", "bias")}
            rows = np.append(0, np.cumsum(parts["rows"], dtype=np.int64))
            layers.append(Layer(**{**parts, "rows": rows.astype(_smallest(rows[-1]))}))
        return cls(tree, tuple(layers), *plain["size"].tolist())

    def path(self, label: int) -> list[tuple[int, int, int]]:
        """(level, node above, child) from the root to a label; empty when the label is in no leaf."""
        places = np.flatnonzero(self.tree.labels == label)
        steps: list[tuple[int, int, int]] = []
        child = int(places[0]) if len(places) else -1
        for level in range(self.tree.depth - 1, -1, -1):
            if child < 0:
                break
            above = int(self.tree.parents[level][child])
            steps.insert(0, (level, above, child))
            child = above
        return steps

    def weights(self, level: int, node: int, child: int) -> dict[int, float]:
        """Feature to weight of the classifier for one child of a node."""
        layer = self.layers[level]
        first, last = layer.chunks[node], layer.chunks[node + 1]
        span = slice(int(layer.rows[first]), int(layer.rows[last]))
        sizes = np.diff(layer.rows[first : last + 1].astype(np.int64)).astype(np.int64)
        features = np.repeat(layer.features[first:last], sizes)
        mine = layer.lanes[span] == child - self.tree.children(level)[node]
        return dict(zip(features[mine].tolist(), layer.values[span][mine].tolist(), strict=True))

    def search(
        self, features: csr_array, first: int, last: int, beam: int, discount: float, power: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row starts, labels and scores of everything that the beam reaches for some consecutive documents."""
        places = features.indptr[first : last + 1].astype(np.int64)
        rows = places - places[0], features.indices[places[0] : places[-1]], features.data[places[0] : places[-1]]
        nodes, scores = np.zeros((last - first, 1), dtype=np.int32), np.zeros((last - first, 1), dtype=np.float32)
        for level, (layer, maps) in enumerate(zip(self.layers, self._bitmaps(), strict=True)):
            children = self.tree.children(level)
            weights = layer.chunks, layer.rows, layer.lanes, layer.values, layer.bias, *maps
            logs = expand(*rows, nodes, scores, children, *weights, np.float32(discount if level else 1.0), power)
            if level < len(self.layers) - 1:
                nodes, scores = best(nodes, logs, children, beam)
        found: tuple[np.ndarray, np.ndarray, np.ndarray] = reached(nodes, logs, children, self.tree.labels)
        return found

    def _bitmaps(self) -> list[Any]:
        if not self._maps:
            self._maps.extend(bitmaps(layer.chunks, layer.features, self.features) for layer in self.layers)
        return self._maps


def predict(
    models: Sequence[TreeModel],
    features: csr_array,
    *,
    beam: int = 10,
    discount: float = 1.0,
    power: int = 2,
    threads: int = 1,
) -> csr_array:
    """(documents, labels) the mean of the scores of several trees; a label that a tree does not reach counts 0 there."""
    for model in models:
        model._bitmaps()  # made once, not by every thread
    labels, documents = models[0].labels, features.shape[0]

    def part(edges: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = [model.search(features, *edges, beam, discount, power) for model in models]
        return found[0] if len(found) == 1 else _average(found, labels)

    number = max(threads, documents // PART) if documents > PART else 1
    parts = list(pairwise(np.linspace(0, documents, number + 1).astype(np.int64).tolist()))
    if number == 1:  # making threads would take longer than one document does
        done = [part(parts[0])]
    else:
        with ThreadPoolExecutor(threads) as pool:
            done = list(pool.map(part, parts))
    indptr = np.cumsum(np.concatenate([[0], *(np.diff(starts) for starts, _, _ in done)]))
    columns, values = (done[0][item] if number == 1 else np.concatenate([one[item] for one in done]) for item in (1, 2))
    return csr_array((values, columns, indptr.astype(np.int32 if indptr[-1] < 2**31 else np.int64)), shape=(documents, labels))


def _average(
    found: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], labels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *(len(columns) for _, columns, _ in found[:-1])])
    starts = np.stack([rows + offset for (rows, _, _), offset in zip(found, offsets, strict=True)])
    joined: tuple[np.ndarray, np.ndarray, np.ndarray] = average(
        starts, np.concatenate([columns for _, columns, _ in found]), np.concatenate([values for _, _, values in found]), labels
    )
    return joined


def train_tree(
    features: csr_array,
    gold: csr_array,
    tree: LabelTree,
    *,
    C: float = 1.0,
    eps: float = 0.1,
    passes: int = 20,
    logistic: bool = False,
    threshold: float = 0.1,
    threads: int = 1,
    seed: int = 0,
    progress: Progress = silent,
    task: str = "train",
) -> TreeModel:
    """Train the classifiers of a tree on rows of length 1."""
    members = tree.members(gold)
    above = [matrix.tocsc() for matrix in (_everybody(members[0]), *members[:-1])]
    starts = [tree.children(level) for level in range(tree.depth)]
    sizes, indptr = np.diff(features.indptr), features.indptr.astype(np.int64)
    tasks = [
        (int(sizes[_rows(above[level], node)].sum()) * (last - first), level, node, first, last)
        for level in range(tree.depth)
        for node in range(above[level].shape[1])
        for first, last in _pieces(int(starts[level][node]), int(starts[level][node + 1]), PIECE)
    ]

    def work(task: tuple[int, int, int, int, int]) -> Weights:
        _, level, node, first, last = task
        if starts[level][node + 1] - starts[level][node] == 1:
            return _certain()
        rows = _rows(above[level], node).astype(np.int32)
        lanes = first, last, int(starts[level][node])
        return _train_piece(indptr, features, rows, members[level], lanes, (C, eps, passes, threshold, seed, logistic))

    tasks.sort(reverse=True)  # costliest first, so that no thread is left with a long one at the end
    with ThreadPoolExecutor(threads) as pool:
        done = list(progress(pool.map(work, tasks), task, len(tasks)))
    nodes: list[list[list[tuple[int, Weights]]]] = [[[] for _ in range(matrix.shape[1])] for matrix in above]
    for (_, level, node, first, _), weights in zip(tasks, done, strict=True):
        nodes[level][node].append((first, weights))
    layers = tuple(_layer([_joined(pieces) for pieces in level]) for level in nodes)
    return TreeModel(tree, layers, features.shape[1], gold.shape[1])


class Weights(NamedTuple):
    """Weights of some classifiers of a node: feature, lane within the node and value of each, and the biases."""

    features: np.ndarray
    lanes: np.ndarray
    values: np.ndarray
    bias: np.ndarray


def _certain() -> Weights:
    """An only child is chosen for sure."""
    return Weights(*(np.zeros(0, dtype=kind) for kind in (np.int32, np.int32, np.float32)), np.full(1, 1e3, dtype=np.float32))


def _train_piece(
    indptr: np.ndarray,
    features: csr_array,
    rows: np.ndarray,
    members: csr_array,
    lanes: tuple[int, int, int],
    settings: tuple[Any, ...],
) -> Weights:
    """Train some lanes of one node on the documents that reach it."""
    cost, eps, passes, threshold, seed, logistic = settings
    first, last, offset = lanes
    own, starts, local, values, single_starts, singles, single_values = localise(
        indptr, features.indices, features.data, rows, features.shape[1]
    )
    single_squares = _sums_of_squares(single_starts, single_values)
    squares = _sums_of_squares(starts, values) + single_squares + np.float32(1)  # the bias is a feature of value 1
    found, bias = [], []
    for begin, end in _pieces(first, last, BLOCK):
        signs = signs_of(members.indptr, members.indices, rows, begin, end)
        weights, alpha = solve(
            starts,
            local,
            values,
            squares,
            single_squares,
            signs,
            len(own),
            np.float32(cost),
            np.float32(eps),
            passes,
            seed,
            logistic,
        )
        feature, lane, value = harvest(weights, alpha, own, single_starts, singles, single_values, np.float32(threshold))
        found.append((feature, lane + np.int32(begin - offset), value))
        bias.append(weights[-1])
    return Weights(*(np.concatenate(part) for part in zip(*found, strict=True)), np.concatenate(bias))


@njit(cache=True, nogil=True)
def _sums_of_squares(starts, values):  # type: ignore[no-untyped-def]
    """(rows,) of values kept row by row, added up in double precision."""
    sums = np.zeros(len(starts) - 1, dtype=np.float32)
    for row in range(len(sums)):
        total = 0.0
        for place in range(starts[row], starts[row + 1]):
            total += np.float64(values[place]) ** 2
        sums[row] = total
    return sums


def _joined(pieces: list[tuple[int, Weights]]) -> tuple[np.ndarray, ...]:
    """(features, row sizes, lanes, values, bias) of a node, feature by feature."""
    parts = [weights for _, weights in sorted(pieces, key=lambda piece: piece[0])]
    feature, lane, value, bias = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(feature.astype(np.int64) * max(1, len(bias)) + lane, kind="stable")
    kept, sizes = np.unique(feature, return_counts=True)
    return kept, sizes, lane[order], value[order], bias


def _layer(nodes: list[tuple[np.ndarray, ...]]) -> Layer:
    features, sizes, lanes, values, bias = (np.concatenate(part) for part in zip(*nodes, strict=True))
    widest = max(len(node[4]) for node in nodes)
    chunks = np.cumsum([0, *(len(node[0]) for node in nodes)], dtype=np.int64)
    rows = np.append(0, np.cumsum(sizes, dtype=np.int64))
    return Layer(chunks, features, rows.astype(_smallest(rows[-1])), lanes.astype(_smallest(widest)), values, bias)


def _smallest(largest: int) -> type:
    """The smallest kind of whole number that holds values up to `largest`."""
    return next(kind for kind in (np.uint8, np.uint16, np.int32, np.int64) if largest <= np.iinfo(kind).max)


def _pieces(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """Lanes in pieces of a size, the rest in one of its own."""
    for begin in range(first, last, size):
        yield begin, min(begin + size, last)


def _everybody(members: csr_array) -> csr_array:
    """(documents, 1): the root has every document that has a label of the tree."""
    some = (np.diff(members.indptr) > 0)[:, None]
    return csr_array(some)


def _rows(columns: Any, node: int) -> np.ndarray:
    found: np.ndarray = columns.indices[columns.indptr[node] : columns.indptr[node + 1]]
    return found
