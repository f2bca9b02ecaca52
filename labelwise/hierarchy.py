"""The label hierarchy as a graph: levels, ancestors, neighbours.

A label may have several parents. Real thesauri also hold the odd cycle (Education above Higher education above Education):
its labels share one level, and `cycles` names them so that readers can warn or refuse.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from labelwise.labels import LabelSet


class Hierarchy:
    """Parents and children of a label set."""

    def __init__(self, labels: LabelSet) -> None:
        self.labels = labels
        self.parents = labels.parents()  # (labels, labels), child to parent

    @cached_property
    def children(self) -> csr_array:
        """(labels, labels), parent to child."""
        return csr_array(self.parents.T)

    @cached_property
    def leaves(self) -> np.ndarray:
        """(labels,), true for labels without a child."""
        return np.diff(self.children.indptr) == 0

    @cached_property
    def tops(self) -> np.ndarray:
        """(labels,), true for labels without a parent; a cycle that nothing stands above is a top as a whole."""
        return self.levels == 1

    @property
    def depth(self) -> int:
        """The number of levels."""
        return int(self.levels.max(initial=0))

    @cached_property
    def levels(self) -> np.ndarray:
        """(labels,), 1 for top labels, else one more than the deepest parent."""
        knots, number = self._knots
        edges = self.parents.tocoo()
        child, parent = knots[edges.row], knots[edges.col]
        outside = child != parent
        below = csr_array((np.ones(outside.sum()), (parent[outside], child[outside])), shape=(number, number))
        waiting = np.bincount(below.indices, minlength=number)  # distinct parents not yet placed
        levels = np.zeros(number, dtype=np.int32)
        level, frontier = 1, np.flatnonzero(waiting == 0)
        while len(frontier):
            levels[frontier] = level
            reached = below[frontier].indices
            np.subtract.at(waiting, reached, 1)
            frontier = np.unique(reached[waiting[reached] == 0])
            level += 1
        return levels[knots]

    @cached_property
    def cycles(self) -> list[list[str]]:
        """One cycle of label ids, first id repeated at the end, for every knot of labels that are each other's ancestors."""
        knots, _ = self._knots
        loops = self.parents.diagonal() > 0
        sizes = np.bincount(knots)
        starts = [int(np.flatnonzero(knots == knot)[0]) for knot in np.flatnonzero(sizes > 1)]
        starts += [int(column) for column in np.flatnonzero(loops & (sizes[knots] == 1))]
        return [self._cycle(start, knots) for start in starts]

    @cached_property
    def ancestors(self) -> csr_array:
        """(labels, labels), a label to each of its ancestors, itself not included."""
        closure = self.parents.astype(bool)
        reach = closure
        while reach.nnz:
            reach = (reach @ self.parents).astype(bool)
            longer = (closure + reach).astype(bool)
            if longer.nnz == closure.nnz:
                break
            closure = longer
        closure = closure.tolil() if self.cycles else closure
        if self.cycles:
            closure.setdiag(False)
        closure = csr_array(closure)
        closure.eliminate_zeros()
        closure.sort_indices()
        return closure

    def close(self, gold: csr_array) -> csr_array:
        """A (documents, labels) matrix in which every ancestor of a gold label is gold too."""
        closed = csr_array(gold.astype(np.int32) + gold.astype(np.int32) @ self.ancestors.astype(np.int32)).astype(bool)
        closed.sort_indices()
        return closed

    def neighbours(self, *, root: bool = True) -> csr_array:
        """Undirected links between labels; with `root`, one more node, the last, above the top labels."""
        edges = self.parents.tocoo()
        one, other, size = edges.row, edges.col, len(self.labels)
        if root:
            tops = np.flatnonzero(self.tops)
            one, other = np.append(one, tops), np.append(other, np.full(len(tops), size))
            size += 1
        apart = one != other
        one, other = one[apart], other[apart]
        rows, columns = np.append(one, other), np.append(other, one)
        links = csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(size, size))
        links.sort_indices()
        return links

    @cached_property
    def _knots(self) -> tuple[np.ndarray, int]:
        """For each label the number of its strongly connected component, and how many there are."""
        number, knots = connected_components(self.parents, directed=True, connection="strong")
        return knots, int(number)

    def _cycle(self, start: int, knots: np.ndarray) -> list[str]:
        """Follow parents inside the knot until a label comes again."""
        walk = [start]
        while True:
            above = self.parents.indices[self.parents.indptr[walk[-1]] : self.parents.indptr[walk[-1] + 1]]
            following = int(above[knots[above] == knots[start]][0])
            if following in walk:
                return [self.labels[column].id for column in [*walk[walk.index(following) :], following]]
            walk.append(following)
