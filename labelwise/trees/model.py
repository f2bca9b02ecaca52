"""A trained label tree: linear classifiers at its nodes, and beam search through them (SPEC 12.2, 12.4).

Training goes node by node, costliest first, on threads; the result does not depend on their number. Weights are kept per node as
rows of features with the children they speak for; those of narrow nodes, in the upper levels of a binary tree, per feature as
pairs (see beam.py). The arrays of all nodes are one, so that a search is one call of a kernel; files keep weights level by level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from labelwise.progress import Progress, silent
from labelwise.trees.beam import average, fill_maps, fill_pairs, find_pairs, search
from labelwise.trees.solver import localise, signs_of, solve
from labelwise.trees.tree import LabelTree

BLOCK = 64  # lanes solved side by side
PIECE = 256  # lanes of a node that are one task
PART = 4096  # documents searched at once: enough to use the weights of a node again and again while they are in the cache


class Part(NamedTuple):
    """The classifiers of some consecutive nodes: how many features each node has, and so on down to the weights."""

    chunks: np.ndarray  # (nodes,), features of each node
    features: np.ndarray  # ascending within a node
    rows: np.ndarray  # (features,), weights of each feature
    lanes: np.ndarray  # which child of the node a weight is for
    values: np.ndarray
    bias: np.ndarray  # (children,)


@dataclass(frozen=True)
class TreeModel:
    """A tree with its classifiers; nodes are counted from the root, level after level, so that children stand side by side."""

    tree: LabelTree
    features: int
    labels: int
    bias: np.ndarray  # (nodes,), 0 for the root
    words: np.ndarray  # the map of the narrow nodes
    pairs: np.ndarray  # (features of all narrow nodes + 1, 2), weights for the first and the second child
    chunks: np.ndarray  # (wide nodes + 1,), where the features of each node start
    columns: np.ndarray  # the features, ascending within a node
    rows: np.ndarray  # (columns + 1,), where the weights of each feature start
    lanes: np.ndarray  # which child of the node a weight is for
    values: np.ndarray

    @classmethod
    def of_parts(cls, tree: LabelTree, features: int, labels: int, parts: Iterable[Part]) -> TreeModel:
        """A model from the classifiers of its nodes, in order."""
        parts, nodes = list(parts), _narrow(tree)[1]
        split = int(np.searchsorted(np.cumsum([len(part.chunks) for part in parts]), nodes, side="right"))
        words, pairs = _paired(_concatenated(parts[:split]), features)
        sizes, columns, counts, lanes, values, _ = _concatenated(parts[split:])
        rows = np.zeros(len(counts) + 1, dtype=np.int32 if len(values) < 2**31 else np.int64)
        np.cumsum(counts, dtype=rows.dtype, out=rows[1:])
        bias = np.concatenate([np.zeros(1, dtype=np.float32), *(part.bias for part in parts)])
        return cls(tree, features, labels, bias, words, pairs, np.append(0, np.cumsum(sizes)), columns, rows, lanes, values)

    def predict(
        self, features: csr_array, *, beam: int = 10, discount: float = 1.0, power: int = 2, threads: int = 1
    ) -> csr_array:
        """(documents, labels) scores from 0 to 1 of the labels that the beam reaches.

        A child's log-score is -max(0, 1 - margin)^power, or with a power of 0, for logistic classifiers, -log(1 + exp(-margin)).
        """
        return predict([self], features, beam=beam, discount=discount, power=power, threads=threads)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything as named arrays, level by level, to be saved."""
        plain: dict[str, np.ndarray] = {"labels": self.tree.labels, "size": np.array([self.features, self.labels])}
        first, last = 0, 1
        for level, parents in enumerate(self.tree.parents):
            part = self._part(first, last)
            first, last = last, last + len(parents)
            arrays = {"parents": parents} | part._asdict()
            arrays["chunks"] = np.append(0, np.cumsum(part.chunks))
            arrays["rows"] = part.rows.astype(_smallest(part.rows.max(initial=0)))
            arrays["lanes"] = part.lanes.astype(_smallest(np.bincount(parents).max()))
            plain |= {f"{level}.{name}": array for name, array in arrays.items()}
        return plain

    @classmethod
    def from_arrays(cls, plain: Mapping[str, np.ndarray]) -> TreeModel:
        """The model whose `arrays` these are."""
        depth = sum(name.endswith(".parents") for name in plain)
        tree = LabelTree(tuple(plain[f"{level}.parents"] for level in range(depth)), plain["labels"])
        parts = (Part(*(plain[f"{level}.{name}"] for name in Part._fields)) for level in range(depth))
        return cls.of_parts(tree, *plain["size"].tolist(), (part._replace(chunks=np.diff(part.chunks)) for part in parts))

    def path(self, label: int) -> list[tuple[int, int]]:
        """(node, child) from the root to a label; empty when the label is in no leaf."""
        places = np.flatnonzero(self.tree.labels == label)
        steps: list[tuple[int, int]] = []
        child = len(self.bias) - len(self.tree.labels) + int(places[0]) if len(places) else 0
        while child:
            node = int(np.searchsorted(self._children, child, side="right")) - 1
            steps.insert(0, (node, child))
            child = node
        return steps

    def weights(self, node: int, child: int) -> dict[int, float]:
        """Feature to weight of the classifier for one child of a node."""
        part = self._part(node, node + 1)
        mine = part.lanes == child - self._children[node]
        return dict(zip(np.repeat(part.features, part.rows)[mine].tolist(), part.values[mine].tolist(), strict=True))

    def _part(self, first: int, last: int) -> Part:
        """The classifiers of some nodes, all narrow or all wide."""
        narrow = _narrow(self.tree)[1]
        if first < narrow:
            return _concatenated([self._narrow_part(node) for node in range(first, last)])
        chunks = self.chunks[first - narrow : last - narrow + 1]
        rows = self.rows[chunks[0] : chunks[-1] + 1]
        columns, weights = self.columns[chunks[0] : chunks[-1]], slice(rows[0], rows[-1])
        bias = self.bias[self._children[first] : self._children[last]]
        return Part(np.diff(chunks), columns, np.diff(rows), self.lanes[weights], self.values[weights], bias)

    def _narrow_part(self, node: int) -> Part:
        features, rows = find_pairs(self.features, node, _narrow(self.tree)[1], self.words)
        weights = self.pairs.take(rows, axis=0)
        kept = weights != 0
        lanes, bias = kept.nonzero()[1], self.bias[self._children[node] : self._children[node + 1]]
        return Part(np.array([len(rows)]), features, kept.sum(axis=1), lanes, weights[kept], bias)

    @cached_property
    def _children(self) -> np.ndarray:
        """(inner nodes + 1,), where the children of each node start."""
        return np.cumsum(np.concatenate([[1], *(np.diff(self.tree.children(level)) for level in range(self.tree.depth))]))

    @cached_property
    def searched(self) -> tuple[Any, ...]:
        """What beam search needs; numpy makes the maps, since it asks for large pages of memory and numba does not."""
        maps = np.zeros((len(self.chunks) - 1, (self.features + 31) // 32), dtype=np.uint64)
        fill_maps(self.chunks, self.columns, maps)
        tree = self.tree.depth, self._children, self.tree.labels, self.bias
        narrow = *_narrow(self.tree), self.words, self.pairs
        return tree, narrow, (maps, self.chunks, self.rows, self.lanes, self.values)


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
    trees = [model.searched for model in models]  # made once, not by every thread
    labels, documents = models[0].labels, features.shape[0]

    def part(edges: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = features.indptr[edges[0] : edges[1] + 1], features.indices, features.data
        found = [search(*rows, *tree, beam, np.float32(discount), power) for tree in trees]
        joined = map(np.concatenate, zip(*found, strict=True))
        return found[0] if len(found) == 1 else average(*joined, len(found), labels)

    number = max(threads, documents // PART) if documents > PART else 1
    if number == 1:  # making threads would take longer than one document does
        indptr, columns, values = part((0, documents))
    else:
        edges = pairwise(np.linspace(0, documents, number + 1).astype(np.int64).tolist())
        with ThreadPoolExecutor(threads) as pool:
            starts, *others = zip(*pool.map(part, edges), strict=True)
        indptr = np.cumsum(np.concatenate([[0], *(np.diff(one) for one in starts)]))
        columns, values = (np.concatenate(several) for several in others)
    return csr_array((values, columns, indptr.astype(np.int32 if indptr[-1] < 2**31 else np.int64)), shape=(documents, labels))


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
        if starts[level][node + 1] - starts[level][node] <= 1:
            return _certain(last - first)
        rows = _rows(above[level], node).astype(np.int32)
        lanes = first, last, int(starts[level][node])
        return _train_piece(indptr, features, rows, members[level], lanes, (C, eps, passes, threshold, seed, logistic))

    tasks.sort(reverse=True)  # costliest first, so that no thread is left with a long one at the end
    with ThreadPoolExecutor(threads) as pool:
        done = list(progress(pool.map(work, tasks), task, len(tasks)))
    pieces: dict[tuple[int, int], dict[int, Weights]] = {}
    while done:  # what is joined is not kept twice
        _, level, node, first, _ = tasks.pop()
        pieces.setdefault((level, node), {})[first] = done.pop()
    parts = [_joined(pieces.pop(node)) for node in sorted(pieces)]
    return TreeModel.of_parts(tree, features.shape[1], gold.shape[1], parts)


def _narrow(tree: LabelTree) -> tuple[int, int]:
    """How many levels from the root have nodes of at most two children, and how many nodes; the last level is always wide."""
    levels = 0
    while levels < tree.depth - 1 and np.bincount(tree.parents[levels]).max() <= 2:
        levels += 1
    return levels, sum([1, *map(len, tree.parents)][:levels])


def _paired(part: Part, features: int) -> tuple[np.ndarray, np.ndarray]:
    """The map of narrow nodes and their pairs, with a last row that is nobody's: a search may look one too far."""
    words = np.zeros((features * len(part.chunks) + 31) // 32, dtype=np.uint64)
    pairs = np.zeros((len(part.features) + 1, 2), dtype=np.float32)
    fill_pairs(*part[:5], words, pairs)
    return words, pairs


def _concatenated(parts: Sequence[Part]) -> Part:
    kinds = np.int64, np.int32, np.uint8, np.uint8, np.float32, np.float32
    none = Part(*(np.zeros(0, dtype=kind) for kind in kinds))
    return Part(*(np.concatenate(arrays) for arrays in zip(none, *parts, strict=True)))


class Weights(NamedTuple):
    """Weights of some classifiers of a node: feature, lane within the node and value of each, and the biases."""

    features: np.ndarray
    lanes: np.ndarray
    values: np.ndarray
    bias: np.ndarray


def _certain(children: int) -> Weights:
    """An only child is chosen for sure."""
    none = (np.zeros(0, dtype=kind) for kind in (np.int32, np.int32, np.float32))
    return Weights(*none, np.full(children, 1e3, dtype=np.float32))


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
    node = localise(indptr, features.indices, features.data, rows, features.shape[1])
    _, starts, _, values, single_starts, _, single_values = node
    single_squares = _sums_of_squares(single_starts, single_values)
    squares = _sums_of_squares(starts, values) + single_squares + np.float32(1)  # the bias is a feature of value 1
    found, biases = [], []
    for begin, end in _pieces(first, last, BLOCK):
        signs = signs_of(members.indptr, members.indices, rows, begin, end)
        parts, bias = solve(
            node,
            squares,
            single_squares,
            signs,
            end - begin,
            np.float32(cost),
            np.float32(eps),
            passes,
            np.float32(threshold),
            seed,
            logistic,
        )
        found += [(feature, lane + np.int32(begin - offset), value) for feature, lane, value in parts]
        biases.append(bias)
    return Weights(*(np.concatenate(part) for part in zip(*found, strict=True)), np.concatenate(biases))


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


def _joined(pieces: dict[int, Weights]) -> Part:
    """The classifiers of a node, feature by feature, from pieces by their first lane."""
    feature, lane, value, bias = (np.concatenate(part) for part in zip(*(pieces[first] for first in sorted(pieces)), strict=True))
    order = np.argsort(feature.astype(np.int64) * max(1, len(bias)) + lane, kind="stable")
    kept, sizes = np.unique(feature, return_counts=True)
    lane = lane[order].astype(_smallest(len(bias)))
    return Part(np.array([len(kept)]), kept, sizes.astype(np.int32), lane, value[order], bias)


def _smallest(largest: int) -> type:
    """The smallest kind of whole number that holds values up to `largest`."""
    return next(kind for kind in (np.uint8, np.uint16, np.int32, np.int64) if largest <= np.iinfo(kind).max)


def _pieces(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """Lanes in pieces of a size, the rest in one of its own; one empty piece where there are none."""
    for begin in range(first, max(last, first + 1), size):
        yield begin, min(begin + size, last)


def _everybody(members: csr_array) -> csr_array:
    """(documents, 1): the root has every document that has a label of the tree."""
    some = (np.diff(members.indptr) > 0)[:, None]
    return csr_array(some)


def _rows(columns: Any, node: int) -> np.ndarray:
    found: np.ndarray = columns.indices[columns.indptr[node] : columns.indptr[node + 1]]
    return found
