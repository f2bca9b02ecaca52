"""`best` within a budget of minutes beside `bonsai`, on real corpora; nothing is in the cache when it begins."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from record import record_quality, stopwatch
from zero_line import study

import labelwise
from labelwise.methods.ensemble import Ensemble
from labelwise.progress import T
from labelwise.registry import make_method


def measure(
    corpus: Path,
    name: str,
    row: str,
    settings: dict[str, Any],
    reader: str = "",
    work: Path | None = None,
    models: Path | None = None,
) -> None:
    """Fit one method on one corpus and record its scores on the test documents; those of its reader by itself too, if asked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = labelwise.read_corpus(corpus)
        with stopwatch() as fitting:
            model = make_method(name, settings)
            if work is not None:
                model.work = work  # type: ignore[attr-defined]
            parts = Parts()
            model.fit(splits.train, splits.dev, progress=parts)
    if models is not None:
        model.save(models / f"{corpus.name}-{name}-{settings.get('seed', 1)}", force=True)
    blend = isinstance(model, Ensemble)
    told = {"seed": settings.get("seed", 1)} if blend else {"seed": None}
    told |= {"budget_minutes": settings["budget"]} if settings.get("budget") else {}
    told |= {"fit_seconds": fitting["seconds"], "parts": {name: round(own, 1) for name, own in parts.seconds.items()}}
    with stopwatch() as scoring:
        report = labelwise.evaluate(model, splits, ties="pessimistic", per_label=True)
    place = str(settings.get("checkpoint", ""))  # nobody else's business
    chosen = {"weights": model.weights, "why": model.why.replace(place, Path(place).name)} if blend else {}
    record_quality(report, row, **told, evaluate_seconds=scoring["seconds"], **chosen)
    if blend:
        study(model, splits, row, told["seed"])
    if reader and blend:
        first = model._ready().members[0].model
        report = labelwise.evaluate(first, splits, ties="pessimistic", per_label=True)
        history = getattr(first, "history", [])
        best = max((look["epoch"] for look in history if look["best"]), default=None)
        record_quality(report, reader, seed=told["seed"], epochs=len(history), best_epoch=best, settings=_settings(first))


class Parts:
    """Progress that shows nothing, but knows how long each part took: from the first sign of it to that of the next."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.name, self.since = "", 0.0

    def __call__(self, items: Iterable[T], task: str, total: int | None = None) -> Iterator[T]:
        """The items."""
        self._end()
        self.name = re.sub("epoch .*", "epochs", task)
        yield from items
        self._end()

    def _end(self) -> None:
        now = time.perf_counter()
        if self.name:
            self.seconds[self.name] = self.seconds.get(self.name, 0.0) + now - self.since
        self.name, self.since = self.name and "after " + self.name.removeprefix("after "), now


def _settings(reader: Any) -> list[str]:
    """What `best` has chosen for its reader."""
    given = reader.settings
    return [
        f"encoder.checkpoint={Path(given.encoder.checkpoint).name}",
        f"encoder.segment={given.encoder.segment}",
        f"training.batch={given.training.batch}",
        f"training.epochs={given.training.epochs}",
        f"labels.text={'+'.join(given.labels.text)}",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds corpus folders")
    parser.add_argument("--checkpoint", default=os.environ.get("LABELWISE_MINILM"), help="folder of a transformer")
    parser.add_argument("--row", default="best, minilm", help="name in the tables")
    parser.add_argument("--reader", default="", help="name in the tables of its reader by itself; none leaves that out")
    parser.add_argument("--corpora", nargs="+", default=["eurlex", "ctgov"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--budget", type=float, default=10.0, help="minutes, 0 for no limit")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--work", type=Path, help="folder for members that are done: a killed run goes on with them")
    parser.add_argument("--models", type=Path, help="folder to save models in, by corpus, method and seed")
    parser.add_argument("--beside", nargs="*", default=["bonsai"], help="methods to measure in the same run")
    given = parser.parse_args()
    if given.data is None:
        print("skipped: name the corpora with --data FOLDER or LABELWISE_DATA")
        sys.exit()
    for corpus in given.corpora:
        folder = Path(given.data) / corpus
        for seed in given.seeds:
            with tempfile.TemporaryDirectory() as cache:
                os.environ["LABELWISE_CACHE"] = cache
                settings = {"budget": given.budget, "seed": seed, "threads": given.threads}
                settings |= {"checkpoint": given.checkpoint} if given.checkpoint else {}
                measure(folder, "best", given.row, settings, given.reader, given.work, given.models)
        for name in given.beside:
            measure(folder, name, name, {}, models=given.models)
