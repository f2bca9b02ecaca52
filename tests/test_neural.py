"""Label-wise attention networks as methods: words, labels, explanations."""

import dataclasses

import numpy as np
import pytest
import torch
from toy import zoo

from labelwise.corpus import Corpus, Document
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadSettings, LabelwiseError
from labelwise.features.words import tokenize
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import load
from labelwise.methods.neural import _tokens
from labelwise.registry import make_method
from labelwise.settings import override

QUICK = ("training.epochs=2", "words.width=16", "training.batch=8")


def method(name, *settings):
    return make_method(name, override({}, [*QUICK, *settings]))


@pytest.fixture(scope="module")
def world():
    return make_world(documents=120, labels=40, words=20)


def write_vectors(path, width=16):
    random = np.random.default_rng(0)
    words = ["owl", "duck", "lake", "fish", "bird", "night", "a", "the", "unknown"]
    path.write_text("".join(f"{word} {' '.join(f'{x:.3f}' for x in random.normal(size=width))}\n" for word in words))


def test_pretrained_vectors_are_read_and_kept_in_the_model(tmp_path, splits):
    write_vectors(tmp_path / "v.txt")
    model = method("bigru-lwan", f"words.vectors={tmp_path / 'v.txt'}", "encoder.units=8").fit(splits.train)
    model.save(tmp_path / "model")
    (tmp_path / "v.txt").unlink()
    assert np.array_equal(load(tmp_path / "model").predict(splits.test).dense(), model.predict(splits.test).dense())


@pytest.mark.filterwarnings("ignore:.*no word with a vector")
@pytest.mark.parametrize("name", ["cnn-lwan", "dc-bigru-lwan"])
def test_vectors_of_words_are_trained_where_asked_and_are_part_of_the_model(tmp_path, splits, name):
    write_vectors(tmp_path / "v.txt")
    settings = f"words.vectors={tmp_path / 'v.txt'}", "words.train=true", "encoder.units=8"
    model = method(name, *settings).fit(splits.train)
    first = model._fitted.reader.table
    trained = model._fitted.network.token_encoder.inputs.vectors
    assert not np.array_equal(first, trained.detach().numpy())
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(splits.test).dense(), model.predict(splits.test).dense())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("words.vectors=none.txt",), r"none\.txt: no such file; .*words\.vectors"),
        (("words.vectors=v.txt", "words.width=50"), r"width 16, but the settings say 50"),
        (("words.vectors=v.txt", "words.width=0", "encoder.units=5"), r"states of 10 with label vectors of 16 components"),
    ],
)
def test_vectors_that_are_missing_or_do_not_fit_are_refused(tmp_path, monkeypatch, splits, settings, message):
    monkeypatch.chdir(tmp_path)
    write_vectors(tmp_path / "v.txt")
    with pytest.raises(LabelwiseError, match=message):
        method("c-bigru-lwan", *settings).fit(splits.train)


def test_labels_without_a_usable_word_are_counted_and_still_scored():
    labels = LabelSet([Label("a", "owl"), Label("b", "1984"), Label("c", "zzz")])
    corpus = Corpus([Document("x", "an owl sees an owl", ("a",)), Document("y", "another one", ("b",))], labels)
    model = method("c-bigru-lwan")
    with pytest.warns(UserWarning, match=r"2 of 3 labels have no word with a vector in their names \(1 have no word at all\)"):
        model.fit(corpus)
    scores = model.predict(corpus).dense()
    assert (scores > 0).all()
    assert np.array_equal(scores[:, 1], scores[:, 2])
    assert not np.allclose(scores[:, 1], 0.5)


def test_documents_of_no_words_and_of_very_many_are_scored(world):
    model = method("bigru-lwan", "words.max_length=50", "encoder.units=4").fit(world.train)
    word = world.train[0].text.split()[0]
    scores = model.predict(
        Corpus([Document("none", ""), Document("many", f"{word} " * 100_000), Document("fifty", f"{word} " * 50)], world.labels)
    )
    assert np.isfinite(scores.dense()).all()
    assert scores.dense()[1] == pytest.approx(scores.dense()[2], abs=1e-6)


def test_shuffled_words_change_scores_but_not_from_run_to_run(world):
    plain, shuffled = (
        method("bigru-lwan", "encoder.units=4").fit(world.train),
        method("bigru-lwan", "words.shuffle=true", "encoder.units=4").fit(world.train),
    )
    assert not np.allclose(plain.predict(world.test).dense(), shuffled.predict(world.test).dense())
    assert np.array_equal(shuffled.predict(world.test).dense(), shuffled.predict(world.test).dense())
    document = world.test[0]
    numbers = shuffled._fitted.reader.numbers([document])[0]
    assert sorted(numbers) == sorted(plain._fitted.reader.numbers([document])[0])
    label = world.labels[0]
    explained = shuffled.explain(document, label)
    assert [document.text[span.start : span.end] for span in explained.spans] == tokenize(document.text)
    tokens = _tokens([numbers], torch.device("cpu"))
    weights = shuffled._fitted.network.contributions(tokens, 0, shuffled._encode(world.labels, torch.device("cpu"))[0]).parts
    order = shuffled._fitted.reader._order(document.text, len(numbers))
    assert [explained.spans[place].weight for place in order] == pytest.approx(weights)


@pytest.mark.parametrize("name", ["c-bigru-lwan", "dc-bigru-lwan", "gc-bigru-lwan", "gc-cnn-lwan"])
def test_a_label_added_after_training_is_scored_by_its_name_and_place(world, name):
    model = method(name, "training.epochs=12", "training.learning_rate=0.01").fit(world.train)
    above = {parent for label in world.labels for parent in label.parents}
    used = {id for document in world.train for id in document.labels}
    known = next(label for label in world.labels if label.id in used - above)  # a leaf: a twin has no children either
    longer = world.labels.extended([Label("twin", known.name, known.parents), Label("empty", "…")])
    scores = model.predict(world.test.with_labels(longer)).dense()
    column = longer.column(known.id)
    assert np.corrcoef(scores[:, column], scores[:, longer.column("twin")])[0, 1] > 0.8
    assert np.isfinite(scores).all()


def test_explanations_name_the_words_a_label_looks_at(world):
    model = method("bigru-lwan", "training.epochs=10", "training.learning_rate=0.01", "encoder.units=8").fit(world.train)
    document = world.test[0]
    label = model.predict(world.test[:1]).top(1)[0][0][0]
    explanation = model.explain(document, label)
    assert explanation.score == pytest.approx(model.predict(world.test[:1]).dense()[0, world.labels.column(label.id)], abs=1e-5)
    assert [document.text[span.start : span.end] for span in explanation.spans] == tokenize(document.text)
    assert model.explain(document, Label("foreign", "a stranger")).spans == ()
    assert model.explain(Document("x", ""), label).spans == ()


def test_explanations_of_labels_added_later_work_for_described_labels(world):
    model = method("gc-bigru-lwan", "encoder.units=8").fit(world.train)
    child = next(label for label in world.labels if label.parents)
    new = Label("new", child.name, child.parents)
    explained = model.explain(world.test[0], new)
    assert explained.spans
    longer = world.labels.extended([new])
    assert explained.score == pytest.approx(model.predict(world.test[:1].with_labels(longer)).dense()[0, -1], abs=1e-5)


def test_what_a_network_can_explain_depends_on_its_labels_not_on_its_name(world):
    described = method("bigru-lwan", "labels.encoder=centroid", "encoder.units=8").fit(world.train)
    assert described.explain(world.test[0], Label("new", world.labels[0].name)).spans
    learned = method("c-cnn-lwan", "labels.encoder=learned", "encoder.units=8").fit(world.train)
    assert learned.explain(world.test[0], Label("new", world.labels[0].name)).spans == ()


def test_a_model_trained_on_a_device_that_is_not_here_is_used_on_one_that_is(world, tmp_path):
    model = method("cnn-lwan").fit(world.train)
    model.settings = dataclasses.replace(model.settings, device="cuda:7")
    model.save(tmp_path / "model")
    assert np.array_equal(
        load(tmp_path / "model").predict(world.test).dense(), method("cnn-lwan").fit(world.train).predict(world.test).dense()
    )


@pytest.mark.filterwarnings("ignore:.*have no word with a vector")
def test_two_trainings_in_one_process_do_not_disturb_each_other():
    splits = zoo()
    first = method("cnn-lwan").fit(splits.train).predict(splits.test).dense()
    method("gc-bigru-lwan").fit(splits.train)
    assert np.array_equal(method("cnn-lwan").fit(splits.train).predict(splits.test).dense(), first)


def test_a_variant_that_does_not_exist_is_refused(splits):
    with pytest.raises(
        BadSettings, match="labels.variant=flat means nothing with encoder=centroid and refine=graph; there is flat"
    ):
        method("gc-bigru-lwan", "labels.variant=flat").fit(splits.train)
