"""AMAZON13K: one and a half million products with their categories.

Source: McAuley and Leskovec 2013; as AmazonCat-13K in the extreme-classification repository, manikvarma.org. Licence: none
stated; the texts belong to their owners, research use. The paper's own split and hierarchy were never published (SPEC 13).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from labelwise.admission import Admission, UnknownLabels
from labelwise.corpus import CorpusInfo, Document, Splits
from labelwise.datasets.descriptors import read_descriptors
from labelwise.datasets.files import read_bytes
from labelwise.datasets.records import Record, corpus_splits, gather, line_records, split_records
from labelwise.datasets.splitting import split_at_random
from labelwise.errors import BadCorpus, BadFile, BadSettings
from labelwise.labels import Label, LabelSet
from labelwise.storage import find

INFO = CorpusInfo(name="amazon13k", k=5, few=100)
RAW = {"train": "trn.json", "test": "tst.json"}
NAMES = ("Yf.txt", "Y.txt")


def read_amazon13k(
    source: Path | str,
    descriptors: Path | str | None = None,
    *,
    dev: float = 0.1,
    seed: int = 1,
    unknown_labels: UnknownLabels = "error",
    reduce: bool = False,
    drop_empty: bool = False,
) -> Splits:
    """AMAZON13K: one and a half million products with their categories.

    SOURCE holds train, test and perhaps dev, as folders with one JSON file per product or as JSONL files (`title`,
    `description`, `concepts`); or the raw AmazonCat-13K: trn.json, tst.json and the category names in Yf.txt or Y.txt.
    DESCRIPTORS is the category file with parents; every ancestor of a gold label becomes gold too. Without a dev split a
    share of train, DEV, is held out at random. DROP-EMPTY leaves products without any text out.
    Data: McAuley and Leskovec 2013; AmazonCat-13K of the extreme-classification repository, manikvarma.org. Licence: none
    stated; the texts belong to their owners, research use.
    """
    if not 0 <= dev < 1:
        raise BadSettings(f"dev is {dev}; it is a share of train, from 0 to below 1")
    source = Path(source)
    if find(source, RAW["train"]):
        (records, labels), body = _raw(source), "content"
    else:
        records, labels, body = split_records(source, optional=("dev",), also=RAW["train"]), LabelSet([]), "description"
    if descriptors is None:
        concepts = Admission(labels, "add")
    else:
        concepts = Admission(read_descriptors(descriptors, reduce=reduce), unknown_labels)
    documents = gather(source, records, lambda record: _document(record, body, concepts), drop_empty=drop_empty)
    if "dev" not in documents and dev:
        documents["train"], documents["dev"] = split_at_random(documents["train"], [1 - dev, dev], seed)
    splits = corpus_splits(documents, concepts.label_set(), INFO)
    return splits if descriptors is None else splits.closed()


def _document(record: Record, body: str, concepts: Admission) -> Document:
    return Document(
        id=record.id("uid", "id"),
        text=" \n ".join(text for text in (record.text("title"), record.text(body)) if text.strip()),
        labels=concepts.known(record.texts("concepts"), record.place),
    )


def _raw(source: Path) -> tuple[dict[str, Iterator[Record]], LabelSet]:
    """The records of the raw release, names in place of label numbers, and the label set of its names."""
    paths = {split: find(source, name) for split, name in RAW.items()}
    names_path = next((path for name in NAMES if (path := find(source, name))), None)
    missing = [RAW[split] for split, path in paths.items() if path is None] + ([] if names_path else [" or ".join(NAMES)])
    if names_path is None or missing:
        raise BadCorpus(f"{source}: not there: {', '.join(missing)} (plain, .gz or .xz)")
    names = _read_names(names_path)
    records = {split: _named(line_records(path), names, names_path) for split, path in paths.items() if path}
    return records, LabelSet(Label(name, name) for name in dict.fromkeys(names))


def _named(records: Iterator[Record], names: Sequence[str], names_path: Path) -> Iterator[Record]:
    for record in records:
        numbers = record.numbers("target_ind")
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(names):
            raise BadFile(
                f"{record.place}: 'target_ind' reaches from {min(numbers)} to {max(numbers)};"
                f" {names_path} has the names of 0 to {len(names) - 1}"
            )
        record.values["concepts"] = [names[number] for number in numbers]
        yield record


def _read_names(path: Path) -> list[str]:
    """One name a line; the published file is not all UTF-8, so Latin-1 is the second guess."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        warnings.warn(f"{path}: not UTF-8, read as Latin-1", stacklevel=4)
        text = data.decode("latin-1")
    names = [line.strip() for line in text.removesuffix("\n").split("\n")]
    if not all(names):
        raise BadFile(f"{path}:{names.index('') + 1}: an empty line; each line must hold the name of a category")
    if len(set(names)) < len(names):
        warnings.warn(f"{path}: {len(names) - len(set(names))} names occur again; a name is one label", stacklevel=4)
    return names
