"""Trees, solver and beam search against obvious slow versions and scikit-learn's LinearSVC."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from labelwise.datasets.worlds import make_world
from labelwise.features.tfidf import Tfidf, TfidfSettings
from labelwise.trees.clustering import balanced_tree, label_vectors, wide_tree
from labelwise.trees.model import TreeModel, predict, train_tree
from labelwise.trees.tree import LabelTree


@pytest.fixture(scope="module")
def data() -> tuple[csr_array, csr_array]:
    splits = make_world(documents=600, labels=120, words=40)
    return Tfidf(TfidfSettings(ngrams=1)).fit_transform(d.text for d in splits.train), splits.train.gold()


def random_data(seed: int, documents: int, features: int, labels: int) -> tuple[csr_array, csr_array]:
    random = np.random.default_rng(seed)
    dense = random.random((documents, features)) * (random.random((documents, features)) < 0.3)
    dense[np.arange(documents), random.integers(0, features, documents)] = 1  # no empty row
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    gold = random.random((documents, labels)) < 0.3
    gold[np.arange(documents), random.integers(0, labels, documents)] = True
    return csr_array(dense.astype(np.float32)), csr_array(gold)


def flat(labels: int) -> LabelTree:
    return LabelTree((np.zeros(labels, dtype=np.int32),), np.arange(labels, dtype=np.int32))


# Clustering


@given(st.integers(0, 5), st.integers(1, 70), st.integers(1, 20), st.sampled_from([2, 4, 16]))
@settings(max_examples=40)
def test_balanced_trees_hold_every_label_once_in_parts_that_differ_by_one(seed, labels, max_leaf, branching):
    features, gold = random_data(seed, 40, 30, labels)
    seen = np.unique(gold.indices)
    tree = balanced_tree(label_vectors(features, gold), max_leaf=max_leaf, branching=branching, seed=seed)
    assert sorted(tree.labels.tolist()) == seen.tolist()
    sizes = np.bincount(tree.parents[-1])
    assert sizes.max() <= max_leaf
    assert len(tree.parents) == 1 or sizes.max() - sizes.min() <= 1
    assert all(np.bincount(level).max() <= branching for level in tree.parents[:-1])


@given(st.integers(0, 5), st.integers(1, 70), st.integers(2, 12), st.integers(1, 4))
@settings(max_examples=40)
def test_wide_trees_hold_every_label_once_and_no_single_label_where_it_can_be_helped(seed, labels, k, depth):
    features, gold = random_data(seed, 40, 30, labels)
    tree = wide_tree(label_vectors(features, gold), k=k, depth=depth, seed=seed)
    assert sorted(tree.labels.tolist()) == np.unique(gold.indices).tolist()
    assert tree.depth <= depth
    assert all(np.bincount(level).max() <= k for level in tree.parents[:-1])
    sizes = np.bincount(tree.parents[-1])
    assert (sizes > 0).all()
    assert depth == 1 or len(sizes) == 1 or (sizes > 1).sum() >= (sizes == 1).sum()


@pytest.mark.parametrize("seed", range(5))
def test_labels_of_wide_trees_are_in_the_cluster_with_the_nearest_centre(data, seed):
    vectors = label_vectors(*data)
    tree = wide_tree(vectors, k=5, seed=seed)
    cluster = np.zeros(vectors.shape[0], dtype=int)
    cluster[tree.labels] = tree.parents[-1]
    centres = np.stack([vectors[tree.labels[tree.parents[-1] == number]].toarray().sum(axis=0) for number in np.unique(cluster)])
    near = vectors[tree.labels] @ (centres / np.linalg.norm(centres, axis=1, keepdims=True)).T
    assert len(centres) >= 4
    assert np.mean(near.argmax(axis=1) == cluster[tree.labels]) > 0.95  # the last labels to move have moved the centres


def test_labels_of_the_same_documents_end_up_together():
    features = csr_array(np.eye(4, dtype=np.float32).repeat(5, axis=0))
    gold = csr_array(np.kron(np.eye(4, dtype=bool), np.ones((5, 3), dtype=bool)))
    tree = balanced_tree(label_vectors(features, gold), max_leaf=3, seed=1)
    leaves = [set(tree.labels[tree.parents[-1] == leaf].tolist()) for leaf in range(4)]
    assert sorted(map(sorted, leaves)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_the_tree_does_not_depend_on_threads(data):
    vectors = label_vectors(*data)
    for make in (lambda n: balanced_tree(vectors, max_leaf=10, threads=n), lambda n: wide_tree(vectors, k=10, threads=n)):
        one, two = make(1), make(2)
        assert one.labels.tolist() == two.labels.tolist()
        assert all((a == b).all() for a, b in zip(one.parents, two.parents, strict=True))


def test_a_chain_of_cluster_matrices_is_a_tree():
    chain = [csc_array(np.array([[1], [1]])), csc_array(np.array([[0, 1], [1, 0], [0, 1]])), csc_array(np.eye(3)[[2, 0, 1, 0]])]
    tree = LabelTree.from_chain(chain)
    assert [level.tolist() for level in tree.parents] == [[0, 0], [0, 1, 1], [0, 1, 1, 2]]
    assert tree.labels.tolist() == [2, 1, 3, 0]


# Solver


@given(st.integers(0, 30))
@settings(max_examples=15)
def test_weights_are_those_of_linear_svc(seed):
    features, gold = random_data(seed, 30, 12, 3)
    features = csr_array(
        np.hstack([features.toarray(), np.eye(30)[:, :20] * 0.5]).astype(np.float32)
    )  # features of one document each
    model = train_tree(features, gold, flat(3), eps=1e-5, passes=3000, threshold=0.0)
    with_bias = np.hstack([features.toarray(), np.ones((30, 1))])
    for label in range(3):
        truth = gold.toarray()[:, label]
        if truth.all() or not truth.any():
            continue
        oracle = LinearSVC(loss="squared_hinge", dual=True, C=1, tol=1e-8, max_iter=100_000, fit_intercept=False).fit(
            with_bias, truth
        )
        ours = np.zeros(features.shape[1] + 1)
        for feature, weight in model.weights(0, label + 1).items():
            ours[feature] = weight
        ours[-1] = model.bias[label + 1]
        assert ours == pytest.approx(oracle.coef_[0], abs=2e-3)


@given(st.integers(0, 30))
@settings(max_examples=5)
def test_rare_labels_that_are_done_one_after_the_other_get_the_weights_of_linear_svc(seed):
    features, _ = random_data(seed, 60, 40, 1)
    random = np.random.default_rng(seed)
    gold = np.zeros((60, 30), dtype=bool)
    for label in range(30):
        gold[random.choice(60, 1 + label // 5, replace=False), label] = True
    gold[~gold.any(axis=1), 29] = True  # documents without a label take no part in training
    model = train_tree(features, csr_array(gold), flat(30), eps=1e-5, passes=3000, threshold=0.0)
    for label in range(30):
        oracle = LinearSVC(dual=True, tol=1e-8, max_iter=100_000, fit_intercept=False)
        oracle.fit(np.hstack([features.toarray(), np.ones((60, 1))]), gold[:, label])
        weights = model.weights(0, label + 1)
        ours = [*(weights.get(feature, 0.0) for feature in range(40)), model.bias[label + 1]]
        assert ours == pytest.approx(oracle.coef_[0], abs=2e-3)


@given(st.integers(0, 30), st.sampled_from([0.3, 1.0, 20.0]))
@settings(max_examples=12)
def test_logistic_weights_are_those_of_logistic_regression(seed, cost):
    features, gold = random_data(seed, 40, 10, 2)
    features = csr_array(np.hstack([features.toarray(), np.eye(40)[:, :15] * 0.5]).astype(np.float32))
    model = train_tree(features, gold, flat(2), C=cost, eps=1e-4, passes=3000, threshold=0.0, logistic=True)
    with_bias = np.hstack([features.toarray(), np.ones((40, 1))])
    for label in range(2):
        oracle = LogisticRegression(C=cost, tol=1e-9, max_iter=10_000, fit_intercept=False).fit(
            with_bias, gold.toarray()[:, label]
        )
        ours = np.zeros(features.shape[1] + 1)
        for feature, weight in model.weights(0, label + 1).items():
            ours[feature] = weight
        ours[-1] = model.bias[label + 1]
        assert ours == pytest.approx(oracle.coef_[0], abs=5e-3)
    scores = model.predict(features, power=0).toarray()
    assert scores == pytest.approx(oracle_scores(model, with_bias), abs=1e-4)


def oracle_scores(model: TreeModel, rows: np.ndarray) -> np.ndarray:
    weights = np.zeros((rows.shape[1], model.labels))
    for label in range(model.labels):
        for feature, weight in model.weights(0, label + 1).items():
            weights[feature, label] = weight
    weights[-1] = model.bias[1:]
    return 1 / (1 + np.exp(-rows @ weights))


def test_training_does_not_depend_on_threads_or_on_how_lanes_are_cut(data, monkeypatch):
    import labelwise.trees.model as module

    tree = balanced_tree(label_vectors(*data), max_leaf=30)
    one, two = (train_tree(*data, tree, threads=threads) for threads in (1, 2))
    for name, array in one.arrays().items():
        assert np.array_equal(array, two.arrays()[name]), name
    monkeypatch.setattr(module, "PIECE", 64)
    pieces = train_tree(*data, tree)
    assert np.array_equal(one.values, pieces.values)


def test_small_weights_are_dropped(data):
    model = train_tree(*data, flat(120), threshold=0.1)
    assert np.abs(model.values).min() > 0.1
    assert train_tree(*data, flat(120), threshold=0.0).values.size > model.values.size


def test_a_label_of_every_document_and_duplicated_rows_do_no_harm():
    features = csr_array(np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32))
    gold = csr_array(np.array([[1, 1], [1, 1], [1, 0]], dtype=bool))
    scores = train_tree(features, gold, flat(2)).predict(features).toarray()
    assert (scores[:, 0] > 0.9).all()
    assert scores[0, 1] == scores[1, 1] > scores[2, 1]


def test_one_label_and_one_document_are_enough():
    features, gold = csr_array(np.ones((1, 1), dtype=np.float32)), csr_array(np.ones((1, 1), dtype=bool))
    assert train_tree(features, gold, balanced_tree(label_vectors(features, gold))).predict(features).toarray() == pytest.approx(
        1, abs=1e-3
    )


# Beam search


def slow_scores(model: TreeModel, row: np.ndarray, discount: float, power: int) -> np.ndarray:
    """Every path to the end, without a beam."""
    scores = np.zeros(model.labels)
    for label in model.tree.labels.tolist():
        total = 0.0
        for node, child in model.path(label):
            margin = model.bias[child] + sum(weight * row[feature] for feature, weight in model.weights(node, child).items())
            total = total * discount - max(0, 1 - margin) ** power - 1e-4 / (1 + max(margin, 1))
        scores[label] = np.exp(total)
    return scores


@pytest.mark.parametrize(("discount", "power"), [(1.0, 2), (0.98, 2), (1.0, 3)])
def test_a_beam_that_holds_all_nodes_gives_every_path_its_score(data, discount, power):
    features, gold = data
    model = train_tree(features, gold, balanced_tree(label_vectors(*data), max_leaf=20))
    found = model.predict(features[:20], beam=1000, discount=discount, power=power).toarray()
    for row in range(20):
        assert found[row] == pytest.approx(slow_scores(model, features[[row]].toarray()[0], discount, power), abs=1e-5)


def test_a_narrow_beam_finds_the_same_scores_for_fewer_labels(data):
    features, gold = data
    model = train_tree(features, gold, balanced_tree(label_vectors(*data), max_leaf=20))
    wide, narrow = (model.predict(features, beam=beam).toarray() for beam in (100, 2))
    assert (narrow > 0).sum() < (wide > 0).sum()
    assert np.array_equal(narrow[narrow > 0], wide[narrow > 0])


def test_scores_lie_between_0_and_1_and_sure_labels_do_not_tie(data):
    features, gold = data
    scores = train_tree(features, gold, flat(120)).predict(features)
    assert scores.data.min() >= 0
    assert scores.data.max() <= 1
    rows = [np.unique(row[row > 0.99]).size - (row > 0.99).sum() for row in scores.toarray()]
    assert max(rows) == min(rows) == 0


def test_parts_and_threads_do_not_change_the_prediction(data, monkeypatch):
    import labelwise.trees.model as module

    model = train_tree(*data, balanced_tree(label_vectors(*data), max_leaf=20))
    whole = model.predict(data[0]).toarray()
    monkeypatch.setattr(module, "PART", 50)
    assert np.array_equal(model.predict(data[0], threads=2).toarray(), whole)


def test_a_document_alone_is_scored_as_among_others(data):
    models = [train_tree(*data, make(label_vectors(*data))) for make in (balanced_tree, wide_tree)]
    whole = predict(models, data[0][:50]).toarray()
    assert np.array_equal(np.vstack([predict(models, data[0][[row]]).toarray() for row in range(50)]), whole)


def test_leaves_of_one_label_and_of_none_are_searched_as_any_other(data):
    features, gold = data
    tree = balanced_tree(label_vectors(*data), max_leaf=1)
    assert 0 in np.diff(tree.children(tree.depth - 1))
    model = TreeModel.from_arrays(train_tree(features, gold, tree).arrays())
    found = model.predict(features[:3], beam=1000).toarray()
    for row in range(3):
        assert found[row] == pytest.approx(slow_scores(model, features[[row]].toarray()[0], 1.0, 2), abs=1e-5)


@pytest.mark.parametrize("make", [balanced_tree, wide_tree, lambda vectors: flat(120)])
def test_documents_without_a_feature_reach_nothing(data, make):
    model = train_tree(*data, make(label_vectors(*data)))
    assert model.predict(csr_array((3, data[0].shape[1]), dtype=np.float32)).nnz == 0


def test_a_model_is_its_arrays(data):
    model = train_tree(*data, wide_tree(label_vectors(*data), k=10, depth=3))
    again = TreeModel.from_arrays(model.arrays())
    assert (again.predict(data[0]) != model.predict(data[0])).nnz == 0


def made_arrays(random: np.random.Generator, widths: list[int], features: int) -> dict[str, np.ndarray]:
    """A file of random weights; per level the most children of a node."""
    plain: dict[str, np.ndarray] = {}
    above = 1
    for level, most in enumerate(widths):
        counts = random.integers(0, most + 1, above)
        counts[random.integers(above)] = most
        dense = [random.normal(size=(features, count)) * (random.random((features, count)) < 0.4) for count in counts]
        sizes = [np.count_nonzero(node, axis=1) for node in dense]
        plain |= {
            f"{level}.parents": np.repeat(np.arange(above, dtype=np.int32), counts),
            f"{level}.chunks": np.append(0, np.cumsum([np.count_nonzero(size) for size in sizes])),
            f"{level}.features": np.concatenate([np.flatnonzero(size) for size in sizes]).astype(np.int32),
            f"{level}.rows": np.concatenate([size[size > 0] for size in sizes]).astype(np.uint8),
            f"{level}.lanes": np.concatenate([np.nonzero(node)[1] for node in dense]).astype(np.uint8),
            f"{level}.values": np.concatenate([node[node != 0] for node in dense]).astype(np.float32),
            f"{level}.bias": random.normal(size=counts.sum()).astype(np.float32),
        }
        above = int(counts.sum())
    return {"labels": random.permutation(above).astype(np.int32), "size": np.array([features, above]), **plain}


def scores_from_arrays(plain: dict[str, np.ndarray], row: np.ndarray, levels: int) -> np.ndarray:
    """Every path to the end, from what is in a file."""
    logs = np.zeros(1)
    for level in range(levels):
        parents, chunks, features, rows, lanes, values, bias = (
            plain[f"{level}.{name}"] for name in ("parents", "chunks", "features", "rows", "lanes", "values", "bias")
        )
        node = np.repeat(np.repeat(np.arange(len(chunks) - 1), np.diff(chunks)), rows)
        margin = bias.astype(np.float64)
        np.add.at(margin, np.searchsorted(parents, node) + lanes, values * row[np.repeat(features, rows)])
        logs = logs[parents] - np.maximum(0, 1 - margin) ** 2 - 1e-4 / (1 + np.maximum(margin, 1))
    return np.exp(logs)[np.argsort(plain["labels"])]


@given(st.integers(0, 2**32), st.lists(st.integers(1, 3), min_size=1, max_size=7), st.integers(1, 70))
@settings(max_examples=60, deadline=None)
def test_narrow_and_wide_nodes_are_searched_and_saved_as_the_file_has_them(seed, widths, features):
    random = np.random.default_rng(seed)
    plain = made_arrays(random, widths, features)
    model = TreeModel.from_arrays(plain)
    again = model.arrays()
    assert again.keys() == plain.keys()
    assert all(np.array_equal(again[name], plain[name]) and again[name].dtype == plain[name].dtype for name in plain)
    rows = (random.random((4, features)) * (random.random((4, features)) < 0.6)).astype(np.float32)
    rows[:, 0] = 1  # no empty row
    found = model.predict(csr_array(rows), beam=10_000).toarray()
    assert found == pytest.approx(np.array([scores_from_arrays(plain, row, len(widths)) for row in rows]), rel=1e-4, abs=1e-6)


def test_the_mean_of_trees_counts_what_a_tree_did_not_reach_as_0(data):
    models = [train_tree(*data, balanced_tree(label_vectors(*data), max_leaf=20, seed=seed)) for seed in range(3)]
    parts = [model.predict(data[0], beam=2).toarray() for model in models]
    assert predict(models, data[0], beam=2).toarray() == pytest.approx(sum(parts) / 3, abs=1e-6)
