"""Graph-aware annotation proximity (GAP) and label density (SPEC 7.1, 7.2, 12.1).

GAP of a document = its gold labels / the nodes needed to join them pairwise by shortest paths in the undirected hierarchy.
High where annotators label whole branches, low where they pick scattered leaves. numba is imported with this module, so it
is itself imported only where GAP is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from labelwise.errors import LabelwiseError
from labelwise.hierarchy import Hierarchy
from labelwise.progress import Progress, silent

Paths = Literal["greedy", "exact", "any", "union"]
EXACT_LIMIT = 6
TABLE_BYTES = 1 << 30  # distances held at once
STEP = 2000  # documents between two signs of progress


def gap(
    gold: csr_array,
    hierarchy: Hierarchy,
    *,
    paths: Paths = "greedy",
    root: bool = True,
    count_root: bool = True,
    progress: Progress = silent,
) -> np.ndarray:
    """(documents,) GAP of each document, NaN for those without labels.

    Of several shortest paths `greedy` takes the one that adds the fewest nodes, pairs by growing distance; `exact` tries all
    (up to 6 labels a document), `any` takes the first, `union` all of them. `root` puts one node above the top labels.
    """
    graph, order = _graph(hierarchy, root)
    moved = np.empty(len(order), dtype=np.int32)
    moved[order] = np.arange(len(order))
    sizes = np.diff(gold.indptr)
    nodes = moved[gold.indices]
    joined = np.zeros(len(sizes), dtype=np.int64)
    if paths == "exact":
        for row, (start, end) in enumerate(zip(gold.indptr[:-1], gold.indptr[1:], strict=True)):
            joined[row] = _exact(graph, sorted(nodes[start:end].tolist()), root and not count_root)
    else:
        mode = {"greedy": 0, "any": 1, "union": 2}[paths]
        drop_root = root and not count_root
        for first, last in _blocks(gold, graph.shape[0]):
            sources = np.unique(nodes[gold.indptr[first] : gold.indptr[last]])
            table = _distances(graph.indptr, graph.indices, sources)
            ways, gates = _gates(graph, table) if root else (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32))
            for start in progress(range(first, last, STEP), "GAP", -(-(last - first) // STEP)):
                part = gold.indptr[start : min(start + STEP, last) + 1].astype(np.int64)
                own = nodes[part[0] : part[-1]]
                found = _join(graph.indptr, graph.indices, ways, gates, part - part[0], own, sources, table, mode, drop_root)
                joined[start : start + len(found)] = found
    return np.divide(sizes, joined, out=np.full(len(sizes), np.nan), where=sizes > 0)


def density(gold: csr_array, labels: int) -> float:
    """Mean over documents of gold labels / labels in use (Tsoumakas); knows nothing of the graph."""
    return float(np.diff(gold.indptr).mean() / labels)


def _graph(hierarchy: Hierarchy, root: bool) -> tuple[csr_array, np.ndarray]:
    """The undirected graph with nodes in the order of their ids, the root first, and that order."""
    links = hierarchy.neighbours(root=root)
    ids = hierarchy.labels.ids
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int32)
    order = np.append(np.int32(len(ids)), order) if root else order
    graph = csr_array(links[order][:, order])
    graph.sort_indices()
    graph.indices, graph.indptr = graph.indices.astype(np.int32), graph.indptr.astype(np.int64)  # one kind, one compiled kernel
    return graph, order


def _blocks(gold: csr_array, nodes: int) -> Iterator[tuple[int, int]]:
    """Runs of documents whose distinct labels' distances fit into the table."""
    room = max(1, TABLE_BYTES // (2 * nodes))
    first, seen = 0, set[int]()
    for row in range(gold.shape[0]):
        labels = gold.indices[gold.indptr[row] : gold.indptr[row + 1]].tolist()
        if row > first and len(seen.union(labels)) > room:
            yield first, row
            first, seen = row, set()
        seen.update(labels)
    yield first, gold.shape[0]


def _gates(graph: csr_array, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each source the top labels by which a shortest path from the root leaves for it, as row starts and nodes.

    The root can have hundreds of neighbours and stands on most paths: this saves looking at them all for every pair.
    """
    tops = graph.indices[graph.indptr[0] : graph.indptr[1]]
    nearer = table[:, tops] == table[:, :1] - 1  # (sources, tops)
    return np.append(0, np.cumsum(nearer.sum(axis=1))), tops[np.nonzero(nearer)[1]]


@njit(cache=True, nogil=True)
def _distances(indptr, indices, sources):  # type: ignore[no-untyped-def]
    """(sources, nodes) number of links from each source to each node by breadth-first search; -1 where there is no way."""
    nodes = len(indptr) - 1
    table = np.full((len(sources), nodes), -1, dtype=np.int16)
    queue = np.empty(nodes, dtype=np.int32)
    for row in range(len(sources)):
        far = table[row]
        queue[0] = sources[row]
        far[sources[row]] = 0
        head, tail = 0, 1
        while head < tail:
            node = queue[head]
            head += 1
            for place in range(indptr[node], indptr[node + 1]):
                neighbour = indices[place]
                if far[neighbour] < 0:
                    far[neighbour] = far[node] + 1
                    queue[tail] = neighbour
                    tail += 1
    return table


@njit(cache=True, nogil=True)
def _join(indptr, indices, gate_starts, gates, starts, labels, sources, table, mode, drop_root):  # type: ignore[no-untyped-def]
    """(documents,) nodes needed to join the labels of each document; mode 0 greedy, 1 any, 2 union."""
    nodes = len(indptr) - 1
    inside = np.full(nodes, -1, dtype=np.int64)  # the last document that took the node in
    touched = np.full(nodes, -1, dtype=np.int64)  # the last pair that reached the node
    cost = np.zeros(nodes, dtype=np.int32)
    before = np.zeros(nodes, dtype=np.int32)
    layer, following = np.empty(nodes, dtype=np.int32), np.empty(nodes, dtype=np.int32)
    joined = np.zeros(len(starts) - 1, dtype=np.int64)
    pair = 0
    for document in range(len(starts) - 1):
        own = np.sort(labels[starts[document] : starts[document + 1]])
        size = len(own)
        for label in own:
            inside[label] = document
        rows = np.searchsorted(sources, own)
        farthest = 0
        for i in range(size):
            for j in range(i):
                farthest = max(farthest, table[rows[i], own[j]])
        for distance in range(2, farthest + 1):  # pairs by growing distance, then by id
            for i in range(len(own)):
                from_start = table[rows[i]]
                for j in range(i + 1, len(own)):
                    if from_start[own[j]] != distance:
                        continue
                    from_end = table[rows[j]]
                    pair += 1
                    layer[0] = own[i]
                    width = 1
                    cost[own[i]] = 0
                    for step in range(1, distance + 1):
                        reached = 0
                        for n in range(width):
                            node = layer[n]
                            if node == 0 and len(gate_starts):
                                around, first, last = gates, gate_starts[rows[j]], gate_starts[rows[j] + 1]
                            else:
                                around, first, last = indices, indptr[node], indptr[node + 1]
                            for place in range(first, last):
                                neighbour = around[place]
                                if from_start[neighbour] != step or from_end[neighbour] != distance - step:
                                    continue
                                price = cost[node]
                                if mode == 0 and inside[neighbour] != document:
                                    price += 1
                                fresh = touched[neighbour] != pair
                                if fresh:
                                    touched[neighbour] = pair
                                    following[reached] = neighbour
                                    reached += 1
                                if fresh or price < cost[neighbour] or (price == cost[neighbour] and node < before[neighbour]):
                                    cost[neighbour] = price
                                    before[neighbour] = node
                                if mode == 2 and inside[neighbour] != document:
                                    inside[neighbour] = document
                                    size += 1
                        layer, following = following, layer
                        width = reached
                    node = own[j]
                    while mode != 2 and node != own[i]:
                        if inside[node] != document:
                            inside[node] = document
                            size += 1
                        node = before[node]
        if drop_root and inside[0] == document:
            size -= 1
        joined[document] = size
    return joined


def _exact(graph: csr_array, labels: list[int], drop_root: bool) -> int:
    """The fewest nodes that hold a shortest path for every pair, by trying all combinations of paths."""
    if len(labels) > EXACT_LIMIT:
        raise LabelwiseError(f"exact GAP is for at most {EXACT_LIMIT} labels a document, this one has {len(labels)}; use greedy")
    choices = {frozenset(labels)}
    table = _distances(graph.indptr, graph.indices, np.array(labels, dtype=np.int32))
    for i, j in combinations(range(len(labels)), 2):
        ways = _all_paths(graph, table[i], table[j], labels[i], labels[j])
        choices = {taken | way for taken in choices for way in ways}
    return min(len(taken - {0} if drop_root else taken) for taken in choices)


def _all_paths(graph: csr_array, from_start: np.ndarray, from_end: np.ndarray, start: int, end: int) -> list[frozenset[int]]:
    """The inner nodes of every shortest path; one empty path where there is none, as it adds nothing."""
    length = int(from_start[end])
    paths = [[start]] if length > 0 else []
    for step in range(1, length):
        paths = [
            [*path, int(node)]
            for path in paths
            for node in graph.indices[graph.indptr[path[-1]] : graph.indptr[path[-1] + 1]]
            if from_start[node] == step and from_end[node] == length - step
        ]
    return [frozenset(path) for path in paths] or [frozenset()]
