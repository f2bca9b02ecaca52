import json
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from toy import LABELS

from labelwise import evaluation
from labelwise.corpus import Corpus, CorpusInfo, Document, Splits
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadCorpus, BadScores, BadSettings
from labelwise.evaluation import evaluate, relevance
from labelwise.labels import Label, LabelSet
from labelwise.metrics import RANKING
from labelwise.scores import Scores

GOLD = np.array([[1, 0, 1, 0, 0, 1], [0, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0]], dtype=bool)
SCORES = np.array([[0.9, 0.8, 0.1, 0.7, 0.2, 0.6], [0.3, 0.2, 0.5, 0.1, 0.4, 0.0], [0.6, 0.5, 0.4, 0.3, 0.2, 0.1]])


def corpus_of(gold: np.ndarray, labels: LabelSet) -> Corpus:
    rows = [Document(f"d{n}", "text", tuple(labels[c].id for c in np.flatnonzero(row))) for n, row in enumerate(gold)]
    return Corpus(rows, labels, CorpusInfo("made", k=5, few=1))


def label_set(size: int) -> LabelSet:
    return LabelSet(Label(str(n), f"label {n}") for n in range(size))


def splits_of(test_gold: np.ndarray, train_gold: np.ndarray) -> Splits:
    labels = label_set(test_gold.shape[1])
    return Splits(corpus_of(train_gold, labels), Corpus([], labels, CorpusInfo("made")), corpus_of(test_gold, labels))


def slow_relevance(values: np.ndarray, gold: np.ndarray, columns: np.ndarray, depth: int, ties: str) -> np.ndarray:
    """By sorting, and for 'expected' by trying every order of the labels."""
    if ties == "expected":
        results = []
        for order in permutations(columns):
            ranked = sorted(order, key=lambda column: -values[column])  # stable: ties keep the permutation's order
            results.append([float(gold[column]) for column in ranked[:depth]])
        row = np.mean(results, axis=0)
    else:
        key = {
            "authors": lambda column: (-values[column], -column),
            "lower_index": lambda column: (-values[column], column),
            "pessimistic": lambda column: (-values[column], gold[column]),
        }[ties]
        ranked = sorted(columns, key=key)[:depth]
        row = np.array([float(gold[c] and not (ties == "pessimistic" and values[c] == 0)) for c in ranked])
    return np.append(row, np.zeros(depth - len(row)))


@given(st.data(), st.sampled_from(["authors", "lower_index", "expected", "pessimistic"]), st.booleans(), st.integers(1, 6))
def test_relevance_is_that_of_a_slow_sort_in_every_tie_mode(data, ties, sparse, depth):
    values = data.draw(arrays(np.float32, (2, 5), elements=st.sampled_from([0.0, 0.25, 0.5])))
    gold = data.draw(arrays(bool, (2, 5)))
    among = data.draw(arrays(bool, 5))
    scores = Scores(csr_array(values) if sparse else values, label_set(5))
    found = relevance(scores, csr_array(gold), among, depth, ties)
    for row in range(2):
        assert found[row] == pytest.approx(slow_relevance(values[row], gold[row], np.flatnonzero(among), depth, ties))


def test_toy_values_of_the_specification():
    splits = splits_of(GOLD, np.ones((1, 6), bool))
    report = evaluate(Scores(SCORES, splits.labels), splits, ks=[2, 3, 5], measures=["p", "r", "rp", "ndcg"])
    scores = report.groups["all"]
    assert scores["p@5"] == pytest.approx(0.466667, abs=1e-6)
    assert scores["rp@5"] == scores["r@5"] == pytest.approx(0.888889, abs=1e-6)
    assert scores["ndcg@5"] == pytest.approx(0.700688, abs=1e-6)
    assert scores["ndcg@3"] == pytest.approx(0.489760, abs=1e-6)
    assert scores["ndcg@2"] == pytest.approx(0.537716, abs=1e-6)


def test_rp_counts_hits_in_the_top_k_not_in_the_top_of_the_gold():
    splits = splits_of(GOLD[1:2], np.ones((1, 6), bool))  # one gold label, at rank 4
    assert evaluate(Scores(SCORES[1:2], splits.labels), splits).groups["all"]["rp@5"] == 1


def test_a_group_ranks_among_its_own_labels_and_skips_documents_without_one():
    train = np.array([[1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=bool)
    splits = splits_of(GOLD, train)  # few = 1: the last three columns
    report = evaluate(Scores(SCORES, splits.labels), splits, ks=[2])
    few = report.groups["few"]
    assert few["documents"] == 2
    assert few["ndcg@2"] == pytest.approx(0.815465, abs=1e-6)
    assert np.isnan(report.values["few"]["rp@2"]).tolist() == [False, True, False]
    assert "zero" not in report.groups, "a group without documents is left out"


def test_unused_labels_are_scored_but_never_ranked(splits):
    values = np.zeros((3, 8), dtype=np.float32)
    values[:, [LABELS.column("animal"), LABELS.column("place")]] = 1.0  # in no document
    values[0, LABELS.column("owl")] = 0.5
    report = evaluate(Scores(values, LABELS), splits, ks=[1], measures=["p"], ties="pessimistic")
    assert report.groups["all"]["p@1"] == pytest.approx(1 / 3)


def test_the_default_tie_mode_follows_the_scores(splits):
    values = np.full((3, 8), 0.5, dtype=np.float32)
    assert evaluate(Scores(values, LABELS), splits).ties == "authors"
    assert evaluate(Scores(csr_array(values), LABELS), splits).ties == "pessimistic"


def test_dense_and_sparse_scores_give_the_same_report():
    splits = make_world(documents=300, labels=60, words=10)
    random = np.random.default_rng(0)
    values = np.round(random.random((len(splits.test), 60)) * (random.random((len(splits.test), 60)) < 0.3), 1).astype(np.float32)
    for ties in ("authors", "lower_index", "expected", "pessimistic"):
        dense = evaluate(Scores(values, splits.labels), splits, ties=ties, ks=[1, 5, 70], measures=["rp", "ndcg", "macro-f1"])
        sparse = evaluate(
            Scores(csr_array(values), splits.labels), splits, ties=ties, ks=[1, 5, 70], measures=["rp", "ndcg", "macro-f1"]
        )
        assert dense.groups == sparse.groups


def test_batches_do_not_change_the_result(monkeypatch):
    splits = make_world(documents=6000, labels=40, words=8)
    scores = Scores(np.random.default_rng(0).random((600, 40), dtype=np.float32), splits.labels)
    whole = evaluate(scores, splits, measures=["rp", "micro-f1"], per_label=True)
    monkeypatch.setattr("labelwise.corpus.SCORES", 1)  # 256 documents at a time
    parts = evaluate(scores, splits, measures=["rp", "micro-f1"], per_label=True)
    assert whole.groups == parts.groups
    assert whole.labels == parts.labels


def test_an_independent_library_agrees_on_p_recall_and_ndcg():
    import pytrec_eval

    splits = make_world(documents=500, labels=60, words=8)
    test = splits.test
    values = np.random.default_rng(1).permutation(len(test) * 60).reshape(len(test), 60).astype(np.float32) / (len(test) * 60)
    used = np.flatnonzero(evaluation.Groups.of(splits).all)
    relevant = {document.id: dict.fromkeys(document.labels, 1) for document in test}
    run = {d.id: {splits.labels[c].id: float(values[row, c]) for c in used} for row, d in enumerate(test)}
    oracle = pytrec_eval.RelevanceEvaluator(relevant, {"P.5,10", "recall.5,10", "ndcg_cut.5,10"}).evaluate(run)
    report = evaluate(Scores(values, splits.labels), splits, ks=[5, 10], measures=["p", "r", "ndcg"])
    for name, theirs in {"p": "P", "r": "recall", "ndcg": "ndcg_cut"}.items():
        for k in (5, 10):
            expected = np.mean([row[f"{theirs}_{k}"] for row in oracle.values()])
            assert report.groups["all"][f"{name}@{k}"] == pytest.approx(expected, abs=1e-6)


def test_group_values_are_those_of_slicing_by_hand():
    splits = make_world(documents=400, labels=50, words=8, seed=3)
    values = np.random.default_rng(2).random((len(splits.test), 50), dtype=np.float32)
    report = evaluate(Scores(values, splits.labels), splits, ks=[3])
    gold = splits.test.gold().toarray()
    for name, among in evaluation.Groups.of(splits).masks().items():
        inside = gold[:, among].any(axis=1)
        order = np.argsort(-values[inside][:, among], axis=1)
        found = np.take_along_axis(gold[inside][:, among], order, axis=1)
        expected = RANKING["ndcg"](found, gold[inside][:, among].sum(axis=1), 3).mean()
        assert report.groups[name]["ndcg@3"] == pytest.approx(expected, abs=1e-9)


def test_per_label_results_count_what_they_say(splits):
    values = np.zeros((3, 8), dtype=np.float32)
    values[:, LABELS.column("lake")] = 0.9
    values[0, LABELS.column("owl")] = 0.4
    rows = {row.id: row for row in evaluate(Scores(values, LABELS), splits, ks=[1], per_label=True).labels}
    lake, owl = rows["lake"], rows["owl"]
    assert (lake.group, lake.train_documents, lake.documents, lake.hits, lake.retrieved) == ("frequent", 3, 2, 2, 3)
    assert (lake.recall, lake.precision) == (1, pytest.approx(2 / 3))
    assert (owl.documents, owl.hits, owl.recall) == (1, 0, 0)
    assert "animal" not in rows


@pytest.mark.parametrize(("ties", "hits"), [("authors", 0), ("lower_index", 1), ("pessimistic", 0), ("expected", 0)])
def test_results_per_label_follow_the_tie_mode(ties, hits):
    splits = splits_of(np.array([[1, 0]], bool), np.ones((1, 2), bool))
    scores = Scores(np.array([[0.5, 0.5]]), splits.labels)
    assert evaluate(scores, splits, ks=[1], ties=ties, per_label=True).labels[0].hits == hits


@pytest.mark.parametrize("sparse", [False, True])
def test_scores_are_ranked_in_one_precision(sparse):
    splits = splits_of(np.array([[1, 0]], bool), np.ones((1, 2), bool))
    values = np.array([[0.5 + 1e-10, 0.5]])
    scores = Scores(csr_array(values) if sparse else values, splits.labels)
    found = {
        ties: evaluate(scores, splits, ks=[1], ties=ties).groups["all"]["rp@1"]
        for ties in ("lower_index", "expected", "pessimistic")
    }
    assert found == {"lower_index": 1, "expected": 0.5, "pessimistic": 0}


def test_documents_without_labels_or_scores_do_no_harm():
    splits = splits_of(np.array([[0, 0], [1, 0]], bool), np.ones((1, 2), bool))
    for values in (np.zeros((2, 2)), np.array([[0, 0.9], [0.9, 0]])):
        report = evaluate(
            Scores(csr_array(values), splits.labels), splits, measures=["rp", "micro-f1"], ks=[10**12], per_label=True
        )
        assert report.groups["all"]["documents"] == 1


def test_a_split_without_any_label_is_nothing_to_evaluate():
    splits = splits_of(np.zeros((2, 2), bool), np.ones((1, 2), bool))
    with pytest.raises(BadCorpus, match="no document of the test split has a label"):
        evaluate(Scores(np.zeros((2, 2)), splits.labels), splits)


def test_the_json_has_the_shape_that_scripts_rely_on(splits):
    report = evaluate(Scores(np.zeros((3, 8), dtype=np.float32), LABELS), splits)
    plain = json.loads(report.json())
    assert (plain["corpus"], plain["split"]) == ("zoo", "test")
    assert set(plain["groups"]["all"]) >= {"documents", "rp@2", "ndcg@2"}


def test_scores_of_another_shape_are_refused(splits):
    with pytest.raises(BadScores, match="scores for 2 documents × 8 labels do not fit"):
        evaluate(Scores(np.zeros((2, 8)), LABELS), splits)


def test_a_misspelt_tie_mode_is_refused(splits):
    with pytest.raises(BadSettings, match="did you mean 'authors'"):
        evaluate(Scores(np.zeros((3, 8)), LABELS), splits, ties="author")
