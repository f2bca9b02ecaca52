"""Does the best encoder of labels without training documents change with GAP? Worlds that differ in their guideline only.

The documents of a world are annotated three times: with leaves alone, with some of the labels above them too (any-level), or with
all of them (closed). Texts, hierarchy and the leaves of a document stay as they are, and the test asks for leaves only. Each
world comes with two kinds of names: those that tell of the labels above (path) and those that do not (own). One line per run;
what is recorded already is not run again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import record
from scipy.sparse import csr_array, vstack

import labelwise
from labelwise.corpus import Corpus, CorpusInfo, Splits, relabel
from labelwise.datasets.worlds import HABITS, make_world
from labelwise.gap import gap
from labelwise.hierarchy import Hierarchy
from labelwise.registry import make_method
from labelwise.settings import override

BENCHMARK = "gap-study"
METHODS = ("lexical", *(f"{kind}-bigru-lwan" for kind in ("c", "dc", "dn", "dnc", "gc", "gnc")))
ABOVE = {"leaves": 0.0, "any-level": 0.25, "closed": 1.0}  # share of the labels above the leaves that is annotated too
NAMES = ("path", "own")
HABIT = replace(HABITS["leaves"], levels=(0.04, 0.11, 0.2, 0.65), zipf=1.0, flat=3, draws=5, focus=0.3)
SETTINGS: dict[str, Any] = {
    "threads": 1,
    "words": {"width": 100},
    "encoder": {"units": 50},
    "labels": {"nodes": {"width": 50, "batch": 4096, "learning_rate": 0.01, "root": True}},
    "training": {
        "batch": 64,
        "learning_rate": 0.004,
        "average": 0.99,
        "unseen": "masked",
        "epochs": 20,
    },
}


class Size(NamedTuple):
    """How large each world is."""

    documents: int
    labels: int
    words: int


class Job(NamedTuple):
    """One run."""

    seed: int | None
    world: int
    names: str
    guideline: str
    method: str


def jobs(worlds: int, seeds: int, methods: list[str]) -> Iterator[Job]:
    """All runs, in an order in which the first ones already are a smaller study."""
    for seed, world, names, guideline, method in product(range(1, seeds + 1), range(1, worlds + 1), NAMES, ABOVE, methods):
        if method != "lexical":
            yield Job(seed, world, names, guideline, method)
        elif seed == 1:  # there is no chance in it
            yield Job(None, world, names, guideline, method)


@lru_cache(maxsize=1)
def make(world: int, names: str, size: Size) -> Splits:
    """The world, annotated with leaves; all that is not trained on is for the test."""
    info = CorpusInfo(f"{names} names, world {world}", k=5, few=20)
    habit = replace(HABIT, info=info, names=names)  # type: ignore[arg-type]
    train, dev, test = make_world("leaves", **size._asdict(), new=0.15, habit=habit, seed=world)
    rest = Corpus([*dev, *test], train.labels, info)
    return Splits(train, rest[:0], rest)


def annotate(corpus: Corpus, hierarchy: Hierarchy, above: float, random: np.random.Generator) -> Corpus:
    """The corpus with some of the labels above its gold labels added, each with the chance `above`."""
    closed = hierarchy.close(corpus.gold()).tocoo()
    kept = hierarchy.leaves[closed.col] | (random.random(closed.nnz) < above)
    gold = csr_array((np.ones(kept.sum(), dtype=bool), (closed.row[kept], closed.col[kept])), shape=closed.shape)
    return relabel(corpus, gold)


def run(job: Job, size: Size, device: str, changes: list[str]) -> dict[str, Any]:
    """Train on what the guideline annotates, test on the leaves; what is to be recorded."""
    leaves = make(job.world, job.names, size)
    hierarchy, random = Hierarchy(leaves.labels), np.random.default_rng(job.world)
    splits = leaves.map(partial(annotate, hierarchy=hierarchy, above=ABOVE[job.guideline], random=random))
    gold = csr_array(vstack([corpus.gold() for corpus in splits], format="csr"))
    settings = {} if job.seed is None else override({**SETTINGS, "seed": job.seed, "device": device}, changes)
    with record.stopwatch() as fitting:  # without development documents, so that no guideline has a say in when training ends
        model = make_method(job.method, settings).fit(splits.train)
    report = labelwise.evaluate(model, leaves, ties="pessimistic")
    line = {"corpus": leaves.info.name, **job._asdict(), **size._asdict(), "k": report.k}
    line |= {"gap": round(float(np.nanmean(gap(gold, hierarchy))), 4), "labels_per_document": round(gold.nnz / gold.shape[0], 2)}
    if history := getattr(model, "history", None):
        line |= {"epochs": history[-1]["epoch"], "loss": history[-1]["loss"], "settings": changes}
    groups = {group: {key: round(value, 5) for key, value in scores.items()} for group, scores in report.groups.items()}
    return {**line, "fit_seconds": fitting["seconds"], "groups": groups}


def attempt(job: Job, **how: Any) -> tuple[Job, dict[str, Any] | str]:
    """A run that fails does not stop the others."""
    try:
        return job, run(job, **how)
    except Exception as error:
        return job, f"{type(error).__name__}: {error}"


def recorded(size: Size) -> set[Job]:
    """The runs of worlds of this size that were recorded, here or where the others go."""
    files = {record.RESULTS, Path(__file__).with_name("results.jsonl")}
    lines = [json.loads(line) for file in files if file.exists() for line in file.read_text(encoding="utf-8").splitlines()]
    own = [line for line in lines if line["benchmark"] == BENCHMARK and Size(*(line[key] for key in Size._fields)) == size]
    return {Job(*(line[key] for key in Job._fields)) for line in own}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--worlds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each network in each world")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="METHOD")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with one core and all on one device")
    parser.add_argument("--documents", type=int, default=1500)
    parser.add_argument("--labels", type=int, default=250)
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of all networks")
    parser.add_argument("--out", type=Path, default=record.RESULTS, help="file for the lines, instead of results.jsonl")
    given = parser.parse_args()
    record.RESULTS, size = given.out, Size(given.documents, given.labels, given.words)
    done = recorded(size)
    waiting = [job for job in jobs(given.worlds, given.seeds, given.methods) if job not in done]
    print(f"{len(done)} runs are recorded, {len(waiting)} to go", flush=True)
    if not waiting:
        return 0
    import torch  # noqa: F401 — so that the recorded hardware names the GPU

    failed = 0
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        work = partial(attempt, size=size, device=given.device, changes=given.set)
        for job, line in pool.imap_unordered(work, waiting):
            if isinstance(line, str):
                failed += 1
                print(f"failed: {' '.join(map(str, job))}: {line}", flush=True)
            else:
                record.record(BENCHMARK, **line)
    return min(failed, 1)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers
    raise SystemExit(main())
