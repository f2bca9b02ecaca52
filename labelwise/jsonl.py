"""Corpus folders: JSONL in and out, every error with file and line.

A folder holds an optional `corpus.toml`, `labels.jsonl` and `train|dev|test.jsonl`, each plain, `.gz` or `.xz`
(docs/corpus-format.md). Reading checks every line once; files past `LAZY_BYTES` keep line offsets instead of documents.
"""

from __future__ import annotations

import json
import mmap
import shutil
import tempfile
import tomllib
import warnings
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from difflib import get_close_matches
from io import IOBase
from pathlib import Path
from typing import IO, Any

import numpy as np

from labelwise.admission import Admission, UnknownLabels
from labelwise.corpus import Corpus, CorpusInfo, Document, LazyDocuments, Splits, gold_matrix, relabel
from labelwise.errors import BadCorpus, BadFile, BadHierarchy, LabelwiseError, did_you_mean
from labelwise.hierarchy import Hierarchy
from labelwise.labels import Label, LabelSet
from labelwise.progress import Progress, silent
from labelwise.storage import find, new_folder, open_bytes, to_toml

LABEL_KEYS = {"id", "name", "parents", "synonyms", "description"}
LAZY_BYTES = 1 << 30  # a larger plain file is read lazily; a compressed one when an eighth of this


def read_corpus(
    folder: Path | str,
    *,
    only: Collection[str] = Splits._fields,
    unknown_labels: UnknownLabels = "error",
    progress: Progress = silent,
) -> Splits:
    """The splits of a corpus folder; a split without a file is empty, and so is one that is not asked for."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BadCorpus(f"{folder}: no such folder; a corpus is a folder with labels.jsonl and train.jsonl")
    info = read_info(folder)
    labels = _folder_labels(folder, unknown_labels)
    paths = {name: find(folder, f"{name}.jsonl") if name in only else None for name in Splits._fields}
    if not any(paths.values()):
        raise BadCorpus(f"{folder}: no train.jsonl, dev.jsonl or test.jsonl (plain, .gz or .xz) in it")
    admission = Admission(labels, unknown_labels)
    read = [_read_split(path, admission, progress) if path else ([], array("q", [0]), array("i")) for path in paths.values()]
    labels = admission.label_set()
    splits = Splits(
        *(Corpus(documents, labels, info, gold=gold_matrix(indptr, gold, len(labels))) for documents, indptr, gold in read)
    )
    # The documents must say what the gold matrix says.
    return splits.map(lambda corpus: relabel(corpus, corpus.gold())) if admission.dropped else splits


def read_info(folder: Path) -> CorpusInfo:
    """What `corpus.toml` says, or the defaults with the folder's name."""
    path = folder / "corpus.toml"
    if not path.exists():
        return CorpusInfo(name=folder.resolve().name)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"{path}: not TOML: {error}") from None
    kinds: dict[str, type] = {"name": str, "k": int, "few": int}
    for key, value in values.items():
        if key not in kinds:
            raise BadFile(f"{path}: unknown key {key!r}{did_you_mean(key, kinds)} (known: {', '.join(kinds)})")
        good = isinstance(value, str) if kinds[key] is str else type(value) is int and value > 0
        if not good:
            raise BadFile(f"{path}: {key} is {value!r}; it must be {'a text' if kinds[key] is str else 'a whole number above 0'}")
    return CorpusInfo(**{"name": folder.resolve().name, **values})


def read_labels(path: Path | str) -> LabelSet:
    """A label set from `labels.jsonl`; unknown parents are errors, cycles are warned of by name."""
    path = Path(path)
    labels: list[Label] = []
    lines: dict[str, int] = {}
    slips: dict[str, list[str]] = {}
    for number, value in read_objects(path):
        slips |= {key: get_close_matches(key, LABEL_KEYS, 1, 0.8) for key in value.keys() - LABEL_KEYS - slips.keys()}
        label = Label(
            id=_text(value, "id", path, number),
            name=_text(value, "name", path, number),
            parents=_texts(value, "parents", path, number),
            synonyms=_texts(value, "synonyms", path, number),
            description=_text(value, "description", path, number, default=""),
        )
        if label.id in lines:
            raise BadFile(f"{path}:{number}: label id {label.id!r} stands on line {lines[label.id]} already; ids must be unique")
        lines[label.id] = number
        labels.append(label)
    for key, known in [(key, known) for key, known in slips.items() if known]:
        warnings.warn(f"{path}: the key {key!r} is passed over; was {known[0]!r} meant?", stacklevel=2)
    if not labels:
        raise BadFile(f"{path}: no labels in it; a label set needs at least one")
    for label in labels:
        for parent in label.parents:
            if parent not in lines:
                raise BadHierarchy(
                    f"{path}:{lines[label.id]}: label {label.id!r} has the parent {parent!r}, which is not in the file"
                    + did_you_mean(parent, lines)
                )
    return LabelSet(labels)


def check_cycles(labels: LabelSet, path: Path | str, *, strict: bool = False) -> None:
    """Name the cycles of a hierarchy: an error when `strict`, else a warning."""
    for cycle in Hierarchy(labels).cycles:
        message = f"{path}: the hierarchy has a cycle: {' → '.join(cycle)} (each label's parent is the next)"
        if strict:
            raise BadHierarchy(message + "; take one of these parents out, or let --break-cycles do it")
        warnings.warn(message + "; its labels are taken to stand on one level", stacklevel=3)


def read_documents(source: Path | str | IO[bytes], *, labels_needed: bool = False) -> Iterator[tuple[int, Document]]:
    """The documents of a JSONL file, or of an open stream, with their line numbers, each checked."""
    place = "standard input" if isinstance(source, IOBase) else str(source)
    seen: dict[str, tuple[int, int]] = {}
    again: list[int] = []
    for number, value in read_objects(source):
        document = _document(value, place, number, labels_needed)
        content = hash(document)
        line, earlier = seen.setdefault(document.id, (number, content))
        if line != number and earlier != content:
            raise BadFile(f"{place}:{number}: document id {document.id!r} has other content on line {line}; ids must be unique")
        if line != number:
            again.append(number)
        yield number, document
    if again:
        more = f" (and {len(again) - 1} more such lines)" if len(again) > 1 else ""
        warnings.warn(f"{place}:{again[0]}: the same document stands above already; kept{more}", stacklevel=2)


def read_objects(source: Path | str | IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a JSONL file or stream with their line numbers; blank lines are passed over."""
    place = "standard input" if isinstance(source, IOBase) else str(source)
    for number, line in read_lines(source):
        yield number, parse_object(line, place, number)


def write_corpus(splits: Splits, folder: Path | str, *, force: bool = False) -> None:
    """Write a corpus folder, whole or not at all."""
    with new_folder(Path(folder), "corpus", force=force) as draft:
        (draft / "corpus.toml").write_text(to_toml(asdict(splits.info)), encoding="utf-8")
        write_labels(splits.labels, draft / "labels.jsonl")
        for name, corpus in splits._asdict().items():
            if len(corpus):
                write_objects((_plain(document) for document in corpus), draft / f"{name}.jsonl")


def write_labels(labels: Iterable[Label], path: Path) -> None:
    """Write `labels.jsonl`; empty fields but `parents` are left out."""
    write_objects(({"id": label.id, "name": label.name, "parents": label.parents} | _filled(label) for label in labels), path)


def write_objects(objects: Iterable[dict[str, Any]], path: Path) -> None:
    """Write one JSON object a line."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for value in objects:
            file.write(json.dumps(value, ensure_ascii=False) + "\n")


def parse_object(line: bytes | str, path: Path | str, number: int) -> dict[str, Any]:
    """One line as a JSON object."""
    try:
        text = line.decode("utf-8") if isinstance(line, bytes) else line
        value = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a surrogate pair could be read but never written
    except UnicodeError as error:
        raise BadFile(f"{path}:{number}: not UTF-8: {error}; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadFile(
            f"{path}:{number}: not JSON: {error.msg} (column {error.colno}); each line must hold one JSON object"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path}:{number}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadFile(f"{path}:{number}: a JSON {type(value).__name__}; each line must hold one JSON object")
    return value


def parse_document(line: bytes, path: Path | str, number: int) -> Document:
    """One line as a document, gold labels optional."""
    return _document(parse_object(line, path, number), path, number, False)


def _folder_labels(folder: Path, unknown: UnknownLabels) -> LabelSet:
    path = find(folder, "labels.jsonl")
    if path is None and unknown != "add":
        raise BadCorpus(f"{folder}: no labels.jsonl in it; write one, or use --unknown-labels add to take the documents' labels")
    if path is None:
        return LabelSet([])
    labels = read_labels(path)
    check_cycles(labels, path)
    return labels


def _read_split(path: Path, admission: Admission, progress: Progress) -> tuple[Sequence[Document], array[int], array[int]]:
    """The documents of a split, row starts and columns of its gold matrix."""
    lazy = path.stat().st_size > LAZY_BYTES // (1 if path.suffix == ".jsonl" else 8)
    indptr, gold = array("q", [0]), array("i")
    kept: list[Document] = []
    numbers = array("q")
    for number, document in progress(read_documents(path, labels_needed=True), f"read {path.name}"):
        gold.extend(sorted(admission.columns(document.labels, f"{path}:{number}")))
        indptr.append(len(gold))
        numbers.append(number)
        if not lazy:
            kept.append(document)
    if not numbers:
        raise BadCorpus(f"{path}: no documents in it; remove the file or fill it")
    return _stored(path, np.asarray(numbers)) if lazy else kept, indptr, gold


def _stored(path: Path, numbers: np.ndarray) -> LazyDocuments:
    """Documents that stay in their file, found by the numbers of their lines."""
    with open(path, "rb") if path.suffix == ".jsonl" else _unpacked(path) as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    starts, position, line = np.empty(len(numbers), dtype=np.int64), 3 if data[:3] == b"\xef\xbb\xbf" else 0, 1
    for row, number in enumerate(numbers):
        while line < number:
            position, line = data.find(b"\n", position) + 1, line + 1
        starts[row] = position

    def document(row: int) -> Document:
        end = data.find(b"\n", starts[row])
        return parse_document(data[starts[row] : end if end >= 0 else len(data)], path, int(numbers[row]))

    return LazyDocuments(range(len(numbers)), document)


def _unpacked(path: Path) -> IO[bytes]:
    """A temporary plain copy: a compressed file cannot be entered in the middle."""
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    with open_bytes(path) as packed:
        shutil.copyfileobj(packed, file, 1 << 20)
    file.flush()
    return file


def read_lines(source: Path | str | IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, plain or compressed, or of a stream, with their numbers; blank ones are passed over."""
    with nullcontext(source) if isinstance(source, IOBase) else open_bytes(Path(source)) as file:  # type: ignore[arg-type]
        for number, line in enumerate(file, 1):
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if line.strip():
                yield number, line


def _document(value: dict[str, Any], path: Path | str, number: int, labels_needed: bool) -> Document:
    if labels_needed and "labels" not in value:
        raise _missing("labels", value, path, number)
    document = Document(
        id=_text(value, "id", path, number),
        text=_text(value, "text", path, number),
        labels=_texts(value, "labels", path, number),
        sections=_texts(value, "sections", path, number),
    )
    if not document.text.strip():
        raise BadFile(f"{path}:{number}: document {document.id!r} has an empty text; give it one or take it out")
    return document


def _text(value: dict[str, Any], key: str, path: Path | str, number: int, default: str | None = None) -> str:
    found = value.get(key, default)
    if found is None and key not in value:
        raise _missing(key, value, path, number)
    if not isinstance(found, str) or (key == "id" and not found):
        raise BadFile(f"{path}:{number}: {key!r} is {found!r}; it must be a text" + (" that is not empty" if key == "id" else ""))
    return found


def _texts(value: dict[str, Any], key: str, path: Path | str, number: int) -> tuple[str, ...]:
    found = [] if value.get(key) is None else value[key]
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise BadFile(f"{path}:{number}: {key!r} is {found!r}; it must be a list of texts")
    return tuple(dict.fromkeys(found))


def _missing(key: str, value: dict[str, Any], path: Path | str, number: int) -> LabelwiseError:
    return BadFile(f"{path}:{number}: the key {key!r} is missing{did_you_mean(key, value)} (found: {', '.join(value) or 'none'})")


def _plain(document: Document) -> dict[str, Any]:
    plain: dict[str, Any] = {"id": document.id, "text": document.text, "labels": document.labels}
    return plain | ({"sections": document.sections} if document.sections else {})


def _filled(label: Label) -> dict[str, Any]:
    return {key: value for key in ("synonyms", "description") if (value := getattr(label, key))}
