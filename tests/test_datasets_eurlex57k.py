"""EURLEX57K: both distributions, text zones, unknown labels, and what is refused."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from labelwise.corpus import CorpusInfo
from labelwise.datasets.eurlex57k import ZONES, read_eurlex57k
from labelwise.errors import BadCorpus, BadFile, BadSettings, UnknownLabel
from labelwise.jsonl import read_corpus, write_corpus

DESCRIPTORS = {
    "100": {"concept_id": "100", "label": "farming", "alt_labels": ["agriculture"], "parents": None},
    "200": {"concept_id": "200", "label": "fruit", "alt_labels": [], "parents": ["100"]},
    "300": {"concept_id": "300", "label": "apple", "alt_labels": [], "parents": ["200"]},
}


def law(**changes: Any) -> dict[str, Any]:
    return {
        "celex_id": "32001R0001",
        "uri": "made/up",
        "type": "Regulation",
        "title": "On apples",
        "header": "REGULATION on apples",
        "recitals": "Whereas apples are round,",
        "main_body": ["Article 1 Apples are fruit.", "Article 2 Enough."],
        "attachments": "ANNEX The apples.",
        "concepts": ["300", "200"],
    } | changes


def put(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


@pytest.fixture
def descriptors(tmp_path: Path) -> Path:
    return put(tmp_path / "eurlex57k.json", DESCRIPTORS)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for split, names in {"train": ["B2", "A1"], "dev": ["C3"], "test": ["D4"]}.items():
        for name in names:
            put(tmp_path / "dataset" / split / f"{name}.json", law(celex_id=name, header=f"LAW {name}"))
    return tmp_path / "dataset"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    def text(name: str) -> str:
        values = law(celex_id=name, eurovoc_concepts=["100"], main_body="Articles in one text.")
        del values["concepts"]
        return json.dumps(values) + "\n"

    folder = tmp_path / "jsonl"
    put(folder / "train.jsonl", text("A1") + "\n" + text("B2"))
    (folder / "dev.jsonl.gz").write_bytes(gzip.compress(text("C3").encode()))
    (folder / "test.jsonl.xz").write_bytes(lzma.compress(text("D4").encode()))
    return folder


def test_a_folder_of_files_is_read_in_name_order(folders: Path, descriptors: Path) -> None:
    splits = read_eurlex57k(folders, descriptors)
    assert [document.id for document in splits.train] == ["A1", "B2"]
    assert [len(corpus) for corpus in splits] == [2, 1, 1]
    assert splits.info == CorpusInfo("eurlex57k", k=5, few=50)
    assert splits.labels.ids == ("100", "200", "300")
    assert splits.train[0].labels == ("300", "200")
    assert splits.train.gold().toarray().tolist() == [[False, True, True]] * 2


def test_all_four_zones_make_the_text_and_the_sections(folders: Path, descriptors: Path) -> None:
    document = read_eurlex57k(folders, descriptors).test[0]
    assert document.sections == (
        "LAW D4",
        "Whereas apples are round,",
        "Article 1 Apples are fruit.\nArticle 2 Enough.",
        "ANNEX The apples.",
    )
    assert document.text == "\n".join(document.sections)


def test_jsonl_plain_or_compressed_is_read_by_its_own_label_key(lines: Path, descriptors: Path) -> None:
    splits = read_eurlex57k(lines, descriptors)
    assert [[document.id for document in corpus] for corpus in splits] == [["A1", "B2"], ["C3"], ["D4"]]
    assert splits.dev[0].labels == ("100",)
    assert splits.dev[0].sections[2] == "Articles in one text."


def test_either_label_key_is_taken_in_either_layout(folders: Path, descriptors: Path) -> None:
    put(folders / "dev" / "C3.json", {key: value for key, value in law(eurovoc_concepts=["100"]).items() if key != "concepts"})
    assert read_eurlex57k(folders, descriptors).dev[0].labels == ("100",)


def test_a_file_without_celex_id_goes_by_its_name(folders: Path, descriptors: Path) -> None:
    put(folders / "dev" / "C3.json", {key: value for key, value in law().items() if key != "celex_id"})
    assert read_eurlex57k(folders, descriptors).dev[0].id == "C3"


def test_zones_can_be_chosen_and_empty_ones_leave_no_gap(folders: Path, descriptors: Path) -> None:
    put(folders / "dev" / "C3.json", law(recitals=" ", attachments=None))
    assert read_eurlex57k(folders, descriptors).dev[0].text == (
        "REGULATION on apples\nArticle 1 Apples are fruit.\nArticle 2 Enough."
    )
    assert read_eurlex57k(folders, descriptors, zones=("header",)).dev[0].sections == ("REGULATION on apples",)


@pytest.mark.parametrize(("zones", "message"), [(("recital",), "did you mean 'recitals'"), ((), "no zones to read")])
def test_zones_that_do_not_exist_are_refused(folders: Path, descriptors: Path, zones: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        read_eurlex57k(folders, descriptors, zones=zones)


def test_records_with_one_text_are_taken_with_a_warning(lines: Path, descriptors: Path) -> None:
    put(lines / "train.jsonl", json.dumps({"celex_id": "A1", "title": "t", "text": "All of it.", "eurovoc_concepts": ["100"]}))
    with pytest.warns(UserWarning, match="1 documents have one text instead of zones.*attachments"):
        splits = read_eurlex57k(lines, descriptors)
    assert (splits.train[0].text, splits.train[0].sections) == ("All of it.", ())


def test_a_label_twice_in_a_document_counts_once(folders: Path, descriptors: Path) -> None:
    put(folders / "dev" / "C3.json", law(concepts=["200", "100", "200"]))
    assert read_eurlex57k(folders, descriptors).dev[0].labels == ("200", "100")


def test_unknown_labels_are_refused_dropped_or_added(folders: Path, descriptors: Path) -> None:
    put(folders / "dev" / "C3.json", law(concepts=["200", "2000"]))
    with pytest.raises(UnknownLabel, match=r"C3\.json: label '2000' is not in the label set \(3 labels\).*--unknown-labels"):
        read_eurlex57k(folders, descriptors)
    with pytest.warns(UserWarning, match="1 labels of documents are not in the label set"):
        dropped = read_eurlex57k(folders, descriptors, unknown_labels="drop")
    assert (dropped.dev[0].labels, len(dropped.labels)) == (("200",), 3)
    added = read_eurlex57k(folders, descriptors, unknown_labels="add")
    assert added.dev[0].labels == ("200", "2000")
    assert added.labels.ids == ("100", "200", "300", "2000")


def test_what_was_read_can_be_written_and_read_again(folders: Path, descriptors: Path, tmp_path: Path) -> None:
    splits = read_eurlex57k(folders, descriptors)
    write_corpus(splits, tmp_path / "corpus")
    again = read_corpus(tmp_path / "corpus")
    assert [list(corpus) for corpus in again] == [list(corpus) for corpus in splits]
    assert (again.labels, again.info) == (splits.labels, splits.info)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"concepts":\n ["300"],\n "header": oops}', r"C3\.json:3: not JSON"),
        ('["300"]', r"C3\.json: a JSON list; it must be an object"),
        ('{"concepts": [], "concepts": [], "header": "x"}', r"C3\.json: the key 'concepts' occurs twice"),
        ('{"concepts": ["300"], "header": "\\ud800"}', r"C3\.json: .*surrogates not allowed"),
        (law(concepts="300"), r"C3\.json: 'concepts' is '300'; it must be a list of texts"),
        (law(concepts=[300]), r"C3\.json: 'concepts' is \[300\]; it must be a list of texts"),
        (law(header=7), r"C3\.json: 'header' is 7; it must be a text"),
        (law(main_body=["Article 1", 2]), r"C3\.json: 'main_body' is .*; it must be a list of texts"),
        (law(**dict.fromkeys(ZONES, "")), r"C3\.json: document '32001R0001' has an empty text"),
        (law(celex_id=""), r"C3\.json: the document has an empty id"),
        ({"celex_id": "C3", "concepts": ["300"]}, r"C3\.json: the key 'text' is missing \(found: celex_id, concepts\)"),
        ({"celex_id": "C3", "header": "x", "concept": []}, r"C3\.json: the key 'concepts' is missing; did you mean 'concept'"),
    ],
)
def test_a_bad_file_is_named(folders: Path, descriptors: Path, content: Any, message: str) -> None:
    put(folders / "dev" / "C3.json", content)
    with pytest.raises(BadFile, match=message):
        read_eurlex57k(folders, descriptors)


def test_a_bad_encoding_is_named(folders: Path, descriptors: Path) -> None:
    (folders / "dev" / "C3.json").write_bytes(b'{"header":\n"caf\xe9"}')
    with pytest.raises(BadFile, match=r"C3\.json:2: not UTF-8"):
        read_eurlex57k(folders, descriptors)


def test_byte_order_mark_and_carriage_returns_do_no_harm(folders: Path, descriptors: Path) -> None:
    put(folders / "dev" / "C3.json", "\ufeff" + json.dumps(law(), indent=1).replace("\n", "\r\n"))
    assert read_eurlex57k(folders, descriptors).dev[0].id == "32001R0001"


def test_a_bad_line_is_named_with_its_number(lines: Path, descriptors: Path) -> None:
    put(lines / "train.jsonl", json.dumps(law()) + "\n{\n")
    with pytest.raises(BadFile, match=r"train\.jsonl:2: not JSON"):
        read_eurlex57k(lines, descriptors)
    put(lines / "train.jsonl", json.dumps(law()) + "\n" + json.dumps(law()))
    with pytest.raises(BadFile, match=r"train\.jsonl:2: document id '32001R0001' occurs twice in this split"):
        read_eurlex57k(lines, descriptors)


def test_a_document_in_two_splits_is_warned_of(folders: Path, descriptors: Path) -> None:
    put(folders / "test" / "D4.json", law(celex_id="A1"))
    with pytest.warns(UserWarning, match="1 documents have the id of one in another split"):
        read_eurlex57k(folders, descriptors)
    put(folders / "test" / "E5.json", law(celex_id="A1"))
    with pytest.raises(BadFile, match=r"E5\.json: document id 'A1' occurs twice in this split"):
        read_eurlex57k(folders, descriptors)


def test_a_missing_or_empty_split_is_named(folders: Path, lines: Path, descriptors: Path) -> None:
    with pytest.raises(BadCorpus, match="nowhere: no such folder"):
        read_eurlex57k(folders / "nowhere", descriptors)
    (folders / "dev" / "C3.json").unlink()
    with pytest.raises(BadCorpus, match=r"no dev documents; looked for dev/\*\.json, dev\.jsonl \(plain, \.gz or \.xz\)"):
        read_eurlex57k(folders, descriptors)
    put(lines / "train.jsonl", "\n")
    with pytest.raises(BadCorpus, match="the train split has no documents"):
        read_eurlex57k(lines, descriptors)


def test_two_layouts_at_once_are_refused(folders: Path, descriptors: Path) -> None:
    put(folders / "dev.jsonl", json.dumps(law()))
    with pytest.raises(BadCorpus, match=r"both dev/ and dev\.jsonl are there"):
        read_eurlex57k(folders, descriptors)


def test_a_missing_descriptor_file_is_named(folders: Path) -> None:
    with pytest.raises(BadFile, match=r"none\.json: no such file"):
        read_eurlex57k(folders, folders / "none.json")


def test_the_help_names_source_and_licence() -> None:
    assert "archive.org" in (read_eurlex57k.__doc__ or "")
    assert "Licence: CC BY-SA 4.0" in (read_eurlex57k.__doc__ or "")
