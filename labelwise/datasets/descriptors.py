"""Label descriptors with their hierarchy, as published beside EURLEX57K, MIMIC-III and AMAZON13K (SPEC 5.2).

One JSON object `{id: {"concept_id", "label", "alt_labels", "parents"}}`, or one JSON object a line with `id` and `title`.
Parents should be direct ones: a file that lists ancestors too bends levels and graph distances, so it is warned of.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from labelwise.datasets.files import kind
from labelwise.datasets.records import Record, line_records, read_object
from labelwise.errors import BadFile
from labelwise.hierarchy import Hierarchy
from labelwise.jsonl import check_cycles
from labelwise.labels import Label, LabelSet


def read_descriptors(path: Path | str, *, reduce: bool = False) -> LabelSet:
    """The label set of a descriptor file, in file order; `reduce` takes out parents that are reached through others."""
    path = Path(path)
    labels = _known_parents(list(_labels(path)), path)
    if not labels:
        raise BadFile(f"{path}: no labels in it; a label set needs at least one")
    check_cycles(labels, path)
    skipping = dict(shortcuts(labels))
    if skipping and not reduce:
        some = _some(f"{id} → {', '.join(parents)}" for id, parents in skipping.items())
        warnings.warn(
            f"{path}: {len(skipping)} labels have a parent that is also an ancestor of another parent ({some});"
            " reduce=True (--reduce) takes such parents out",
            stacklevel=2,
        )
    return without_parents(labels, skipping) if reduce else labels


def shortcuts(labels: LabelSet) -> Iterator[tuple[str, Sequence[str]]]:
    """Each label with parents that its other parents lead to anyway, and those parents."""
    above = Hierarchy(labels).ancestors
    ancestors = {
        column: set(above.indices[above.indptr[column] : above.indptr[column + 1]].tolist())
        for column in {labels.column(parent) for label in labels if len(label.parents) > 1 for parent in label.parents}
    }
    for column, label in enumerate(labels):
        parents = {labels.column(parent): parent for parent in label.parents} if len(label.parents) > 1 else {}
        # Inside a cycle everything leads to everything: a way that comes through the label itself, or goes both ways, is none.
        ways = [parent for parent in parents if parent != column and column not in ancestors[parent]]
        skipped = [
            id
            for parent, id in parents.items()
            if any(parent in ancestors[way] and way not in ancestors[parent] for way in ways if way != parent)
        ]
        if skipped:
            yield label.id, skipped


def without_parents(labels: LabelSet, dropped: Mapping[str, Sequence[str]]) -> LabelSet:
    """The same labels without some of their parents."""
    return LabelSet(
        replace(label, parents=tuple(parent for parent in label.parents if parent not in dropped[label.id]))
        if label.id in dropped
        else label
        for label in labels
    )


def _labels(path: Path) -> Iterator[Label]:
    seen: set[str] = set()
    for id, record in _entries(path):
        if not id or id in seen:
            raise BadFile(
                f"{record.place}: label id {id!r} {'occurs twice' if id else 'is empty'}; ids must be unique and filled"
            )
        seen.add(id)
        name = record.text("title" if "title" in record.values else "label")
        yield Label(id, name, parents=_list(record, "parents"), synonyms=_list(record, "alt_labels"))


def _list(record: Record, key: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(record.texts(key))) if key in record.values else ()


def _entries(path: Path) -> Iterator[tuple[str, Record]]:
    if kind(path) == ".jsonl":
        yield from ((record.text("id"), record) for record in line_records(path))
        return
    for id, values in read_object(path).items():
        if not isinstance(values, dict):
            raise BadFile(f"{path}: label {id!r} is a {type(values).__name__}; it must be an object with label and parents")
        yield id, Record(values, f"{path}: label {id!r}", id)


def _known_parents(labels: list[Label], path: Path) -> LabelSet:
    ids = {label.id for label in labels}
    unknown = list(dict.fromkeys(parent for label in labels for parent in label.parents if parent not in ids))
    if unknown:
        warnings.warn(
            f"{path}: {len(unknown)} parents are not in the file ({_some(unknown)}); the labels stand without them", stacklevel=3
        )
    kept = (replace(label, parents=tuple(parent for parent in label.parents if parent in ids)) for label in labels)
    return LabelSet(kept if unknown else labels)


def _some(items: Iterable[str]) -> str:
    listed = list(items)
    return "; ".join(listed[:5]) + ("; …" if len(listed) > 5 else "")
