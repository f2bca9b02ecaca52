"""Where labels that are read begin."""

import numpy as np
import pytest
import tiny
import torch
from sklearn.linear_model import LogisticRegression
from toy import zoo

from labelwise.network import first_fit
from labelwise.network.training import Trainer
from labelwise.registry import make_method
from labelwise.settings import override


@pytest.fixture(scope="module")
def splits():
    return zoo()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.bert(tmp_path_factory.mktemp("bert"))


def start(folder, splits, monkeypatch, *more: str) -> Trainer:
    """What training would begin with."""
    found: list[Trainer] = []
    monkeypatch.setattr(Trainer, "run", lambda self: found.append(self) or [])
    sets = [f"encoder.checkpoint={folder}", "encoder.segment=32", *more]
    make_method("read-and-learned", override({}, sets)).fit(splits.train, splits.dev)
    return found[0]


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
    tried = {sharp: start(folder, splits, monkeypatch, f"labels.sharpness={sharp}") for sharp in first_fit.TRIED}
    best = min(tried, key=lambda sharp: _loss(tried[sharp]))
    found = start(folder, splits, monkeypatch).network.label_encoder
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
    begun = [start(folder, splits, monkeypatch, f"seed={seed}").network.label_encoder.shift.item() for seed in (1, 1, 2)]
    assert begun[0] == begun[1] != begun[2]
