import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from labelwise.errors import BadScores
from labelwise.labels import Label, LabelSet
from labelwise.scores import Scores, at


def label_set(size: int) -> LabelSet:
    return LabelSet(Label(str(n), f"label {n}") for n in range(size))


def scores(values: object, sparse: bool = False) -> Scores:
    matrix = np.array(values, dtype=np.float32)
    return Scores(csr_array(matrix) if sparse else matrix, label_set(matrix.shape[1]))


# Few distinct values, so that ties are the rule.
matrices = arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 7)), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]))


def slow_ranking(row: np.ndarray, among: np.ndarray, k: int, ties: str) -> list[int]:
    sign = -1 if ties == "authors" else 1
    columns = sorted(np.flatnonzero(among).tolist(), key=lambda column: (-row[column], sign * column))
    return (columns + [-1] * k)[:k]


@given(matrices, st.integers(1, 9), st.sampled_from(["authors", "lower_index"]), st.randoms())
def test_ranking_is_that_of_a_plain_sort(values, k, ties, random):
    among = np.array([random.random() < 0.7 for _ in range(values.shape[1])])
    ranked = scores(values).ranking(k, among, ties)
    assert ranked.tolist() == [slow_ranking(row, among, k, ties) for row in values]


@given(matrices, st.integers(1, 9), st.sampled_from([0, 200]))
def test_sparse_ranking_is_the_dense_one_without_the_unscored(values, k, more):
    """Among many labels without a score as well, where another way is quicker."""
    sparse = scores(np.pad(values, ((0, 0), (0, more))), sparse=True).ranking(k)
    for row, ranked in zip(values, sparse, strict=True):
        full = [column for column in slow_ranking(row, np.ones(len(row), bool), len(row), "authors") if row[column] > 0]
        assert ranked.tolist() == (full + [-1] * k)[:k]


def test_equal_scores_fall_to_the_higher_column_by_default():
    assert scores([[0.5, 0.5, 0.1]]).ranking(2).tolist() == [[1, 0]]
    assert scores([[0.5, 0.5, 0.1]]).ranking(2, ties="lower_index").tolist() == [[0, 1]]


def test_negative_zero_ranks_as_zero():
    assert scores([[-0.0, 0.25]]).ranking(2).tolist() == [[1, 0]]


def test_top_gives_labels_above_the_threshold_best_first():
    best = scores([[0.2, 0.9, 0.5]]).top(3, threshold=0.3)
    assert [(label.id, round(score, 3)) for label, score in best[0]] == [("1", 0.9), ("2", 0.5)]
    assert scores([[0.0, 0.4]], sparse=True).top(5)[0][0][0].id == "1"


def test_batches_stack():
    parts = [scores([[0.1, 0.2]], True), scores([[0.0, 0.4]], True)]
    assert Scores.stack(parts).dense() == pytest.approx(np.array([[0.1, 0.2], [0, 0.4]]))


@pytest.mark.parametrize("bad", [float("nan"), -0.1, 1.5, float("inf")])
@pytest.mark.parametrize("sparse", [False, True])
def test_scores_must_be_numbers_from_0_to_1(bad, sparse):
    with pytest.raises(BadScores, match="between 0 and 1"):
        scores([[0.5, bad]], sparse)


def test_the_shape_must_fit_the_label_set():
    with pytest.raises(BadScores, match=r"\(1, 2\) do not fit a label set of 3"):
        Scores(np.zeros((1, 2)), label_set(3))


@given(matrices, st.data())
def test_entries_are_the_same_dense_and_sparse_in_order_and_out_of_it(matrix, data):
    places = st.tuples(*(st.integers(0, size - 1) for size in matrix.shape))
    chosen = np.array(data.draw(st.lists(places, max_size=20)), dtype=np.int64).reshape(-1, 2)
    ordered = csr_array(matrix)
    turned = csr_array((ordered.data[::-1], ordered.indices[::-1], len(ordered.data) - ordered.indptr[::-1]), shape=matrix.shape)
    for rows, columns in (chosen.T, chosen.astype(np.int32).T):
        expected = matrix[rows, columns]
        np.testing.assert_array_equal(at(matrix, rows, columns), expected)
        np.testing.assert_array_equal(at(ordered, rows, columns), expected)
        np.testing.assert_array_equal(at(turned, matrix.shape[0] - 1 - rows, columns), expected)
        assert at(ordered, rows, columns).dtype == matrix.dtype
