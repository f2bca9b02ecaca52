"""MIMIC-III: cleaning, joins, order of notes, the published split, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from labelwise.corpus import CorpusInfo
from labelwise.datasets.mimic3 import TABLES, bioclean, read_mimic3
from labelwise.errors import BadCorpus, BadFile
from labelwise.jsonl import read_corpus, write_corpus

NOTE_COLUMNS = ["ROW_ID", "SUBJECT_ID", "HADM_ID", "CHARTDATE", "CHARTTIME", "STORETIME"]
NOTE_COLUMNS += ["CATEGORY", "DESCRIPTION", "CGID", "ISERROR", "TEXT"]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([columns, *rows])
    return text.getvalue()


def note(admission: str, text: str, *, row: str = "1", date: str = "2150-01-01", **changes: str) -> list[str]:
    values = {
        "ROW_ID": row,
        "SUBJECT_ID": "9",
        "HADM_ID": admission,
        "CHARTDATE": date,
        "CATEGORY": "Discharge summary",
        "DESCRIPTION": "Report",
        "TEXT": text,
    } | changes
    return [values.get(column, "") for column in NOTE_COLUMNS]


def write_tables(
    folder: Path,
    notes: Sequence[Sequence[str]],
    diagnoses: Sequence[tuple[str, str]],
    procedures: Sequence[tuple[str, str]] = (),
) -> Path:
    codes = ["ROW_ID", "SUBJECT_ID", "HADM_ID", "SEQ_NUM", "ICD9_CODE"]
    titles = ["ROW_ID", "ICD9_CODE", "SHORT_TITLE", "LONG_TITLE"]
    folder.mkdir(exist_ok=True)
    contents = {
        "NOTEEVENTS": table(NOTE_COLUMNS, notes),
        "DIAGNOSES_ICD": table(codes, [["1", "9", admission, "1", code] for admission, code in diagnoses]),
        "PROCEDURES_ICD": table(codes, [["1", "9", admission, "1", code] for admission, code in procedures]),
        "D_ICD_DIAGNOSES": table(
            titles,
            [["1", "4019", "HTN", "Unspecified essential hypertension"], ["2", "42731", "AF", "Atrial fibrillation"]],
        ),
        "D_ICD_PROCEDURES": table(titles, [["1", "3893", "Cath", "Venous catheterization, not elsewhere classified"]]),
    }
    for name, content in contents.items():
        (folder / f"{name}.csv").write_text(content, encoding="utf-8", newline="")
    return folder


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (
            "Pt. is a 45-year-old (M) w/ COPD & CHF; BP=120/80 @ 10:30 [**Name**]",
            "pt is a 45-year-old m w copd chf bp12080 1030 name",
        ),
        ("Hepatitis B/C's <test> #5 50% ~x $3 A_b", "hepatitis bcs test #5 50 ~x $3 ab"),
        (" \n two\t\n words \n", "two words"),
        ("", ""),
        ("...", ""),
    ],
)
def test_cleaning_is_that_of_the_paper(text: str, cleaned: str) -> None:
    assert bioclean(text) == cleaned
    assert bioclean(cleaned) == cleaned


def test_an_admission_becomes_a_document_with_its_titled_codes(tmp_path: Path) -> None:
    folder = write_tables(
        tmp_path / "mimic",
        [note("100", "Admitted.\n\nHistory: well.\n\n\n  Done. ")],
        [("100", "42731"), ("100", "4019"), ("100", "99999"), ("100", ""), ("", "4019")],
        [("100", "3893")],
    )
    splits = read_mimic3(folder)
    (document,) = splits.train
    assert document.id == "100"
    assert document.text == "Admitted.\n\nHistory: well.\n\n\n  Done. "
    assert document.sections == ("Admitted.", "History: well.", "  Done. ")
    assert document.labels == ("D-4019", "D-42731", "P-3893")
    assert splits.info == CorpusInfo("mimic3", k=15, few=5)
    assert splits.labels.ids == tuple(sorted(splits.labels.ids))
    names = {label.id: label.name for label in splits.labels}
    assert names["D-4019"] == "unspecified essential hypertension"
    assert names["P-3893"] == "venous catheterization not elsewhere classified"
    assert names["D-390-459"] == "diseases of the circulatory system"
    assert splits.train.gold().sum() == 3


def test_clean_gives_the_text_of_the_gru_models(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mimic", [note("100", "Admitted.\n\n---\n\n***\n\nBP 120/80!")], [("100", "4019")])
    (document,) = read_mimic3(folder, clean=True).train
    assert document.text == "admitted --- bp 12080"
    assert document.sections == ("admitted", "---", "bp 12080")


def test_notes_stand_in_the_order_they_were_written_each_text_once(tmp_path: Path) -> None:
    notes = [
        note("100", "fourth", row="100", date="2150-01-03"),
        note("100", "third", row="99", date="2150-01-03"),
        note("100", "first", row="300", date="2150-01-01", DESCRIPTION="Addendum"),
        note("100", "second", row="8", date="2150-01-02"),
        note("100", "first", row="301", date="2150-01-04"),
    ]
    folder = write_tables(tmp_path / "mimic", notes, [("100", "4019")])
    (document,) = read_mimic3(folder).train
    assert document.text == "first\n\nsecond\n\nthird\n\nfourth"


def test_other_notes_errors_and_admissions_without_codes_are_left_out(tmp_path: Path) -> None:
    notes = [
        note("1", "kept"),
        note("1", "radiology", CATEGORY="Radiology"),
        note("1", "in error", ISERROR="1"),
        note("1", " \n ** \n"),
        note("2", "no codes at all"),
        note("3", "only a code without title"),
        note("", "no admission"),
        note("4", "---"),
    ]
    folder = write_tables(tmp_path / "mimic", notes, [("1", "4019"), ("3", "99999"), ("4", "4019"), ("5", "4019")])
    splits = read_mimic3(folder)
    assert [(document.id, document.text) for corpus in splits for document in corpus] == [("1", "kept")]


def test_the_split_is_that_of_the_published_code(tmp_path: Path) -> None:
    admissions = [str(number) for number in range(95, 118)]
    folder = write_tables(
        tmp_path / "mimic",
        [note(admission, f"text {admission}") for admission in admissions],
        [(admission, "4019") for admission in reversed(admissions)],
    )
    expected = sorted(admissions)  # as text: 100 comes before 95
    random.seed(1891)
    random.shuffle(expected)
    first, second = round(0.8 * 23), round(0.9 * 23)
    splits = read_mimic3(folder)
    ids = [[document.id for document in corpus] for corpus in splits]
    assert ids == [expected[:first], expected[first:second], expected[second:]]
    assert [len(part) for part in ids] == [18, 3, 2]
    assert [[document.id for document in corpus] for corpus in read_mimic3(folder, seed=2)] != ids


def test_edges_are_parents_where_the_list_has_them(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mimic", [note("1", "text")], [("1", "4019")])
    edges = tmp_path / "edges.csv"
    edges.write_text("401.9,390-459.99\n", encoding="utf-8")
    labels = read_mimic3(folder, edges=edges).labels
    assert {label.id: label.parents for label in labels}["D-4019"] == ("D-390-459",)
    assert "D-401" not in labels
    assert "D-427" in labels


def test_compressed_tables_and_lower_case_columns_are_read(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mimic", [note("1", 'A "quoted" word, and\nlines')], [("1", "4019")])
    for name in TABLES:
        path = folder / f"{name}.csv"
        heading, _, rest = path.read_text(encoding="utf-8").partition("\n")
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(f"\ufeff{heading.lower()}\n{rest}".replace("\n", "\r\n").encode()))
        path.unlink()
    assert read_mimic3(folder).train[0].text == 'A "quoted" word, and\r\nlines'


def test_a_note_longer_than_the_csv_module_allows_is_read(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mimic", [note("1", "long " * 50_000)], [("1", "4019")])
    assert len(read_mimic3(folder).train[0].text) == 250_000


def test_notes_that_are_not_kept_take_no_memory(tmp_path: Path) -> None:
    notes = [note("1", "kept")] + [note("1", "x" * 10_000, CATEGORY="Nursing") for _ in range(500)]
    folder = write_tables(tmp_path / "mimic", notes, [("1", "4019")])
    read_mimic3(folder)
    tracemalloc.start()
    read_mimic3(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_what_was_read_can_be_written_and_read_again(tmp_path: Path) -> None:
    folder = write_tables(
        tmp_path / "mimic", [note(str(n), f"text {n}\n\nmore") for n in range(20)], [(str(n), "4019") for n in range(20)]
    )
    splits = read_mimic3(folder)
    write_corpus(splits, tmp_path / "corpus")
    again = read_corpus(tmp_path / "corpus")
    assert [list(corpus) for corpus in again] == [list(corpus) for corpus in splits]
    assert (again.labels, again.info) == (splits.labels, splits.info)


def test_missing_tables_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(BadCorpus, match="nowhere: no such folder"):
        read_mimic3(tmp_path / "nowhere")
    folder = write_tables(tmp_path / "mimic", [note("1", "text")], [("1", "4019")])
    (folder / "NOTEEVENTS.csv").unlink()
    (folder / "D_ICD_PROCEDURES.csv").unlink()
    with pytest.raises(BadCorpus, match=r"not there: NOTEEVENTS, D_ICD_PROCEDURES \(looked for \.csv, \.csv\.gz and \.csv\.xz\)"):
        read_mimic3(folder)


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mimic", [note("1", "text")], [("2", "4019")])
    with pytest.raises(BadCorpus, match="no admission has both a discharge summary and a code with a title"):
        read_mimic3(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"DIAGNOSES_ICD\.csv:1: no column HADM_ID, ICD9_CODE \(found: none\)"),
        (b'"ROW_ID","HADM_ID","CODE"\n', r":1: no column ICD9_CODE \(found: ROW_ID, HADM_ID, CODE\)"),
        (b'"HADM_ID","ICD9_CODE"\n"1","4019"\n\n"1"\n', r"DIAGNOSES_ICD\.csv:4: 1 columns; the first line has 2"),
        (b'"HADM_ID","ICD9_CODE"\n"1","4019"\n"1","42', r"DIAGNOSES_ICD\.csv:3: not CSV: unexpected end of data"),
        (b'"HADM_ID","ICD9_CODE"\n"1","\xff"\n', r"DIAGNOSES_ICD\.csv:\d: not UTF-8"),
    ],
)
def test_a_bad_table_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    folder = write_tables(tmp_path / "mimic", [note("1", "text")], [("1", "4019")])
    (folder / "DIAGNOSES_ICD.csv").write_bytes(content)
    with pytest.raises(BadFile, match=message):
        read_mimic3(folder)


def test_a_broken_archive_is_named(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mimic", [note("1", "text")], [("1", "4019")])
    packed = gzip.compress((folder / "NOTEEVENTS.csv").read_bytes())
    (folder / "NOTEEVENTS.csv").unlink()
    for data in (packed[:-12], b"not gzip at all"):
        (folder / "NOTEEVENTS.csv.gz").write_bytes(data)
        with pytest.raises(BadFile, match=r"NOTEEVENTS\.csv\.gz: broken \.gz file"):
            read_mimic3(folder)


def test_the_help_names_source_and_licence() -> None:
    assert "physionet.org" in (read_mimic3.__doc__ or "")
    assert "Licence: PhysioNet Credentialed Health Data" in (read_mimic3.__doc__ or "")
