"""Reliability: against scikit-learn, and on samples whose truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from labelwise.reliability import Reliability, calibration_error

PAIRS = st.lists(st.tuples(st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.77, 1.0]) | st.floats(0, 1), st.booleans()), min_size=1)


def sample(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities as they are usual, mostly low, and what came true by them."""
    random = np.random.default_rng(seed)
    probabilities = random.beta(0.3, 2, size)
    return probabilities, random.random(size) < probabilities


def test_bins_are_those_of_scikit_learn():
    probabilities, right = sample(5000)
    true, promised = calibration_curve(right, probabilities, n_bins=10)
    assert [(one.right, one.probability) for one in Reliability.of(probabilities, right).bins] == [
        (pytest.approx(t), pytest.approx(p)) for t, p in zip(true, promised, strict=True)
    ]


def test_the_error_is_that_of_scikit_learns_equal_masses():
    probabilities, right = sample(1500)
    true, promised = calibration_curve(right, probabilities, n_bins=15, strategy="quantile")
    assert calibration_error(probabilities, right) == pytest.approx(np.abs(true - promised).mean())


def test_the_brier_score_is_that_of_scikit_learn():
    probabilities, right = sample(500)
    assert Reliability.of(probabilities, right).brier == pytest.approx(brier_score_loss(right, probabilities))


def test_probabilities_that_come_true_have_an_error_near_0():
    assert calibration_error(*sample(200_000)) < 0.003


def test_promising_too_much_is_an_error_of_that_size():
    probabilities, right = sample(200_000)
    assert calibration_error(np.minimum(probabilities + 0.2, 1), right) == pytest.approx(0.19, abs=0.015)


@given(PAIRS, st.randoms())
def test_order_does_not_matter_and_all_lies_between_0_and_1(pairs, random):
    found = Reliability.of(*map(np.array, zip(*pairs, strict=True)))
    random.shuffle(pairs)
    again = Reliability.of(*map(np.array, zip(*pairs, strict=True)))
    assert found.error == pytest.approx(again.error, abs=1e-12)
    assert 0 <= found.error <= 1
    assert 0 <= found.brier <= 1
    assert sum(one.pairs for one in found.bins) == len(pairs)
