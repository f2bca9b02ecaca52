"""A corpus folder of our own, checked more strictly than on everyday reading, and changed on request.

Everyday reading warns of a cycle in the hierarchy; here it is an error, unless the links that close cycles are to go.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from labelwise.admission import UnknownLabels
from labelwise.corpus import Corpus, Splits
from labelwise.datasets.descriptors import without_parents
from labelwise.datasets.splitting import sample_rows
from labelwise.errors import BadSettings
from labelwise.jsonl import check_cycles, read_corpus, read_labels
from labelwise.labels import LabelSet
from labelwise.storage import find


def read_jsonl(
    folder: Path,
    *,
    closed: bool = False,
    limit: int | None = None,
    seed: int = 1,
    unknown_labels: UnknownLabels = "error",
    break_cycles: bool = False,
) -> Splits:
    """Read a folder in Labelwise's own format (docs/corpus-format.md), every line and the hierarchy checked.

    With closed, every ancestor of a gold label becomes gold too (the AMAZON13K guideline). A limit keeps that many training
    documents and the same share of the others, chosen at random. The licence is that of whoever made the folder.
    """
    folder = Path(folder)
    if limit is not None and limit < 1:
        raise BadSettings(f"limit is {limit}; it must be 1 or more")
    path = find(folder, "labels.jsonl")
    if path and not break_cycles:
        check_cycles(read_labels(path), path, strict=True)  # before the documents: they may take minutes
    with warnings.catch_warnings():
        if break_cycles:
            warnings.filterwarnings("ignore", message=".*the hierarchy has a cycle")
        splits = read_corpus(folder, unknown_labels=unknown_labels)
    if break_cycles:
        splits = _acyclic(splits, folder)
    if limit is not None:
        splits = _limited(splits, limit, seed)
    return splits.closed() if closed else splits


def closing_links(labels: LabelSet) -> list[tuple[str, str]]:
    """The (child, parent) links that close a cycle on a depth-first walk up from each label, in the order of the set."""
    above = {label.id: label.parents for label in labels}
    done: set[str] = set()
    closing = []
    for start in labels.ids:
        if start in done:
            continue
        path = {start: iter(above[start])}  # the labels under way, each with the parents still to visit
        while path:
            child, parents = next(reversed(path.items()))
            parent = next(parents, None)
            if parent is None:
                done.add(child)
                del path[child]
            elif parent in path:
                closing.append((child, parent))
            elif parent not in done:
                path[parent] = iter(above[parent])
    return closing


def _acyclic(splits: Splits, folder: Path) -> Splits:
    links = closing_links(splits.labels)
    if not links:
        return splits
    told = ", ".join(f"{parent!r} above {child!r}" for child, parent in links)
    warnings.warn(f"{folder}: {len(links)} parents that close a cycle were taken out: {told}", stacklevel=3)
    dropped: dict[str, list[str]] = {}
    for child, parent in links:
        dropped.setdefault(child, []).append(parent)
    labels = without_parents(splits.labels, dropped)
    return splits.map(lambda corpus: Corpus(corpus.documents, labels, corpus.info, gold=corpus.gold()))


def _limited(splits: Splits, limit: int, seed: int) -> Splits:
    share = limit / len(splits.split("train"))
    return splits.map(lambda corpus: _sample(corpus, max(1, round(share * len(corpus))), seed))


def _sample(corpus: Corpus, size: int, seed: int) -> Corpus:
    if size >= len(corpus):
        return corpus
    rows = sample_rows(len(corpus), size, seed)
    documents = [corpus[int(row)] for row in rows]
    return Corpus(documents, corpus.labels, corpus.info, gold=corpus.gold()[rows])
