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
        kept = {"fingerprint": report.fingerprint, "scores": _keep(report, method, values.get("seed"))}
        record("quality", **facts, **values, groups=groups, by_frequency=_by_frequency(report), **kept)
    else:
        record("development", **facts, **values, groups=groups)
    if place := os.environ.get("LABELWISE_REPORTS"):
        named = replace(report, method=method, notes=report.notes | {"seed": values.get("seed") or 1})
        named.save(Path(place) / f"{report.corpus}-{method}-{values.get('seed')}".replace(" ", "-"), force=True)


def _keep(report: Any, method: str, seed: int | None) -> str:
    """Write nDCG@k of each document, by group, in half precision; the file's path beside results.jsonl."""
    name = re.sub(r"\W+", "-", f"{method} {seed or ''}").strip("-")
    place = SCORES / report.corpus / f"{name}.npz"
    place.parent.mkdir(parents=True, exist_ok=True)
    measure = f"ndcg@{report.k}"
    np.savez_compressed(place, **{group: values[measure].astype(np.float16) for group, values in report.values.items()})
    return place.relative_to(SCORES.parent).as_posix()


def _by_frequency(report: Any) -> list[list[int]]:
    """Binary digits of a number of training documents; gold labels, those found among the first k, and labels with so many."""
    found: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for label in report.labels:
        if label.documents:
            of = found[int(label.train_documents).bit_length()]
            found[int(label.train_documents).bit_length()] = [of[0] + label.documents, of[1] + label.hits, of[2] + 1]
    return [[digits, *map(int, of)] for digits, of in sorted(found.items())]


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
