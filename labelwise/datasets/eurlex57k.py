"""EURLEX57K: 57,000 laws of the European Union with EuroVoc concepts.

Source: Chalkidis et al. 2019, archive.org/details/EURLEX57K. Licence: CC BY-SA 4.0; the laws themselves are © European
Union, free to reuse with the source named. SPEC 5.1 tells how the two distributions differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from labelwise.admission import Admission, UnknownLabels
from labelwise.corpus import CorpusInfo, Document, Splits
from labelwise.datasets.descriptors import read_descriptors
from labelwise.datasets.records import Record, corpus_splits, gather, split_records
from labelwise.errors import BadSettings, did_you_mean

INFO = CorpusInfo(name="eurlex57k", k=5, few=50)
ZONES = ("header", "recitals", "main_body", "attachments")


def read_eurlex57k(
    source: Path | str,
    descriptors: Path | str,
    *,
    zones: Sequence[str] = ZONES,
    unknown_labels: UnknownLabels = "error",
    reduce: bool = False,
) -> Splits:
    """EURLEX57K: 57,000 laws of the European Union with EuroVoc concepts.

    SOURCE holds train, dev and test, as folders with one JSON file per law (labels under `concepts`) or as JSONL files
    (`eurovoc_concepts`); DESCRIPTORS is the concept file beside it, eurlex57k.json or eurovoc_concepts.jsonl.
    Data: Chalkidis et al. 2019, archive.org/details/EURLEX57K. Licence: CC BY-SA 4.0; the laws are © European Union, free to
    reuse with the source named.
    """
    _check_zones(zones)
    concepts = Admission(read_descriptors(descriptors, reduce=reduce), unknown_labels)
    source = Path(source)
    documents = gather(source, split_records(source), lambda record: _document(record, zones, concepts))
    bare = sum(not document.sections for split in documents.values() for document in split)
    if bare:
        warnings.warn(
            f"{source}: {bare} documents have one text instead of zones; Hugging Face's copy leaves the attachments out of it,"
            " which the paper keeps",
            stacklevel=2,
        )
    return corpus_splits(documents, concepts.label_set(), INFO)


def _document(record: Record, zones: Sequence[str], concepts: Admission) -> Document:
    sections = tuple(text for zone in zones if (text := _zone(record, zone)).strip())
    whole = not any(zone in record.values for zone in ZONES)
    return Document(
        id=record.id("celex_id"),
        text=record.text("text") if whole else "\n".join(sections),
        labels=concepts.known(record.texts("concepts", "eurovoc_concepts"), record.place),
        sections=sections,
    )


def _zone(record: Record, zone: str) -> str:
    """The text of a zone; a list of articles, as `main_body` is in the original files, is joined line by line."""
    value = record.values.get(zone)
    return "\n".join(record.texts(zone)) if isinstance(value, list) else record.text(zone) if value is not None else ""


def _check_zones(zones: Sequence[str]) -> None:
    for zone in zones:
        if zone not in ZONES:
            raise BadSettings(f"there is no zone {zone!r}{did_you_mean(zone, ZONES)} (known: {', '.join(ZONES)})")
    if not zones:
        raise BadSettings(f"no zones to read; name some of {', '.join(ZONES)}")
