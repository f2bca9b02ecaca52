"""Transformers that are not trained, whose states are kept: all is as with frozen ones, but for rounding."""

import json
from dataclasses import replace
from shutil import copytree

import numpy as np
import pytest
import torch
from checkpoints import TEXTS, folder, library, library_states, method, scores
from toy import zoo

from labelwise.features.subwords import Subwords
from labelwise.methods.readers import SubwordReader
from labelwise.network.transformer import read_transformer
from labelwise.progress import silent

CPU = torch.device("cpu")
PAGES = ["owls hunt\n\ntwo grey herons stand in the deep dark lake\n\na duck swims again and again and again", *TEXTS]


@pytest.fixture(scope="module")
def still(tmp_path_factory):
    """A checkpoint that drops nothing in training."""
    place = copytree(folder("bert"), tmp_path_factory.mktemp("still") / "bert")
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return place


@pytest.mark.parametrize("segmentation", ["consecutive", "sections"])
@pytest.mark.parametrize("name", ["bert-base-lwan", "hier-sci-bert"])
def test_a_kept_encoder_gives_the_scores_of_a_frozen_one(still, name, segmentation):
    train = zoo().train
    given = [f"encoder.checkpoint={still}", "encoder.dropout=0.0", "encoder.segments=3", f"encoder.segmentation={segmentation}"]
    found = [
        scores(
            method(name, "bert", *given, "encoder.segment=8", "training.learning_rate=0.1", way).fit(train), PAGES, train.labels
        )
        for way in ("encoder.frozen=99", "encoder.kept=true")
    ]
    assert found[0].std(axis=0).max() > 0.01
    np.testing.assert_allclose(found[0], found[1], atol=3e-3)


def reader(*more: str) -> SubwordReader:
    """What cuts texts for hier-sci-bert and reads them once."""
    given = method("hier-sci-bert", "bert", "encoder.kept=true", "encoder.segment=8", "encoder.segments=3", *more).settings
    checkpoint = given.encoder.checkpoint
    return SubwordReader(Subwords.read(checkpoint), np.zeros((0, 16)), read_transformer(checkpoint), given)


def entries(cache) -> int:
    return len(list(cache.glob("states-*")))


SECTIONS = "encoder.segmentation=sections"


@pytest.mark.parametrize(
    "changed",
    [("encoder.segment=9",), (SECTIONS,), (SECTIONS, "attention=label"), ("training.precision=bfloat16",)],
    ids=lambda changed: changed[-1],
)
def test_what_changes_states_has_them_made_again(tmp_path, monkeypatch, changed):
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path))
    documents = list(zoo().train)
    plain = reader(*changed[:-1])
    plain.corpus_context(documents, CPU, silent)
    found = reader(*changed).corpus_context(documents, CPU, silent)
    assert entries(tmp_path) == 2
    np.testing.assert_array_equal(found, np.concatenate(reader(*changed).context(documents, CPU)))


@pytest.mark.parametrize(("asked", "off"), [("float32", 1e-3), ("bfloat16", 0.1)])
def test_states_are_made_in_the_precision_that_is_asked_for(asked, off):
    kept, documents = reader(f"training.precision={asked}"), list(zoo().train)
    found = kept.context(documents, CPU)
    wrong = [
        np.abs(states[:8, 0] - library_states(library("bert")[1], numbers[:8]).numpy()).max()
        for states, numbers in zip(found, kept.numbers(documents), strict=True)
    ]
    assert off / 10 < max(wrong) < off
    np.testing.assert_array_equal(kept.corpus_context(documents, CPU, silent), np.concatenate(found))


def test_a_shape_that_no_weight_tells_has_states_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "cache"))
    other = copytree(folder("bert"), tmp_path / "bert")
    config = json.loads((other / "config.json").read_text(encoding="utf-8"))
    (other / "config.json").write_text(json.dumps(config | {"num_attention_heads": 4}), encoding="utf-8")
    documents = list(zoo().train)
    found = [reader(f"encoder.checkpoint={place}").corpus_context(documents, CPU, silent) for place in (folder("bert"), other)]
    assert not np.allclose(found[0], found[1], atol=0.1)


@pytest.mark.parametrize("same", ["encoder.dropout=0.5", "encoder.recompute=true", "training.epochs=7"])
def test_what_changes_no_state_has_them_read_again(tmp_path, monkeypatch, same):
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path))
    documents = list(zoo().train)
    found = [reader(*more).corpus_context(documents, CPU, silent) for more in ((), (same,))]
    assert entries(tmp_path) == 1
    np.testing.assert_array_equal(*found)


def test_documents_are_not_read_again_while_they_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path))
    kept, documents = reader(), list(zoo().train)
    states = kept.corpus_context(documents, CPU, silent)
    lengths = [len(row) for row in kept.numbers(documents)]
    encoder, calls = kept.keeper, []
    encoder.register_forward_hook(lambda module, given, found: calls.append(len(given[0].lengths)))
    with kept.remembering(documents, CPU, silent):
        found = kept.context([documents[2], replace(documents[0], text="a new one"), documents[0]], CPU)
    assert calls == [1]
    np.testing.assert_array_equal(found[0], states[sum(lengths[:2]) : sum(lengths[:3])])
    np.testing.assert_array_equal(found[2], states[: lengths[0]])
    kept.context(documents[:1], CPU)
    assert calls == [1, 1]
