"""Documents like it, against every document compared in plain numpy."""

import numpy as np
import pytest

from labelwise.corpus import Corpus, Document
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadCorpus
from labelwise.features.tfidf import Tfidf, TfidfSettings
from labelwise.registry import make_method


@pytest.fixture(scope="module")
def world():
    return make_world(documents=300, labels=40, words=30)


@pytest.fixture(scope="module")
def model(world):
    return make_method("neighbours", {"nearest": 7, "power": 3.0}).fit(world.train)


def test_a_label_scores_by_the_likeness_of_the_nearest_documents_that_have_it(model, world):
    features = Tfidf(TfidfSettings(ngrams=3))
    others = features.fit_transform([document.text for document in world.train]).toarray()
    likeness = features.transform([document.text for document in world.test]).toarray() @ others.T
    gold = world.train.gold().toarray()
    for row, found in zip(likeness, model.predict(world.test).dense(), strict=True):
        nearest = np.argsort(-row, kind="stable")[:7]
        worth = row[nearest] ** 3
        np.testing.assert_allclose(found, worth @ gold[nearest] / worth.sum(), atol=1e-5)


def test_what_the_words_add_sums_to_the_score(model, world):
    document, scores = world.test[0], model.predict(world.test[:1]).dense()[0]
    label = world.labels[int(np.argmax(scores))]
    told = model.explain(document, label)
    assert told.score == pytest.approx(scores.max(), abs=1e-6)
    assert sum(span.weight for span in told.spans) == pytest.approx(told.score, abs=1e-5)


def test_more_neighbours_than_documents_are_all_of_them_and_nothing_alike_is_no_score(world):
    model = make_method("neighbours", {"nearest": 1000}).fit(world.train)
    strange = Corpus([Document("x", "¡¿!?"), world.test[0]], world.labels)
    scores = model.predict(strange).dense()
    assert not scores[0].any()
    assert scores[1].any()


def test_without_labels_there_is_nothing_to_learn(world):
    bare = Corpus([Document("x", "some words")], world.labels)
    with pytest.raises(BadCorpus, match="nothing to learn"):
        make_method("neighbours", {}).fit(bare)


def test_of_equally_near_documents_the_first_lend_their_labels(world):
    texts = ["old mill", "old mill", "old barn", "old mill pond"]
    train = Corpus([Document(str(place), text, (world.labels[place].id,)) for place, text in enumerate(texts)], world.labels)
    model = make_method("neighbours", {"nearest": 2, "features": {"ngrams": 1}}).fit(train)
    found = model.predict(Corpus([Document("x", "old mill pond")], world.labels)).dense()[0]
    assert (found[[3, 0]] > 0).all()
    assert not found[[1, 2]].any()


def test_shares_sum_to_one_whatever_the_power(world):
    model = make_method("neighbours", {"power": 16.0, "nearest": 300}).fit(world.train)
    sums = model._shares(model._features.transform([document.text for document in world.test])).sum(axis=1)
    assert sums == pytest.approx(1, abs=1e-4)
