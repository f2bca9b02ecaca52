"""What was tried with labels that are read and a transformer that is trained: neighbours, distillation, averaged weights.

The first two are not in the library, so parts of that are replaced here. Each look at the development documents judges the
weights and their running means (`training.average` would need a training of its own for each share). Settings that differ from
the method's own come with --set.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import record, stopwatch
from scipy.sparse import csr_array, vstack
from torch import Tensor, nn

import labelwise
from labelwise.corpus import Corpus, LazyDocuments, Splits, count_labels, group_numbers
from labelwise.methods import neural
from labelwise.methods.neural import Network
from labelwise.methods.weighting import Mix, make_pools, search
from labelwise.network import composition
from labelwise.network.label_encoders import LabelVectors
from labelwise.network.read_labels import ReadLabels, Texts, unit
from labelwise.network.training import Trainer, TrainingSettings
from labelwise.progress import silent
from labelwise.registry import make_method
from labelwise.settings import override

MEANS = (0.99,)
TEACHERS, THIRDS, TAUGHT = ("linear", "lexical"), 3, 0.3  # of the target


class Neighbours(ReadLabels):
    """What parents and children say is added to what a label says, by maps that start at nothing.

    A step reads the texts of its own labels only; those of the others are known as they were read after the last epoch.
    """

    def __init__(self, labels: int, width: int, said: int, *given: Any, **how: Any) -> None:
        super().__init__(labels, width, said, *given, **how)
        self.from_parents, self.from_children = (nn.Linear(said, said, bias=False) for _ in range(2))
        for layer in (self.from_parents, self.from_children):
            nn.init.zeros_(layer.weight)
        self.means: tuple[Tensor, Tensor] | None = None  # what parents and children of each label say
        self.edges: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def look_around(self) -> None:
        """Read all labels as they are read now."""
        assert self.texts is not None
        assert self.edges is not None
        self.means = None
        said = unit(self._read(self.texts))
        self.means = self.edges[0] @ said, self.edges[1] @ said

    def vectors(self, texts: Texts, said: Tensor, *, learned: bool = True) -> LabelVectors:
        if self.means is not None:
            places = texts.residuals  # as long as the label set is that of training
            said = unit(said) + sum(
                layer(mean[places]) for layer, mean in zip((self.from_parents, self.from_children), self.means, strict=True)
            )
        return super().vectors(texts, said, learned=learned)


class Tried(Trainer):
    """A trainer that keeps running means beside the weights, and may have teachers beside gold labels."""

    neighbours: tuple[Tensor, Tensor] | None = None
    teachers: csr_array | None = None
    groups: np.ndarray
    looks: list[dict[str, Any]]

    def run(self) -> list[dict[str, Any]]:
        self.running = {share: [weight.detach().clone() for weight in self.weights] for share in MEANS}
        if isinstance(self.network.label_encoder, Neighbours):
            self.network.label_encoder.edges = self.neighbours
        return super().run()

    def _round(self) -> None:
        encoder = self.network.label_encoder
        if isinstance(encoder, Neighbours) and encoder.means is None:
            self.network.eval()
            encoder.look_around()
        super()._round()

    def _step(self, batch: np.ndarray) -> Tensor:
        loss = super()._step(batch)
        done = self.state.epoch * self.steps + self.state.step
        for share, mean in self.running.items():
            torch._foreach_lerp_(mean, [weight.detach() for weight in self.weights], 1 - min(share, (1 + done) / (10 + done)))
        return loss

    def _loss(self, examples: Any, rows: np.ndarray) -> Tensor:
        if self.teachers is None:
            return super()._loss(examples, rows)
        tokens, targets = examples.batch(rows)
        candidates = self._drawn(rows)
        taught = torch.from_numpy(self.teachers[rows].toarray()).to(targets)
        there = candidates.to(self.device)
        with neural.precision(self.settings.precision, self.device):
            return self.network.loss(tokens, targets.lerp(taught, TAUGHT)[:, there], candidates=candidates)

    def _judge(self) -> None:
        self.network.eval()
        if isinstance(self.network.label_encoder, Neighbours):
            self.network.label_encoder.look_around()
        look: dict[str, Any] = {"epoch": self.state.epoch + 1, "weights": self._by_group()}
        kept = [weight.detach().clone() for weight in self.weights]
        for share, mean in self.running.items():
            with torch.no_grad():
                torch._foreach_copy_(self.weights, mean)
            look[f"mean {share}"] = self._by_group()
        with torch.no_grad():
            torch._foreach_copy_(self.weights, kept)
        print(look, flush=True)
        type(self).looks.append(look)
        super()._judge()

    @torch.no_grad()
    def _by_group(self) -> dict[str, float]:
        """nDCG@k of each group's labels that are in use, in percent."""
        assert self.dev is not None
        assert self.looked_at is not None
        labels = self.network.label_encoder(None)
        gold, k = self.dev.gold, self.dev.k
        used = self.train.counts() + self.dev.counts() > 0
        masks = {"all": used} | {name: used & (self.groups == place) for place, name in enumerate(("frequent", "few", "zero"))}
        found: dict[str, list[float]] = {name: [] for name in masks}
        for batch in neural.prediction_batches(self.dev.lengths[self.looked_at], self.settings):
            rows = self.looked_at[batch]
            with neural.precision(self.settings.precision, self.device):
                logits = self.network(self.dev.tokens(rows), labels=labels).float().cpu().numpy()
            right = gold[rows].toarray()
            for name, mask in masks.items():
                found[name] += _ndcg(logits[:, mask], right[:, mask], k)
        return {name: round(100 * float(np.mean(values)), 2) for name, values in found.items() if values}


def _ndcg(logits: np.ndarray, gold: np.ndarray, k: int) -> list[float]:
    """Of the documents that have gold labels."""
    inside = gold.sum(axis=1) > 0
    best = np.argsort(-logits[inside], axis=1)[:, :k]
    hits = np.take_along_axis(gold[inside], best, axis=1)
    return labelwise.metrics.ndcg(hits, gold[inside].sum(axis=1), k).tolist()


def _teachers(splits: Splits) -> csr_array:
    """What a blend of members says of each training document that has been learned from the other thirds."""
    train, groups, k = splits.train, group_numbers(splits.train), splits.info.k
    models = [make_method(name).fit(train) for name in TEACHERS]
    able = np.array([[name == "lexical" or group < 2 for name in TEACHERS] for group in range(3)])
    mix: Mix = search(make_pools(models, groups, splits.dev, k, silent), groups, able, {}, k, silent, regress=True)
    return csr_array(vstack([mix.apply(scores, groups).values for scores in _fitted_elsewhere(train)], format="csr"))


def _fitted_elsewhere(train: Corpus) -> Iterator[list[Any]]:
    edges = np.linspace(0, len(train), THIRDS + 1).astype(int).tolist()
    for start, end in pairwise(edges):
        rest = np.r_[0:start, end : len(train)]
        documents = LazyDocuments(rest.tolist(), train.__getitem__)
        others = Corpus(documents, train.labels, train.info, gold=train.gold()[rest])
        yield [make_method(name).fit(others).predict(train[start:end]) for name in TEACHERS]


def _neighbours(corpus: Corpus, device: torch.device) -> tuple[Tensor, Tensor]:
    """Means over parents and over children, as (labels, labels) matrices."""
    up = csr_array(corpus.labels.parents(), dtype=np.float32)
    return tuple(_means(edges).to(device) for edges in (up, csr_array(up.T)))  # type: ignore[return-value]


def _means(edges: csr_array) -> Tensor:
    rows = np.repeat(np.arange(edges.shape[0]), np.diff(edges.indptr))
    values = 1 / np.diff(edges.indptr)[rows]
    places = torch.from_numpy(np.stack([rows, edges.indices]).astype(np.int64))
    return torch.sparse_coo_tensor(places, torch.from_numpy(values.astype(np.float32)), edges.shape).coalesce()


def measure(given: argparse.Namespace, what: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = labelwise.read_corpus(Path(given.data) / given.corpus)
        train = splits.train.spread(given.documents)
        splits = Splits(train, splits.dev, splits.test)
        settings: dict[str, Any] = override({"seed": given.seed, "encoder": {"checkpoint": given.checkpoint}}, given.set)
        model = make_method("read-and-learned", settings)
        assert isinstance(model, Network)
        device = model._prepare()
        own = type("Own", (Tried,), {"looks": [], "groups": group_numbers(train)})
        own.neighbours = _neighbours(train, device) if what == "neighbours" else None
        own.teachers = _teachers(splits) if what == "distilled" else None
        neural.Trainer = own  # type: ignore[misc]
        composition.ReadLabels = Neighbours if what == "neighbours" else ReadLabels  # type: ignore[misc]
        with stopwatch() as fitting:
            model.fit(splits.train, splits.dev)
    used, asked = int((count_labels(train) > 0).sum()), TrainingSettings()
    record(
        "tried",
        corpus=given.corpus,
        what=what,
        seed=given.seed,
        documents=len(train),
        labels=used,
        judged=model.settings.training.judged or asked.judged or len(splits.dev),
        checkpoint=Path(given.checkpoint).name,
        settings=given.set,
        fit_seconds=fitting["seconds"],
        looks=own.looks,  # type: ignore[attr-defined]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds corpus folders")
    parser.add_argument("--checkpoint", default=os.environ.get("LABELWISE_MINILM"), help="folder of a transformer")
    parser.add_argument("--corpus", default="eurlex")
    parser.add_argument("--documents", type=int, default=0, help="training documents, evenly spread; 0 for all")
    parser.add_argument("--what", nargs="+", default=["as it is", "neighbours", "distilled"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    if given.data is None or given.checkpoint is None:
        print("skipped: name the corpora with --data FOLDER or LABELWISE_DATA, and a transformer with --checkpoint FOLDER")
        sys.exit()
    for what in given.what:
        measure(given, what)
