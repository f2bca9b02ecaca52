"""Thresholds: against scikit-learn's curve and a search through all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_recall_curve, precision_score

from labelwise.errors import BadSettings
from labelwise.thresholds import ENOUGH, Point, best_threshold, curve, parse

CHANCES = st.lists(st.tuples(st.integers(1, 40).map(lambda n: n / 40), st.booleans()), min_size=1, max_size=150)


def drawn(size: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    chances = random.beta(0.4, 2, size).astype(np.float32)
    return chances, random.random(size) < chances


@given(CHANCES, st.integers(0, 5))
def test_points_tell_what_happens_above_their_threshold(pairs, unscored):
    chances, right = map(np.array, zip(*pairs, strict=True))
    gold = int(right.sum()) + unscored
    points = curve(chances, right, gold)
    assert bool(points) == right.any()
    for point in points:
        accepted = chances > point.threshold
        assert point.precision == pytest.approx(precision_score(right, accepted))
        assert point.recall * gold == pytest.approx(right[accepted].sum())
        assert right[accepted].sum() >= min(ENOUGH, right.sum())
    assert [point.recall for point in points] == sorted({point.recall for point in points})


def test_the_best_f1_is_nearly_that_of_all_thresholds():
    chances, right = drawn()
    found = best_threshold(curve(chances, right, int(right.sum())), "f1")
    precision, recall, _ = precision_recall_curve(right, chances)
    assert found.f1 == pytest.approx(f1_score(right, chances > found.threshold))
    assert found.f1 == pytest.approx(np.max(2 * precision * recall / (precision + recall)), abs=0.003)


@pytest.mark.parametrize("target", ["precision=0.6", "precision>=.6", "recall=0.6"])
def test_a_target_is_reached_and_the_other_is_nearly_as_high_as_can_be(target):
    chances, right = drawn()
    found = best_threshold(curve(chances, right, int(right.sum())), target)
    reached, other = found[1:] if target.startswith("precision") else found[:0:-1]
    precision, recall, _ = precision_recall_curve(right, chances)
    wanted, best = (precision, recall) if target.startswith("precision") else (recall, precision)
    assert reached >= 0.6
    assert other == pytest.approx(best[wanted >= 0.6].max(), abs=0.01)


def test_a_target_out_of_reach_names_the_best_that_is_not():
    points = [Point(0.5, 0.8, 0.1), Point(0.25, 0.7, 0.6)]
    with pytest.raises(
        BadSettings, match=r"precision=0.9: not reached .* the highest precision is 0.800 .*recall 0.100 above 0.500"
    ):
        best_threshold(points, "precision=0.9")
    with pytest.raises(BadSettings, match="the highest recall is 0.600"):
        best_threshold(points, "recall=0.7")


def test_without_a_right_label_there_is_no_threshold():
    assert curve(np.array([0.5, 0.4]), np.array([False, False]), 3) == []
    with pytest.raises(BadSettings, match="no label that the model scored was right"):
        best_threshold([], "f1")


@pytest.mark.parametrize("target", ["", "f2", "precision", "precision=", "recall=1.5", "recall=-1", "precision=nan", "f1=0.3"])
def test_other_targets_are_refused(target):
    with pytest.raises(BadSettings, match="write f1, precision=0.9, recall=0.8, or a number from 0 to 1"):
        parse(target)
