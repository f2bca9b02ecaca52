"""One run: a recipe trained on a corpus and evaluated on its test documents, with what it took.

Reproductions and studies are made of runs. The folder of a run appears whole or not at all; what a killed one had done lies
beside it, and the same run goes on from there. A finished run is read back, but only if it was made with the same settings.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from labelwise.corpus import Corpus, Splits
from labelwise.errors import LabelwiseError
from labelwise.evaluation import evaluate
from labelwise.methods.base import Method, Resumable
from labelwise.progress import Progress, silent
from labelwise.recipe import Recipe, make_recipe_method, read_recipe
from labelwise.report import Report
from labelwise.storage import new_folder, to_toml, unfinished_beside, write_bytes

MODEL, REPORT, RECIPE = "model", "report", "recipe.toml"  # what a run's folder holds
ELSEWHERE = ("threads", "device")  # settings that change where a result comes from, not what it is
SAMPLE = 1000  # documents that sub-words are counted in


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
    method = make_recipe_method(recipe, overrides or {})
    if finished(folder, method):
        return Report.load(folder / REPORT)
    unfinished, made = unfinished_beside(folder), _made(recipe.method, method, splits.info.name)
    if isinstance(method, Resumable):
        method.work = _begun(unfinished, made)
    with new_folder(folder, "run") as draft:
        started = time.perf_counter()
        method.fit(splits.split("train"), splits.dev if len(splits.dev) else None, progress=progress)
        trained = time.perf_counter()
        report = evaluate(method, splits, name=name, per_label=True, progress=progress, **evaluation)
        spent = {"seconds of training": trained - started, "seconds of evaluation": time.perf_counter() - trained}
        report.notes.update({**facts(method, splits.test), **{what: round(seconds, 3) for what, seconds in spent.items()}})
        report.save(draft / REPORT)
        (draft / RECIPE).write_text(made, encoding="utf-8")
        if keep_model:
            method.save(draft / MODEL)
    shutil.rmtree(unfinished, ignore_errors=True)
    return report


def finished(folder: Path, method: Method) -> bool:
    """Whether this run has been done before; one with another method or other settings in its place is an error."""
    if not (folder / REPORT / "report.json").is_file():
        return False
    earlier = read_recipe(folder / RECIPE)
    if earlier.method != method.name:
        raise LabelwiseError(f"{folder}: holds a run of {earlier.method}, not of {method.name}; name another folder")
    was, now = (_flat(asdict(one.settings)) for one in (make_recipe_method(earlier, {}), method))
    other = [f"{key}={was[key]}, not {now[key]}" for key in now if was[key] != now[key] and key not in ELSEWHERE]
    if other:
        raise LabelwiseError(
            f"{folder}: {method.name} was run with other settings ({', '.join(other)}); repeat those, or name another folder"
        )
    return True


def _made(name: str, method: Method, corpus: str) -> str:
    """The recipe of a run, every setting of it."""
    settings = {key: value for key, value in asdict(method.settings).items() if key not in ELSEWHERE}
    return to_toml({"method": name, "corpus": corpus, "settings": settings})


def _begun(unfinished: Path, made: str) -> Path:
    """Where a run keeps what it has done so far; what one with other settings left there is of no use to this one."""
    note = unfinished / RECIPE
    if unfinished.exists() and not (note.is_file() and note.read_text(encoding="utf-8") == made):
        shutil.rmtree(unfinished)
    write_bytes(note, made.encode(), force=True)
    return unfinished


def facts(method: Method, documents: Corpus | None = None) -> dict[str, str | float]:
    """What a report should say of the method that it is about, and of how it reads the documents."""
    found: dict[str, str | float] = {"hardware": hardware()}
    if isinstance(getattr(method.settings, "seed", None), int):
        found["seed"] = method.settings.seed
    if history := getattr(method, "history", None):
        found["epochs"] = history[-1]["epoch"]
        found["training documents per second"] = round(max(look["documents_per_second"] for look in history), 1)
    fitted = getattr(method, "_fitted", None)
    if network := getattr(fitted, "network", None):
        found |= _sizes(network, method.settings.encoder.kind, method.settings.encoder.layers)
    if documents and (subwords := getattr(getattr(fitted, "reader", None), "subwords", None)):
        texts = [document.text for document in islice(documents, SAMPLE)]
        found["sub-words per word"] = round(subwords.fragmentation(texts), 3)
    return found


def hardware() -> str:
    """What this runs on, in words: cores, and the GPU if networks can use one."""
    torch = sys.modules.get("torch")
    gpu = f", {torch.cuda.get_device_name()}" if torch is not None and torch.cuda.is_available() else ""
    return f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} cores{gpu}"


def _sizes(network: Any, kind: str, layers: int) -> dict[str, str | float]:
    """Numbers in a network, word vectors that are not trained among them; and layers and units as the paper counts them."""
    encoder = network.token_encoder
    vectors = sum(buffer.numel() for name, buffer in encoder.named_buffers() if name.endswith("vectors"))
    if kind == "transformer":
        layers = len(getattr(encoder, "encoder", encoder).levels()) - 1  # one whose states are kept stands inside another
    return {
        "parameters": sum(parameter.numel() for parameter in network.parameters()) + vectors,
        "trained parameters": network.trainable(),
        "layers": layers,
        "units": encoder.width // 2 if kind == "recurrent" else encoder.width,
    }


def _flat(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{path}{key}.") if isinstance(value, dict) else {path + key: value}
    return found
