"""Networks over word vectors with ELMo's beside them: what they read, what is trained, what is cached and what is saved."""

import shutil

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch.nn.functional import binary_cross_entropy
from toy import zoo

from labelwise.corpus import Corpus, Document
from labelwise.errors import BadFile, BadSettings
from labelwise.features.words import tokenize
from labelwise.methods import readers
from labelwise.methods.base import load
from labelwise.methods.lwan import BigruLwan, BigruLwanElmo
from labelwise.methods.neural import _tokens
from labelwise.network.batches import Examples
from labelwise.network.composition import NetworkSettings, build
from labelwise.network.elmo import Elmo, ScalarMix
from labelwise.network.token_encoders import Tokens, WordInputs
from labelwise.registry import make_method
from labelwise.settings import make, override

CPU = torch.device("cpu")
SPLITS = zoo()
WORDS = ["owl", "Owl", "lake", "fishes", "漢字"]
TEXTS = [document.text for document in SPLITS.train]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.elmo(tmp_path_factory.mktemp("elmo"))


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def runs(monkeypatch):
    """A list that grows by the number of documents whenever ELMo reads some."""
    found, run = [], Elmo.run

    def counted(self, vectors, lengths):
        found.append(len(lengths))
        return run(self, vectors, lengths)

    monkeypatch.setattr(Elmo, "run", counted)
    return found


def method(folder, *settings, name="bigru-lwan-elmo"):
    quick = (f"encoder.elmo={folder}", "training.epochs=2", "words.width=8", "encoder.units=4", "training.batch=2")
    return make_method(name, override({}, [*quick, *settings]))


def scores(model, corpus=SPLITS.test):
    return model.predict(corpus).dense()


def read(model, *texts):
    reader = model._fitted.reader
    documents = [Document("d", text) for text in texts]
    return _tokens(reader.numbers(documents), CPU, reader.context(documents, CPU))


@pytest.mark.parametrize("words_as", [[], ["words.shuffle=true"], ["words.newlines=false", "words.max_length=6"]])
def test_a_word_is_its_vector_and_then_the_mean_of_elmos_layers_of_the_document_as_one_sentence(folder, words_as):
    model = method(folder, *words_as).fit(SPLITS.train)
    inputs, elmo, reader = model._fitted.network.token_encoder.inputs, Elmo.read(folder), model._fitted.reader
    texts = ["Owls!\n\nOWLS and owls in the Wood.", "", "A duck"]
    found = WordInputs(inputs.vectors, 0.3, 0.3, mix=ScalarMix(3, 6)).eval()(read(model, *texts))
    assert found.shape[2] == 8 + 6
    for row, text in enumerate(texts):
        words = tokenize(text, newlines="words.newlines=false" not in words_as)[: model.settings.words.max_length]
        words = [words[place] for place in reader._order(text, len(words))]
        expected = elmo(elmo.spell(words)[None], torch.tensor([len(words)]))[:, 0].mean(0)
        torch.testing.assert_close(found[row, : len(words), 8:], expected, rtol=1e-3, atol=5e-4)
        assert np.array_equal(found[row, : len(words), :8].detach(), reader.table[reader.vectors.numbers(words)])
        assert not found[row, len(words) :].any()


def test_words_that_differ_in_case_only_share_a_vector_but_not_elmos(folder):
    model = method(folder).fit(SPLITS.train)
    one, other = (read(model, text) for text in ("the owl", "The OWL"))
    assert torch.equal(one.numbers, other.numbers)
    assert not torch.isclose(one.context[:, :, 0], other.context[:, :, 0]).all(-1).any()


def test_channels_and_words_are_dropped_from_the_joint_vector():
    inputs = WordInputs(torch.ones(2, 200), 0.5, 0.25, mix=ScalarMix(3, 200))
    torch.manual_seed(0)
    found = inputs(Tokens(torch.ones(1, 300, dtype=torch.long), torch.tensor([300]), torch.ones(1, 300, 5, 100)))[0]
    kept_words, kept_channels = found.any(1), found.any(0)
    assert torch.equal(found > 0, kept_words[:, None] & kept_channels)
    for channels in kept_channels.split(200):
        assert channels.float().mean() == pytest.approx(0.5, abs=0.1)
    assert kept_words.float().mean() == pytest.approx(0.75, abs=0.1)


def test_four_scalars_and_a_wider_gru_are_trained_more():
    plain = build(BigruLwan.Settings(), torch.zeros(3, 200), 4271)
    wider = build(BigruLwanElmo.Settings(), torch.zeros(3, 200), 4271, mix=ScalarMix(3, 1024))
    assert (plain.trainable(), wider.trainable()) == (6_033_071, 7_876_275)  # SPEC 9.3
    assert wider.trainable() - plain.trainable() == 4 + 2 * 3 * 300 * 1024


def test_training_moves_the_scalars_and_leaves_elmo_alone(folder):
    model = method(folder).fit(SPLITS.train)
    mix = model._fitted.network.token_encoder.inputs.mix
    assert mix.scale.item() != 1
    assert len(set(mix.weights.tolist())) == 3
    assert model._fitted.reader.elmo.content() == Elmo.read(folder).content()


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=7), min_size=1, max_size=4), st.integers(0, 3))
@settings(max_examples=30)
@pytest.mark.parametrize("kind", ["recurrent", "convolution"])
def test_neither_padding_nor_company_changes_a_document(fitted, kind, documents, padding):
    model = fitted[kind]
    tokens = read(model, *(" ".join(words) for words in documents))
    rubbish = [torch.full_like(part[:, :1].expand(-1, padding, *part.shape[2:]), 7) for part in (tokens.numbers, tokens.context)]
    padded = Tokens(torch.cat([tokens.numbers, rubbish[0]], 1), tokens.lengths, torch.cat([tokens.context, rubbish[1]], 1))
    together = model._fitted.network(padded)
    for row, words in enumerate(documents):
        torch.testing.assert_close(together[row], model._fitted.network(read(model, " ".join(words)))[0], atol=1e-4, rtol=0)


@pytest.fixture(scope="module")
def fitted(folder):
    kinds = {"recurrent": "encoder.layers=2", "convolution": "encoder.kind=convolution"}
    return {kind: method(folder, setting).fit(SPLITS.train) for kind, setting in kinds.items()}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=7), st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_a_batch_holds_the_rows_of_its_documents(lengths, chosen):
    rows = np.random.default_rng(0).normal(size=(sum(lengths), 5, 3)).astype(np.float16)
    documents = np.split(rows, np.cumsum(lengths)[:-1])
    numbers = [np.ones(length, dtype=np.int32) for length in lengths]
    examples = Examples(numbers, csr_array((len(lengths), 1)), [str(row) for row in range(len(lengths))], context=rows)
    wanted = np.array([row % len(lengths) for row in chosen])
    context = examples.batch(wanted)[0].context
    assert context.dtype == torch.float16
    for row, found in zip(wanted, context.numpy(), strict=True):
        assert np.array_equal(found[: lengths[row]], documents[row])
        assert not found[lengths[row] :].any()


@pytest.mark.parametrize("block", [1 << 17, 9])
def test_elmo_reads_a_corpus_once_and_the_cache_changes_no_bit(folder, runs, monkeypatch, block):
    monkeypatch.setattr(readers, "BLOCK", block)
    cold = method(folder).fit(SPLITS.train, SPLITS.dev)
    assert sum(runs) == len(SPLITS.train) + len(SPLITS.dev)
    runs.clear()
    warm = method(folder, "training.batch=3", "seed=2").fit(SPLITS.train, SPLITS.dev)
    again = method(folder).fit(SPLITS.train, SPLITS.dev)
    assert not runs
    assert again.history[-1]["loss"] == cold.history[-1]["loss"]
    assert np.array_equal(scores(again), scores(cold))
    assert not np.array_equal(scores(warm), scores(cold))


def test_what_is_cached_is_what_elmo_says_of_each_text(folder):
    reader = method(folder).fit(SPLITS.train)._fitted.reader
    documents = [Document("d", text) for text in [*TEXTS, "", "the end"]]
    cached = reader.corpus_context(documents, CPU, lambda items, *_: iter(items))
    assert isinstance(cached, np.memmap)
    assert np.array_equal(cached, np.concatenate(reader.context(documents, CPU)))


@pytest.mark.parametrize("setting", ["words.max_length=3", "words.newlines=false", "words.shuffle=true"])
def test_other_words_and_another_elmo_are_read_again(folder, runs, tmp_path, setting):
    lines = Corpus([Document(one.id, one.text + "\nend", one.labels) for one in SPLITS.train], SPLITS.labels, SPLITS.info)
    method(folder).fit(lines)
    runs.clear()
    method(folder, setting).fit(lines)
    assert sum(runs) == len(lines)
    clipped = {**tiny.ELMO, "lstm": {**tiny.ELMO["lstm"], "cell_clip": 0.5}}
    method(tiny.elmo(tmp_path, clipped)).fit(lines)
    assert sum(runs) == 2 * len(lines)


def test_dev_is_scored_with_cached_vectors_as_predictions_are_with_new_ones(folder):
    model = method(folder).fit(SPLITS.train, SPLITS.dev)
    best = next(epoch for epoch in reversed(model.history) if epoch["best"])
    loss = binary_cross_entropy(
        torch.from_numpy(scores(model, SPLITS.dev)), torch.from_numpy(SPLITS.dev.gold().toarray()).float()
    )
    assert best["dev"]["loss"] == pytest.approx(float(loss), abs=1e-6)


def test_a_saved_model_needs_neither_the_folder_nor_the_cache(folder, tmp_path, runs):
    own = shutil.copytree(folder, tmp_path / "elmo")
    model = method(own).fit(SPLITS.train)
    model.save(tmp_path / "model")
    shutil.rmtree(own)
    runs.clear()
    assert np.array_equal(scores(load(tmp_path / "model")), scores(model))
    assert sum(runs) == 2 * len(SPLITS.test)


class Killed(BaseException):
    """In the middle of an epoch."""


def test_a_killed_training_goes_on_to_the_same_model(folder, tmp_path):
    def killing(items, task, total=None):
        for place, item in enumerate(items):
            if task.startswith("epoch 2") and place == 2:
                raise Killed
            yield item

    whole, killed, resumed = (method(folder, "training.checkpoint_minutes=0") for _ in range(3))
    killed.work = resumed.work = tmp_path
    with pytest.raises(Killed):
        killed.fit(SPLITS.train, SPLITS.dev, progress=killing)
    expected = scores(whole.fit(SPLITS.train, SPLITS.dev))
    assert np.array_equal(scores(resumed.fit(SPLITS.train, SPLITS.dev)), expected)
    assert (tmp_path / "checkpoint.safetensors").stat().st_size < 100_000  # ELMo is not in it


@pytest.mark.parametrize("texts", [["", "an owl", ""], ["", "", ""]])
def test_documents_of_no_words_are_trained_on_and_scored(folder, texts):
    corpus = Corpus([Document(str(row), text, ("owl",)) for row, text in enumerate(texts)], SPLITS.labels, SPLITS.info)
    model = method(folder).fit(corpus, corpus)
    assert np.isfinite(scores(model, corpus)).all()
    assert scores(model, corpus)[0] == pytest.approx(scores(model, corpus)[2], abs=1e-6)
    assert model.explain(corpus[0], SPLITS.labels[0]).spans == ()


def test_explanations_name_the_words_and_add_up_to_the_logit(folder):
    model = method(folder).fit(SPLITS.train)
    document, label = SPLITS.test[0], SPLITS.labels[3]
    explanation = model.explain(document, label)
    assert explanation.score == pytest.approx(scores(model)[0, 3], abs=1e-6)
    assert [document.text[span.start : span.end] for span in explanation.spans] == tokenize(document.text)
    bias = model._fitted.network.label_encoder(torch.tensor([3])).bias.item()
    logit = np.log(explanation.score / (1 - explanation.score))
    assert sum(span.weight for span in explanation.spans) == pytest.approx(logit - bias, abs=1e-4)


@pytest.mark.filterwarnings("ignore:.*no word with a vector")
@pytest.mark.parametrize("name", ["gc-bigru-lwan", "c-bigru-lwan", "cnn-lwan", "gc-cnn-lwan"])
def test_any_network_over_words_may_have_elmo_and_label_vectors_are_made_without(folder, tmp_path, name):
    units = "encoder.units=8" if "cnn" in name else "encoder.units=4"
    plain, wider = (method(elmo, units, name=name).fit(SPLITS.train) for elmo in ("", folder))
    assert wider._fitted.network.token_encoder.inputs.width == plain._fitted.network.token_encoder.inputs.width + 6
    assert plain._fitted.network.label_encoder.width == wider._fitted.network.label_encoder.width
    assert not np.array_equal(scores(wider), scores(plain))
    wider.save(tmp_path / "model")
    assert np.array_equal(scores(load(tmp_path / "model")), scores(wider))


def test_a_folder_that_is_missing_or_has_no_elmo_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        BadFile, match="elmo_2x4096_512_2048cnn_2xhighway: no such file or folder; name a folder with the options"
    ):
        make_method("bigru-lwan-elmo").fit(SPLITS.train)
    with pytest.raises(BadFile, match="one file .options.json is needed, but there are: none"):
        method(tmp_path).fit(SPLITS.train)


def test_elmo_beside_a_transformer_is_refused():
    both = make(NetworkSettings, {"encoder": {"elmo": "folder", "kind": "transformer"}})
    with pytest.raises(BadSettings, match="encoder.elmo stands beside word vectors, which encoder.kind=transformer has not"):
        build(both, torch.zeros(3, 8), 5)
