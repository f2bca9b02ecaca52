import numpy as np
import pytest
from toy import LABELS

from labelwise.errors import BadHierarchy, LabelwiseError, UnknownLabel
from labelwise.labels import Label, LabelSet


def test_columns_follow_the_order_of_the_file():
    assert LABELS.index(["animal", "heron", "bird"]).tolist() == [0, 7, 1]
    assert LABELS[3].id == "owl"
    assert "owl" in LABELS
    assert "cow" not in LABELS
    assert LABELS[3] in LABELS


def test_an_unknown_id_is_named_with_the_closest_known_one():
    with pytest.raises(UnknownLabel, match=r"'hern' is not in the label set \(8 labels\); did you mean 'heron'\?"):
        LABELS.column("hern")


def test_parents_are_ones_from_child_to_parent():
    parents = LABELS.parents().toarray()
    assert parents.sum() == 7
    assert parents[LABELS.column("duck")].nonzero()[0].tolist() == [1, 5]


def test_a_parent_listed_twice_is_one_parent():
    twice = LabelSet([Label("a", "a"), Label("b", "b", ("a", "a"))])
    assert twice.parents().toarray().tolist() == [[0, 0], [1, 0]]


def test_extending_leaves_old_columns_where_they_are():
    longer = LABELS.extended([Label("cow", "cows", ("animal",))])
    assert np.array_equal(longer.index(LABELS.ids), np.arange(8))
    assert longer.column("cow") == 8


def test_ids_must_be_unique():
    with pytest.raises(LabelwiseError, match="label id 'a' occurs twice"):
        LabelSet([Label("a", "x"), Label("b", "x"), Label("a", "y")])


def test_an_unknown_parent_is_named():
    with pytest.raises(
        BadHierarchy, match=r"label 'owl' has the parent 'brid', which is not in the label set; did you mean 'bird'"
    ):
        LabelSet([Label("bird", "b"), Label("owl", "o", ("brid",))])


def test_label_sets_are_equal_by_content():
    assert LabelSet(list(LABELS)) == LABELS
    assert hash(LabelSet(list(LABELS))) == hash(LABELS)
    assert LabelSet(list(LABELS)[:3]) != LABELS
