"""Train networks and transformers on real corpora and record what they reach, by label group.

Settings that differ from a method's own come with --set and stand in the recorded line; so does the seed. A transformer is named
by --row after the checkpoint that was really used, since the methods have the names of the paper's. With --split dev the test
documents are left alone: so settings are chosen.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from record import record_quality, stopwatch

import labelwise
from labelwise.registry import make_method
from labelwise.settings import override

METHODS = (
    "bigru-lwan",
    "cnn-lwan",
    "c-bigru-lwan",
    "dc-bigru-lwan",
    "dn-bigru-lwan",
    "dnc-bigru-lwan",
    "gc-bigru-lwan",
    "gnc-bigru-lwan",
    "c-cnn-lwan",
    "gc-cnn-lwan",
)


def train(corpus: Path, name: str, seed: int, given: argparse.Namespace) -> None:
    """Fit one method on one corpus and record its scores."""
    settings: dict[str, Any] = override({"seed": seed, "words": {"vectors": given.vectors}}, given.set)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = labelwise.read_corpus(corpus)
        with stopwatch() as fitting:
            model = make_method(name, settings)
            model.work, model.watch = given.work, _show  # type: ignore[attr-defined]
            model.fit(splits.train, splits.dev)
    with stopwatch() as scoring:
        report = labelwise.evaluate(model, splits, split=given.split, ties="pessimistic", per_label=True)
    if given.models is not None:
        model.save(given.models / f"{corpus.name}-{given.row or name}-{seed}", force=True)
    history = model.history  # type: ignore[attr-defined]
    best = [look for look in history if look["best"]][-1]
    record_quality(
        report,
        (given.row or name) + given.suffix,
        seed=seed,
        fit_seconds=fitting["seconds"],
        evaluate_seconds=scoring["seconds"],
        documents_per_second=max(look["documents_per_second"] for look in history),
        epochs=history[-1]["epoch"],
        best_epoch=best["epoch"],
        dev=best["dev"],
        settings=given.set,
    )


def _show(look: dict[str, Any]) -> None:
    """Print how an epoch went: many of these trainings take minutes."""
    dev = ", ".join(f"{name} {value:.4f}" for name, value in look["dev"].items())
    speed = f"{look['documents_per_second']:,.0f} documents/s"
    print(f"epoch {look['epoch']}: loss {look['loss']:.5f}, dev {dev}, {speed}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds corpus folders")
    parser.add_argument("--vectors", default=os.environ.get("LABELWISE_VECTORS"), help="word vectors; without them, learned ones")
    parser.add_argument("--corpora", nargs="+", default=["eurlex", "ctgov", "crs"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--work", type=Path, help="folder for checkpoints: the same command goes on where a killed one stopped")
    parser.add_argument("--models", type=Path, help="folder to save models in, by corpus, row and seed")
    parser.add_argument("--split", default="test", choices=["dev", "test"], help="documents to score")
    parser.add_argument("--row", help="name in the tables instead of the method's")
    parser.add_argument("--suffix", default="", help="what tells these settings apart in the tables")
    given = parser.parse_args()
    if given.data is None:
        print("skipped: name the corpora with --data FOLDER or LABELWISE_DATA")
        sys.exit()
    given.vectors = given.vectors or "corpus"
    for corpus in given.corpora:
        for method in given.methods:
            for seed in given.seeds:
                train(Path(given.data) / corpus, method, seed, given)
