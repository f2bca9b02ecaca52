"""Boosted trees against scikit-learn's and a slow version."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from labelwise.methods import boosting
from labelwise.methods.boosting import boost


def rows_and_hits(size: int, seed: int = 1):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(size, 4)).astype(np.float32)
    logits = 2 * rows[:, 0] * (rows[:, 1] > 0) + rows[:, 2] - 1
    return rows, random.random(size) < 1 / (1 + np.exp(-logits))


def loss(logits: np.ndarray, hits: np.ndarray) -> float:
    return float(np.mean(np.logaddexp(0, logits) - hits * logits))


def test_rows_that_trees_have_not_seen_are_judged_as_well_as_by_scikit_learn():
    rows, hits = rows_and_hits(20_000)
    trees = boost(rows[:10_000], hits[:10_000], np.zeros(10_000), 100)
    other = HistGradientBoostingClassifier(early_stopping=False).fit(rows[:10_000], hits[:10_000])
    assert loss(trees(rows[10_000:]), hits[10_000:]) < loss(other.decision_function(rows[10_000:]), hits[10_000:]) + 0.003


def test_they_add_to_what_is_known_beforehand():
    rows, hits = rows_and_hits(4000)
    known = 2 * rows[:, 0] * (rows[:, 1] > 0) + rows[:, 2] - 1
    added = boost(rows, hits, known, 20)(rows)
    assert np.abs(added).mean() < 0.15
    assert loss(known + added, hits) < loss(known, hits)


def test_a_row_is_asked_what_the_tree_was_grown_by(monkeypatch):
    """One tree, one question: the best split of all, found by trying every one."""
    monkeypatch.setattr(boosting, "QUESTIONS", 1)
    monkeypatch.setattr(boosting, "SHARE", 1.0)
    rows, hits = rows_and_hits(60)
    trees, slopes = boost(rows, hits, np.zeros(60), 1), hits - 0.5
    best = 0.0
    for feature in range(4):
        for edge in np.sort(rows[:, feature])[:-1]:
            above = rows[:, feature] > edge
            gain = sum(slopes[side].sum() ** 2 / (0.25 * side.sum() + boosting.SPARE) for side in (above, ~above))
            best = max(best, gain)
    above = rows[:, trees.features[0, 0]] > trees.edges[0, 0]
    found = sum(slopes[side].sum() ** 2 / (0.25 * side.sum() + boosting.SPARE) for side in (above, ~above))
    assert found == pytest.approx(best)
    expected = boosting.RATE * slopes[above].sum() / (0.25 * above.sum() + boosting.SPARE)
    assert trees(rows)[above] == pytest.approx(expected, rel=1e-5)


def test_the_same_rows_give_the_same_trees_and_a_feature_that_never_changes_is_no_trouble():
    rows, hits = rows_and_hits(500)
    rows[:, 3] = 7
    for one, other in zip(boost(rows, hits, np.zeros(500), 5), boost(rows, hits, np.zeros(500), 5), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_number_of_threads_changes_nothing():
    rows, hits = rows_and_hits(3000)
    alone, several = (boost(rows, hits, np.zeros(3000), 10, threads=threads) for threads in (1, 8))
    for one, other in zip(alone, several, strict=True):
        np.testing.assert_array_equal(one, other)


def test_each_tree_is_grown_on_another_half_of_the_rows(monkeypatch):
    rows, hits = rows_and_hits(200)
    drawn, slopes_of = [], boosting._slopes

    def slopes(logits, hits):
        drawn.append(frozenset(np.round(1e6 * logits).astype(int).tolist()))
        return slopes_of(logits, hits)

    monkeypatch.setattr(boosting, "_slopes", slopes)
    monkeypatch.setattr(boosting, "RATE", 0.0)  # so that log-odds go on telling which row is which
    boost(rows, hits, np.arange(200) / 1e6, 3)
    assert len(set(drawn)) == 3
    assert all(60 < len(one) < 140 for one in drawn)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_handful_of_rows_is_no_trouble(size):
    rows, hits = rows_and_hits(size)
    assert np.isfinite(boost(rows, hits, np.zeros(size), 20)(rows)).all()
