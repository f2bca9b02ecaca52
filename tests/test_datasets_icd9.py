"""ICD-9-CM: tables without gaps or overlaps, parents by structure and by edge list, names for what has no title."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from labelwise.datasets.icd9 import BLOCKS, CHAPTERS, NAMES, categories, parent
from labelwise.datasets.icd9_labels import code_labels, read_edges
from labelwise.errors import BadFile
from labelwise.hierarchy import Hierarchy
from labelwise.labels import LabelSet

DIAGNOSES = [f"D-{number:03}" for number in range(1, 1000)]
DIAGNOSES += [f"D-V{number:02}" for number in range(1, 92)] + [f"D-E{number:03}" for number in range(1000)]
PROCEDURES = [f"P-{number:02}" for number in range(100)]


def covered(table: dict[str, str]) -> Counter[str]:
    return Counter(category for id in table for category in categories(id))


def path_up(id: str | None) -> list[str]:
    return [id, *path_up(parent(id))] if id else []


def test_every_category_is_in_one_chapter_and_at_most_one_block() -> None:
    assert covered(CHAPTERS) == Counter(DIAGNOSES + PROCEDURES)
    assert max(covered(BLOCKS).values()) == 1


def test_every_block_lies_inside_one_chapter() -> None:
    homes = {category: chapter for chapter in CHAPTERS for category in categories(chapter)}
    for block in BLOCKS:
        assert {homes[category] for category in categories(block)} == {parent(block)}


def test_chapters_and_blocks_have_ids_and_names_of_their_own() -> None:
    assert len(NAMES) == len(CHAPTERS) + len(BLOCKS)
    assert (len(CHAPTERS), sum(id.startswith("P-") for id in CHAPTERS)) == (37, 18)
    assert len(set(NAMES.values())) == len(NAMES)
    assert all(name == name.strip() and len(name) > 3 for name in NAMES.values())


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("D-40201", "D-40201 D-4020 D-402 D-401-405 D-390-459"),
        ("D-V1582", "D-V1582 D-V158 D-V15 D-V10-V19 D-V01-V91"),
        ("D-E8790", "D-E8790 D-E879 D-E878-E879 D-E000-E999"),
        ("P-3893", "P-3893 P-389 P-38 P-35-39"),
        ("D-2859", "D-2859 D-285 D-280-289"),  # the chapter has no blocks
        ("D-400", "D-400 D-390-459"),  # between two blocks
        ("D-042", "D-042 D-001-139"),  # a block of one category
        ("P-0066", "P-0066 P-006 P-00"),  # a chapter of one category
        ("D-000", "D-000"),
        ("D-0001", "D-0001"),
        ("D-XYZ", "D-XYZ"),
    ],
)
def test_the_form_of_a_code_gives_its_parents(code: str, path: str) -> None:
    assert path_up(code) == path.split()


def labels_of(titles: dict[str, str], edges: Path | None = None) -> LabelSet:
    return code_labels(titles, NAMES, edges)


def test_everything_above_a_titled_code_becomes_a_label_in_order_of_ids() -> None:
    labels = labels_of({"P-3893": "venous catheterization", "D-4019": "hypertension nos"})
    assert labels.ids == ("D-390-459", "D-401", "D-401-405", "D-4019", "P-35-39", "P-38", "P-389", "P-3893")
    assert labels[labels.column("D-401-405")].name == "Hypertensive disease"
    assert Hierarchy(labels).depth == 4


def test_nodes_between_are_named_by_title_then_shared_words_then_code() -> None:
    titles = {
        "D-1620": "malignant neoplasm of trachea",
        "D-1622": "malignant neoplasm of main bronchus",
        "D-40200": "heart disease malignant",
        "D-40201": "heart disease benign",
        "D-4021": "other",
        "D-403": "kidney disease",
        "D-40300": "chronic kidney disease",
    }
    labels = labels_of(titles)
    named = {label.id: label.name for label in labels}
    assert named["D-162"] == "malignant neoplasm"  # not "malignant neoplasm of"
    assert named["D-4020"] == "heart disease"
    assert named["D-402"] == "402"
    assert named["D-403"] == "kidney disease"
    assert named["D-4030"] == "chronic kidney disease"


def test_diagnoses_and_procedures_with_the_same_digits_stay_apart() -> None:
    labels = labels_of({"D-4011": "benign hypertension", "P-4011": "biopsy of lymph node"})
    assert {label.name for label in labels if label.id in ("D-401", "P-401")} == {"benign hypertension", "biopsy of lymph node"}


TITLES = {"D-4019": "hypertension", "D-42731": "atrial fibrillation", "P-3893": "catheterization"}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "edges.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("separator", ["\t", ",", " ", ", "])
@pytest.mark.parametrize(
    "lines",
    [
        ["D-4019 D-401", "D-401 D-390-459", "P-3893 P-38"],
        ["401.9 401", "401 390-459.99", "38.93 38"],
        ["401 401.9", "390-459.99 401", "38 38.93"],
        ["child parent", "4019 401", "401 390-459", "3893 38"],
        ["parent child", "401 4019", "390-459 401", "38 3893"],
    ],
    ids=["prefixed", "dotted", "parent first", "heading", "heading, parent first"],
)
def test_edge_lists_of_every_manner_say_the_same(tmp_path: Path, lines: list[str], separator: str) -> None:
    path = written(tmp_path, "\n".join(line.replace(" ", separator) for line in lines) + "\n\n")
    assert read_edges(path, TITLES) == {"D-4019": ("D-401",), "D-401": ("D-390-459",), "P-3893": ("P-38",)}


def test_listed_parents_win_and_the_structure_fills_in_the_rest(tmp_path: Path) -> None:
    labels = labels_of(
        TITLES, written(tmp_path, "401.9 401\n401 390-459.99\n401 780-799.99\n390-459.99 001-999.99\n001-999.99 @\n")
    )
    parents = {label.id: label.parents for label in labels}
    assert parents["D-401"] == ("D-390-459", "D-780-799")
    assert parents["D-390-459"] == ("D-001-999",)
    assert parents["D-001-999"] == ()
    assert parents["D-780-799"] == ()
    assert parents["D-427"] == ("D-420-429",)
    assert parents["P-38"] == ("P-35-39",)
    assert "D-@" not in labels


def test_a_range_that_begins_with_a_code_is_not_taken_for_its_child(tmp_path: Path) -> None:
    assert read_edges(written(tmp_path, "401 401-405\n"), TITLES) == {"D-401": ("D-401-405",)}


def test_a_range_of_one_category_is_that_category(tmp_path: Path) -> None:
    labels = labels_of({"D-042": "hiv"}, written(tmp_path, "042 042-042.99\n042-042.99 001-139.99\n"))
    assert {label.id: label.parents for label in labels} == {"D-001-139": (), "D-042": ("D-001-139",)}
    assert labels_of({"D-042": "hiv"}, written(tmp_path, "042 042-042.99\n")) == labels


def test_codes_of_the_list_without_a_titled_code_below_are_left_out(tmp_path: Path) -> None:
    labels = labels_of({"D-4019": "hypertension"}, written(tmp_path, "401.9 401\n999.9 999\n3893 389\n"))
    assert labels.ids == ("D-390-459", "D-401", "D-401-405", "D-4019")


def test_a_list_of_diagnoses_alone_settles_what_could_be_either(tmp_path: Path) -> None:
    titles = {"D-0331": "whooping cough", "P-0331": "spinal tap"}
    path = written(tmp_path, "0331 033\n033 030-041\n")
    assert read_edges(path, titles) == {"D-0331": ("D-033",), "D-033": ("D-030-041",)}
    with pytest.raises(BadFile, match=r"edges\.txt:1: '0331' may be a diagnosis or a procedure; write D- or P- before it"):
        read_edges(written(tmp_path, "0331 033\n033 030-041\n38.93 38\n"), titles)


def test_a_cycle_in_the_list_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="cycle: D-401 → D-402 → D-401"):
        labels_of({"D-4019": "hypertension"}, written(tmp_path, "401.9 401\n401 402\n402 401\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("401.9 401\n401 401-405 390-459\n", r"edges\.txt:2: 3 columns; each line must hold two"),
        ("401.9\n", r"edges\.txt:1: 1 columns"),
        ("D-4019 P-401\n", r"edges\.txt:1: of 'D-4019' and 'P-401' one is a diagnosis, the other a procedure"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadFile, match=message):
        read_edges(written(tmp_path, text), TITLES)


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"none\.txt: no such file"):
        read_edges(tmp_path / "none.txt", TITLES)
