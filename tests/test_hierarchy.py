import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from toy import LABELS

from labelwise.hierarchy import Hierarchy
from labelwise.labels import Label, LabelSet


@st.composite
def graphs(draw: st.DrawFn) -> LabelSet:
    """Label sets with any parents at all, cycles included."""
    size = draw(st.integers(1, 9))
    parents = [draw(st.sets(st.integers(0, size - 1), max_size=3)) for _ in range(size)]
    return LabelSet(Label(str(n), f"label {n}", tuple(map(str, sorted(p)))) for n, p in enumerate(parents))


def slow_ancestors(labels: LabelSet, id: str) -> set[str]:
    found: set[str] = set()
    todo = list(labels[labels.column(id)].parents)
    while todo:
        parent = todo.pop()
        if parent not in found:
            found.add(parent)
            todo += labels[labels.column(parent)].parents
    return found


def test_a_label_stands_one_level_below_its_deepest_parent():
    assert Hierarchy(LABELS).levels.tolist() == [1, 2, 2, 3, 1, 2, 3, 3]
    assert Hierarchy(LABELS).depth == 3


def test_tops_and_leaves():
    hierarchy = Hierarchy(LABELS)
    assert [LABELS[c].id for c in np.flatnonzero(hierarchy.tops)] == ["animal", "place"]
    assert [LABELS[c].id for c in np.flatnonzero(hierarchy.leaves)] == ["fish", "owl", "duck", "heron"]


def test_closing_adds_every_ancestor(splits):
    closed = splits.closed()
    assert set(closed.train[1].labels) == {"duck", "lake", "bird", "animal", "place"}
    assert closed.train.gold().sum() == sum(len(document.labels) for document in closed.train)


def test_a_cycle_is_named_and_its_labels_share_a_level():
    labels = LabelSet([Label("top", "t"), Label("a", "a", ("b", "top")), Label("b", "b", ("a",)), Label("c", "c", ("b",))])
    hierarchy = Hierarchy(labels)
    assert hierarchy.cycles == [["a", "b", "a"]]
    assert hierarchy.levels.tolist() == [1, 2, 2, 3]


def test_a_label_may_be_its_own_parent_without_harm():
    hierarchy = Hierarchy(LabelSet([Label("a", "a", ("a",))]))
    assert hierarchy.cycles == [["a", "a"]]
    assert hierarchy.levels.tolist() == [1]
    assert hierarchy.neighbours().toarray().tolist() == [[False, True], [True, False]]


@given(graphs())
def test_ancestors_are_those_of_a_walk_upwards(labels: LabelSet):
    hierarchy = Hierarchy(labels)
    matrix = hierarchy.ancestors.toarray()
    for column, label in enumerate(labels):
        found = {labels[c].id for c in np.flatnonzero(matrix[column])}
        assert found == slow_ancestors(labels, label.id) - {label.id}


@given(graphs())
def test_a_hierarchy_has_cycles_exactly_when_some_label_is_its_own_ancestor(labels: LabelSet):
    hierarchy = Hierarchy(labels)
    own = {label.id for label in labels if label.id in slow_ancestors(labels, label.id)}
    assert bool(hierarchy.cycles) == bool(own)
    for cycle in hierarchy.cycles:
        assert cycle[0] == cycle[-1]
        for child, parent in zip(cycle, cycle[1:], strict=False):
            assert parent in labels[labels.column(child)].parents
    assert (hierarchy.levels >= 1).all()
