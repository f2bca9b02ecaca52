"""SPEC 7.1's toy values, networkx as an independent version of the same definition, and properties."""

from itertools import combinations

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labelwise.gap
from labelwise.corpus import Corpus, Document
from labelwise.errors import LabelwiseError
from labelwise.gap import density, gap
from labelwise.hierarchy import Hierarchy
from labelwise.labels import Label, LabelSet

TREE = LabelSet(
    [Label("r", ""), *(Label(c, "", (p,)) for c, p in [("A", "r"), ("B", "r"), ("a1", "A"), ("a2", "A"), ("b1", "B")])]
)
DIAMOND = LabelSet([Label("x", ""), Label("y", ""), Label("u", "", ("x", "y")), Label("v", "", ("x", "y"))])


def gaps(labels: LabelSet, *documents: str, **options) -> list[float]:
    corpus = Corpus([Document(str(n), "", tuple(row.split())) for n, row in enumerate(documents)], labels)
    return gap(corpus.gold(), Hierarchy(labels), **options).tolist()


def test_toy_values_of_a_tree():
    sets = ["a1", "a1 A", "a1 a2", "a1 b1", "a1 a2 b1", "a1 a2 b1 A B"]
    assert gaps(TREE, *sets) == pytest.approx([1, 1, 2 / 3, 2 / 5, 1 / 2, 5 / 6])
    # the tree's own top taken for the root, uncounted
    forest = LabelSet(Label(label.id, "", tuple(p for p in label.parents if p != "r")) for label in TREE if label.id != "r")
    assert gaps(forest, *sets) == pytest.approx([1, 1, 2 / 3, 2 / 5, 1 / 2, 5 / 6])
    assert gaps(forest, *sets, count_root=False) == pytest.approx([1, 1, 2 / 3, 1 / 2, 3 / 5, 1])


def test_toy_values_of_a_diamond():
    assert gaps(DIAMOND, "u v", "u v x", root=False) == pytest.approx([2 / 3, 1])
    assert gaps(DIAMOND, "u v", root=False, paths="union") == pytest.approx([1 / 2])
    other = LabelSet([Label("z", ""), Label("y", ""), Label("u", "", ("z", "y")), Label("v", "", ("z", "y"))])
    assert gaps(other, "u v z", root=False, paths="any") == pytest.approx([3 / 4]), "the first path goes by y, whatever is there"


def test_without_a_root_pairs_with_no_way_between_them_add_nothing():
    assert gaps(LabelSet([Label("a", ""), Label("b", "")]), "a b", root=False) == [1.0]
    assert gaps(LabelSet([Label("a", ""), Label("b", "")]), "a b") == pytest.approx([2 / 3])


def test_documents_without_labels_have_no_gap():
    values = gaps(TREE, "", "a1 a2", "")
    assert np.isnan(values).tolist() == [True, False, True]


def test_exact_is_for_small_documents():
    with pytest.raises(LabelwiseError, match="at most 6 labels a document, this one has 7"):
        gaps(LabelSet(Label(c, "") for c in "abcdefg"), "a b c d e f g", paths="exact")


def test_density_is_the_mean_share_of_labels_in_use():
    corpus = Corpus([Document("1", "", ("a1",)), Document("2", "", ("a1", "a2", "b1"))], TREE)
    assert density(corpus.gold(), 4) == pytest.approx(0.5)


def slow_graph(labels: LabelSet, tops: list[str]) -> networkx.Graph:
    """The hierarchy as an undirected graph, a root above the tops if there are any; its name sorts before every id."""
    graph = networkx.Graph()
    graph.add_nodes_from(labels.ids)
    graph.add_edges_from((label.id, parent) for label in labels for parent in label.parents)
    graph.add_edges_from(("", top) for top in tops)
    return graph


def slow_gap_on(graph: networkx.Graph, gold: list[str]) -> float:
    """The greedy definition, word for word: pairs by distance, then ids; the path with the fewest new nodes, then smallest predecessors."""
    taken = set(gold)
    distances = {label: networkx.single_source_shortest_path_length(graph, label) for label in gold}
    pairs = [(distances[a][b], a, b) for a, b in combinations(sorted(gold), 2) if b in distances[a]]
    for _, a, b in sorted(pairs):
        taken |= set(min(networkx.all_shortest_paths(graph, a, b), key=lambda path: (len(set(path) - taken), path[::-1])))
    return len(gold) / len(taken)


def slow_gap(labels: LabelSet, gold: list[str], root: bool = True) -> float:
    return slow_gap_on(slow_graph(labels, [label.id for label in labels if not label.parents] if root else []), gold)


@st.composite
def annotated(draw: st.DrawFn) -> tuple[LabelSet, list[str]]:
    size = draw(st.integers(2, 9))
    names = draw(st.permutations([f"n{n}" for n in range(size)]))
    parents = [draw(st.sets(st.integers(0, n - 1), max_size=3)) if n else set() for n in range(size)]
    labels = LabelSet(Label(name, "", tuple(names[p] for p in sorted(parents[n]))) for n, name in enumerate(names))
    return labels, draw(st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True))


@given(annotated(), st.booleans())
@settings(max_examples=300)
def test_greedy_is_that_of_networkx(case, root):
    labels, gold = case
    assert gaps(labels, " ".join(gold), root=root) == pytest.approx([slow_gap(labels, gold, root)])


@given(annotated())
def test_no_choice_of_paths_is_smaller_than_exact_or_larger_than_union(case):
    labels, gold = case
    found = {paths: gaps(labels, " ".join(gold), paths=paths)[0] for paths in ("exact", "greedy", "any", "union")}
    assert found["union"] <= found["any"] + 1e-9
    assert found["union"] <= found["greedy"] + 1e-9
    assert max(found["greedy"], found["any"]) <= found["exact"] + 1e-9


def test_blocks_of_documents_give_the_same_values(monkeypatch):
    from labelwise.datasets.worlds import make_world

    splits = make_world(documents=200, labels=80, words=6)
    hierarchy, gold = Hierarchy(splits.labels), splits.train.gold()
    whole = gap(gold, hierarchy)
    monkeypatch.setattr(labelwise.gap, "TABLE_BYTES", 2 * 81 * 12)  # distances from a dozen labels at a time
    assert np.array_equal(gap(gold, hierarchy), whole)
