"""Descriptor files: two shapes, parents that are unknown, circular or more than direct."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.datasets.descriptors import read_descriptors, shortcuts, without_parents
from labelwise.errors import BadFile
from labelwise.hierarchy import Hierarchy
from labelwise.labels import Label, LabelSet


def entry(label: str, *parents: str) -> dict[str, Any]:
    return {"concept_id": "any", "label": label, "alt_labels": [], "parents": list(parents)}


def write(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def test_an_object_by_id_is_read_in_file_order(tmp_path: Path) -> None:
    value = {
        "9": {"concept_id": "9", "label": "fruit", "alt_labels": ["fruits", "fruits"], "parents": None},
        "1": {"concept_id": "1", "label": "apple", "parents": ["9", "9"]},
    }
    assert list(read_descriptors(write(tmp_path / "d.json", value))) == [
        Label("9", "fruit", synonyms=("fruits",)),
        Label("1", "apple", parents=("9",)),
    ]


def test_one_object_a_line_is_read_too(tmp_path: Path) -> None:
    path = write(tmp_path / "eurovoc_concepts.jsonl", '{"id": "9", "title": "fruit"}\n\n{"id": "1", "title": "apple"}\n')
    assert list(read_descriptors(path)) == [Label("9", "fruit"), Label("1", "apple")]


def test_unknown_parents_are_named_and_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", {"a": entry("A", "x", "b"), "b": entry("B", "y")})
    with pytest.warns(UserWarning, match=r"d\.json: 2 parents are not in the file \(x; y\)"):
        labels = read_descriptors(path)
    assert [label.parents for label in labels] == [("b",), ()]


def test_cycles_are_warned_of(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", {"a": entry("A", "b"), "b": entry("B", "a")})
    with pytest.warns(UserWarning, match="a → b → a"):
        read_descriptors(path)


def test_a_parent_above_another_parent_is_warned_of_or_taken_out(tmp_path: Path) -> None:
    closed = {"top": entry("T"), "middle": entry("M", "top"), "low": entry("L", "middle", "top")}
    path = write(tmp_path / "d.json", closed)
    with pytest.warns(UserWarning, match=r"1 labels have a parent that is also an ancestor of another parent \(low → top\)"):
        kept = read_descriptors(path)
    assert kept[2].parents == ("middle", "top")
    assert read_descriptors(path, reduce=True)[2].parents == ("middle",)


def test_two_parents_of_different_branches_are_no_shortcut(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", {"one": entry("1"), "two": entry("2"), "low": entry("L", "one", "two")})
    assert read_descriptors(path)[2].parents == ("one", "two")


graphs = st.integers(2, 8).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, size - 1), max_size=4, unique=True), min_size=size, max_size=size)
)


def label_set(graph: list[list[int]]) -> LabelSet:
    return LabelSet(Label(str(node), "", tuple(map(str, above))) for node, above in enumerate(graph))


@given(graphs)
def test_reduction_keeps_all_ancestors_even_in_cycles(graph: list[list[int]]) -> None:
    labels = label_set(graph)
    reduced = without_parents(labels, dict(shortcuts(labels)))
    before, after = Hierarchy(labels).ancestors, Hierarchy(reduced).ancestors
    assert (before != after).nnz == 0


@given(graphs)
def test_without_cycles_the_reduction_is_that_of_networkx(graph: list[list[int]]) -> None:
    acyclic = [[parent for parent in above if parent < node] for node, above in enumerate(graph)]
    labels = label_set(acyclic)
    reduced = without_parents(labels, dict(shortcuts(labels)))
    edges = [(node, parent) for node, above in enumerate(acyclic) for parent in above]
    oracle = networkx.DiGraph(edges)
    assert {(int(label.id), int(parent)) for label in reduced for parent in label.parents} == set(
        networkx.transitive_reduction(oracle).edges
    )


def test_a_chain_that_is_closed_becomes_a_chain_again() -> None:
    closed = label_set([list(range(node)) for node in range(6)])
    reduced = without_parents(closed, dict(shortcuts(closed)))
    assert [label.parents for label in reduced] == [(), ("0",), ("1",), ("2",), ("3",), ("4",)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.json", "{", r"d\.json:1: not JSON"),
        ("d.json", "{}", r"d\.json: no labels in it"),
        ("d.json", {"a": "apple"}, r"d\.json: label 'a' is a str; it must be an object"),
        ("d.json", {"a": {"name": "apple"}}, r"d\.json: label 'a': the key 'label' is missing"),
        ("d.json", {"a": {"label": 3}}, r"d\.json: label 'a': 'label' is 3; it must be a text"),
        ("d.json", {"a": {"label": "apple", "parents": "b"}}, r"label 'a': 'parents' is 'b'; it must be a list of texts"),
        ("d.json", '{"a": {"label": "x"}, "a": {"label": "y"}}', r"d\.json: the key 'a' occurs twice"),
        ("d.json", {"": {"label": "x"}}, r"label id '' is empty"),
        ("d.jsonl", '{"id": "a", "title": "x"}\n{"id": "a", "title": "y"}', r"d\.jsonl:2: label id 'a' occurs twice"),
        ("d.jsonl", '{"title": "x"}', r"d\.jsonl:1: the key 'id' is missing"),
    ],
)
def test_a_bad_descriptor_file_is_named(tmp_path: Path, name: str, content: Any, message: str) -> None:
    with pytest.raises(BadFile, match=message):
        read_descriptors(write(tmp_path / name, content))
