"""A label tree: levels of nodes, each with its parent on the level above; the nodes of the last level are labels.

Children of a node stand side by side, so a level is one array. A label that is reached early hangs under single children down to
the last level: such a node has nothing to decide, and no classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array


@dataclass(frozen=True)
class LabelTree:
    """Levels from the top, and the label of each node of the last one."""

    parents: tuple[np.ndarray, ...]  # per level (nodes,), parent on the level above, ascending; the root is node 0
    labels: np.ndarray  # (nodes of the last level,), column of the label

    def __post_init__(self) -> None:
        above = 1
        for level in self.parents:
            if len(level) and (np.diff(level).min(initial=0) < 0 or level[0] < 0 or level[-1] >= above):
                raise ValueError("children must stand side by side, in the order of their parents")
            above = len(level)
        if len(self.labels) != above:
            raise ValueError("the last level must have one node per label")

    @property
    def depth(self) -> int:
        """The number of decisions from the root to a label."""
        return len(self.parents)

    def children(self, level: int) -> np.ndarray:
        """(nodes above + 1,), where the children of each node start on this level."""
        above = 1 if level == 0 else len(self.parents[level - 1])
        return np.searchsorted(self.parents[level], np.arange(above + 1)).astype(np.int64)

    def members(self, gold: csr_array) -> list[csr_array]:
        """Per level (documents, nodes): true where a document has a label below the node."""
        found = [_columns(gold, self.labels)]
        for level in range(self.depth - 1, 0, -1):
            below = self.parents[level]
            up = csr_array(
                (np.ones(len(below), dtype=np.int32), below, np.arange(len(below) + 1)),
                shape=(len(below), len(self.parents[level - 1])),
            )
            above = csr_array(found[0].astype(np.int32) @ up)
            above.data[:] = 1
            above.sort_indices()
            found.insert(0, above.astype(bool))
        return found

    @classmethod
    def from_chain(cls, chain: Sequence[csc_array | csr_array]) -> LabelTree:
        """A tree from cluster matrices (children × parents) from the top down, the last one's children being labels."""
        place = np.zeros(1, dtype=np.int64)  # old number of a node above → its place now
        parents = []
        order = np.zeros(1, dtype=np.int64)
        for matrix in chain:
            parent = place[csr_array(matrix).indices]
            order = np.argsort(parent, kind="stable")
            parents.append(parent[order].astype(np.int32))
            place = np.empty(len(order), dtype=np.int64)
            place[order] = np.arange(len(order))
        return cls(tuple(parents), order.astype(np.int32))


def _columns(gold: csr_array, labels: np.ndarray) -> csr_array:
    """The columns of some labels, in their order."""
    place = np.full(gold.shape[1], -1, dtype=np.int64)
    place[labels] = np.arange(len(labels))
    moved = place[gold.indices]
    kept = moved >= 0
    rows = np.repeat(np.arange(gold.shape[0]), np.diff(gold.indptr))[kept]
    matrix = csr_array((np.ones(len(rows), dtype=bool), (rows, moved[kept])), shape=(gold.shape[0], len(labels)))
    matrix.sort_indices()
    return matrix
