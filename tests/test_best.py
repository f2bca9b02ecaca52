"""`best` decides for itself, and says why."""

import re

import numpy as np
import pytest
import tiny
import torch
from typer.testing import CliRunner

import labelwise.methods.neural  # noqa: F401  before devices are patched: it keeps what it finds when it is imported
from labelwise import Corpus, Document, evaluate
from labelwise.cli.main import app
from labelwise.corpus import count_labels
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadModel, BadSettings
from labelwise.jsonl import write_corpus
from labelwise.methods import best
from labelwise.methods.base import load
from labelwise.methods.best import BestSettings, choose
from labelwise.network import devices
from labelwise.network.read_labels import ReadLabels
from labelwise.network.transformer import read_transformer
from labelwise.registry import make_method
from labelwise.settings import cores


@pytest.fixture(scope="module")
def world():
    return make_world(documents=200, labels=40, words=30)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(devices, "choose_device", lambda name: torch.device("cuda", 0))


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(devices, "choose_device", lambda name: torch.device("cpu"))


def test_without_a_gpu_words_and_names_are_blended_and_the_reason_is_kept(world, tmp_path):
    model = make_method("best", {}).fit(world.train, world.dev)
    assert [member.model.name for member in model._fitted.members] == ["linear", "lexical", "neighbours"]
    assert "no GPU" in model.why
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.why == model.why
    np.testing.assert_array_equal(again.predict(world.test).dense(), model.predict(world.test).dense())
    assert evaluate(again, world).notes["chosen"] == model.why


def test_it_is_no_worse_on_dev_than_the_better_of_its_members(world):
    found = evaluate(make_method("best", {}).fit(world.train, world.dev), world, split="dev").groups["all"]
    for member in ("linear", "lexical", "neighbours"):
        other = evaluate(make_method(member, {}).fit(world.train, world.dev), world, split="dev").groups["all"]
        assert found["ndcg@5"] >= other["ndcg@5"] - 1e-9


def test_where_one_classifier_per_label_would_take_too_long_trees_stand_in(world, monkeypatch):
    monkeypatch.setattr(best, "PAIRS", 10.0)
    chosen = choose(BestSettings(budget=1.0), world.train)
    assert chosen.members[0][0] == "parabel"
    assert "minutes" in chosen.why


def test_without_a_gpu_a_transformer_in_a_folder_is_used_as_it_is_where_there_is_time(world, tmp_path, monkeypatch):
    folder = str(tiny.bert(tmp_path))
    chosen = choose(BestSettings(checkpoint=folder, budget=10.0), world.train)
    assert [name for name, _ in chosen.members] == ["read-and-learned", "linear", "lexical", "neighbours"]
    made = make_method(*chosen.members[0]).settings
    assert made.encoder.kept
    assert (made.labels.text, made.labels.text_only) == (("name",), 0.0)
    assert made.training.epochs == 8  # the corpus is small
    assert made.budget == 8.0
    assert "not trained itself" in chosen.why
    assert "not trained itself" in choose(BestSettings(checkpoint=folder, budget=1e-3, threads=1), world.train).why
    monkeypatch.setattr(best, "SIZE", 100)  # as if its weights were many
    hurried = choose(BestSettings(checkpoint=folder, budget=1e-3, threads=1), world.train)
    assert [name for name, _ in hurried.members][-2:] == ["lexical", "neighbours"]
    assert "reading the documents would take" in hurried.why
    assert "no transformer" in choose(BestSettings(checkpoint=folder), world.train[:0]).why


def test_without_a_gpu_so_many_documents_are_read_as_there_is_time_for(world, tmp_path, monkeypatch):
    folder = str(tiny.bert(tmp_path))
    monkeypatch.setattr(best, "LEAST", 10)

    def read(budget, dev=None):
        given = BestSettings(checkpoint=folder, budget=budget, threads=1)
        chosen = choose(given, world.train, dev)
        return chosen.why, make_method(*chosen.members[0]).settings.training.documents

    longest = choose(BestSettings(checkpoint=folder), world.train).members[0][1]["encoder"]["segment"]
    subwords = sum(min(longest, len(document.text.split()) * 4 / 3) for document in world.train)
    minutes = subwords * best._size(read_transformer(folder)) / best.SIZE / best.TOKENS / 60
    why, half = read(minutes / best.READING / 2)
    assert half == pytest.approx(len(world.train) / 2, abs=1)
    assert f"from {half} of {len(world.train)} documents" in why
    assert read(minutes / best.READING / 2, world.dev)[1] < half  # these are read too
    why, rest = read(1.01 * minutes / best.READING)
    assert rest == 0
    assert " of " + str(len(world.train)) not in why


def test_with_a_gpu_and_a_transformer_labels_are_read_and_learned(world, gpu, tmp_path):
    given = BestSettings(checkpoint=str(tiny.bert(tmp_path)), budget=10.0, seed=3)
    chosen = choose(given, world.train)
    assert [name for name, _ in chosen.members] == ["read-and-learned", "linear", "lexical", "neighbours"]
    made = make_method(*chosen.members[0]).settings
    assert (made.encoder.checkpoint, made.budget, made.seed) == (given.checkpoint, 8.0, 3)
    assert made.encoder.kind == "transformer"
    assert made.labels.encoder == "read"
    assert (made.labels.text, made.labels.text_only) == (("name", "synonyms"), 0.5)


def test_a_transformer_that_cannot_be_read_is_done_without_unless_it_was_asked_for(world, gpu, tmp_path, monkeypatch):
    with pytest.raises(BadModel, match=re.escape(str(tmp_path))):
        choose(BestSettings(checkpoint=str(tmp_path)), world.train)
    monkeypatch.setattr(BestSettings, "checkpoint", str(tmp_path))
    chosen = choose(BestSettings(checkpoint=str(tmp_path)), world.train)
    assert [name for name, _ in chosen.members] == ["linear", "lexical", "neighbours"]
    assert str(tmp_path) in chosen.why


def test_long_texts_are_judged_by_their_beginnings_too(world):
    long = Corpus([Document(one.id, 5 * one.text, one.labels) for one in world.train], world.labels, world.info)
    chosen = choose(BestSettings(), long)
    assert [name for name, _ in chosen.members] == ["linear", "lexical", "neighbours", "linear", "neighbours"]
    read = [getattr(make_method(*member).settings, "features", None) for member in chosen.members]
    assert [features and features.beginning for features in read] == [0, None, 0, best.BEGINNING, best.BEGINNING]
    assert (read[3].ngrams, read[4].ngrams) == (read[0].ngrams, read[2].ngrams)
    assert "beginnings" in chosen.why
    words = sum(len(one.text.split()) for one in long)
    minutes = words * (count_labels(long) > 0).sum() / best.PAIRS / 60 / cores(0)
    assert choose(BestSettings(budget=2 * minutes), long).members[0][0] == "parabel"  # one classifier would do, two are too slow
    model = make_method("best", {}).fit(long, world.dev)
    document = world.dev[0]
    names = [name for name, _ in model.explain(document, world.labels[world.labels.column(document.labels[0])]).sources]
    assert {"linear (features.beginning=0)", f"linear (features.beginning={best.BEGINNING})"} <= set(names)


def test_in_a_large_corpus_documents_are_not_compared_with_each_other(world, monkeypatch):
    monkeypatch.setattr(best, "ALIKE", len(world.train) - 1)
    assert [name for name, _ in choose(BestSettings(), world.train).members] == ["linear", "lexical"]


def test_members_may_be_given(world):
    model = make_method("best", {"members": ["lexical", "bonsai"]}).fit(world.train, world.dev)
    assert [member.model.name for member in model._fitted.members] == ["lexical", "bonsai"]


def test_members_that_are_given_have_the_threads_and_the_device_that_are_asked_for(world):
    model = make_method("best", {"members": ["lexical", "linear"], "threads": 1, "device": "cpu"})
    assert [getattr(member.model.settings, "threads", None) for member in model._members(world.train, world.dev)] == [None, 1]
    for other in ({"budget": 1.0}, {"checkpoint": "minilm"}):
        with pytest.raises(BadSettings, match="best: budget and checkpoint are for members that best chooses"):
            make_method("best", {"members": ["lexical"], **other}).fit(world.train, world.dev)


def test_a_folder_that_is_not_there_and_weights_for_members_not_yet_chosen_are_mistakes(world, tmp_path):
    with pytest.raises(BadModel, match="there is no GPU, and minlm is no folder"):
        choose(BestSettings(checkpoint="minlm"), world.train)
    with pytest.raises(BadSettings, match="best: given: weights are those of members"):
        make_method("best", {"given": {"few": [1.0]}}).fit(world.train, world.dev)


@pytest.fixture(scope="module")
def read(world, tmp_path_factory):
    """`best` with a transformer as it is, and the folder it was saved in."""
    place = tmp_path_factory.mktemp("read")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "choose_device", lambda name: torch.device("cpu"))
        patch.setenv("LABELWISE_CACHE", str(place / "cache"))
        model = make_method("best", {"checkpoint": str(tiny.bert(place / "bert")), "threads": 1}).fit(world.train, world.dev)
    model.save(place / "model")
    return model, place / "model"


def test_with_a_transformer_it_is_saved_and_explains_what_is_read_and_what_learned(world, read):
    model, folder = read
    again = load(folder)
    np.testing.assert_array_equal(again.predict(world.test).dense(), model.predict(world.test).dense())
    column = int(np.argmax(model.predict(world.test[:1]).dense()[0]))
    names = dict(again.explain(world.test[0], world.labels[column]).sources)
    assert {"read-and-learned, its text", "read-and-learned, what training added", "linear"} <= set(names)


def test_labels_are_encoded_once_for_all_explanations_and_predictions(world, read, monkeypatch):
    model, encoded = load(read[1]), []
    forward = ReadLabels.forward
    monkeypatch.setattr(ReadLabels, "forward", lambda self, *given: encoded.append(1) or forward(self, *given))
    model.predict(world.test[:1])
    model.explain(world.test[0], world.labels[0])
    model.explain(world.test[1], world.labels[1])
    assert len(encoded) == 1


def test_development_documents_without_labels_are_none(world, read):
    bare = Corpus([Document("d", "some words")], world.labels, world.info)
    with pytest.warns(UserWarning, match="no labels of development documents"):
        model = make_method("best", {"checkpoint": read[0].settings.checkpoint, "threads": 1}).fit(world.train, bare)
    assert model._fitted.members[0].model.name == "read-and-learned"


def test_the_command_says_what_was_chosen(world, tmp_path):
    write_corpus(world, tmp_path / "corpus")
    told = CliRunner().invoke(app, ["train", "best", "--on", str(tmp_path / "corpus"), "--out", str(tmp_path / "model")])
    assert told.exit_code == 0, told.output
    assert "chosen: one classifier per label" in told.output
    shown = CliRunner().invoke(app, ["evaluate", str(tmp_path / "model"), "--on", str(tmp_path / "corpus")])
    assert "Chosen: one classifier per label" in shown.output
