"""Where labels that are read begin: how sharply they look at words, and how likely a likeness makes them.

Encoders differ in how alike they find any two texts. So before training, a sample of documents is compared with their labels and
with others, and a logistic regression for each sharpness says what fits them best.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch

from labelwise.network.batches import Examples
from labelwise.network.devices import precision
from labelwise.network.label_encoders import LabelVectors
from labelwise.network.network import LabelNetwork
from labelwise.network.read_labels import SCALE, SHIFT, ReadLabels
from labelwise.network.training import TrainingSettings, prediction_batches

DOCUMENTS, LABELS = 512, 2048  # of the sample
TRIED = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
SCALES = 10.0, 200.0  # at least so much, though an encoder that is not trained yet finds nothing alike


class Line(NamedTuple):
    """The logit of a label by its likeness."""

    scale: float
    shift: float
    loss: float


@torch.no_grad()
def begin(
    network: LabelNetwork,
    labels: ReadLabels,
    train: Examples,
    settings: TrainingSettings,
    *,
    seed: int,
    device: torch.device,
    sharpness: float = 0.0,
) -> None:
    """Let the labels start from what fits a sample of the documents best; a sharpness that is given stays as it is."""
    random, counts = np.random.default_rng((seed, 0)), train.counts()
    rows = np.sort(random.choice(len(train), min(DOCUMENTS, len(train)), replace=False))
    wanted = np.unique(train.gold[rows].indices)
    others = np.setdiff1d(np.flatnonzero(counts), wanted)
    more = random.choice(others, min(len(others), max(0, LABELS - len(wanted))), replace=False)
    columns = np.sort(np.concatenate([wanted, more]))
    tried = (sharpness,) if sharpness else TRIED
    likeness, gold = _likeness(network.to(device).eval(), labels, train.to(device), settings, rows, columns, tried)
    with ThreadPoolExecutor(len(tried)) as pool:
        lines = list(pool.map(_fit, likeness, [gold] * len(tried)))
    best = min(range(len(lines)), key=lambda place: lines[place].loss)
    labels.begin(tried[best], lines[best].scale, lines[best].shift, float(likeness[best].mean()))


def _likeness(
    network: LabelNetwork,
    labels: ReadLabels,
    train: Examples,
    settings: TrainingSettings,
    rows: np.ndarray,
    columns: np.ndarray,
    tried: tuple[float, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """(tried, documents × labels) likeness of each document and label, and where the document has the label."""
    found, gold = [], []
    labels.begin(1.0, 1.0, 0.0)
    with precision(settings.precision, labels.bias.device):
        query, output, bias = labels(torch.from_numpy(columns))
        for batch in prediction_batches(train.lengths[rows], settings):
            tokens = train.tokens(rows[batch])
            states = network.states(tokens)
            for each in tried:
                logits = network.decoder(network.attention, states, LabelVectors(each * query, output, bias), tokens.lengths)
                found.append(logits.float().cpu().numpy().ravel())
            gold.append(train.gold[rows[batch]][:, columns].toarray().ravel() > 0)
    return np.stack([np.concatenate(found[place :: len(tried)]) for place in range(len(tried))]), np.concatenate(gold)


def _fit(likeness: np.ndarray, gold: np.ndarray) -> Line:
    """The line of maximum likelihood."""
    from scipy.optimize import minimize
    from scipy.special import expit

    usual, right = float(likeness.mean(dtype=np.float64)), max(1, int(gold.sum()))
    values = likeness.astype(np.float64) - usual

    def loss(line: np.ndarray) -> tuple[float, np.ndarray]:
        logits = line[0] * values + line[1]
        wrong = expit(logits) - gold
        # Divided by what is right, not by all: a mean would be so small that the search would stop at once.
        return float(np.sum(np.logaddexp(0, logits) - gold * logits)) / right, np.array([wrong @ values, wrong.sum()]) / right

    found = minimize(loss, np.array([SCALE, SHIFT]), jac=True, method="L-BFGS-B", bounds=(SCALES, (None, None)))
    scale, shift = found.x.tolist()
    return Line(scale, shift - scale * usual, float(found.fun))
