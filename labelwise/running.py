"""One run: a recipe trained on a corpus and evaluated on its test documents, with what it took.

Reproductions and studies are made of runs. The folder of a run appears whole or not at all; what a killed one had done lies
beside it, and the same run goes on from there. A finished run is read back, but only if it was made with the same settings on
the same corpus.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from labelwise.corpus import Corpus, Splits
from labelwise.errors import LabelwiseError, OutputExists
from labelwise.evaluation import evaluate
from labelwise.methods.base import Method, Resumable
from labelwise.progress import Progress, silent
from labelwise.recipe import Recipe, make_recipe_method, read_recipe
from labelwise.report import Report
from labelwise.settings import cores, flat
from labelwise.storage import LOCK, alone, new_folder, read_json, to_toml, unfinished_beside, write_bytes

MODEL, REPORT, RECIPE = "model", "report", "recipe.toml"  # what a run's folder holds
ELSEWHERE = ("threads", "device")  # settings that change where a result comes from, not what it is
SAMPLE = 1000  # documents that sub-words are counted in
CHECKSUM = "checksum of the corpus"  # the note of a report that tells it
CLOCK = "clock.json"  # beside the checkpoints of a run


def run(
    recipe: Recipe,
    splits: Splits,
    folder: Path,
    *,
    overrides: dict[str, Any] | None = None,
    name: str = "",
    keep_model: bool = True,
    checksum: str = "",
    progress: Progress = silent,
    **evaluation: Any,
) -> Report:
    """Train and evaluate, or read the report of the run that lies in the folder; the corpus's checksum may be known."""
    method, checksum = make_recipe_method(recipe, overrides or {}), checksum or corpus_checksum(splits)
    if finished(folder, method):
        return _earlier(folder, splits.info.name, checksum)
    made, test = _made(recipe.method, method, splits.info.name), splits.split("test")  # a corpus without is refused at once
    with _work(method, folder, made + checksum) as before, new_folder(folder, "run") as draft:
        started = time.perf_counter()
        method.fit(splits.split("train"), splits.dev if len(splits.dev) else None, progress=progress)
        trained = time.perf_counter()
        report = evaluate(method, splits, name=name, per_label=True, progress=progress, **evaluation)
        spent = {"seconds of training": before + trained - started, "seconds of evaluation": time.perf_counter() - trained}
        report.notes.update({**facts(method, test), **{what: round(seconds, 3) for what, seconds in spent.items()}})
        report.notes[CHECKSUM] = checksum
        report.save(draft / REPORT)
        (draft / RECIPE).write_text(made, encoding="utf-8")
        if keep_model:
            method.save(draft / MODEL)
    return report


def finished(folder: Path, method: Method) -> bool:
    """Whether this run has been done before; one with another method or other settings in its place is an error."""
    if not (folder / REPORT / "report.json").is_file():
        return False
    earlier = read_recipe(folder / RECIPE)
    if earlier.method != method.name:
        raise LabelwiseError(f"{folder}: holds a run of {earlier.method}, not of {method.name}; name another folder")
    was, now = (flat(asdict(one.settings)) for one in (make_recipe_method(earlier, {}), method))
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


def _earlier(folder: Path, corpus: str, checksum: str) -> Report:
    """The report of a finished run, if it was made on this corpus."""
    report = Report.load(folder / REPORT)
    if (report.corpus, report.notes.get(CHECKSUM, checksum)) != (corpus, checksum):
        raise OutputExists(f"{folder}: holds a run on another corpus, or on {corpus!r} before it changed; name another folder")
    shutil.rmtree(unfinished_beside(folder), ignore_errors=True)  # a kill right after the end leaves it behind
    return report


@contextmanager
def _work(method: Method, folder: Path, made: str) -> Iterator[float]:
    """Keep what a run has done so far, apart from what other settings or corpora left, until it is done.

    Gives the seconds of training that went into what is there already.
    """
    if not isinstance(method, Resumable):
        yield 0.0
        return
    place = unfinished_beside(folder)
    with alone(place, f"{folder}: this run is being made by another process; wait for it, or name another folder"):
        method.work = place / _digest(made)
        try:
            yield _seconds(method.work)
        except Exception:
            if not _begun(place):  # it failed before there was anything to go on from
                shutil.rmtree(place, ignore_errors=True)
            raise
        shutil.rmtree(place, ignore_errors=True)


def _begun(place: Path) -> bool:
    """Whether some attempt at a run left more than its clock and its lock."""
    return any(path.is_file() and path.name not in (CLOCK, LOCK) for path in place.rglob("*"))


def _seconds(work: Path) -> float:
    """How long earlier attempts at a run took up to what they left last; the clock of this one begins."""
    clock, before = work / CLOCK, 0.0
    if clock.is_file():
        before, begun = read_json(clock)
        before += max(0.0, max(path.stat().st_mtime for path in work.iterdir()) - begun)
    write_bytes(clock, json.dumps([before, time.time()]).encode(), force=True)
    return before


def corpus_checksum(splits: Splits) -> str:
    """A digest of all that a result depends on: labels, documents, and how the corpus is reported."""
    digest = hashlib.sha256(json.dumps([asdict(splits.info), [asdict(label) for label in splits.labels]]).encode())
    for corpus in splits:
        for document in corpus:
            digest.update(json.dumps([document.id, document.text, document.labels, document.sections]).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def facts(method: Method, documents: Corpus | None = None) -> dict[str, str | float]:
    """What a report should say of the method that it is about, and of how it reads the documents."""
    settings = {key: value for key, value in flat(asdict(method.settings)).items() if key not in (*ELSEWHERE, "seed")}
    # Runs of one method are told by this to differ in their seed only.
    found: dict[str, str | float] = {"hardware": hardware(), "digest of the settings": _digest(json.dumps(settings))}
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
    return f"{cores()} cores{gpu}"


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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
