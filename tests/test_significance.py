"""Randomisation, bootstrap and Holm's correction against exact enumeration and obvious slow versions."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelwise.errors import LabelwiseError
from labelwise.significance import bootstrap, holm, randomisation, randomisations

SCORES = st.one_of(st.floats(0, 1, width=32), st.just(float("nan")))
PAIRS = st.lists(st.tuples(SCORES, SCORES), max_size=40)


def exact_p(a: list[Fraction], b: list[Fraction]) -> Fraction:
    """The p-value over all sign patterns, in whole fractions."""
    differences = [one - other for one, other in zip(a, b, strict=True)]
    observed = abs(sum(differences))
    patterns = list(itertools.product((1, -1), repeat=len(differences)))
    sums = (sum(sign * each for sign, each in zip(signs, differences, strict=True)) for signs in patterns)
    return Fraction(sum(abs(each) >= observed for each in sums), len(patterns))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(6))
def test_randomisation_comes_close_to_all_sign_patterns(seed: int, kind: type) -> None:
    generator = np.random.default_rng(seed)
    a, b = ([Fraction(int(hits), 3) for hits in generator.integers(0, 4, size=9)] for _ in range(2))
    p = float(exact_p(a, b))
    found = randomisation(np.array(a, dtype=kind), np.array(b, dtype=kind), rounds=20_000, seed=seed)
    assert found == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / 20_000) + 1e-9)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sums_that_are_equal_but_for_rounding_count_as_equal(kind: type) -> None:
    # Three differences of a third, each rounded in its own way: no pattern of signs gives a smaller sum than a third.
    a = np.array([1, 2 / 3, 0], dtype=kind)
    b = np.array([2 / 3, 1 / 3, 1 / 3], dtype=kind)
    assert randomisation(a, b) == 1


def test_randomisation_agrees_with_swapping_the_scores_themselves() -> None:
    generator = np.random.default_rng(3)
    a = generator.integers(0, 6, size=60) / 5
    b = np.clip(a + generator.choice([-0.2, 0, 0, 0.2, 0.2], size=60), 0, 1)
    reached = 0
    for _ in range(5000):
        swap = generator.random(60) < 0.5
        one, other = np.where(swap, b, a), np.where(swap, a, b)
        reached += abs(one.mean() - other.mean()) >= abs(a.mean() - b.mean()) - 1e-12
    assert randomisation(a, b) == pytest.approx(reached / 5000, abs=0.03)


@settings(deadline=None)
@given(PAIRS, st.integers(0, 5))
def test_p_is_a_share_and_does_not_depend_on_which_system_comes_first(pairs: list[tuple[float, float]], seed: int) -> None:
    a, b = np.array(pairs, dtype=np.float32).reshape(-1, 2).T
    p = randomisation(a, b, rounds=200, seed=seed)
    assert 0 <= p <= 1
    assert p == randomisation(b, a, rounds=200, seed=seed)


@settings(deadline=None)
@given(st.lists(SCORES, max_size=40))
def test_identical_systems_are_never_told_apart(scores: list[float]) -> None:
    assert randomisation(np.array(scores), np.array(scores), rounds=100) == 1


def test_documents_without_a_score_do_not_count() -> None:
    nan = float("nan")
    a = np.array([0.9, nan, 0.8, 0.7, 0.5, nan])
    b = np.array([0.1, 0.5, 0.2, 0.1, nan, nan])
    assert randomisation(a, b) == pytest.approx(2 / 8, abs=0.03)  # three pairs are left: all plus or all minus
    assert randomisation(np.full(3, nan), np.zeros(3)) == 1


def test_the_same_seed_gives_the_same_p_and_another_seed_another() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.random(200), generator.random(200)
    assert randomisation(a, b, seed=1) == randomisation(a, b, seed=1)
    assert len({randomisation(a, b, seed=seed) for seed in range(5)}) > 1


def test_plus_one_never_gives_zero() -> None:
    a, b = np.ones(60), np.zeros(60)
    assert randomisation(a, b, rounds=999) == 0
    assert randomisation(a, b, rounds=999, plus_one=True) == pytest.approx(1 / 1000)


def test_several_pairs_at_once_get_the_p_values_they_get_alone() -> None:
    generator = np.random.default_rng(0)
    systems = generator.random((4, 1300)) + np.array([[0], [0.01], [0.02], [0.03]])
    pairs = [(systems[0], other) for other in systems[1:]]
    assert randomisations(pairs, rounds=3000).tolist() == [randomisation(a, b, rounds=3000) for a, b in pairs]
    assert len(randomisations([])) == 0


def test_what_cannot_be_paired_is_refused() -> None:
    with pytest.raises(LabelwiseError, match=r"shape \(3,\) and \(4,\) cannot be paired"):
        randomisation(np.zeros(3), np.zeros(4))
    with pytest.raises(LabelwiseError, match="different numbers of documents"):
        randomisations([(np.zeros(3), np.zeros(3)), (np.zeros(4), np.zeros(4))])
    with pytest.raises(LabelwiseError, match="at least 1"):
        randomisation(np.zeros(3), np.zeros(3), rounds=0)


def test_ten_thousand_rounds_on_six_thousand_documents_take_less_than_a_second() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.random(6000), generator.random(6000)
    start = time.process_time()
    randomisation(a, b, rounds=10_000)
    assert time.process_time() - start < 1


def slow_bootstrap(values: np.ndarray, rounds: int) -> tuple[float, float]:
    generator = np.random.default_rng(99)
    means = sorted(float(np.mean(generator.choice(values, size=len(values)))) for _ in range(rounds))
    return means[round(0.025 * rounds)], means[round(0.975 * rounds)]


@pytest.mark.parametrize("distinct", [4, 400], ids=["few distinct values", "all values distinct"])
def test_bootstrap_agrees_with_drawing_documents_again(distinct: int) -> None:
    generator = np.random.default_rng(5)
    values = generator.permutation(np.resize(np.linspace(0, 1, distinct) ** 2, 400))
    values[:40] = values.max()  # not all values come equally often
    error = 0.12 * values.std() / np.sqrt(400)
    with_missing = np.append(values, [np.nan, np.nan])
    assert bootstrap(with_missing, 0.95, 20_000) == pytest.approx(slow_bootstrap(values, 20_000), abs=error)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=60), st.integers(0, 3))
def test_an_interval_is_in_order_and_inside_the_scores(values: list[float], seed: int) -> None:
    low, high = bootstrap(np.array(values), 0.9, 100, seed)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert (low, high) == bootstrap(np.array(values), 0.9, 100, seed)


def test_more_confidence_makes_a_wider_interval() -> None:
    values = np.random.default_rng(0).random(300)
    (low, high), (lower, higher) = bootstrap(values, 0.8), bootstrap(values, 0.99)
    assert lower < low < values.mean() < high < higher


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(LabelwiseError, match="at least one document"):
        bootstrap(np.array([np.nan]))
    with pytest.raises(LabelwiseError, match="between 0 and 1"):
        bootstrap(np.ones(3), confidence=95)


def test_holm_gives_the_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.6]).tolist() == pytest.approx([0.8, 0.8])
    assert holm([0.9, 0.8, 0.7]).tolist() == [1, 1, 1]
    assert holm([]).tolist() == []


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.001, 0.999))
def test_holm_rejects_what_the_step_by_step_rule_rejects(p_values: list[float], level: float) -> None:
    rejected = set()
    for left, number in zip(range(len(p_values), 0, -1), np.argsort(p_values, kind="stable"), strict=True):
        if left * p_values[number] >= level:
            break
        rejected.add(int(number))
    assert {number for number, p in enumerate(holm(p_values)) if p < level} == rejected
