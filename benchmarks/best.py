"""`best` within a budget of minutes beside `bonsai`, on real corpora; nothing is in the cache when it begins."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from record import record_quality, stopwatch

import labelwise
from labelwise.methods.ensemble import Ensemble
from labelwise.registry import make_method


def measure(corpus: Path, name: str, row: str, settings: dict[str, Any], budget: float | None = None) -> None:
    """Fit one method on one corpus and record its scores on the test documents."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = labelwise.read_corpus(corpus)
        with stopwatch() as fitting:
            model = make_method(name, settings).fit(splits.train, splits.dev)
    with stopwatch() as scoring:
        report = labelwise.evaluate(model, splits, ties="pessimistic")
    record_quality(
        report,
        row,
        seed=1 if isinstance(model, Ensemble) else None,
        **({} if budget is None else {"budget_minutes": budget}),
        fit_seconds=fitting["seconds"],
        evaluate_seconds=scoring["seconds"],
        **({"weights": model.weights, "why": model.why} if isinstance(model, Ensemble) else {}),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds corpus folders")
    parser.add_argument("--checkpoint", default=os.environ.get("LABELWISE_MINILM"), help="folder of a transformer")
    parser.add_argument("--row", default="best, minilm", help="name in the tables")
    parser.add_argument("--corpora", nargs="+", default=["eurlex", "ctgov"])
    parser.add_argument("--budget", type=float, default=10.0, help="minutes")
    given = parser.parse_args()
    if given.data is None:
        print("skipped: name the corpora with --data FOLDER or LABELWISE_DATA")
        sys.exit()
    for corpus in given.corpora:
        folder = Path(given.data) / corpus
        with tempfile.TemporaryDirectory() as cache:
            os.environ["LABELWISE_CACHE"] = cache
            settings = {"budget": given.budget, **({"checkpoint": given.checkpoint} if given.checkpoint else {})}
            measure(folder, "best", given.row, settings, given.budget)
        measure(folder, "bonsai", "bonsai", {})
