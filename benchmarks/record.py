"""One line per result in results.jsonl: what was measured, on which commit and hardware, how long it took."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).with_name("results.jsonl")
SCORES = Path(__file__).with_name("scores")


def record(benchmark: str, **values: Any) -> None:
    """Print a result and append it."""
    line = {"benchmark": benchmark, **values, "commit": commit(), "date": date.today().isoformat(), "hardware": hardware()}
    print(json.dumps({key: line[key] for key in line if key not in ("commit", "date", "hardware")}, ensure_ascii=False))
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def record_quality(report: Any, method: str, **values: Any) -> None:
    """Record what a report says of each label group, under the name that the method has in the tables.

    Scores on development documents are kept apart from results. Those on test documents come with what differences between
    methods are tested on: nDCG@k of each document, in a file of its own. LABELWISE_REPORTS names a folder where reports are kept
    too, for `labelwise compare`.
    """
    facts = {"corpus": report.corpus, "method": method, "split": report.split, "k": report.k, "ties": report.ties}
    groups = {group: {key: round(value, 5) for key, value in scores.items()} for group, scores in report.groups.items()}
    if report.split == "test":
        with _kept(report, method, values.get("seed")) as scores:
            kept = {"by_frequency": _by_frequency(report), "fingerprint": report.fingerprint, "scores": scores}
            record("quality", **facts, **values, groups=groups, **kept)
    else:
        record("development", **facts, **values, groups=groups)
    if place := os.environ.get("LABELWISE_REPORTS"):
        named = replace(report, method=method, notes=report.notes | {"seed": values.get("seed") or 1})
        named.save(Path(place) / f"{report.corpus}-{method}-{values.get('seed')}".replace(" ", "-"), force=True)


@contextmanager
def _kept(report: Any, method: str, seed: int | None) -> Iterator[str]:
    """Nearly write nDCG@k of each document, by group; the file takes its place once the line that names it is written."""
    name = re.sub(r"\W+", "-", method if seed is None else f"{method} {seed}").strip("-")
    place = SCORES / report.corpus / f"{name}.npz"
    place.parent.mkdir(parents=True, exist_ok=True)
    measure, draft = f"ndcg@{report.k}", place.with_suffix(".partial.npz")
    np.savez_compressed(draft, **{group: values[measure].astype(np.float32) for group, values in report.values.items()})
    yield place.relative_to(SCORES.parent).as_posix()
    draft.replace(place)


def _by_frequency(report: Any) -> list[list[int]]:
    """Binary digits of a number of training documents; gold labels, those found among the first k, and labels with so many."""
    if not report.labels:
        raise ValueError("results need evaluate(…, per_label=True)")
    found: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for label in report.labels:
        counts = found[int(label.train_documents).bit_length()]
        for place, count in enumerate((label.documents, label.hits, bool(label.documents))):
            counts[place] += int(count)
    return [[digits, *counts] for digits, counts in sorted(found.items()) if counts[0]]


@contextmanager
def stopwatch() -> Iterator[dict[str, float]]:
    """Wall seconds of a block, under "seconds"."""
    clock: dict[str, float] = {}
    started = time.perf_counter()
    yield clock
    clock["seconds"] = round(time.perf_counter() - started, 3)


def peak_gib() -> float:
    """The most memory this process has had, in GiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)


def data_folders() -> list[Path]:
    """Corpora named by --data FOLDER or LABELWISE_DATA; none, with a message, without them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds corpus folders")
    place = parser.parse_args().data
    if place is None:
        print("skipped: name the corpora with --data FOLDER or LABELWISE_DATA")
        return []
    return sorted(path.parent for path in Path(place).glob("*/labels.jsonl*"))


def hardware() -> str:
    names = [
        line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    torch = sys.modules.get("torch")
    gpu = f", {torch.cuda.get_device_name()}" if torch is not None and torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores ({names[0] if names else platform.machine()}), {memory:.0f} GiB{gpu}"


def commit() -> str:
    """The commit that is measured; LABELWISE_COMMIT names it where there is no repository."""
    changed = "+changes" if _git("status", "--porcelain", "--", "labelwise") else ""
    return (_git("rev-parse", "--short", "HEAD") or os.environ.get("LABELWISE_COMMIT", "unknown")) + changed


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=RESULTS.parent.parent)
    return done.stdout.strip()
