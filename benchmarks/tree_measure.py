"""One label-tree system, trained and used in a process of its own: seconds, memory, model size, speed, scores.

Our trees and their peers go through the same `measure`: the same matrices, cores, clock and documents. It also runs in the
peers' environment, so it imports nothing but numpy and scipy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_matrix, load_npz, save_npz

BEAM = 10
REACHED = 1000  # a list this long holds every label of 10 leaves of 100
TOP = 100  # the short list
SINGLE = 200  # documents predicted one by one
REPEATS, ENOUGH = 5, 3.0  # the test documents are predicted up to so many times, or until so many seconds have passed


class System(Protocol):
    """A way to train and use label trees."""

    trees: int
    engines: tuple[str, ...]  # ways to predict from one saved model

    def prepare(self, features: csr_matrix, gold: csr_matrix, folder: Path, threads: int) -> None:
        """Bring the data into the form the system wants it in; not timed. Other output may go to the folder."""

    def train(self, threads: int) -> dict[str, float]:
        """Train, and give the seconds of the parts worth telling."""

    def save(self, folder: Path) -> None:
        """Write the model into a folder that exists."""

    def load(self, folder: Path, engine: str, threads: int) -> None:
        """Read the model for one way to predict."""

    def predict(self, features: csr_matrix, top: int, threads: int) -> Any:
        """The best `top` labels of each document, in whatever form the system gives them."""

    def scores(self, answer: Any) -> csr_matrix:
        """(documents, labels) scores out of an answer of `predict`; not timed."""


def main(systems: Mapping[str, System]) -> None:
    """Run the system that the command line names."""
    if len(sys.argv) == 1:
        print("skipped: benchmarks/trees.py starts this")
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=systems)
    parser.add_argument("data", type=Path, help="folder with train.npz, gold.npz and test.npz")
    parser.add_argument("out", type=Path, help="folder for the result")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cold", action="store_true", help="only load the model of an earlier run and predict one document")
    given = parser.parse_args()
    keep_to_cores(given.threads)
    if given.cold:
        start_cold(systems[given.system], given.out)
    else:
        measure(systems[given.system], given.data, given.out, given.threads)


def measure(system: System, data: Path, out: Path, threads: int) -> None:
    """Train, save, load and predict; result.json, scores.npz and the model go to `out`."""
    features, gold, test = (load_npz(data / f"{name}.npz") for name in ("train", "gold", "test"))
    system.prepare(features, gold, out, threads)
    before = reset_peak()
    started = time.perf_counter()
    parts = system.train(threads)
    result: dict[str, Any] = {"trees": system.trees, "train_seconds": time.perf_counter() - started, **parts}
    peak = peak_mb()
    result |= {"peak_mb": peak, "extra_mb": peak - before}
    model = out / "model"
    model.mkdir(exist_ok=True)
    system.save(model)
    result["model_mb"] = sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e6
    save_npz(out / "one.npz", test[:1], compressed=False)
    result["engines"] = {engine: predictions(system, engine, test, out, threads) for engine in system.engines}
    (out / "result.json").write_text(json.dumps(result))


def start_cold(system: System, out: Path) -> None:
    """What a fresh process does before its first answer, import included."""
    system.load(out / "model", system.engines[0], 1)
    system.predict(load_npz(out / "one.npz"), TOP, 1)


def predictions(system: System, engine: str, test: csr_matrix, out: Path, threads: int) -> dict[str, float]:
    """Load the model, predict the test documents together and the first of them one by one."""
    started = time.perf_counter()
    system.load(out / "model", engine, threads)
    result = {"load_seconds": time.perf_counter() - started}
    system.predict(test[:SINGLE], TOP, threads)  # warm up
    for name, top in (("documents_per_second", REACHED), ("documents_per_second_top", TOP)):
        seconds: list[float] = []
        while sum(seconds) < ENOUGH and len(seconds) < REPEATS:
            started = time.perf_counter()
            answer = system.predict(test, top, threads)
            seconds.append(time.perf_counter() - started)
        result[name] = test.shape[0] / float(np.median(seconds))
        if top == REACHED:
            save_npz(out / "scores.npz", system.scores(answer), compressed=False)
    result["one_document_ms"] = 1000 * float(np.median([_seconds_of_one(system, test[row]) for row in range(SINGLE)]))
    return result


def _seconds_of_one(system: System, row: csr_matrix) -> float:
    started = time.perf_counter()
    system.predict(row, TOP, 1)
    return time.perf_counter() - started


def keep_to_cores(threads: int) -> None:
    """Let this process use as many cores as it may have threads, whatever its libraries believe."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def reset_peak() -> float:
    """Forget the peak so far and give the memory now, in MB: loading data must not hide the peak of training."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def peak_mb() -> float:
    """The most memory since the last reset, in MB; unlike ru_maxrss it does not begin with that of the parent process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
