"""Label trees by clustering labels on the documents that have them (SPEC 2.2, 2.3).

Each label is the normalised sum of its documents' features. Balanced spherical 2-means cuts in half again and again (Parabel);
plain spherical k-means makes many clusters at once (Bonsai). Labels without a document are in no tree.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
from numba import njit
from scipy.sparse import csr_array, vstack

from labelwise.trees.tree import LabelTree

GAIN = 1e-4  # mean similarity must grow by this much for another round
ROUNDS = 50
BLOCK = 256  # labels whose documents are summed at once: the sums of all are many times the features of the documents
LARGEST = 512  # values of a label's vector that clustering looks at: the small ones cost time and change little


def label_vectors(features: csr_array, gold: csr_array) -> csr_array:
    """(labels, features) unit vectors: the largest values of the sum of each label's documents; zero without documents."""
    members = csr_array(gold.T).astype(np.float32)
    blocks = [_strongest(csr_array(members[first : first + BLOCK] @ features)) for first in range(0, members.shape[0], BLOCK)]
    return _unit(csr_array(vstack(blocks, format="csr")))


def balanced_tree(vectors: csr_array, *, max_leaf: int = 100, branching: int = 2, seed: int = 0, threads: int = 1) -> LabelTree:
    """Halve the labels, sizes differing by at most one, until no part has more than `max_leaf`.

    With a `branching` of 4, 8, 16 … only every second, third, fourth level of halves becomes a level of the tree.
    """
    clusters = [np.flatnonzero(np.diff(vectors.indptr)).astype(np.int32)]
    halvings = 0
    with ThreadPoolExecutor(threads) as pool:
        while max(map(len, clusters)) > max_leaf:
            tasks = [(cluster, _number(seed, halvings, place)) for place, cluster in enumerate(clusters)]
            halves = list(
                pool.map(lambda task: _halve(vectors.indptr, vectors.indices, vectors.data, *task, vectors.shape[1]), tasks)
            )
            clusters = [half for pair in halves for half in pair]
            halvings += 1
    step = branching.bit_length() - 1
    kept = [0, *range(halvings, 0, -step)[::-1]]
    parents = [(np.arange(2**level) >> (level - above)).astype(np.int32) for above, level in pairwise(kept)]
    return _with_labels(parents, clusters)


def wide_tree(vectors: csr_array, *, k: int = 100, depth: int = 2, seed: int = 0, threads: int = 1) -> LabelTree:
    """Part the labels into up to `k` clusters, `depth` - 1 times over; a cluster of at most `k` labels is not parted further."""
    clusters = [np.flatnonzero(np.diff(vectors.indptr)).astype(np.int32)]
    parents: list[np.ndarray] = []
    for level in range(depth - 1):
        if all(len(cluster) <= k for cluster in clusters):
            break
        parts = [
            [cluster] if len(cluster) <= k else _part(vectors, cluster, k, _number(seed, level, place), threads)
            for place, cluster in enumerate(clusters)
        ]
        parents.append(np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts]))
        clusters = [cluster for part in parts for cluster in part]
    return _with_labels(parents, clusters)


def _number(seed: int, level: int, place: int) -> int:
    """A seed for one cluster, whatever the order of work."""
    return int(np.random.SeedSequence([seed, level, place]).generate_state(1)[0])


def _with_labels(parents: list[np.ndarray], clusters: list[np.ndarray]) -> LabelTree:
    sizes = [len(cluster) for cluster in clusters]
    return LabelTree((*parents, np.repeat(np.arange(len(clusters), dtype=np.int32), sizes)), np.concatenate(clusters))


@njit(cache=True, nogil=True)
def _halve(indptr, indices, data, members, seed, width):  # type: ignore[no-untyped-def]
    """Two halves of a cluster by balanced spherical 2-means."""
    size = len(members)
    if size < 2:  # its sisters are larger, and all leaves share a depth
        return members, members[:0]
    np.random.seed(seed)
    first = np.random.randint(size)
    second = (first + 1 + np.random.randint(size - 1)) % size
    centres = np.zeros((width, 2), dtype=np.float32)
    for side, chosen in enumerate((first, second)):
        for place in range(indptr[members[chosen]], indptr[members[chosen] + 1]):
            centres[indices[place], side] = data[place]
    near = np.empty((size, 2), dtype=np.float32)
    before = np.float32(-2.0)
    order = np.arange(size)
    half = (size + 1) // 2
    for _ in range(ROUNDS):
        for item in range(size):
            one, other = np.float32(0.0), np.float32(0.0)
            for place in range(indptr[members[item]], indptr[members[item] + 1]):
                centre = centres[indices[place]]
                one += centre[0] * data[place]
                other += centre[1] * data[place]
            near[item, 0], near[item, 1] = one, other
        order = np.argsort(near[:, 1] - near[:, 0], kind="mergesort")
        total = np.float32(0.0)
        for rank in range(size):
            total += near[order[rank], 0 if rank < half else 1]
        if total / size - before < GAIN:
            break
        before = total / size
        centres[:] = 0
        for rank in range(size):
            row, side = members[order[rank]], 0 if rank < half else 1
            for place in range(indptr[row], indptr[row + 1]):
                centres[indices[place], side] += data[place]
        one, other = np.float32(0.0), np.float32(0.0)
        for feature in range(width):
            one += centres[feature, 0] ** 2
            other += centres[feature, 1] ** 2
        for feature in range(width):
            centres[feature, 0] /= np.sqrt(one)
            centres[feature, 1] /= np.sqrt(other)
    return members[np.sort(order[:half])], members[np.sort(order[half:])]


def _part(vectors: csr_array, members: np.ndarray, k: int, seed: int, threads: int) -> list[np.ndarray]:
    """Clusters of a set of labels by spherical k-means; single labels join their next cluster, empty clusters fall away."""
    own = csr_array(vectors[members])
    used = np.bincount(own.indices, minlength=own.shape[1]) > 0
    indices = (np.cumsum(used, dtype=np.int32) - 1)[own.indices]
    centres = np.empty((used.sum(), k), dtype=np.float32)
    choice = np.full(len(members), -1)  # at first a cluster is one label
    choice[np.sort(np.random.default_rng(seed).choice(len(members), k, replace=False))] = np.arange(k)
    before, near = -2.0, np.zeros((len(members), k), dtype=np.float32)
    edges = np.linspace(0, len(members), threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(ROUNDS):
            lengths = _fill(own.indptr, indices, own.data, choice, centres)
            list(pool.map(partial(_near, own.indptr, indices, own.data, centres, lengths, near), edges[:-1], edges[1:]))
            choice = np.where(near.max(axis=1) > 0, near.argmax(axis=1), 0)
            mean = float(near[np.arange(len(members)), choice].mean())
            if mean - before < GAIN:
                break
            before = mean
    sizes = np.bincount(choice, minlength=k)
    for item in np.flatnonzero(sizes[choice] == 1):
        others = np.where(sizes > 0, near[item], -np.inf)
        others[choice[item]] = -np.inf
        if sizes[choice[item]] == 1 and np.isfinite(others.max()):
            sizes[choice[item]] = 0
            choice[item] = int(others.argmax())
            sizes[choice[item]] += 1
    return [members[choice == cluster] for cluster in np.flatnonzero(sizes)]


def _strongest(sums: csr_array) -> csr_array:
    return csr_array(_largest(sums.indptr, sums.indices, sums.data, LARGEST), shape=sums.shape)


def _unit(vectors: csr_array) -> csr_array:
    """Rows divided by their length."""
    sizes = np.diff(vectors.indptr)
    squares = np.bincount(np.repeat(np.arange(len(sizes)), sizes), vectors.data.astype(np.float64) ** 2, len(sizes))
    vectors.data = vectors.data / np.repeat(np.sqrt(np.where(squares > 0, squares, 1)), sizes).astype(np.float32)
    return vectors


@njit(cache=True, nogil=True)
def _largest(indptr, indices, data, keep):  # type: ignore[no-untyped-def]
    """Data, indices and row starts of the `keep` largest values of each row, and those equal to the last of them."""
    starts = np.zeros(len(indptr), dtype=indptr.dtype)
    out_indices, out_data = np.empty(len(indices), dtype=indices.dtype), np.empty(len(data), dtype=data.dtype)
    filled = 0
    for row in range(len(indptr) - 1):
        own = data[indptr[row] : indptr[row + 1]]
        floor = np.partition(own, len(own) - keep)[len(own) - keep] if len(own) > keep else np.float32(-np.inf)
        for place in range(indptr[row], indptr[row + 1]):
            if data[place] >= floor:
                out_indices[filled], out_data[filled] = indices[place], data[place]
                filled += 1
        starts[row + 1] = filled
    return out_data[:filled].copy(), out_indices[:filled].copy(), starts


@njit(cache=True, nogil=True)
def _fill(indptr, indices, data, choice, centres):  # type: ignore[no-untyped-def]
    """Sum up the labels of each cluster in `centres` (features, clusters), and give the lengths of the sums."""
    centres[:] = 0
    for item in range(len(choice)):
        if choice[item] >= 0:
            for place in range(indptr[item], indptr[item + 1]):
                centres[indices[place], choice[item]] += data[place]
    squares = np.zeros(centres.shape[1])
    for feature in range(len(centres)):
        for cluster in range(len(squares)):
            squares[cluster] += np.float64(centres[feature, cluster]) ** 2
    return np.sqrt(np.where(squares > 0, squares, 1)).astype(np.float32)


@njit(cache=True, nogil=True)
def _near(indptr, indices, data, centres, lengths, near, first, last):  # type: ignore[no-untyped-def]
    """Write the cosine of each label from `first` to `last` with each centre to `near` (labels, clusters)."""
    for item in range(first, last):
        row = near[item]
        row[:] = 0
        for place in range(indptr[item], indptr[item + 1]):
            centre = centres[indices[place]]
            value = data[place]
            for cluster in range(len(row)):
                row[cluster] += value * centre[cluster]
        for cluster in range(len(row)):
            row[cluster] /= lengths[cluster]
