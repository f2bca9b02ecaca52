"""What every registered method must do; a new method gets these checks by being registered."""

import atexit
import inspect
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import FrozenInstanceError, fields, is_dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tiny

from labelwise.corpus import Corpus, Document
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadModel, LabelwiseError
from labelwise.jsonl import read_corpus, write_corpus
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import Explains, ZeroShot, load
from labelwise.registry import find, make_method, methods
from labelwise.running import corpus_checksum
from labelwise.settings import explain, override

NAMES = sorted(methods())
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*have no word with a vector",
    "ignore:no label has a parent",
    "ignore:ensemble. no ",
    "ignore:tree.leaf=8 holds all 1 labels",
)

# Networks are made small: what is checked here does not depend on their size.
SMALL = ("training.epochs=2", "words.width=16", "labels.nodes.walks=1", "labels.nodes.width=8")
TREE = ("tree.use=always", "tree.leaf=8", "tree.top=4")


@cache
def checkpoint(kind: str) -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"bert": tiny.bert, "roberta": tiny.roberta, "elmo": tiny.elmo}[kind](folder)


def small(name: str) -> list[str]:
    settings = find(name, methods(), "method").load().Settings
    if "training" not in settings.__dataclass_fields__:
        return []
    tree = TREE if "tree" in settings.__dataclass_fields__ else ()
    if settings().encoder.kind == "transformer":
        kind = "roberta" if "roberta" in name else "bert"
        return [*SMALL, *tree, f"encoder.checkpoint={checkpoint(kind)}", "encoder.segment=32", "training.learning_rate=0.001"]
    elmo = [f"encoder.elmo={checkpoint('elmo')}"] if settings().encoder.elmo else []
    return [*SMALL, *tree, f"encoder.units={16 if 'cnn' in name else 8}", *elmo]


def make_small(name: str):
    return make_method(name, override({}, small(name)))


@pytest.fixture(scope="module")
def world():
    return make_world(documents=300, labels=60, words=40)


@pytest.fixture(scope="module", params=NAMES)
def fitted(request, world):
    return make_small(request.param).fit(world.train, world.dev)


def values(model, corpus) -> np.ndarray:
    return model.predict(corpus).dense()


def test_scores_have_a_column_per_label_and_lie_between_0_and_1(fitted, world):
    scores = fitted.predict(world.test)
    assert scores.values.shape == (len(world.test), len(world.labels))
    assert scores.labels is world.labels
    dense = scores.dense()
    assert np.isfinite(dense).all()
    assert dense.max() > 0


def test_fitting_returns_the_method_itself_and_repeats_bit_for_bit(fitted, world):
    again = make_small(fitted.name)
    assert again.fit(world.train, world.dev) is again
    assert np.array_equal(values(again, world.test), values(fitted, world.test))


def test_dev_documents_are_not_needed(fitted, world):
    assert np.isfinite(values(make_small(fitted.name).fit(world.train), world.test)).all()


def test_another_process_writes_the_same_bytes(fitted, world, tmp_path, monkeypatch):
    write_corpus(world, tmp_path / "world")
    checksum = corpus_checksum(read_corpus(tmp_path / "world"))  # the command keeps it, for --resume
    monkeypatch.setattr(fitted, "trained_on", checksum, raising=False)
    fitted.save(tmp_path / "here")
    settings = (word for setting in small(fitted.name) for word in ("--set", setting))
    command = [sys.executable, "-m", "labelwise", "train", fitted.name, *settings]
    places = ["--on", str(tmp_path / "world"), "--out", str(tmp_path / "there")]
    subprocess.run([*command, *places], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "1"})
    here, there = ((tmp_path / name / "checksums.json").read_text() for name in ("here", "there"))
    assert here == there


def test_the_constructor_stores_settings_and_nothing_is_changed_in_them(fitted):
    settings = fitted.settings
    assert is_dataclass(settings)
    for setting in fields(settings):
        with pytest.raises(FrozenInstanceError):
            setattr(settings, setting.name, None)
    assert type(fitted)(settings).settings is settings


def test_every_setting_has_a_meaning(fitted):
    assert all(meaning for *_, meaning in explain(type(fitted).Settings))


def test_a_saved_model_loads_with_the_same_scores(fitted, world, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded) is type(fitted)
    assert loaded.settings == fitted.settings
    assert np.array_equal(values(loaded, world.test), values(fitted, world.test))


def test_saving_twice_gives_the_same_bytes(fitted, tmp_path):
    fitted.save(tmp_path / "one")
    load(tmp_path / "one").save(tmp_path / "two")
    one, two = ((tmp_path / name / "checksums.json").read_text() for name in ("one", "two"))
    assert one == two


def test_a_model_folder_holds_nothing_that_runs(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    for path in filter(Path.is_file, (tmp_path / "model").rglob("*")):
        assert path.suffix in {".toml", ".jsonl", ".json", ".npz", ".txt", ".npy", ".safetensors"}, path
        if path.suffix == ".npz":
            for name in zipfile.ZipFile(path).namelist():
                np.lib.format.read_array(io.BytesIO(zipfile.ZipFile(path).read(name)), allow_pickle=False)


def test_a_flipped_byte_is_noticed(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    victim = next(path for path in sorted((tmp_path / "model").iterdir()) if path.suffix in {".npz", ".safetensors"})
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    with pytest.raises(BadModel, match=rf"{victim.name}: changed since it was written"):
        load(tmp_path / "model")


def test_an_existing_model_is_kept_without_force(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    with pytest.raises(LabelwiseError, match="already exists"):
        fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "model", force=True)


def test_the_order_and_company_of_documents_does_not_matter(fitted, world):
    whole = values(fitted, world.test)
    alone = values(fitted, world.test[3:4])
    assert alone[0] == pytest.approx(whole[3], abs=1e-5)
    backwards = Corpus(list(world.test)[::-1], world.labels, world.info)
    assert values(fitted, backwards)[::-1] == pytest.approx(whole, abs=1e-5)


def test_labels_added_after_training_get_a_column(fitted, world):
    seen = world.train[0].text.split()[0]
    longer = world.labels.extended([Label("brand-new", seen)])
    corpus = Corpus([Document("x", f"{seen} {seen}")], longer)
    scores = values(fitted, corpus)
    assert scores.shape == (1, len(longer))
    if isinstance(fitted, ZeroShot):
        assert scores[0, -1] > 0
    else:
        assert scores[0, -1] == 0


def test_columns_follow_the_label_set_that_is_asked_for(fitted, world):
    backwards = LabelSet(list(world.labels)[::-1])
    assert values(fitted, world.test.with_labels(backwards))[:, ::-1] == pytest.approx(values(fitted, world.test), abs=1e-5)


@pytest.mark.parametrize("text", ["?", "zzzzqqq", "a " * 20_000, "漢字 🙂 \u0000"])
def test_strange_texts_are_scored_without_a_fuss(fitted, world, text):
    assert np.isfinite(values(fitted, Corpus([Document("x", text)], world.labels))).all()


def test_no_documents_give_no_scores(fitted, world):
    assert values(fitted, world.test[:0]).shape == (0, len(world.labels))


def test_a_method_that_was_not_fitted_says_so(fitted, world, tmp_path):
    fresh = make_small(fitted.name)
    for use in (lambda: fresh.predict(world.test), lambda: fresh.save(tmp_path / "model")):
        with pytest.raises(LabelwiseError, match="not fitted yet"):
            use()
    assert not (tmp_path / "model").exists()


def test_one_document_and_one_label_are_enough(fitted):
    labels = LabelSet([Label("only", "word")])
    corpus = Corpus([Document("x", "a word", ("only",))], labels)
    assert values(make_small(fitted.name).fit(corpus), corpus).shape == (1, 1)


def test_explanations_point_into_the_text(fitted, world):
    if not isinstance(fitted, Explains):
        pytest.skip("does not explain")
    document = world.test[0]
    label = fitted.predict(world.test[:1]).top(1)[0][0][0]
    explanation = fitted.explain(document, label)
    assert explanation.label == label
    assert explanation.spans
    for span in explanation.spans:
        assert 0 <= span.start < span.end <= len(document.text)
        assert np.isfinite(span.weight)


def test_the_class_says_what_it_is(fitted):
    assert inspect.getdoc(type(fitted))
    assert methods()[fitted.name].load() is type(fitted)
