"""A label set of ICD-9-CM codes with everything above them: parents from an edge list, else from the structure of the codes.

The edge list of Rios and Kavuluru names the parent first, others the child; dots and the prefixes D- and P- may be there or
not. So the order of the columns is told from codes that extend each other, and the kind of a code from its form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from labelwise.datasets import icd9
from labelwise.datasets.files import read_text
from labelwise.errors import BadFile
from labelwise.jsonl import check_cycles
from labelwise.labels import Label, LabelSet

ROOT = "@"  # stands above everything in edge lists; we keep the root virtual

_FORMS = {
    "D": re.compile(r"(?:\d{3}|V\d\d|E\d{3})(?:\.?\d{1,2})?(?:-(?:\d{3}|V\d\d|E\d{3})(?:\.\d+)?)?"),
    "P": re.compile(r"\d\d(?:\.?\d{1,2})?(?:-\d\d(?:\.\d+)?)?"),
}
_DANGLING = {"a", "an", "and", "at", "by", "due", "for", "from", "in", "of", "on", "or", "the", "to", "with", "without"}


def code_labels(titles: Mapping[str, str], names: Mapping[str, str], edges: Path | None = None) -> LabelSet:
    """Labels for all titled codes and what stands above them, sorted by id; `names` has those of chapters and blocks."""
    listed = read_edges(edges, titles) if edges else {}
    parents: dict[str, tuple[str, ...]] = {}
    waiting = list(titles)
    while waiting:
        id = waiting.pop()
        if id not in parents:
            parents[id] = listed[id] if id in listed else tuple(filter(None, [icd9.parent(id)]))
            waiting += parents[id]
    leads = _shared_words(titles, parents)
    named = {id: titles.get(id) or names.get(id) or leads.get(id) or id[2:] for id in parents}
    labels = LabelSet(Label(id, named[id], parents[id]) for id in sorted(parents))
    if edges:
        check_cycles(labels, edges)
    return labels


class Edge(NamedTuple):
    """A line of an edge list, codes as written."""

    line: int
    child: str
    parent: str


def read_edges(path: Path, titles: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The parents of each id in an edge list; `titles` are the ids that decide between a diagnosis and a procedure."""
    edges = list(_edges(path))
    certain = {kind for edge in edges if len(kinds := _kinds(edge)) == 1 for kind in kinds}
    begun = {id[:end] for id in titles for end in range(3, len(id) + 1)}
    parents: dict[str, dict[str, None]] = {}
    for edge in edges:
        try:
            kind = _kind(edge, certain, begun)
        except ValueError as error:
            raise BadFile(f"{path}:{edge.line}: {error}") from None
        child, parent = f"{kind}-{_plain(edge.child)}", f"{kind}-{_plain(edge.parent)}"
        if kind is not None and parent != child:
            parents.setdefault(child, {}).update({} if edge.parent == ROOT else {parent: None})
    return {child: tuple(above) for child, above in parents.items()}


def _kind(edge: Edge, certain: set[str], begun: set[str]) -> str | None:
    """D or P: by form, else by the titled codes that begin so, else by what the list holds alone; None where no code cares."""
    kinds = _kinds(edge)
    if not kinds:
        raise ValueError(f"of {edge.child!r} and {edge.parent!r} one is a diagnosis, the other a procedure")
    titled = {kind for kind in kinds if f"{kind}-{_plain(edge.child)}" in begun}
    for choice in (kinds, titled, kinds & certain):
        if len(choice) == 1:
            return next(iter(choice))
    if titled:
        raise ValueError(f"{edge.child!r} may be a diagnosis or a procedure; write D- or P- before it")
    return None


def _edges(path: Path) -> Iterator[Edge]:
    edges = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        fields = re.split(r"[\s,]+", line.strip())
        if fields == [""]:
            continue
        if len(fields) != 2:
            raise BadFile(f"{path}:{number}: {len(fields)} columns; each line must hold two, child and parent")
        edges.append(Edge(number, *fields))
    heading = [name.lower() for name in edges[0][1:]] if edges else []
    if sorted(heading) == ["child", "parent"]:
        swapped = heading == ["parent", "child"]
        edges = edges[1:]
    else:
        swapped = sum(_extends(edge.parent, edge.child) - _extends(edge.child, edge.parent) for edge in edges) > 0
    return (Edge(line, parent, child) if swapped else Edge(line, child, parent) for line, child, parent in edges)


def _extends(longer: str, shorter: str) -> bool:
    """Whether a code is another with digits added; ranges tell nothing."""
    longer, shorter = _plain(longer), _plain(shorter)
    return "-" not in longer and longer != shorter and longer.startswith(shorter)


def _kinds(edge: Edge) -> set[str]:
    """D, P or both: what child and parent can be together by their form or prefix."""
    return _kinds_of(edge.child) & _kinds_of(edge.parent)


def _kinds_of(code: str) -> set[str]:
    if code[:2] in ("D-", "P-"):
        return {code[0]}
    return {kind for kind, form in _FORMS.items() if form.fullmatch(code)} or set(_FORMS)


def _plain(code: str) -> str:
    """A code without prefix and dots; a range by its categories, 001-009.99 as 001-009, and one of a single category as that."""
    code = code[2:] if code[:2] in ("D-", "P-") else code
    first, dash, last = code.partition("-")
    if not dash:
        return code.replace(".", "")
    first, last = first.split(".")[0], last.split(".")[0]
    return first if first == last else f"{first}-{last}"


def _shared_words(titles: Mapping[str, str], parents: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """For each id above titled codes the words that all their titles begin with."""
    leads: dict[str, list[str]] = {}
    for id, title in titles.items():
        words = title.split()
        above, waiting = set[str](), list(parents[id])
        while waiting:
            node = waiting.pop()
            if node not in above:
                above.add(node)
                waiting += parents[node]
                leads[node] = _common(leads.get(node, words), words)
    return {id: _trimmed(words) for id, words in leads.items()}


def _common(one: list[str], other: list[str]) -> list[str]:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return one[:same]


def _trimmed(words: list[str]) -> str:
    """The words without those at the end that lead to something else: "malignant neoplasm of" loses its "of"."""
    end = len(words)
    while end and words[end - 1] in _DANGLING:
        end -= 1
    return " ".join(words[:end])
