"""Means, weights and scales against slow versions."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from labelwise import metrics
from labelwise.corpus import Corpus, CorpusInfo, Document, gold_matrix
from labelwise.evaluation import relevance
from labelwise.labels import Label, LabelSet
from labelwise.methods.weighting import LAST, LEAST, SAME, SCALES, Line, Mix, Scale, make_pools, pretend_new, search
from labelwise.pools import Pool
from labelwise.progress import silent
from labelwise.scores import Scores
from labelwise.thresholds import ENOUGH


@st.composite
def mixtures(draw):
    """Scores of some members, a group for each label, and weights that sum to 1 in each group."""
    members, documents, labels = draw(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 8)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    scores = random.random((members, documents, labels)).astype(np.float32) * (random.random((members, documents, labels)) < 0.7)
    return (
        scores,
        random.integers(0, 3, labels),
        random.dirichlet(np.ones(members), 3),
        draw(st.lists(st.booleans(), min_size=members, max_size=members)),
    )


@given(mixtures())
def test_a_score_is_the_mean_by_the_weights_of_the_labels_group(mixture):
    scores, groups, weights, sparse = mixture
    labels = LabelSet(Label(str(number), "x") for number in range(len(groups)))
    several = [Scores(csr_array(own) if packed else own, labels) for own, packed in zip(scores, sparse, strict=True)]
    found = Mix(weights, [SAME, SAME, SAME]).apply(several, groups)
    assert found.sparse == all(sparse)
    for row, column in product(range(scores.shape[1]), range(scores.shape[2])):
        expected = sum(weights[groups[column]][member] * scores[member, row, column] for member in range(len(scores)))
        assert found.dense()[row, column] == pytest.approx(expected, abs=1e-6)


@given(mixtures(), st.sampled_from([0, 1, 2]))
def test_a_score_by_regression_is_what_the_log_odds_add_up_to_and_0_where_nobody_scores(mixture, number):
    scores, groups, weights, sparse = mixture
    labels = LabelSet(Label(str(number), "x") for number in range(len(groups)))
    several = [Scores(csr_array(own) if packed else own, labels) for own, packed in zip(scores, sparse, strict=True)]
    random = np.random.default_rng(1)
    line = Line(random.normal(size=len(scores)), random.normal(size=len(scores)), 0.3)
    lines = [line if place == number else None for place in range(3)]
    found = Mix(weights, [SAME, SAME, SAME], lines).apply(several, groups).dense()
    means = Mix(weights, [SAME, SAME, SAME]).apply(several, groups).dense()
    np.testing.assert_array_equal(found[:, groups != number], means[:, groups != number])
    clipped = np.clip(scores.astype(np.float64), LEAST, 1 - LEAST)
    logits = np.tensordot(line.odds, np.log(clipped / (1 - clipped)), 1) + np.tensordot(line.scores, scores, 1) + line.shift
    expected = np.where((scores > 0).any(0), 1 / (1 + np.exp(-logits)), 0)
    np.testing.assert_allclose(found[:, groups == number], expected[:, groups == number], rtol=1e-3, atol=1e-9)


def test_a_regression_listens_to_who_knows_and_not_to_who_guesses():
    random = np.random.default_rng(1)
    hits = random.random((300, 20)) < 0.1
    knows = np.clip(0.2 + 0.4 * hits + random.normal(0, 0.1, hits.shape), 0.01, 0.99)
    pool = Pool(
        np.stack([knows, random.random(hits.shape)]).astype(np.float32), hits, hits.sum(1), np.zeros(hits.shape, dtype=np.int64)
    )
    empty = Pool(np.zeros((2, 300, 1), np.float32), np.zeros((300, 1), bool), np.zeros(300, int), np.full((300, 1), -1))
    able = np.array([[True, True], [True, True], [False, False]])
    mix = search([pool, empty, empty], np.array([0]), able, {}, 5, silent, regress=True)
    assert mix.weights[0, 0] > 0.9
    assert mix.lines[1:] == [None, None]
    found = mix.lines[0](pool.scores)
    assert found.mean() == pytest.approx(hits.mean(), rel=0.02)  # probabilities
    assert found[hits].mean() > 5 * found[~hits].mean()


@pytest.mark.parametrize("right", [0, 1, ENOUGH - 1, ENOUGH])
def test_a_regression_needs_some_right_labels_that_a_member_scores(right):
    """One document would teach more than it knows, and labels that nobody scores teach nothing."""
    hits = np.arange(40).reshape(4, 10) % 10 == 0
    scores = np.random.default_rng(1).random((2, *hits.shape)).astype(np.float32)
    columns = np.broadcast_to(np.arange(10), hits.shape)
    hits, scores, columns = (np.concatenate([own] * 10, axis=-2) for own in (hits, scores, columns))  # 40 are right
    scores[:, np.cumsum(hits).reshape(hits.shape) * hits > right] = 0
    pool = Pool(scores, hits, hits.sum(1), columns)
    empty = Pool(np.zeros((2, 40, 1), np.float32), np.zeros((40, 1), bool), np.zeros(40, int), np.full((40, 1), -1))
    able = np.array([[True, True], [True, True], [False, False]])
    mix = search([pool, empty, empty], np.array([0]), able, {}, 5, silent, regress=True)
    assert (mix.lines[0] is not None) == (right >= ENOUGH)
    assert mix.weights[0].sum() == pytest.approx(1)


@pytest.mark.parametrize("taught", [True, False])
def test_labels_scored_as_new_teach_who_is_to_be_trusted_on_zero_labels(taught):
    random = np.random.default_rng(1)
    hits = random.random((300, 20)) < 0.1
    knows, guesses = np.clip(0.2 + 0.4 * hits + random.normal(0, 0.1, hits.shape), 0.01, 0.99), random.random(hits.shape)

    def pool(*scores):
        return Pool(np.stack(scores).astype(np.float32), hits, hits.sum(1), np.zeros(hits.shape, dtype=np.int64))

    seen, zero, as_new = pool(knows, knows, knows), pool(guesses, knows, knows), pool(knows, guesses)
    able = np.array([[True, True, True], [True, True, True], [True, True, False]])
    told = {"regress": True, "as_new": as_new if taught else None}
    mix = search([seen, seen, zero], np.array([0, 1, 2]), able, {}, 5, silent, **told)
    assert mix.weights[2, 0 if taught else 1] > 0.9
    assert mix.weights[2, 2] == 0
    assert mix.lines[2].odds[2] == 0


def test_labels_that_pretend_to_be_new_keep_all_but_their_ids():
    labels = LabelSet([Label("a", "one"), Label("new a", "two", parents=("a",)), Label("b", "three", parents=("a", "new a"))])
    corpus = Corpus([Document("1", "x", ("a", "b")), Document("2", "y", ())], labels)
    found = pretend_new(corpus, np.array([True, False, True]))
    assert found.labels.ids == ("new new a", "new a", "new new b")
    assert found.labels[2] == Label("new new b", "three", parents=("new new a", "new a"))
    assert [document.labels for document in found] == [("new new a", "new new b"), ()]
    assert (found.gold() != corpus.gold()).nnz == 0


def test_sure_members_make_a_sure_ensemble_whatever_the_rounding():
    labels = LabelSet([Label("a", "a")])
    for form in (np.array, csr_array):
        several = [Scores(form(np.ones((1, 1), dtype=np.float32)), labels)] * 20
        for weights in np.random.default_rng(1).dirichlet(np.ones(20), 100):
            mixed = Mix(np.tile(weights, (3, 1)), [SAME, SAME, SAME]).apply(several, np.array([0]))
            assert 1 - 1e-6 < mixed.dense()[0, 0] <= 1


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=50), st.sampled_from([*SCALES, LAST]))
def test_a_scale_keeps_order_and_0(scores, scale):
    scores = np.sort(np.array(scores, dtype=np.float32))
    changed = scale(scores)
    assert (np.diff(changed) >= 0).all()
    assert changed.min() >= 0
    assert changed.max() <= 1
    assert (changed[scores == 0] == 0).all()
    assert (changed[scores > 1e-6] > 0).all()


def test_a_scale_is_a_power_of_the_odds_halved():
    scores = np.array([0.1, 0.5, 0.8])
    odds = scores / (1 - scores)
    for power, halvings in ((0.5, 3), (2.0, -1), (1.0, 0)):
        changed = Scale(power, halvings)(scores).astype(np.float64)
        assert changed / (1 - changed) == pytest.approx(odds**power / 2**halvings, rel=1e-5)


class Told:
    """A member that says what it was told."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def predict(self, corpus: Corpus) -> Scores:
        rows = [int(document.id) for document in corpus]
        return Scores(self.scores[rows], corpus.labels)


def made(seed: int, members: int = 2, documents: int = 12, labels: int = 20):
    """Members that know gold labels by chance, some better than others, with ties among their scores."""
    random = np.random.default_rng(seed)
    gold = random.random((documents, labels)) < 0.2 * (random.random(labels) < 0.8)
    gold[np.arange(documents), random.integers(0, labels, documents)] = True
    noise = random.random((members, documents, labels))
    scores = np.round(np.clip(noise * random.random((members, 1, 1)) + gold * random.random((members, 1, labels)) * 0.5, 0, 1), 1)
    groups = np.sort(random.integers(0, 3, labels))
    label_set = LabelSet(Label(str(number), "x") for number in range(labels))
    rows, columns = np.nonzero(gold)
    matrix = gold_matrix(np.searchsorted(rows, np.arange(documents + 1)), columns, labels)
    dev = Corpus([Document(str(row), "x") for row in range(documents)], label_set, CorpusInfo(k=3), gold=matrix)
    return [Told(own.astype(np.float32)) for own in scores], groups, dev


def quality(scores: Scores, dev: Corpus, among: np.ndarray) -> float:
    """nDCG@3 as `evaluate` has it, without its report."""
    gold = dev.gold().toarray()[:, among].sum(axis=1)
    found = relevance(scores, dev.gold(), among, 3, "pessimistic")
    return float(metrics.ndcg(found[gold > 0], gold[gold > 0], 3).mean()) if gold.any() else 0.0


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.integers(2, 3))
def test_weights_are_the_best_of_the_grid_and_scales_the_best_of_theirs(seed, members):
    models, groups, dev = made(seed, members)
    able = np.ones((3, members), dtype=bool)
    able[2, 0] = False
    pools = make_pools(models, groups, dev, 3, silent)
    assume(all(pool.gold.any() for pool in pools))
    found = search(pools, groups, able, {}, 3, silent)
    several = [model.predict(dev) for model in models]
    steps = [point for point in product(range(21), repeat=members) if sum(point) == 20]
    for group in range(3):
        among = groups == group
        tried = {
            point: quality(Mix(np.array([point] * 3) / 20, [SAME] * 3).apply(several, groups), dev, among)
            for point in steps
            if group < 2 or point[0] == 0
        }
        best = max(tried.values())
        assert quality(found._replace(scales=[SAME] * 3).apply(several, groups), dev, among) >= best - 1e-9
        even = min(np.square(np.array(point) / 20).sum() for point, value in tried.items() if value > best - 1e-9)
        assert np.square(found.weights[group]).sum() <= even + 1e-9
    for group in (1, 2):  # the group's scale, those after it silent
        among, weights = groups >= 0, np.where(np.arange(3)[:, None] <= group, found.weights, 0)
        tried = {
            scale: quality(Mix(weights, [*found.scales[:group], scale, SAME][:3]).apply(several, groups), dev, among)
            for scale in [*SCALES, LAST][: len(SCALES) + group - 1]
        }
        assert tried[found.scales[group]] == pytest.approx(max(tried.values()), abs=1e-9)


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_zero_labels_never_harm_the_ranking_of_all_labels(seed):
    models, groups, dev = made(seed)
    pools = make_pools(models, groups, dev, 3, silent)
    assume(all(pool.gold.any() for pool in pools))
    found = search(pools, groups, np.ones((3, 2), dtype=bool), {}, 3, silent)
    several = [model.predict(dev) for model in models]
    mute = found._replace(weights=found.weights * [[1], [1], [0]])
    in_use = (groups < 2) | dev.gold().toarray().any(axis=0)
    for among in (groups >= 0, in_use):
        assert quality(found.apply(several, groups), dev, among) >= quality(mute.apply(several, groups), dev, among) - 1e-9


def test_scales_stay_what_they_are_where_no_other_is_better():
    labels, groups = LabelSet(Label(id, id) for id in "abcde"), np.array([0, 0, 1, 2, 2])
    dev = Corpus([Document("0", "x", tuple("abcd"))], labels)
    pools = make_pools([Told(np.array([[0.9, 0.8, 0.7, 0.01, 0.5]]))], groups, dev, 3, silent)
    assert search(pools, groups, np.ones((3, 1), dtype=bool), {}, 3, silent).scales == [SAME, SAME, LAST]


def test_a_group_without_gold_labels_has_the_weights_of_all_seen_labels():
    models, groups, dev = made(3)
    dev = Corpus(list(dev), dev.labels, dev.info, gold=csr_array(dev.gold().toarray() & (groups == 0)))
    able = np.array([[True, True], [True, True], [False, True]])
    with pytest.warns(UserWarning, match="no development document has a few or zero label: .* zero labels come after all others"):
        found = search(make_pools(models, groups, dev, 3, silent), groups, able, {}, 3, silent)
    together = groups * (groups == 2)  # frequent and few are one group
    with pytest.warns(UserWarning, match="has a zero label"):
        expected = search(make_pools(models, together, dev, 3, silent), together, able, {}, 3, silent)
    assert found.weights[1].tolist() == expected.weights[0].tolist()
    assert found.weights[2].tolist() == [0, 1]
    assert found.scales == [SAME, SAME, LAST]


def test_many_members_are_weighed_in_large_steps():
    models, groups, dev = made(2, members=12)
    found = search(make_pools(models, groups, dev, 3, silent), groups, np.ones((3, 12), dtype=bool), {}, 3, silent)
    assert found.weights.sum(axis=1) == pytest.approx([1, 1, 1])
