"""MIMIC-III: discharge summaries of intensive care with the ICD-9-CM codes of their admissions.

Source: Johnson et al. 2016, MIMIC-III Clinical Database 1.4, physionet.org. Licence: PhysioNet Credentialed Health Data
License 1.5.0; nobody but credentialed users may hold the data. SPEC 5.3 has the steps; the split is by admission, not by
patient, and not that of CAML.
"""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from labelwise.corpus import Corpus, CorpusInfo, Document, Splits
from labelwise.datasets.icd9 import NAMES
from labelwise.datasets.icd9_labels import code_labels
from labelwise.errors import BadCorpus, BadFile
from labelwise.storage import find, open_bytes

INFO = CorpusInfo(name="mimic3", k=15, few=5)
TABLES = ("NOTEEVENTS", "DIAGNOSES_ICD", "PROCEDURES_ICD", "D_ICD_DIAGNOSES", "D_ICD_PROCEDURES")
FIELD_LIMIT = 1 << 27  # characters; the csv module stops at 131,072, and a note may be longer

# The authors' pattern holds `:-\[`, which reads as a range: it takes < = > @ along, and leaves the hyphen alone.
_DELETED = str.maketrans("", "", "\"/\\'.,?;*!%^&_+()]{}:<=>@[")
_BREAK = re.compile(r"\n{2,}")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")


def read_mimic3(folder: Path | str, *, edges: Path | str | None = None, seed: int = 1891, clean: bool = False) -> Splits:
    """MIMIC-III: discharge summaries of intensive care with the ICD-9-CM codes of their admissions.

    SOURCE holds NOTEEVENTS, DIAGNOSES_ICD, PROCEDURES_ICD, D_ICD_DIAGNOSES and D_ICD_PROCEDURES, each .csv or .csv.gz.
    EDGES lists parents of codes, two columns; codes that it does not place stand where the structure of ICD-9-CM puts them.
    CLEAN writes the lower-case text without punctuation that the paper's GRU models read, instead of the raw text.
    Data: Johnson et al. 2016, MIMIC-III Clinical Database 1.4, physionet.org. Licence: PhysioNet Credentialed Health Data
    License 1.5.0, for credentialed users only.
    """
    folder = Path(folder)
    _check_tables(folder)
    titles = _titles(folder, "D_ICD_DIAGNOSES", "D-") | _titles(folder, "D_ICD_PROCEDURES", "P-")
    names = {id: bioclean(name) for id, name in NAMES.items()}
    labels = code_labels(titles, names, Path(edges) if edges else None)
    codes = _codes(folder, titles)
    notes = _notes(folder, codes)
    documents = [_document(admission, notes.pop(admission), codes[admission], clean) for admission in sorted(notes)]
    if not documents:
        raise BadCorpus(f"{folder}: no admission has both a discharge summary and a code with a title")
    random.Random(seed).shuffle(documents)
    first, second = round(0.8 * len(documents)), round(0.9 * len(documents))
    parts = documents[:first], documents[first:second], documents[second:]
    return Splits(*(Corpus(part, labels, INFO) for part in parts))


def bioclean(text: str) -> str:
    """Lower-case text without most punctuation, words set apart by one space; hyphens stay, 120/80 becomes 12080."""
    return " ".join(text.lower().translate(_DELETED).split())


class Note(NamedTuple):
    """A discharge summary; notes sort in the order they were written."""

    date: str
    digits: int  # of the row id, which are numbers written as text: 99 comes before 100
    row: str
    text: str


def _titles(folder: Path, table: str, prefix: str) -> dict[str, str]:
    rows = _rows(folder, table, "ICD9_CODE", "LONG_TITLE")
    return {prefix + code: title for code, title in ((code, bioclean(title)) for code, title in rows) if code and title}


def _codes(folder: Path, titles: Mapping[str, str]) -> dict[str, set[str]]:
    """The titled codes of each admission."""
    shared = {id: id for id in titles}  # one string for all admissions
    codes: dict[str, set[str]] = {}
    for table, prefix in (("DIAGNOSES_ICD", "D-"), ("PROCEDURES_ICD", "P-")):
        for admission, code in _rows(folder, table, "HADM_ID", "ICD9_CODE"):
            if (id := prefix + code) in titles and admission:
                codes.setdefault(admission, set()).add(shared[id])
    return codes


def _notes(folder: Path, codes: Mapping[str, set[str]]) -> dict[str, list[Note]]:
    """The discharge summaries of admissions that have codes."""
    notes: dict[str, list[Note]] = {}
    columns = ("HADM_ID", "CATEGORY", "ISERROR", "CHARTDATE", "ROW_ID", "TEXT")
    for admission, category, error, date, row, text in _rows(folder, "NOTEEVENTS", *columns):
        if category == "Discharge summary" and error != "1" and admission in codes and _LETTER_OR_DIGIT.search(text):
            notes.setdefault(admission, []).append(Note(date, len(row), row, text))
    return notes


def _document(admission: str, notes: list[Note], codes: set[str], clean: bool) -> Document:
    text = "\n\n".join(dict.fromkeys(note.text for note in sorted(notes)))
    sections = [section for section in _BREAK.split(text) if section.strip()]
    if clean:
        text, sections = bioclean(text), [cleaned for section in sections if (cleaned := bioclean(section))]
    return Document(admission, text, tuple(sorted(codes)), tuple(sections))


def _check_tables(folder: Path) -> None:
    if not folder.is_dir():
        raise BadCorpus(f"{folder}: no such folder; name the folder with the CSV files of MIMIC-III")
    missing = [table for table in TABLES if find(folder, f"{table}.csv") is None]
    if missing:
        raise BadCorpus(f"{folder}: not there: {', '.join(missing)} (looked for .csv, .csv.gz and .csv.xz)")


def _rows(folder: Path, table: str, *columns: str) -> Iterator[tuple[str, ...]]:
    """Some columns of a table, row by row, as text."""
    path = find(folder, f"{table}.csv")
    assert path is not None  # _check_tables came first
    csv.field_size_limit(max(csv.field_size_limit(), FIELD_LIMIT))
    with open_bytes(path) as file:
        lines = csv.reader(TextIOWrapper(file, encoding="utf-8-sig", newline=""), strict=True)
        try:
            header = [name.upper() for name in next(lines, [])]  # some copies have the names in lower case
            missing = [column for column in columns if column not in header]
            if missing:
                raise BadFile(f"{path}:1: no column {', '.join(missing)} (found: {', '.join(header) or 'none'})")
            chosen = itemgetter(*map(header.index, columns))
            for row in lines:
                if len(row) == len(header):
                    yield chosen(row)
                elif row:
                    raise BadFile(f"{path}:{lines.line_num}: {len(row)} columns; the first line has {len(header)}")
        except csv.Error as error:
            raise BadFile(f"{path}:{lines.line_num}: not CSV: {error}; copy or download the file again") from None
        except UnicodeDecodeError as error:
            raise BadFile(f"{path}:{lines.line_num + 1}: not UTF-8: {error}; save the file as UTF-8") from None
