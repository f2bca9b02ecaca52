"""One run: a recipe trained on a corpus and evaluated on its test documents, with what it took.

Reproductions and studies are made of runs. The folder of a run appears whole or not at all; what a killed one had done lies
beside it, and the same run goes on from there.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from labelwise.corpus import Splits
from labelwise.evaluation import evaluate
from labelwise.methods.base import Method, Resumable
from labelwise.progress import Progress, silent
from labelwise.recipe import Recipe, make_recipe_method
from labelwise.report import Report
from labelwise.storage import new_folder, unfinished_beside

MODEL, REPORT = "model", "report"  # what a run's folder holds


def run(
    recipe: Recipe,
    splits: Splits,
    folder: Path,
    *,
    overrides: dict[str, Any] | None = None,
    name: str = "",
    keep_model: bool = True,
    progress: Progress = silent,
    **evaluation: Any,
) -> Report:
    """Train and evaluate, or read the report of the run that already lies in the folder."""
    if (folder / REPORT / "report.json").is_file():
        return Report.load(folder / REPORT)
    method = make_recipe_method(recipe, overrides or {})
    unfinished = unfinished_beside(folder)
    if isinstance(method, Resumable):
        method.work = unfinished
    with new_folder(folder, "run") as draft:
        started = time.perf_counter()
        method.fit(splits.split("train"), splits.dev if len(splits.dev) else None, progress=progress)
        trained = time.perf_counter()
        report = evaluate(method, splits, name=name, per_label=True, progress=progress, **evaluation)
        spent = {"seconds of training": trained - started, "seconds of evaluation": time.perf_counter() - trained}
        report.notes.update({**facts(method), **{what: round(seconds, 2) for what, seconds in spent.items()}})
        report.save(draft / REPORT)
        if keep_model:
            method.save(draft / MODEL)
    shutil.rmtree(unfinished, ignore_errors=True)
    return report


def facts(method: Method) -> dict[str, str | float]:
    """What a report should say of the method that it is about."""
    found: dict[str, str | float] = {}
    if isinstance(getattr(method.settings, "seed", None), int):
        found["seed"] = method.settings.seed
    if history := getattr(method, "history", None):
        found["epochs"] = history[-1]["epoch"]
        found["training documents per second"] = max(look["documents_per_second"] for look in history)
    return found
