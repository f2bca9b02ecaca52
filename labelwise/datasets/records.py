"""Data sets of one JSON object a document: the splits as folders of files, or as JSONL files.

What EURLEX57K and AMAZON13K have in common. Every message names the file, and the line where a file holds many records.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelwise.corpus import Corpus, CorpusInfo, Document, Splits
from labelwise.datasets.files import read_text, stem
from labelwise.errors import BadCorpus, BadFile, did_you_mean
from labelwise.jsonl import read_objects
from labelwise.labels import LabelSet
from labelwise.storage import find


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object, where it stands, and a name for it: that of its file, or file and line."""

    values: dict[str, Any]
    place: str
    name: str

    def id(self, *keys: str) -> str:
        """The text under the first of these keys that is there, else the name."""
        key = next((key for key in keys if key in self.values), None)
        return self.text(key) if key else self.name

    def text(self, key: str) -> str:
        """The text under a key; null is an empty text."""
        found = self._found(key)
        if not isinstance(found, str | None):
            raise self._wrong(key, "a text")
        return found or ""

    def texts(self, key: str, *others: str) -> list[str]:
        """The list of texts under the first of these keys that is there; null is an empty list."""
        key = next((name for name in (key, *others) if name in self.values), key)
        found = self._found(key)
        found = [] if found is None else found
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise self._wrong(key, "a list of texts")
        return found

    def numbers(self, key: str) -> list[int]:
        """The list of whole numbers under a key."""
        found = self._found(key)
        if not isinstance(found, list) or not all(type(item) is int for item in found):
            raise self._wrong(key, "a list of whole numbers")
        return found

    def _found(self, key: str) -> Any:
        if key not in self.values:
            raise BadFile(
                f"{self.place}: the key {key!r} is missing{did_you_mean(key, self.values)}"
                f" (found: {', '.join(self.values) or 'none'})"
            )
        return self.values[key]

    def _wrong(self, key: str, wanted: str) -> BadFile:
        return BadFile(f"{self.place}: {key!r} is {_short(self.values[key])}; it must be {wanted}")


def split_records(source: Path, *, optional: Collection[str] = (), also: str = "") -> dict[str, Iterator[Record]]:
    """The records of each split, from the files of its folder in name order or from its JSONL file.

    `also` names a file that the caller looked for in vain, for the message.
    """
    if not source.is_dir():
        raise BadCorpus(f"{source}: no such folder; name the folder that holds the splits")
    found = {split: _one_split(source, split) for split in Splits._fields}
    for split, records in found.items():
        if records is None and split not in optional:
            looked = [f"{split}/*.json", f"{split}.jsonl", *([also] if also else [])]
            raise BadCorpus(f"{source}: no {split} documents; looked for {', '.join(looked)} (plain, .gz or .xz)")
    return {split: records for split, records in found.items() if records is not None}


def line_records(path: Path) -> Iterator[Record]:
    """The records of a JSONL file."""
    return (Record(values, f"{path}:{number}", f"{stem(path)}-{number}") for number, values in read_objects(path))


def gather(
    source: Path, splits: Mapping[str, Iterable[Record]], document: Callable[[Record], Document], *, drop_empty: bool = False
) -> dict[str, list[Document]]:
    """The documents of each split, ids unique within it, none without text."""
    gathered: dict[str, list[Document]] = {}
    homes: dict[str, str] = {}  # document id to the split it was last seen in
    dropped = strays = 0
    for split, records in splits.items():
        documents = gathered[split] = []
        for record in records:
            made = document(record)
            if not made.text.strip() and drop_empty:
                dropped += 1
                continue
            home = homes.get(made.id)
            _check(made, record, again=home == split)
            strays += home is not None
            homes[made.id] = split
            documents.append(made)
        if not documents:
            raise BadCorpus(f"{source}: the {split} split has no documents; fill its files or take them away")
    if dropped:
        warnings.warn(f"{source}: {dropped} documents without text were left out", stacklevel=3)
    if strays:
        warnings.warn(f"{source}: {strays} documents have the id of one in another split; all were kept", stacklevel=3)
    return gathered


def corpus_splits(documents: Mapping[str, list[Document]], labels: LabelSet, info: CorpusInfo) -> Splits:
    """Splits over one label set; a split without documents is empty."""
    return Splits(*(Corpus(documents.get(name, []), labels, info) for name in Splits._fields))


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object that a whole file holds; a key that occurs twice is an error."""
    text = read_text(path)
    try:
        value = json.loads(text, object_pairs_hook=_each_once)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a surrogate pair could be read but never written
    except json.JSONDecodeError as error:
        raise BadFile(
            f"{path}:{error.lineno}: not JSON: {error.msg} (column {error.colno}); the file must hold one object"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise BadFile(f"{path}: a JSON {type(value).__name__}; it must be an object")
    return value


def _one_split(source: Path, split: str) -> Iterator[Record] | None:
    files = sorted((source / split).glob("*.json"), key=lambda path: path.name)
    lines = find(source, f"{split}.jsonl")
    if files and lines:
        raise BadCorpus(f"{source}: both {split}/ and {lines.name} are there; take one of them away")
    if files:
        return (Record(read_object(path), str(path), path.stem) for path in files)
    return line_records(lines) if lines else None


def _check(document: Document, record: Record, *, again: bool) -> None:
    if not document.id:
        raise BadFile(f"{record.place}: the document has an empty id; give it one")
    if again:
        raise BadFile(f"{record.place}: document id {document.id!r} occurs twice in this split; ids must be unique")
    if not document.text.strip():
        raise BadFile(f"{record.place}: document {document.id!r} has an empty text; give it one or take it out")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice; keys must be unique")
    return values


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "…"
