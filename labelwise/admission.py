"""Labels of documents that are not in the label set: refused, dropped or added, by one rule for all readers."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Literal

from labelwise.errors import UnknownLabel, did_you_mean
from labelwise.labels import Label, LabelSet

UnknownLabels = Literal["error", "drop", "add"]


class Admission:
    """Checks the label ids of documents, and gives the label set that holds all of them in the end."""

    def __init__(self, labels: LabelSet, unknown: UnknownLabels = "error") -> None:
        self._labels, self._unknown = labels, unknown
        self._ids = {id: id for id in labels.ids}  # one string for all documents that have the label
        self._columns = {id: column for column, id in enumerate(labels.ids)}
        self._new: dict[str, Label] = {}
        self.dropped = 0

    def admit(self, id: str, place: str, name: str = "") -> bool:
        """Whether a label stays; `name` is what an added one is called."""
        if id in self._ids:
            return True
        if self._unknown == "error":
            names = [*self._labels.ids, *(label.name for label in self._labels)]  # a name where an id belongs is the usual slip
            raise UnknownLabel(
                f"{place}: label {id!r} is not in the label set ({len(self._labels)} labels)"
                f"{did_you_mean(id, names)}; --unknown-labels drop or add goes on without it or with it"
            )
        if self._unknown == "drop" or not id:
            self.dropped += 1
            return False
        self._ids[id], self._columns[id] = id, len(self._ids)
        self._new[id] = Label(id, name or id)
        return True

    def known(self, ids: Iterable[str], place: str) -> tuple[str, ...]:
        """The ids that stay, each once, in their order."""
        return tuple(self._ids[id] for id in dict.fromkeys(ids) if self.admit(id, place))

    def columns(self, ids: Iterable[str], place: str) -> list[int]:
        """The columns of the ids that stay, in the label set that `label_set` will give."""
        return [self._columns[id] for id in self.known(ids, place)]

    def label_set(self) -> LabelSet:
        """The label set, with the labels that documents added to it."""
        if self.dropped:
            warnings.warn(f"{self.dropped} labels of documents are not in the label set and were dropped", stacklevel=3)
        return self._labels.extended(self._new.values()) if self._new else self._labels
