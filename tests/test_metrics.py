"""SPEC 9.3's toy values; properties; scikit-learn for the decision measures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from labelwise import metrics
from labelwise.errors import UnknownName

GOLD = np.array([[1, 0, 1, 0, 0, 1], [0, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0]])
SCORES = np.array([[0.9, 0.8, 0.1, 0.7, 0.2, 0.6], [0.3, 0.2, 0.5, 0.1, 0.4, 0.0], [0.6, 0.5, 0.4, 0.3, 0.2, 0.1]])


def ranked(gold: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-scores, axis=1)
    return np.take_along_axis(gold, order, axis=1), gold.sum(axis=1)


@pytest.mark.parametrize(
    ("name", "k", "expected"),
    [
        ("p", 5, [0.4, 0.2, 0.8]),
        ("r", 5, [0.666667, 1, 1]),
        ("rp", 5, [0.666667, 1, 1]),
        ("ndcg", 5, [0.671386, 0.430677, 1]),
        ("p", 3, [0.333333, 0, 1]),
        ("r", 3, [0.333333, 0, 0.75]),
        ("rp", 3, [0.333333, 0, 1]),
        ("ndcg", 3, [0.469279, 0, 1]),
        ("ndcg", 2, [0.613147, 0, 1]),
    ],
)
def test_toy_values(name: str, k: int, expected: list[float]):
    assert metrics.RANKING[name](*ranked(GOLD, SCORES), k) == pytest.approx(expected, abs=1e-6)


def test_toy_values_inside_a_group():
    inside = GOLD[:, 3:].sum(axis=1) > 0
    assert inside.tolist() == [True, False, True]
    found, gold = ranked(GOLD[inside, 3:], SCORES[inside, 3:])
    assert metrics.precision(found, gold, 2) == pytest.approx([0.5, 0.5])
    assert metrics.r_precision(found, gold, 2) == pytest.approx([1, 1])
    assert metrics.ndcg(found, gold, 2) == pytest.approx([0.630930, 1], abs=1e-6)


def test_precision_divides_by_k_even_when_there_are_fewer_labels():
    assert metrics.precision(np.array([[1, 1]]), np.array([2]), 5) == pytest.approx([0.4])
    assert metrics.ndcg(np.array([[1, 1]]), np.array([2]), 5) == pytest.approx([1.0])


relevances = arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 8)))


@given(relevances, st.integers(1, 10), st.integers(0, 4))
def test_measures_lie_between_0_and_1_and_agree_where_they_must(found, k, missed):
    gold = found.sum(axis=1) + missed
    found, gold = found[gold > 0], gold[gold > 0]
    for function in metrics.RANKING.values():
        values = function(found, gold, k)
        assert ((values >= 0) & (values <= 1 + 1e-12)).all()
    small = gold <= k
    assert metrics.r_precision(found, gold, k)[small] == pytest.approx(metrics.recall(found, gold, k)[small])
    assert metrics.r_precision(found, gold, k)[~small] == pytest.approx(metrics.precision(found, gold, k)[~small])


decisions = arrays(bool, st.tuples(st.integers(1, 6), st.integers(2, 5)))


@given(st.data())
def test_f1_is_scikit_learns(data):
    from sklearn.metrics import precision_recall_fscore_support

    gold = data.draw(decisions)
    predicted = data.draw(arrays(bool, gold.shape))
    counts = (gold & predicted).sum(axis=0), predicted.sum(axis=0), gold.sum(axis=0)
    for average, function in metrics.DECISION.items():
        expected = precision_recall_fscore_support(gold, predicted, average=average, zero_division=0)[:3]
        assert function(*counts) == pytest.approx(expected)


def test_names_take_a_cut_off():
    assert metrics.parse("nDCG@10") == ("ndcg", 10)
    assert metrics.parse("rp") == ("rp", None)
    assert metrics.parse("macro-f1") == ("macro-f1", None)


@pytest.mark.parametrize("name", ["ndgc@5", "rp@0", "micro-f1@5", "", "rp@-1"])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(UnknownName, match="there is no metric .*known: p, r, rp, ndcg"):
        metrics.parse(name)


def test_every_measure_has_a_meaning():
    assert set(metrics.names()) >= {"p@k", "ndcg@k", "weighted-r", "macro-f1"}
    assert all(text and len(text) > 20 for text in metrics.names().values())
