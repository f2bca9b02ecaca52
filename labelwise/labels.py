"""Labels and the label set.

The order of a `LabelSet` is the column order of every matrix in the library, and the order in which ties fall.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from scipy.sparse import csr_array

from labelwise.errors import BadHierarchy, LabelwiseError, UnknownLabel, did_you_mean


@dataclass(frozen=True, slots=True)
class Label:
    """One entry of a thesaurus."""

    id: str
    name: str
    parents: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    description: str = ""


class LabelSet(Sequence[Label]):
    """Labels in a fixed order, found by position or by id."""

    def __init__(self, labels: Iterable[Label]) -> None:
        self._labels = tuple(labels)
        self._columns = {label.id: column for column, label in enumerate(self._labels)}
        if len(self._columns) != len(self._labels):
            seen: set[str] = set()
            twice = next(label.id for label in self._labels if label.id in seen or seen.add(label.id))  # type: ignore[func-returns-value]
            raise LabelwiseError(f"label id {twice!r} occurs twice; ids must be unique")
        for label in self._labels:
            for parent in label.parents:
                if parent not in self._columns:
                    raise BadHierarchy(
                        f"label {label.id!r} has the parent {parent!r}, which is not in the label set"
                        + did_you_mean(parent, self._columns)
                    )

    @overload
    def __getitem__(self, item: int) -> Label: ...
    @overload
    def __getitem__(self, item: slice) -> Sequence[Label]: ...
    def __getitem__(self, item: int | slice) -> Label | Sequence[Label]:
        return self._labels[item]

    def __len__(self) -> int:
        return len(self._labels)

    def __iter__(self) -> Iterator[Label]:
        return iter(self._labels)

    def __contains__(self, item: object) -> bool:
        """Whether a label, or a label id, is in the set."""
        return item in self._columns if isinstance(item, str) else item in self._labels

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSet) and (self is other or self._labels == other._labels)

    def __hash__(self) -> int:
        return hash(self._labels)

    def __repr__(self) -> str:
        return f"LabelSet({len(self)} labels)"

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids, in column order."""
        return tuple(label.id for label in self._labels)

    def columns(self, ids: Iterable[str]) -> np.ndarray:
        """The columns of label ids, -1 for those that are not here."""
        return np.array([self._columns.get(id, -1) for id in ids], dtype=np.int64)

    def column(self, id: str) -> int:
        """The column of one label id."""
        try:
            return self._columns[id]
        except KeyError:
            raise UnknownLabel(
                f"label {id!r} is not in the label set ({len(self)} labels)" + did_you_mean(id, self._columns)
            ) from None

    def index(self, ids: Iterable[str]) -> np.ndarray:  # type: ignore[override]
        """The columns of label ids."""
        return np.array([self.column(id) for id in ids], dtype=np.int32)

    def parents(self) -> csr_array:
        """(labels, labels) matrix with a 1 from each label to each of its direct parents."""
        return self._parents

    @cached_property
    def _parents(self) -> csr_array:
        rows = np.repeat(np.arange(len(self)), [len(label.parents) for label in self._labels])
        columns = np.array([self._columns[parent] for label in self._labels for parent in label.parents], dtype=np.int32)
        matrix = csr_array((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=(len(self), len(self)))
        matrix.data[:] = 1  # a parent listed twice is still one parent
        return matrix

    def extended(self, labels: Iterable[Label]) -> LabelSet:
        """This label set with new labels appended; the columns of the old ones do not move."""
        return LabelSet((*self._labels, *labels))
