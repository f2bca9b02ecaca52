"""A label set from a SKOS thesaurus in Turtle, RDF/XML or N-Triples.

One pass over the triples sorts them by predicate; the label set is made from what was collected. A text may be a literal
or a node that carries one, so SKOS-XL labels and definitions that are nodes of their own take the same way.
"""

from __future__ import annotations

import io
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.parsers import expat

from labelwise.datasets.files import kind, read_bytes
from labelwise.errors import BadFile, MissingExtra
from labelwise.jsonl import check_cycles
from labelwise.labels import Label, LabelSet

FORMATS = {".ttl": "TURTLE", ".rdf": "RDF_XML", ".xml": "RDF_XML", ".nt": "N_TRIPLES"}

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
SKOS = "http://www.w3.org/2004/02/skos/core#"
SKOS_XL = "http://www.w3.org/2008/05/skos-xl#"
DEPRECATED = "http://www.w3.org/2002/07/owl#deprecated"

Text = tuple[str, str]  # language tag in lower case ("" without one), text
Texts = defaultdict[str, list[Text]]

FOREIGN = 3


def read_skos(paths: Sequence[Path], *, language: str = "en") -> LabelSet:
    """Read a label set from a SKOS thesaurus: Turtle (.ttl), RDF/XML (.rdf, .xml) or N-Triples (.nt), .gz and .xz too.

    Several files make one thesaurus. Names are the preferred labels in the chosen language, synonyms the alternative and
    hidden ones; parents come from broader and narrower; deprecated concepts are left out. SKOS is a recommendation of the
    W3C; each thesaurus has the licence of its publisher.
    """
    oxigraph = _oxigraph()
    where = str(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
    thesaurus = _Thesaurus(oxigraph.Literal)
    for path in paths:
        thesaurus.collect(_triples(path, oxigraph))
    labels = thesaurus.label_set(language.lower(), where)
    check_cycles(labels, where)
    return labels


def choose_names(texts: Mapping[str, Iterable[Text]], language: str, where: str) -> dict[str, str]:
    """A name for each id that has any, in the language (in lower case) if it can be; one that nothing has is an error."""
    best = {id: text for id, own in texts.items() if (text := _best(own, language))}
    if not best:
        raise BadFile(f"{where}: no concept with a name in it; is this a vocabulary?")
    foreign = Counter(tag for tag, _ in best.values() if _distance(tag, language) == FOREIGN)
    if foreign.total() == len(best):
        there = ", ".join(sorted({tag for own in texts.values() for tag, _ in own}))
        raise BadFile(f"{where}: no name in the language {language!r}; choose one that is there: {there}")
    if foreign:
        tags = ", ".join(tag for tag, _ in foreign.most_common())
        warnings.warn(f"{where}: {foreign.total()} concepts have no name in {language!r}; named in {tags}", stacklevel=4)
    return {id: name for id, (_, name) in best.items()}


def _best(texts: Iterable[Text], language: str) -> Text | None:
    """The text whose language serves best; of equal ones the first by tag and spelling."""
    return min(texts, key=lambda text: (_distance(text[0], language), text), default=None)


def _distance(tag: str, language: str) -> int:
    """From the language asked for: 0 itself, 1 a variant (en-gb for en), 2 without a tag, 3 foreign."""
    if tag == language:
        return 0
    if not tag:
        return 2
    return 1 if tag.partition("-")[0] == language.partition("-")[0] else FOREIGN


class _Thesaurus:
    """What the triples say of each concept, by IRI."""

    def __init__(self, literal: Any) -> None:
        self.literal = literal
        self.concepts: set[str] = set()
        self.typed: set[str] = set()
        self.deprecated: set[str] = set()
        self.parents: dict[str, set[str]] = defaultdict(set)
        self.names, self.synonyms, self.definitions, self.notes = (Texts(list) for _ in range(4))
        self.node_texts = Texts(list)  # of nodes that stand for a text
        self.by_node: list[tuple[Texts, str, str]] = []  # texts not yet known: where they belong, and the node
        self.handlers: dict[str, Callable[[str, Any], None]] = {
            RDF + "type": self._type,
            RDF + "value": self._into(self.node_texts),
            SKOS_XL + "literalForm": self._into(self.node_texts),
            SKOS + "definition": self._into(self.definitions),
            SKOS + "scopeNote": self._into(self.notes),
            SKOS + "broader": lambda subject, object: self.parents[subject].add(object.value),
            SKOS + "narrower": lambda subject, object: self.parents[object.value].add(subject),
            DEPRECATED: self._deprecate,
        }
        for space in (SKOS, SKOS_XL):
            self.handlers[space + "prefLabel"] = self._into(self.names)
            self.handlers[space + "altLabel"] = self.handlers[space + "hiddenLabel"] = self._into(self.synonyms)

    def collect(self, triples: Iterator[Any]) -> None:
        """Note what each triple says."""
        handlers = self.handlers
        for subject, predicate, object, _ in triples:
            handler = handlers.get(predicate.value)
            if handler is not None:
                handler(subject.value, object)

    def label_set(self, language: str, where: str) -> LabelSet:
        """The concepts that can be labels, sorted by IRI."""
        for table, subject, node in self.by_node:
            table[subject] += self.node_texts.get(node, ())
        # Some thesauri leave the types out: there, whatever has a preferred label is a concept.
        known = self.concepts | (self.names.keys() - self.typed)
        named = choose_names({id: self.names.get(id, ()) for id in sorted(known - self.deprecated)}, language, where)
        self._report_losses(known, named.keys(), where)
        return LabelSet(self._label(id, named, language) for id in named)

    def _report_losses(self, known: set[str], kept: Set[str], where: str) -> None:
        """Warn of what is left out, with counts."""
        deprecated = known & self.deprecated
        nameless = known - deprecated - kept
        ends = [(child, parent) for child, parents in self.parents.items() for parent in parents]
        dead = sum(child in deprecated or parent in deprecated for child, parent in ends)
        lost = sum(child not in known or parent not in known for child, parent in ends)
        if deprecated:
            warnings.warn(f"{where}: {len(deprecated)} deprecated concepts with {dead} links were left out", stacklevel=4)
        if nameless:
            warnings.warn(f"{where}: {len(nameless)} concepts without a preferred label were left out", stacklevel=4)
        if lost:
            warnings.warn(f"{where}: {lost} links to concepts that are not in it were dropped", stacklevel=4)

    def _label(self, id: str, named: dict[str, str], language: str) -> Label:
        parents = sorted(parent for parent in self.parents.get(id, ()) if parent in named)
        texts = {text for tag, text in self.names[id] + self.synonyms.get(id, []) if _distance(tag, language) < FOREIGN}
        return Label(id, named[id], tuple(parents), tuple(sorted(texts - {named[id]})), self._description(id, language))

    def _description(self, id: str, language: str) -> str:
        for table in (self.definitions, self.notes):
            best = _best(table.get(id, ()), language)
            if best and _distance(best[0], language) < FOREIGN:
                return best[1]
        return ""

    def _into(self, table: Texts) -> Callable[[str, Any], None]:
        def add(subject: str, object: Any) -> None:
            if not isinstance(object, self.literal):
                self.by_node.append((table, subject, object.value))
            elif text := object.value.strip():
                table[subject].append((object.language or "", text))

        return add

    def _type(self, subject: str, object: Any) -> None:
        self.typed.add(subject)
        if object.value == SKOS + "Concept":
            self.concepts.add(subject)

    def _deprecate(self, subject: str, object: Any) -> None:
        if object.value in ("true", "1"):
            self.deprecated.add(subject)


def _oxigraph() -> ModuleType:
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtra("reading SKOS needs pyoxigraph; install it with: pip install 'labelwise[skos]'") from None
    return pyoxigraph


def _triples(path: Path, oxigraph: ModuleType) -> Iterator[Any]:
    """The triples of a file; a syntax error is told with its line."""
    if kind(path) not in FORMATS:
        raise BadFile(f"{path}: not a SKOS file by its name, which must end in {', '.join(FORMATS)} (or that with .gz or .xz)")
    name = FORMATS[kind(path)]
    data = read_bytes(path)
    stream = _LineByLine(data)
    if name == "RDF_XML":
        _check_xml(data, path)
    try:
        yield from oxigraph.parse(
            stream if name == "RDF_XML" else data,
            format=getattr(oxigraph.RdfFormat, name),
            rename_blank_nodes=True,  # two files may give different nodes the same name
        )
    except SyntaxError as error:
        line = error.lineno or data.count(b"\n", 0, stream.tell() - 1) + 1
        raise BadFile(f"{path}:{line}: {error.msg}") from None


class _LineByLine(io.BytesIO):
    """Gives out one line at a time: pyoxigraph's XML errors name no line, but then the position does."""

    def read(self, size: int | None = -1) -> bytes:
        return self.readline(-1 if size is None else size)


def _check_xml(data: bytes, path: Path) -> None:
    """Refuse XML that is not well-formed: of a file that was cut off, pyoxigraph reads what is there without a word."""
    try:
        expat.ParserCreate().Parse(data, True)
    except expat.ExpatError as error:
        raise BadFile(f"{path}:{error.lineno}: not XML: {error}") from None
