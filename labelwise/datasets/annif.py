"""Corpora and vocabularies in the formats of Annif, the subject indexing tool.

A source is a folder of texts (`NAME.txt` with `NAME.tsv` or `NAME.key`) or one file of short texts (`.tsv` or `.csv`).
A document whose text is empty cannot be learnt from, and one without a subject file has no gold: both are left out, counted.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from labelwise.admission import Admission, UnknownLabels
from labelwise.corpus import Corpus, CorpusInfo, Document, Splits
from labelwise.datasets.files import kind, read_text, stem
from labelwise.datasets.skos import FORMATS, Text, choose_names, read_skos
from labelwise.datasets.splitting import split_at_random
from labelwise.errors import BadCorpus, BadFile, did_you_mean
from labelwise.labels import Label, LabelSet

SHARES = (0.8, 0.1, 0.1)


def read_annif(
    sources: Path | Mapping[str, Path],
    vocabulary: Path,
    *,
    language: str = "en",
    unknown_labels: UnknownLabels = "error",
    seed: int = 1,
) -> Splits:
    """Read a corpus in Annif's formats: a source for each of train, dev and test, or one that is split 80/10/10 at random.

    A source is a folder of NAME.txt with NAME.tsv (URI, tab, label) or NAME.key (a label a line), or one file of short texts:
    .tsv (text, tab, URIs) or .csv (columns text and subject_uris). The vocabulary is .tsv (URI, tab, label), .csv (columns
    uri and label_en) or SKOS. Single files may be .gz. Formats: Annif, National Library of Finland, Apache-2.0; every corpus
    has its own licence.
    """
    subjects = _Subjects(read_vocabulary(Path(vocabulary), language=language), unknown_labels)
    if isinstance(sources, Mapping):
        documents = {split: _documents(source, subjects) for split, source in _checked(sources).items()}
        name = Path(next(iter(sources.values()))).resolve().parent.name
    else:
        parts = split_at_random(_documents(Path(sources), subjects), SHARES, seed)
        documents = dict(zip(Splits._fields, parts, strict=True))
        name = _name(Path(sources).resolve())
    labels, info = subjects.admission.label_set(), CorpusInfo(name=name)
    return Splits(*(Corpus(documents.get(split, []), labels, info) for split in Splits._fields))


def read_vocabulary(path: Path, *, language: str = "en") -> LabelSet:
    """A label set from a vocabulary in TSV, CSV or SKOS; subjects without a label are deprecated and left out."""
    if kind(path) in FORMATS:
        return read_skos([path], language=language)
    if kind(path) not in VOCABULARIES:
        known = ", ".join((*VOCABULARIES, *FORMATS))
        raise BadFile(f"{path}: not a vocabulary by its name, which must end in {known} (or that with .gz or .xz)")
    texts: dict[str, list[Text]] = {}
    for line, uri, own in VOCABULARIES[kind(path)](path):
        if not uri or uri in texts:
            raise BadFile(f"{path}:{line}: the URI {uri!r} {'stands above already' if uri else 'is empty'}; it must be unique")
        texts[uri] = own
    names = choose_names(texts, language.lower(), str(path))
    if len(names) < len(texts):
        left_out = len(texts) - len(names)
        warnings.warn(f"{path}: {left_out} subjects without a label, deprecated in Annif, were left out", stacklevel=2)
    return LabelSet(Label(uri, name) for uri, name in names.items())


class _Subject(NamedTuple):
    """What a source says of a subject: its URI, its label or both, and where."""

    uri: str
    name: str
    place: str


class _Record(NamedTuple):
    """A document as its source has it."""

    place: str
    id: str
    text: str
    subjects: list[_Subject]


class _Subjects:
    """Finds labels by URI or by name, with a rule for what the vocabulary does not have."""

    def __init__(self, labels: LabelSet, unknown: UnknownLabels) -> None:
        self.admission = Admission(labels, unknown)
        # Reversed: of labels with the same name the first is meant.
        self._exact = {label.name: label.id for label in reversed(labels)}
        self._folded = {label.name.casefold(): label.id for label in reversed(labels)}

    def find(self, subject: _Subject) -> str | None:
        """The id of the label, or None when the rule drops it."""
        uri, name, place = subject
        id = uri or self._exact.get(name) or self._folded.get(name.casefold()) or name
        if not id:
            raise BadFile(f"{place}: a subject without a URI and a label; give it one or take the line out")
        return id if self.admission.admit(id, place, name) else None


def _checked(sources: Mapping[str, Path]) -> dict[str, Path]:
    for split in sources:
        if split not in Splits._fields:
            raise BadCorpus(
                f"there is no split {split!r}{did_you_mean(split, Splits._fields)}; the splits are train, dev and test"
            )
    if not sources:
        raise BadCorpus("no sources named; name at least one, for a split")
    return {split: Path(source) for split, source in sources.items()}


def _documents(source: Path, subjects: _Subjects) -> list[Document]:
    documents: dict[str, Document] = {}
    empty: list[str] = []
    for place, id, text, own in _records(source):
        if not text.strip():
            empty.append(place)
        elif id in documents:
            raise BadFile(f"{place}: the document id {id!r} stands above already; ids must be unique")
        else:
            labels = [label for subject in own if (label := subjects.find(subject))]
            documents[id] = Document(id, text, tuple(dict.fromkeys(labels)))
    if empty:
        warnings.warn(f"{len(empty)} documents with an empty text were left out, the first at {empty[0]}", stacklevel=3)
    if not documents:
        raise BadCorpus(f"{source}: no documents with a text and subjects in it")
    return list(documents.values())


def _records(source: Path) -> Iterator[_Record]:
    if source.is_dir():
        return _folder_records(source)
    if kind(source) not in CORPORA:
        raise BadFile(f"{source}: neither a folder nor a file whose name ends in .tsv or .csv (or that with .gz or .xz)")
    return CORPORA[kind(source)](source)


def _folder_records(folder: Path) -> Iterator[_Record]:
    texts = sorted(folder.glob("*.txt"))
    bare = 0
    for path in texts:
        subjects = next((file for end in (".tsv", ".key") if (file := path.with_suffix(end)).exists()), None)
        if subjects is None:
            bare += 1
        else:
            yield _Record(str(path), path.stem, read_text(path), list(_subject_lines(subjects)))
    if bare:
        warnings.warn(f"{folder}: {bare} of {len(texts)} texts have no .tsv or .key file and were left out", stacklevel=4)


def _subject_lines(path: Path) -> Iterator[_Subject]:
    """The subject on each line; a `.key` file has labels only, unless a URI stands in angle brackets."""
    for number, line in _filled_lines(path):
        if path.suffix == ".tsv" or line.startswith("<"):
            uri, name, *_ = (*line.split("\t"), "")
            yield _Subject(_bare(uri), name.strip(), f"{path}:{number}")
        else:
            yield _Subject("", line.strip(), f"{path}:{number}")


def _tsv_records(path: Path) -> Iterator[_Record]:
    for number, line in _filled_lines(path):
        text, tab, uris = line.partition("\t")
        if not tab:
            raise BadFile(f"{path}:{number}: no tab in it; a line is a text, a tab and the URIs of its subjects")
        yield _short_record(path, number, text, uris)


def _csv_records(path: Path) -> Iterator[_Record]:
    for number, row in _csv_rows(path, "text", "subject_uris"):
        yield _short_record(path, number, row["text"], row["subject_uris"], row.get("document_id", ""))


def _short_record(path: Path, number: int, text: str, uris: str, id: str = "") -> _Record:
    place = f"{path}:{number}"
    return _Record(place, id or f"{stem(path)}-{number}", text, [_Subject(_bare(uri), "", place) for uri in uris.split()])


def _tsv_vocabulary(path: Path) -> Iterator[tuple[int, str, list[Text]]]:
    for number, line in _filled_lines(path):
        uri, name, *_ = (*line.split("\t"), "")  # a notation may follow the name
        yield number, _bare(uri), [("", name.strip())] if name.strip() else []


def _csv_vocabulary(path: Path) -> Iterator[tuple[int, str, list[Text]]]:
    for number, row in _csv_rows(path, "uri"):
        names = {column.removeprefix("label_").lower(): name for column, name in row.items() if column.startswith("label_")}
        yield number, _bare(row["uri"]), [(tag, name.strip()) for tag, name in names.items() if name.strip()]


def _csv_rows(path: Path, *needed: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with the lines they start on."""
    reader = csv.DictReader(io.StringIO(read_text(path)), restval="", strict=True)
    line = 1
    limit = csv.field_size_limit(1 << 30)  # a whole text may stand in a field, and csv stops at 128 KiB
    try:
        missing = [column for column in needed if column not in (reader.fieldnames or ())]
        if missing:
            found = ", ".join(reader.fieldnames or ()) or "none"
            raise BadFile(f"{path}:1: the column {missing[0]!r} is missing (found: {found})")
        line = reader.line_num + 1
        for row in reader:
            if None in row:
                raise BadFile(f"{path}:{line}: more fields than the header has; put a text with commas in quotes")
            yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadFile(f"{path}:{line}: not CSV: {error}") from None
    finally:
        csv.field_size_limit(limit)


def _filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(read_text(path).split("\n"), 1) if line.strip())


def _bare(uri: str) -> str:
    return uri.strip().removeprefix("<").removesuffix(">")


def _name(source: Path) -> str:
    return source.name if source.is_dir() else stem(source)


CORPORA = {".tsv": _tsv_records, ".csv": _csv_records}
VOCABULARIES = {".tsv": _tsv_vocabulary, ".csv": _csv_vocabulary}
