"""Labels that are read and learned, and where they begin."""

import numpy as np
import pytest
import tiny
import torch
from sklearn.linear_model import LogisticRegression
from toy import zoo
from transformers import AutoModel, AutoTokenizer

from labelwise.corpus import Corpus
from labelwise.errors import BadSettings
from labelwise.labels import Label
from labelwise.methods.base import load
from labelwise.methods.readers import SubwordReader, label_text
from labelwise.network import first_fit
from labelwise.network.read_labels import SCALE, SHIFT, ReadLabels, Texts
from labelwise.network.token_encoders import Tokens
from labelwise.network.training import Trainer
from labelwise.registry import make_method
from labelwise.settings import override

pytestmark = pytest.mark.filterwarnings("ignore:.*have no word with a vector")


@pytest.fixture(scope="module")
def splits():
    return zoo()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.bert(tmp_path_factory.mktemp("bert"))


def make(folder, *more: str):
    sets = [f"encoder.checkpoint={folder}", "encoder.segment=32", "encoder.dropout=0.0", "training.epochs=1", *more]
    return make_method("read-and-learned", override({}, sets))


def fitted(folder, splits, *more: str):
    return make(folder, *more).fit(splits.train, splits.dev)


@pytest.mark.parametrize("kept", ["true", "false"])
def test_before_training_a_score_is_the_likeness_of_document_and_label(folder, splits, kept):
    still = "training.learning_rate=1e-6", "training.head_rate=0.001"
    trained = fitted(folder, splits, *still, f"encoder.kept={kept}")
    scores, labels = trained.predict(splits.test).dense(), trained._fitted.network.label_encoder
    model, cut = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)

    def states(text: str, longest: int) -> torch.Tensor:
        with torch.no_grad():
            return model(**cut(text, truncation=True, max_length=longest, return_tensors="pt")).last_hidden_state[0]

    def unit(vectors: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(vectors, dim=-1)

    what = ("name", "synonyms")
    read = torch.stack([unit(states(label_text(label, splits.labels, what), 32).mean(0)) for label in splits.labels])
    for document, found in zip(splits.test, scores, strict=True):
        seen = unit(states(document.text, 32))
        attention = (labels.sharpness.exp() * seen @ read.T).softmax(0)  # (tokens, labels)
        expected = torch.sigmoid(labels.scale.exp() * (attention * (seen @ read.T)).sum(0) + labels.shift)
        np.testing.assert_allclose(found, expected.detach(), rtol=0.01)


def test_a_text_has_what_is_asked_for_in_that_order(splits):
    labels = splits.labels.extended([Label("new", "a new bird", (splits.labels.ids[0],), ("s", "t", "u", "v"), "said of it")])
    parent = splits.labels[0].name
    assert label_text(labels[-1], labels, ("name",)) == "a new bird"
    assert label_text(labels[-1], labels, ("parents", "synonyms", "description")) == f"{parent}; s; t; u; said of it"


def said(numbers: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return numbers.float()[:, :4]


def encoder() -> ReadLabels:
    torch.manual_seed(1)
    made = ReadLabels(5, 4, 4, said)
    for table in (made.query, made.output, made.bias):
        torch.nn.init.normal_(table)
    made.describe(Texts(torch.randint(1, 9, (6, 4)), torch.tensor([4, 3, 2, 1, 0, -1]), torch.full((6,), 4)))
    return made


def test_a_label_is_what_it_says_plus_its_own_residual():
    made = encoder()
    read = torch.nn.functional.normalize(made.texts.numbers.float(), dim=-1)
    found = made()
    torch.testing.assert_close(found.query[:5], read[:5] + made.query.flip(0))
    torch.testing.assert_close(found.output[:5], SCALE * (read[:5] + made.output.flip(0)))
    torch.testing.assert_close(found.bias[:5], SHIFT + made.bias.flip(0))
    torch.testing.assert_close(found.query[5], read[5])
    assert found.bias[5].item() == SHIFT


def test_some_labels_have_the_vectors_that_they_have_among_all():
    made, places = encoder(), torch.tensor([5, 0, 3])
    for some, every in zip(made(places), made(), strict=True):
        torch.testing.assert_close(some, every[places])


def test_without_what_is_learned_labels_are_as_new_ones():
    made = encoder()
    texts = made.texts_of(None)
    new = Texts(texts.numbers, torch.full((6,), -1), texts.lengths)
    said = made.read(texts, None)
    for bare, as_new in zip(made.vectors(texts, said, learned=False), made.vectors(new, said), strict=True):
        torch.testing.assert_close(bare, as_new)


@pytest.mark.parametrize("kept", ["false", "true"])
def test_the_loss_is_that_of_the_logits_of_the_same_candidates(folder, splits, kept):
    network = fitted(folder, splits, f"encoder.kept={kept}", "labels.text_only=0")._fitted.network.eval()
    places = torch.tensor([5, 0, 3])
    numbers, lengths = torch.randint(5, 20, (3, 7)), torch.tensor([7, 4, 2])
    context = torch.randn(3, 7, 1, network.token_encoder.width) if kept == "true" else None
    tokens, targets = Tokens(numbers, lengths, context), torch.randint(0, 2, (3, 3)).float()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(network(tokens, places), targets)
    torch.testing.assert_close(network.loss(tokens, targets, places), expected)


def test_the_loss_is_a_mean_of_that_of_labels_as_they_are_and_as_new_ones(folder, splits):
    network = fitted(folder, splits, "training.learning_rate=0.01")._fitted.network
    labels, seen = network.label_encoder, int((splits.train.gold().sum(0) > 0).nonzero()[0][0])
    tokens = Tokens(torch.randint(5, 20, (3, 7)), torch.tensor([7, 4, 2]))
    targets = torch.randint(0, 2, (3, len(splits.labels))).float()

    def loss(share: float) -> torch.Tensor:
        labels.text_only = share
        return network.loss(tokens, targets)

    torch.testing.assert_close(loss(0.25), 0.75 * loss(0.0) + 0.25 * loss(1.0))
    assert not torch.isclose(loss(0.0), loss(1.0))
    slopes = {share: torch.autograd.grad(loss(share), labels.output)[0][seen].abs().sum() for share in (1.0, 0.5)}
    assert slopes[1.0] == 0
    assert slopes[0.5] > 0


def test_labels_that_training_never_saw_keep_no_residual_and_others_get_one(folder, splits):
    model = fitted(folder, splits, "training.learning_rate=0.01")
    found = model._fitted.network.label_encoder
    seen = torch.from_numpy(splits.train.gold().sum(0) > 0)
    moved = found.output.abs().sum(1) > 0
    assert torch.equal(moved, seen)
    assert not seen.all()


def test_a_label_added_after_training_is_scored_as_one_of_its_text(folder, splits):
    model = fitted(folder, splits)
    unseen = next(label for label, count in zip(splits.labels, splits.train.gold().sum(0), strict=True) if not count)
    new = Label("new", unseen.name, unseen.parents, unseen.synonyms)
    extended = splits.labels.extended([new])
    scores = model.predict(Corpus(list(splits.test), extended, splits.test.info)).dense()
    np.testing.assert_allclose(scores[:, -1], scores[:, extended.column(unseen.id)], rtol=1e-5)


def test_an_explanation_says_what_came_from_the_text_and_what_from_training(folder, splits):
    model = fitted(folder, splits, "training.learning_rate=0.01")
    seen = splits.train.gold().sum(0) > 0
    for column in (int(np.flatnonzero(seen)[0]), int(np.flatnonzero(~seen)[0])):
        told = model.explain(splits.test[0], splits.labels[column])
        sources = dict(told.sources)
        score = model.predict(splits.test).dense()[0, column]
        assert 1 / (1 + np.exp(-sum(sources.values()))) == pytest.approx(told.score, rel=0.01)
        assert score == pytest.approx(told.score, rel=0.01)
        assert (sources["what training added"] != 0) == seen[column]


@pytest.mark.parametrize("reads", ["attention=first", "average_first=true"])
def test_explanations_by_slopes_have_the_score_that_is_predicted(folder, splits, reads):
    model, document = fitted(folder, splits, reads), splits.test[0]
    found = [model.explain(document, label).score for label in splits.labels]
    np.testing.assert_allclose(found, model.predict(splits.test).dense()[0], rtol=0.02)


def test_with_states_that_are_kept_all_but_the_encoder_is_trained(folder, splits, tmp_path):
    model = fitted(folder, splits, "encoder.kept=true", "training.learning_rate=0.01")
    network = model._fitted.network
    weights = AutoModel.from_pretrained(folder).state_dict()
    for name, weight in network.token_encoder.encoder.model.state_dict().items():
        torch.testing.assert_close(weight, weights[name])
    assert network.label_encoder.output.abs().sum() > 0
    assert not torch.equal(network.label_encoder.to_output.weight, torch.eye(16))
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(splits.test).dense(), model.predict(splits.test).dense())
    assert again.explain(splits.test[0], splits.labels[0]).spans


def test_a_corpus_is_read_once_where_states_are_kept(folder, splits, tmp_path, monkeypatch):
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "cache"))
    first = fitted(folder, splits, "encoder.kept=true").predict(splits.test).dense()
    reads = []
    monkeypatch.setattr(SubwordReader, "_blocks", lambda *_: reads.append(1))
    np.testing.assert_array_equal(fitted(folder, splits, "encoder.kept=true").predict(splits.test).dense(), first)
    assert not reads


@pytest.mark.parametrize("setting", ["encoder.kept=true", "encoder.checkpoint=bert"])
def test_what_is_for_transformers_is_refused_elsewhere(splits, setting):
    with pytest.raises(BadSettings, match=f"{setting} is for transformers, not for encoder.kind=recurrent"):
        make_method("bigru-lwan", override({}, [setting])).fit(splits.train)


def trainer(folder, splits, monkeypatch, *more: str) -> Trainer:
    found: list[Trainer] = []
    monkeypatch.setattr(Trainer, "run", lambda self: found.append(self) or [])
    make(folder, *more).fit(splits.train, splits.dev)
    return found[0]


def test_a_step_scores_the_labels_of_its_documents_and_as_many_others_as_asked_for(folder, splits, monkeypatch):
    made, gold = trainer(folder, splits, monkeypatch, "training.sampled=4"), splits.train.gold()
    seen = np.flatnonzero(gold.sum(0))
    drawn = set()
    for step in range(30):
        made.state.step, rows = step, np.array([0, 1])
        found = made._drawn(rows).numpy()
        wanted = np.unique(gold[rows].indices)
        assert len(found) == len(set(found)) == max(4, len(wanted))
        assert set(wanted) <= set(found) <= set(seen)
        np.testing.assert_array_equal(found, made._drawn(rows))
        drawn |= set(found)
    assert drawn == set(seen)


def test_the_loss_over_as_many_labels_as_there_are_is_that_over_all(folder, splits, monkeypatch):
    losses = []
    for sampled in (0, 1000):
        made = trainer(folder, splits, monkeypatch, f"training.sampled={sampled}")
        made.network.eval()
        losses.append(float(made._loss(made.train, np.arange(4)).detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_words_with_vectors_can_read_labels_too(splits):
    sets = ["labels.encoder=read", "encoder.units=8", "words.width=16", "training.epochs=2", "training.unseen=masked"]
    scores = make_method("bigru-lwan", override({}, sets)).fit(splits.train, splits.dev).predict(splits.test).dense()
    assert np.isfinite(scores).all()
    assert scores[:, splits.train.gold().sum(0) == 0].std() > 0


def test_biases_may_start_at_the_odds_of_seen_labels(folder, splits):
    still = "training.learning_rate=1e-6", "training.head_rate=0.001"
    encoders = [
        fitted(folder, splits, *still, f"labels.start={start}")._fitted.network.label_encoder for start in ("zeros", "prior")
    ]
    biases = [encoder.bias.detach().numpy() for encoder in encoders]
    counts, documents = np.asarray(splits.train.gold().sum(axis=0)), len(splits.train)
    expected = np.log((counts + 0.5) / (documents - counts + 0.5)) - encoders[1].usual
    np.testing.assert_allclose(biases[0], 0, atol=1e-5)
    np.testing.assert_allclose(biases[1], np.where(counts > 0, expected, 0), atol=1e-4)


@pytest.mark.parametrize("usual", [0.1, 0.8])
def test_the_line_is_that_of_a_logistic_regression(usual):
    random = np.random.default_rng(1)
    gold = random.random(20_000) < 0.01
    likeness = (usual + 0.15 * gold + random.normal(0, 0.05, len(gold))).astype(np.float32)
    line = first_fit._fit(likeness, gold)
    other = LogisticRegression(C=np.inf, tol=1e-8).fit(likeness[:, None], gold)
    assert line.scale == pytest.approx(other.coef_[0, 0], rel=0.02)
    assert line.shift == pytest.approx(other.intercept_[0], rel=0.02)


def test_likeness_that_says_nothing_leaves_the_odds_of_any_label():
    random = np.random.default_rng(1)
    gold, likeness = random.random(20_000) < 0.01, random.normal(0, 0.01, 20_000)
    line = first_fit._fit(likeness, gold)
    assert line.scale == first_fit.SCALES[0]
    assert 1 / (1 + np.exp(-line.shift)) == pytest.approx(gold.mean(), rel=0.05)


def test_labels_begin_with_the_sharpness_that_fits_the_documents_best(folder, splits, monkeypatch):
    tried = {sharp: trainer(folder, splits, monkeypatch, f"labels.sharpness={sharp}") for sharp in first_fit.TRIED}
    best = min(tried, key=lambda sharp: _loss(tried[sharp]))
    found = trainer(folder, splits, monkeypatch).network.label_encoder
    assert found.sharpness.exp().item() == pytest.approx(best)
    for sharp, made in tried.items():
        assert made.network.label_encoder.sharpness.exp().item() == pytest.approx(sharp)
    assert len({round(_loss(made), 9) for made in tried.values()}) > 1


def _loss(trainer: Trainer) -> float:
    """The mean loss over all documents and the labels that they have."""
    trainer.network.eval()
    with torch.no_grad():
        tokens, targets = trainer.train.batch(np.arange(len(trainer.train)))
        return float(trainer.network.loss(tokens, targets[:, trainer.candidates], candidates=trainer.candidates))


def test_the_same_seed_begins_alike(folder, splits, monkeypatch):
    monkeypatch.setattr(first_fit, "DOCUMENTS", 5)
    begun = [trainer(folder, splits, monkeypatch, f"seed={seed}").network.label_encoder.shift.item() for seed in (1, 1, 2)]
    assert begun[0] == begun[1] != begun[2]
