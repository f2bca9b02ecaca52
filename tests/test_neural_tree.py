"""Methods on label trees: clusters, resuming, scores, and what does not fit a tree."""

import json

import numpy as np
import pytest
import tiny
import torch

from labelwise.corpus import Corpus, Document, Splits
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadCorpus, BadSettings
from labelwise.evaluation import evaluate
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import load
from labelwise.methods.neural_tree import with_levels
from labelwise.network.training import Trainer
from labelwise.registry import make_method
from labelwise.settings import override
from labelwise.trees.tree import LabelTree

QUICK = ("training.epochs=3", "words.width=16", "encoder.units=8", "training.batch=16", "mlp=[8]", "training.judge_steps=0")
SMALL = ("tree.use=always", "tree.leaf=4", "tree.top=3")


def method(name="attention-xml", *more):
    return make_method(name, override({}, [*QUICK, *SMALL, *more]))


@pytest.fixture(scope="module")
def world():
    return make_world(documents=120, labels=40, words=20)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tiny.bert(tmp_path_factory.mktemp("bert"))
    return (f"encoder.checkpoint={folder}", "encoder.segment=32", "training.learning_rate=0.003", "training.head_rate=3")


def test_a_tree_is_made_of_the_last_clusters_and_levels_above_until_these_are_few():
    def levels(labels, halvings, **given):
        parents = [np.arange(2**level, dtype=np.int32) // 2 for level in range(1, halvings + 1)]
        halved = LabelTree(
            (*parents, np.sort(np.arange(labels, dtype=np.int32) % 2**halvings)), np.arange(labels, dtype=np.int32)
        )
        tree = with_levels(halved, **given)
        assert np.array_equal(tree.labels, halved.labels)
        for above, nodes in zip(tree.parents, tree.parents[1:], strict=False):
            assert np.bincount(nodes, minlength=len(above)).min() > 0
        return [len(nodes) for nodes in tree.parents]

    assert levels(670_091, 17, first=2048, arity=8) == [2**11, 2**14, 2**17, 670_091]  # the authors' for Amazon-670K
    assert levels(501_070, 13, first=8192, arity=64) == [2**13, 501_070]  # and for Wiki-500K
    assert levels(4_271, 7, first=8192, arity=8) == [2**7, 4_271]
    assert levels(9, 3, first=1, arity=8) == [8, 9]
    assert levels(3, 0, first=1, arity=8) == [3]


def rp(model, world):
    return evaluate(model, world).groups["all"]["rp@5"]


def test_a_tree_learns_nearly_what_a_flat_network_learns():
    world = make_world(documents=600, labels=60, words=30)
    fast = ("encoder.kind=convolution", "encoder.units=32", "decoder=dot", "labels.start=prior")
    learn = (*fast, "training.epochs=12", "training.learning_rate=0.01", "training.average_from=0")
    flat = rp(method("attention-xml", *learn, "tree.use=never").fit(world.train, world.dev), world)
    assert flat > 0.6
    for kind in ("apart", "joint"):
        tree = method("attention-xml", *learn, "tree.top=6", f"tree.stages={kind}").fit(world.train, world.dev)
        assert [len(nodes) for nodes in tree._fitted.network.tree.parents][:-1] == [16]
        assert rp(tree, world) > flat - 0.06


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("attention-xml", ("training.judge_steps=4", "training.average_from=1", "tree.first=4", "tree.arity=2")),
        ("bert-tree", ("tree.stages=levels",)),
    ],
)
@pytest.mark.parametrize("minutes", [0, 10], ids=["each step", "each epoch"])
def test_killed_and_resumed_training_ends_in_the_same_model(world, bert, tmp_path, monkeypatch, name, more, minutes):
    left = [6, 9, 4]  # steps to each kill, the last one first

    def mortal(self, batch, work=Trainer._step):
        if left and left[-1] == 0:
            left.pop()
            raise KeyboardInterrupt
        if left:
            left[-1] -= 1
        return work(self, batch)

    def fitted(work=None):
        own = bert if name == "bert-tree" else ()
        model = method(name, *own, *more, f"training.checkpoint_minutes={minutes}", "training.epochs=2")
        model.work = work
        return model.fit(world.train, world.dev)

    whole = fitted()
    monkeypatch.setattr(Trainer, "_step", mortal)
    while left:
        with pytest.raises(KeyboardInterrupt):
            fitted(tmp_path)
    resumed = fitted(tmp_path)
    told = [[{**look, "documents_per_second": 0} for look in model.history] for model in (whole, resumed)]
    assert told[0] == told[1]
    assert {look["level"] for look in told[0]} == set(range(1, len(whole._fitted.network.levels) + 1))
    for one, other in zip(*(model._fitted.network.state_dict().values() for model in (whole, resumed)), strict=True):
        assert torch.equal(one, other)


def test_training_that_ended_is_not_repeated(world, tmp_path, monkeypatch):
    models = []
    for _ in range(2):
        models.append(method("attention-xml", "training.judge_steps=2", "training.patience=1", "training.learning_rate=0.1"))
        models[-1].work = tmp_path
        models[-1].fit(world.train, world.dev)
        monkeypatch.setattr(Trainer, "_step", None)
    assert models[0].history[-1]["step"] % 6  # it ended within an epoch
    assert models[0].history == models[1].history


def test_steps_in_parts_are_the_same_steps(world):
    settings = ("encoder.dropout=0", "encoder.state_dropout=0", "tree.top=99", "training.epochs=2", "tree.stages=joint")
    whole, parts = (method("attention-xml", *settings, f"training.accumulate={n}").fit(world.train) for n in (1, 3))
    assert parts.predict(world.test).dense() == pytest.approx(whole.predict(world.test).dense(), abs=1e-4)


def test_biases_of_all_levels_may_start_at_the_log_odds(world):
    settings = ("decoder=dot", "labels.start=prior", "tree.stages=joint", "training.epochs=1", "training.learning_rate=0.000001")
    network = method("attention-xml", *settings).fit(world.train)._fitted.network
    for level, nodes in zip(network.levels, network.tree.members(world.train.gold()), strict=True):
        counts = nodes.toarray().sum(axis=0)
        odds = (counts + 0.5) / (len(world.train) - counts + 0.5)
        assert level.label_encoder.bias.tolist() == pytest.approx(np.log(odds), abs=1e-3)


@pytest.mark.parametrize("kind", ["joint", "levels", "apart"])
def test_a_transformer_on_a_tree_learns_and_is_stored_once_where_levels_share_it(world, bert, tmp_path, kind):
    model = method("bert-tree", *bert, f"tree.stages={kind}").fit(world.train, world.dev)
    last = [look for look in model.history if look["level"] == 2]
    assert last[-1]["loss"] < last[0]["loss"]
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert np.array_equal(loaded.predict(world.test).dense(), model.predict(world.test).dense())
    assert len(loaded._fitted.network.encoders) == (1 if kind == "apart" else 0)


def test_dev_scores_are_those_of_the_evaluation(world):
    seen = set(world.train.gold().indices.tolist())
    kept = LabelSet([label for column, label in enumerate(world.labels) if column in seen])
    train, dev = world.train.with_labels(kept), world.dev.with_labels(kept)
    model = method().fit(train, dev)
    best = [look for look in model.history if look["best"]][-1]
    measured = evaluate(model, Splits(train, dev, dev)).groups["all"]
    assert best["dev"]["ndcg"] == pytest.approx(measured["ndcg@5"], abs=1e-6)


def test_labels_without_a_training_document_score_0_and_scores_are_sparse(world):
    model = method("attention-xml", "tree.top=99").fit(world.train)
    scores = model.predict(world.test)
    assert scores.sparse
    unseen = np.bincount(world.train.gold().indices, minlength=len(world.labels)) == 0
    assert unseen.any()
    assert not scores.dense()[:, unseen].any()
    assert (scores.dense()[:, ~unseen] > 0).all()  # all clusters are kept
    assert (np.diff(method().fit(world.train).predict(world.test).values.indptr) <= 3 * 4).all()


def test_an_explanation_has_the_score_of_the_whole_path(world):
    model = method("attention-xml", "decoder=dot").fit(world.train)
    scores = model.predict(world.test[:1])
    (label, score), *_ = scores.top(1)[0]
    found = model.explain(world.test[0], label)
    assert found.score == pytest.approx(score, abs=1e-6)
    network = model._fitted.network
    node = network.tree.labels.tolist().index(world.labels.column(label.id))
    logit = sum(span.weight for span in found.spans) + network.label_encoder.bias[node].item()
    assert 1 / (1 + np.exp(-logit)) >= score
    assert model.explain(world.test[0], Label("new", "word")).score == 0


def test_a_tree_is_used_from_20000_labels_on(world, monkeypatch):
    few = method("attention-xml", "tree.use=auto", "training.epochs=1").fit(world.train)
    assert not few.predict(world.test).sparse
    monkeypatch.setattr("labelwise.methods.neural_tree.MANY", 40)
    many = method("attention-xml", "tree.use=auto", "training.epochs=1").fit(world.train)
    assert many.predict(world.test).sparse


def test_more_candidates_than_there_are_labels_are_all_of_them(world):
    seen = int((world.train.gold().sum(0) > 0).sum())
    scores = method("attention-xml", "tree.top=1000", "training.epochs=1").fit(world.train).predict(world.test)
    assert (np.diff(scores.values.indptr) == seen).all()


def test_labels_that_fit_into_one_cluster_have_no_tree_and_it_is_said(world):
    with pytest.warns(UserWarning, match=r"tree\.leaf=64 holds all \d+ labels with a training document.*lower tree\.leaf"):
        model = method("attention-xml", "tree.leaf=64").fit(world.train)
    flat = method("attention-xml", "tree.use=never").fit(world.train)
    assert np.array_equal(model.predict(world.test).dense(), flat.predict(world.test).dense())


def test_documents_without_a_known_word_are_no_reason_to_lose_their_labels():
    labels = LabelSet([Label(str(number), "x") for number in range(8)])
    texts = ["owl", "duck", "fish", "lake", "?", "!", "?!", "..."]
    corpus = Corpus([Document(str(number), text, (str(number),)) for number, text in enumerate(texts)], labels)
    model = method("attention-xml", "tree.leaf=2", "tree.top=4").fit(corpus)
    assert sorted(model._fitted.network.tree.labels.tolist()) == list(range(8))
    assert np.isfinite(model.predict(corpus).dense()).all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "labels.encoder=centroid",
            r"labels\.encoder=centroid has no vectors for clusters; choose learned, or set tree\.use=never",
        ),
        ("attention=first", r"attention=first reads the same for all labels; choose label in a tree, or set tree\.use=never"),
        ("training.unseen=negatives", r"training\.unseen=negatives, but .* in no tree; choose masked, or set tree\.use=never"),
        ("tree.arity=3", r"tree\.arity.*3"),
        ("tree.top=0", r"tree\.top.*0"),
    ],
)
def test_parts_that_do_not_fit_a_tree_are_refused(world, more, message):
    with pytest.raises(BadSettings, match=message):
        method("attention-xml", "decoder=dot", more).fit(world.train)


def test_development_documents_with_unseen_labels_only_are_refused(world):
    unseen = np.flatnonzero(np.bincount(world.train.gold().indices, minlength=len(world.labels)) == 0)
    dev = Corpus([Document("x", "a text", (world.labels.ids[unseen[0]],))], world.labels, world.info)
    with pytest.raises(BadCorpus, match=r"no development document has a label of a training document, .*monitor=ndcg"):
        method().fit(world.train, dev)


def test_a_corpus_without_labels_is_refused(world):
    bare = Corpus([Document("x", "a text")], world.labels)
    with pytest.raises(BadCorpus, match="nothing to learn"):
        method().fit(bare)


def test_a_model_without_its_tree_does_not_load(world, tmp_path):
    method("attention-xml", "training.epochs=1").fit(world.train).save(tmp_path / "model")
    (tmp_path / "model" / "tree.npz").unlink()
    sums = json.loads((tmp_path / "model" / "checksums.json").read_text())
    assert "tree.npz" in json.dumps(sums)
    with pytest.raises(Exception, match=r"tree\.npz"):
        load(tmp_path / "model")
