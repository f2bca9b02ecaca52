"""AMAZON13K: split files, the raw release, closure under ancestors, the held-out dev split, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from labelwise.corpus import CorpusInfo
from labelwise.datasets.amazon13k import read_amazon13k
from labelwise.errors import BadCorpus, BadFile, BadSettings, UnknownLabel
from labelwise.jsonl import read_corpus, write_corpus

DESCRIPTORS = {
    "home": {"concept_id": "home", "label": "Home", "parents": None},
    "kitchen": {"concept_id": "kitchen", "label": "Kitchen", "parents": ["home"]},
    "pans": {"concept_id": "pans", "label": "Pans", "parents": ["kitchen"]},
    "toys": {"concept_id": "toys", "label": "Toys", "parents": []},
}


def product(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "title": f"Pan {number}",
        "description": "A round pan.",
        "title_tokenized": ["pan"],
        "description_tokenized": [],
        "concepts": ["pans"],
    } | changes


def raw(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "uid": f"B{number:04}",
        "title": f"Pan {number}",
        "content": "Round.",
        "target_ind": [2, 1],
        "target_rel": [1.0, 1.0],
    } | changes


def lines(path: Path, *values: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(value) + "\n" for value in values).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def descriptors(tmp_path: Path) -> Path:
    return lines(tmp_path / "amazon13k.json", DESCRIPTORS)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    folder = tmp_path / "folders"
    for split, count in {"train": 20, "test": 3}.items():
        for number in range(count):
            lines(folder / split / f"{split}{number:02}.json", product(number))
    return folder


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    lines(folder / "trn.json.gz", *(raw(number) for number in range(10)))
    lines(folder / "tst.json", raw(10), raw(11, target_ind=[]))
    (folder / "Yf.txt").write_text("home\nkitchen\npans\ntoys\n", encoding="utf-8")
    return folder


def test_text_is_title_and_description(folders: Path, descriptors: Path) -> None:
    splits = read_amazon13k(folders, descriptors)
    assert splits.test[0].id == "test00"
    assert splits.test[0].text == "Pan 0 \n A round pan."
    assert splits.info == CorpusInfo("amazon13k", k=5, few=100)


def test_every_ancestor_of_a_gold_label_is_gold(folders: Path, descriptors: Path) -> None:
    splits = read_amazon13k(folders, descriptors)
    assert splits.test[0].labels == ("home", "kitchen", "pans")
    assert splits.test.gold().toarray().tolist() == [[True, True, True, False]] * 3


def test_dev_is_held_out_of_train_by_seed(folders: Path, descriptors: Path) -> None:
    splits = read_amazon13k(folders, descriptors, dev=0.25)
    train, dev = ([document.id for document in corpus] for corpus in splits[:2])
    assert (len(train), len(dev)) == (15, 5)
    assert sorted(train + dev) == [f"train{number:02}" for number in range(20)]
    assert (train, dev) == (sorted(train), sorted(dev))
    again = read_amazon13k(folders, descriptors, dev=0.25)
    assert [document.id for document in again.dev] == dev
    assert [document.id for document in read_amazon13k(folders, descriptors, dev=0.25, seed=2).dev] != dev
    assert len(read_amazon13k(folders, descriptors, dev=0).dev) == 0


def test_a_dev_split_that_is_there_is_taken(folders: Path, descriptors: Path) -> None:
    lines(folders / "dev.jsonl", product(99, id="D99"), product(98))
    splits = read_amazon13k(folders, descriptors)
    assert [document.id for document in splits.dev] == ["D99", "dev-2"]
    assert len(splits.train) == 20


@pytest.mark.parametrize("dev", [-0.1, 1, 1.5])
def test_a_share_that_is_none_is_refused(folders: Path, descriptors: Path, dev: float) -> None:
    with pytest.raises(BadSettings, match=f"dev is {dev}"):
        read_amazon13k(folders, descriptors, dev=dev)


def test_without_descriptors_the_labels_are_those_of_the_documents(folders: Path) -> None:
    lines(folders / "test" / "test00.json", product(0, concepts=["toys", "pans"]))
    splits = read_amazon13k(folders)
    assert splits.labels.ids == ("pans", "toys")
    assert splits.test[0].labels == ("toys", "pans")


def test_the_raw_release_is_read_with_names_for_numbers(release: Path) -> None:
    splits = read_amazon13k(release)
    assert [len(corpus) for corpus in splits] == [9, 1, 2]
    assert splits.labels.ids == ("home", "kitchen", "pans", "toys")
    assert [(document.id, document.text, document.labels) for document in splits.test] == [
        ("B0010", "Pan 10 \n Round.", ("pans", "kitchen")),
        ("B0011", "Pan 11 \n Round.", ()),
    ]


def test_the_raw_release_is_closed_by_a_hierarchy_of_its_names(release: Path, descriptors: Path) -> None:
    assert read_amazon13k(release, descriptors).test[0].labels == ("home", "kitchen", "pans")


def test_names_may_be_in_y_txt_and_in_latin_1(release: Path) -> None:
    (release / "Yf.txt").unlink()
    (release / "Y.txt").write_bytes(b"home\r\ncaf\xe9\r\npans\r\nhome\r\n")
    with (
        pytest.warns(UserWarning, match=r"Y\.txt: not UTF-8, read as Latin-1"),
        pytest.warns(UserWarning, match=r"Y\.txt: 1 names occur again; a name is one label"),
    ):
        splits = read_amazon13k(release)
    assert splits.labels.ids == ("home", "café", "pans")


def test_unknown_labels_are_refused_dropped_or_added(folders: Path, descriptors: Path) -> None:
    lines(folders / "test" / "test00.json", product(0, concepts=["pans", "pots"]))
    with pytest.raises(UnknownLabel, match=r"test00\.json: label 'pots' is not in the label set \(4 labels\)"):
        read_amazon13k(folders, descriptors)
    with pytest.warns(UserWarning, match="1 labels of documents"):
        assert read_amazon13k(folders, descriptors, unknown_labels="drop").test[0].labels == ("home", "kitchen", "pans")
    assert read_amazon13k(folders, descriptors, unknown_labels="add").test[0].labels == ("home", "kitchen", "pans", "pots")


def test_one_of_title_and_description_is_enough_and_none_is_refused_or_left_out(release: Path) -> None:
    lines(release / "tst.json", raw(20, title=""), raw(21, content=None), raw(22, title="", content=" "))
    with pytest.raises(BadFile, match=r"tst\.json:3: document 'B0022' has an empty text"):
        read_amazon13k(release)
    with pytest.warns(UserWarning, match="1 documents without text were left out"):
        splits = read_amazon13k(release, drop_empty=True)
    assert [document.text for document in splits.test] == ["Round.", "Pan 21"]


def test_documents_share_the_strings_of_their_labels(release: Path) -> None:
    splits = read_amazon13k(release)
    assert all(document.labels[0] is splits.labels[2].id for document in splits.train)


def test_what_was_read_can_be_written_and_read_again(folders: Path, descriptors: Path, tmp_path: Path) -> None:
    splits = read_amazon13k(folders, descriptors)
    write_corpus(splits, tmp_path / "corpus")
    again = read_corpus(tmp_path / "corpus")
    assert [list(corpus) for corpus in again] == [list(corpus) for corpus in splits]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_ind": [4]}, r"trn\.json:1: 'target_ind' reaches from 4 to 4; .*Yf\.txt has the names of 0 to 3"),
        ({"target_ind": [-1]}, r"trn\.json:1: 'target_ind' reaches from -1 to -1"),
        ({"target_ind": ["2"]}, r"trn\.json:1: 'target_ind' is \['2'\]; it must be a list of whole numbers"),
        ({"title": 5}, r"trn\.json:1: 'title' is 5; it must be a text"),
        ({"uid": ""}, r"trn\.json:1: the document has an empty id"),
    ],
)
def test_a_bad_line_of_the_raw_release_is_named(release: Path, change: dict[str, Any], message: str) -> None:
    (release / "trn.json.gz").unlink()
    lines(release / "trn.json", raw(1, **change))
    with pytest.raises(BadFile, match=message):
        read_amazon13k(release)


@pytest.mark.parametrize("key", ["title", "content", "target_ind"])
def test_a_missing_key_is_named(release: Path, key: str) -> None:
    value = raw(1)
    del value[key]
    lines(release / "tst.json", value)
    with pytest.raises(BadFile, match=rf"tst\.json:1: the key '{key}' is missing"):
        read_amazon13k(release)


def test_missing_files_are_named(release: Path, folders: Path) -> None:
    with pytest.raises(BadCorpus, match=r"nowhere: no such folder"):
        read_amazon13k(release / "nowhere")
    (release / "Yf.txt").unlink()
    (release / "tst.json").unlink()
    with pytest.raises(BadCorpus, match=r"not there: tst\.json, Yf\.txt or Y\.txt"):
        read_amazon13k(release)
    (release / "trn.json.gz").unlink()
    with pytest.raises(BadCorpus, match=r"no train documents; looked for train/\*\.json, train\.jsonl, trn\.json"):
        read_amazon13k(release)


def test_an_empty_line_among_the_names_is_named(release: Path) -> None:
    (release / "Yf.txt").write_text("home\n\npans\n", encoding="utf-8")
    with pytest.raises(BadFile, match=r"Yf\.txt:2: an empty line"):
        read_amazon13k(release)


def test_the_help_names_source_and_licence() -> None:
    assert "manikvarma.org" in (read_amazon13k.__doc__ or "")
    assert "Licence: none" in " ".join((read_amazon13k.__doc__ or "").split())
