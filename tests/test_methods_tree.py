"""PARABEL, BONSAI and one-vs-rest as a user meets them; the contract suite checks the rest."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelwise.corpus import Corpus, Document, Groups
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadCorpus, BadSettings
from labelwise.evaluation import evaluate
from labelwise.jsonl import write_corpus
from labelwise.labels import Label, LabelSet
from labelwise.methods import tree
from labelwise.registry import make_method
from labelwise.trees.clustering import label_vectors

METHODS = ("parabel", "bonsai", "linear")


@pytest.fixture(scope="module")
def world():
    return make_world(documents=1500, labels=200)


@pytest.fixture(scope="module", params=METHODS)
def model(request, world):
    return make_method(request.param, {"features": {"ngrams": 2}}).fit(world.train)


def test_they_beat_the_names_and_the_prior_on_labels_they_saw(model, world):
    ours, names = evaluate(model, world), evaluate(make_method("lexical").fit(world.train), world)
    for group in ("all", "frequent"):
        assert ours.groups[group]["rp@5"] > names.groups[group]["rp@5"] + 0.1
    assert ours.groups["all"]["rp@5"] > 0.6


def test_labels_without_training_documents_score_0(model, world):
    scores = model.predict(world.test)
    assert scores.sparse
    assert scores.dense()[:, Groups.of(world).counts == 0].max() == 0


def test_documents_without_a_known_word_score_0(model, world):
    scores = model.predict(Corpus([Document("x", "qqq zzz"), Document("y", "!")], world.labels)).dense()
    assert scores.max() == 0
    assert not np.isnan(scores).any()


def test_many_documents_are_scored_as_few_are(model, world, monkeypatch):
    backwards = Corpus(world.test.documents, LabelSet(reversed(world.labels)))
    whole = [model.predict(corpus).dense() for corpus in (world.test, backwards)]
    monkeypatch.setattr(tree, "BATCH", 7)
    for corpus, expected in zip((world.test, backwards), whole, strict=True):
        scores = model.predict(corpus)
        assert scores.sparse
        assert (scores.dense() == expected).all()
    assert model.predict(world.test[:0]).dense().shape == (0, len(world.labels))


def test_label_vectors_are_unit_sums_of_documents_for_any_number_of_labels():
    random = np.random.default_rng(1)
    features = random.random((50, 30)).astype(np.float32) * (random.random((50, 30)) < 0.3)
    gold = random.random((50, 600)) < 0.03
    sums = gold.T.astype(np.float64) @ features
    expected = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    found = label_vectors(csr_array(features), csr_array(gold)).toarray()
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_words_of_a_label_speak_for_it(model, world):
    frequent = int(np.argmax(Groups.of(world).counts))
    label = world.labels[frequent]
    document = next(d for d in world.test if label.id in d.labels)
    explanation = model.explain(document, label)
    spoke = sorted(explanation.spans, key=lambda span: -span.weight)
    assert spoke[0].weight > 0
    assert explanation.score == pytest.approx(
        float(model.predict(Corpus([document], world.labels)).dense()[0, frequent]), abs=1e-6
    )
    assert model.explain(document, Label("never-seen", "x")).spans == ()


def test_logistic_trees_learn_as_well(world):
    model = make_method("parabel", {"loss": "logistic", "cost": 10.0, "trees": 1, "features": {"ngrams": 1}}).fit(world.train)
    assert evaluate(model, world).groups["all"]["rp@5"] > 0.6


def test_no_label_in_training_is_an_error():
    labels = LabelSet([Label("a", "a")])
    with pytest.raises(BadCorpus, match="no training document of 'corpus' has a label"):
        make_method("parabel").fit(Corpus([Document("1", "text")], labels))


def test_a_vocabulary_that_is_pruned_to_nothing_names_the_setting():
    labels = LabelSet([Label("a", "a")])
    with pytest.raises(BadSettings, match=r"\(min_count\)"):
        make_method("bonsai", {"features": {"min_count": 99}}).fit(Corpus([Document("1", "word", ("a",))], labels))


def test_threads_do_not_change_the_model(world, tmp_path):
    for threads in (1, 2):
        make_method("parabel", {"threads": threads, "trees": 2, "features": {"ngrams": 1}}).fit(world.train).save(
            tmp_path / str(threads)
        )
    sums = [json.loads((tmp_path / str(threads) / "checksums.json").read_text())["sha256"] for threads in (1, 2)]
    assert {name: sum for name, sum in sums[0].items() if name != "model.toml"} == {
        name: sum for name, sum in sums[1].items() if name != "model.toml"
    }


def test_a_kill_in_mid_training_and_a_resume_give_the_same_model(world, tmp_path):
    write_corpus(world, tmp_path / "world")

    def command(out: str) -> list[str]:
        settings = ["--set", "trees=4", "--set", "features.ngrams=3", "--threads", "1"]
        return [
            sys.executable,
            "-m",
            "labelwise",
            "train",
            "parabel",
            "--on",
            str(tmp_path / "world"),
            "--out",
            str(tmp_path / out),
            *settings,
        ]

    subprocess.run(command("undisturbed"), check=True, capture_output=True)
    process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kept = tmp_path / ".killed.training"
    deadline = time.monotonic() + 120
    while not list(kept.glob("tree-*.npz")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed").exists()
    assert list(kept.glob("tree-0-*.npz"))
    before = os.stat(next(kept.glob("tree-0-*.npz"))).st_mtime_ns
    subprocess.run([*command("killed"), "--resume"], check=True, capture_output=True)
    assert before < (tmp_path / "killed").stat().st_mtime_ns
    assert not kept.exists()
    assert (tmp_path / "killed" / "checksums.json").read_text() == (tmp_path / "undisturbed" / "checksums.json").read_text()


def test_a_kept_tree_of_other_data_is_not_taken(world, tmp_path):
    one = make_method("parabel", {"trees": 1, "features": {"ngrams": 1}})
    one.work = tmp_path
    one.fit(world.train)
    other = make_method("parabel", {"trees": 1, "features": {"ngrams": 1}})
    other.work = tmp_path
    other.fit(world.train[:500])
    assert len(list(tmp_path.glob("tree-0-*.npz"))) == 2
