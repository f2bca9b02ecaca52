"""What boosted trees make of the first labels, and what they leave alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import data, integers, lists, sampled_from, sets, tuples
from scipy.sparse import csr_array

from labelwise import Splits, evaluate
from labelwise.calibration import calibrate
from labelwise.corpus import Corpus, fingerprint
from labelwise.datasets.worlds import make_world
from labelwise.labels import Label, LabelSet
from labelwise.methods import reranking
from labelwise.methods.base import load
from labelwise.methods.boosting import Boosted
from labelwise.methods.reranking import Ranker
from labelwise.progress import silent
from labelwise.registry import make_method
from labelwise.scores import Scores

MEMBERS = {"members": ["parabel", "lexical"], "weights": "regression"}


@pytest.fixture(scope="module")
def world():
    return make_world(documents=1500, labels=150, new=0.1)


@pytest.fixture(scope="module")
def model(world):
    return make_method("ensemble", {**MEMBERS, "rerank": True}).fit(world.train, world.dev)


@pytest.fixture(scope="module")
def plain(world):
    return make_method("ensemble", MEMBERS).fit(world.train, world.dev)


def test_labels_in_recent_use_rise_where_documents_stand_in_the_order_of_their_age(world):
    """Half of the labels fall out of use: only what is known beside the scores can tell."""
    labels = world.labels
    old = {label.id for number, label in enumerate(labels) if number % 2}

    def without(corpus, share):
        documents = [
            replace(document, labels=tuple(id for id in document.labels if id not in old))
            if place >= share * len(corpus)
            else document
            for place, document in enumerate(corpus)
        ]
        return Corpus([document for document in documents if document.labels], labels, corpus.info)

    aged = Splits(without(world.train, 0.8), without(world.dev, 0), without(world.test, 0))
    made = {rerank: make_method("ensemble", {**MEMBERS, "rerank": rerank}).fit(aged.train, aged.dev) for rerank in (False, True)}
    scores = {rerank: evaluate(model, aged).groups["all"]["ndcg@5"] for rerank, model in made.items()}
    assert scores[True] > scores[False] + 0.1


def test_it_is_saved_and_read_and_scores_new_labels(model, world, tmp_path):
    assert model._fitted.ranker is not None
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    labels = world.labels.extended([Label("new", world.test[0].text.split()[0])])
    more = Corpus(list(world.test), labels, world.info)
    for corpus in (world.test, more):
        np.testing.assert_array_equal(again.predict(corpus).dense(), model.predict(corpus).dense())
    assert (model.predict(more).dense()[:, labels.column("new")] > 0).any()


def test_documents_that_taught_the_trees_are_scored_by_those_that_the_other_half_teaches(model, world, tmp_path):
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.taught_by(world.dev)
    assert not again.taught_by(world.test)
    batches = list(again.cross_taught(world.dev, silent))
    assert [document.id for batch, _ in batches for document in batch] == [document.id for document in world.dev]
    crossed, own = Scores.stack(scores for _, scores in batches).dense(), model.predict(world.dev).dense()
    zero = model._fitted.groups == 2
    np.testing.assert_array_equal(crossed[:, zero], own[:, zero])
    assert not np.array_equal(crossed, own)
    half = len(world.dev) // 2
    changed = Corpus(list(world.dev[:half]) + [replace(one, labels=()) for one in world.dev[half:]], world.labels, world.info)
    other = load(tmp_path / "model")
    other._fitted = other._fitted._replace(teachers=fingerprint(changed))  # as if they had been its teachers
    others = Scores.stack(scores for _, scores in other.cross_taught(changed, silent)).dense()
    np.testing.assert_array_equal(others[half:], crossed[half:])  # their own labels have no say
    # What has been learned by heart looks better than it is.
    flattered, fair = (evaluate(Scores(own, world.labels), world, split="dev").groups["all"]["ndcg@5"] for own in (own, crossed))
    assert fair < flattered
    assert calibrate(again, world).quality["score"] == pytest.approx(fair, abs=1e-6)


def test_zero_labels_and_labels_far_down_keep_their_order(model, plain, world):
    old, new = (one.predict(world.test).dense() for one in (plain, model))
    zero = model._fitted.groups == 2
    for before, after in zip(old[:, zero], new[:, zero], strict=True):
        assert (np.diff(after[np.argsort(-before, kind="stable")]) <= 0).all()
    assert ((old > 0) == (new > 0)).all()
    depth = model._fitted.ranker.depths[0]
    for number in (0, 1):
        among = model._fitted.groups == number
        for before, after in zip(old[:, among], new[:, among], strict=True):
            order = np.argsort(-before, kind="stable")
            assert after[order[:depth]].min() >= after[order[depth:]].max(initial=0) - 1e-9


def test_sparse_scores_stay_sparse_and_are_the_same(model, world):
    ranker, random = model._fitted.ranker, np.random.default_rng(1)
    values = random.random((5, len(world.labels))).astype(np.float32) * (random.random((5, len(world.labels))) < 0.5)
    groups, places = model._fitted.groups, np.arange(len(world.labels))
    found = []
    for kind in (np.array, csr_array):
        scores = Scores(kind(values), world.labels)
        found.append(ranker.apply(scores, [scores, scores], groups, places))
    assert found[1].sparse
    np.testing.assert_array_equal(found[1].dense(), found[0].dense())


def test_what_one_half_of_the_documents_teaches_must_do_no_harm_on_the_other(world, plain):
    """One half has frequent labels only, the other few ones."""
    groups, dev = plain._fitted.groups, []
    for place, document in enumerate(world.dev):
        number = int(place >= len(world.dev) // 2)
        kept = tuple(id for id in document.labels if groups[world.labels.column(id)] == number)
        dev += [replace(document, labels=kept)] if kept else []
    made = make_method("ensemble", {**MEMBERS, "rerank": True}).fit(world.train, Corpus(dev, world.labels, world.info))
    assert made._fitted.ranker is None


def test_zero_labels_that_no_development_document_has_stay_behind(world, plain):
    """With a member whose scores are dense, as those of networks are."""
    zero = {id for id, group in zip(world.labels.ids, plain._fitted.groups, strict=True) if group == 2}
    seen = [replace(one, labels=tuple(id for id in one.labels if id not in zero)) for one in world.dev]
    dev = Corpus([document for document in seen if document.labels], world.labels, world.info)
    with pytest.warns(UserWarning, match="zero"):
        made = make_method("ensemble", {"members": ["parabel", "lexical", "prior"], "rerank": True}).fit(world.train, dev)
    assert made._fitted.ranker is not None
    assert made._fitted.ranker.depths[2] == 0
    values, zeros = made.predict(world.test).dense(), plain._fitted.groups == 2
    best = np.sort(np.where(zeros, 0, values), axis=1)[:, -20:]
    assert (values[:, zeros].max(axis=1) < best.min(axis=1)).all()


def test_labels_go_together_as_often_as_in_training_documents(world):
    ranker: Ranker = reranking._untaught(world.train, np.array([20, 20, 20]))
    gold = world.train.gold().toarray() > 0
    first, second = np.unravel_index(
        np.argmax((gold.T.astype(int) @ gold) * ~np.eye(gold.shape[1], dtype=bool)), (gold.shape[1],) * 2
    )
    expected = (gold[:, first] & gold[:, second]).sum() / gold[:, first].sum()
    assert ranker.company[[first], [second]] == pytest.approx(expected)
    recent = gold[int(0.8 * len(gold)) :]
    assert ranker.recent[first] == round(10 * recent[:, first].sum() / gold[:, first].sum())
    assert ranker.late[[first], [second]] == pytest.approx((recent[:, first] & recent[:, second]).sum() / recent[:, first].sum())


@given(data())
def test_family_is_the_best_child_and_the_best_sibling_among_the_candidates(drawn):
    labels, documents = 6, 2
    edges = drawn.draw(lists(tuples(integers(0, labels - 1), integers(0, labels - 1)), unique=True, max_size=10))
    pairs = sorted(drawn.draw(sets(tuples(integers(0, documents - 1), integers(0, labels - 1)))))
    scores = drawn.draw(lists(sampled_from([0.1, 0.2, 0.5, 0.9]), min_size=len(pairs), max_size=len(pairs)))
    parents = csr_array(([1] * len(edges), tuple(zip(*edges, strict=True)) or ([], [])), shape=(labels, labels))
    rows, columns = (np.array([pair[place] for pair in pairs], dtype=np.int64) for place in (0, 1))
    none = np.zeros(len(pairs))
    found = reranking.Candidates(rows, columns, none.astype(int), np.array(scores), none[None])
    above = {label: {parent for child, parent in edges if child == label} for label in range(labels)}

    def best(row, fits):
        own = [score for (document, label), score in zip(pairs, scores, strict=True) if document == row and fits(label)]
        return max(own, default=0)

    children, siblings = reranking._family(found, parents)
    for place, (row, column) in enumerate(pairs):
        assert children[place] == best(row, lambda label, own=column: own in above[label])
        assert siblings[place] == best(row, lambda label, own=column: label != own and above[label] & above[own])


def asking(model, column: int, edge: float) -> Ranker:
    """The model's ranker with one tree, which adds 5 to log-odds where a feature is above an edge."""
    features, edges, values = np.zeros((1, 6), np.int32), np.full((1, 6), np.inf, np.float32), np.zeros((1, 64), np.float32)
    features[0, 0], edges[0, 0], values[0, 32:] = column, edge, 5.0
    return model._fitted.ranker._replace(trees=Boosted(features, edges, values))


@pytest.mark.parametrize("turned", [False, True])
def test_a_label_rises_where_its_child_is_likely(model, world, turned):
    """The next to last feature is the best child's log-odds; labels may stand in another order than when it was fitted."""
    labels = LabelSet(reversed(world.labels)) if turned else world.labels
    places = world.labels.columns(labels.ids)
    child, parent = next((label, label.parents[0]) for label in labels if label.parents)
    above = {id for label in labels for id in label.parents}
    other = next(id for id in labels.ids if id not in above and id != child.id)
    values = np.zeros((1, len(labels)), dtype=np.float32)
    values[0, labels.columns([child.id, parent, other])] = 0.9, 0.1, 0.1
    blend, groups = Scores(values, labels), np.zeros(len(labels), dtype=np.int8)
    again = asking(model, column=2 + 2 + 4 + 1, edge=0.0).apply(blend, [blend, blend], groups, places).dense()[0]
    assert again[labels.column(parent)] == pytest.approx(1 / (1 + 9 * np.exp(-5)), rel=1e-4)
    assert again[labels.column(other)] == pytest.approx(0.1, rel=1e-4)


def test_trees_of_earlier_versions_are_asked_what_they_were_grown_by(model, world):
    """Of two members they know eight features, the last of which is how sure the blend is of the first ten labels."""
    arrays = asking(model, column=7, edge=1.0).arrays()
    old = Ranker.of_arrays({name: values for name, values in arrays.items() if not name.startswith("late_")})
    assert old.late is None
    values = np.zeros((2, len(world.labels)), dtype=np.float32)
    values[:, :3] = (0.6, 0.6, 0.1), (0.6, 0.1, 0.1)  # 1.3 and 0.8
    blend, groups, places = Scores(values, world.labels), np.zeros(len(world.labels), dtype=np.int8), np.arange(len(world.labels))
    again = old.apply(blend, [blend, blend], groups, places).dense()
    assert again[0, 0] == pytest.approx(1 / (1 + 0.4 / 0.6 * np.exp(-5)), rel=1e-4)
    assert again[1, 0] == pytest.approx(0.6, rel=1e-4)
    found = reranking.Candidates(*(np.zeros((0,), int) for _ in range(3)), np.zeros(0), np.zeros((2, 0)))
    assert old.features(found, 0, places, world.labels.parents()).shape == (0, 8)
    assert not any(name.startswith("late_") for name in old.arrays())
