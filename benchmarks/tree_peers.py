"""Label trees that people use today, each measured in a process of its own on matrices that benchmarks/trees.py wrote.

It runs in the peers' environment (libpecos wants numpy below 2), so nothing of Labelwise is imported here. `measure` is used
for our own trees as well: the same clock, the same memory, the same documents.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_matrix, load_npz, save_npz

BEAM = 10
TOP = 100  # labels per document when a short list is asked for
REACHED = 1000  # no beam of 10 leaves of 100 labels reaches more
SINGLE = 200  # documents predicted one by one


class System(Protocol):
    """A way to train and use a label tree."""

    trees: int
    engines: tuple[str, ...]  # ways to predict from one saved model

    def prepare(self, features: csr_matrix, gold: csr_matrix, folder: Path) -> None:
        """Bring the data into the system's own form; not timed."""

    def train(self, threads: int) -> dict[str, float]:
        """Train, and give the seconds of parts that are worth telling."""

    def save(self, folder: Path) -> None:
        """Write the model."""

    def load(self, folder: Path, engine: str, threads: int) -> None:
        """Read the model."""

    def predict(self, features: csr_matrix, top: int, threads: int) -> csr_matrix:
        """(documents, labels) scores of the best `top` labels of each document."""


def measure(system: System, data: Path, out: Path, threads: int) -> dict[str, Any]:
    """Train, save, load and predict; scores.npz and result.json go to `out`, the model to `out`/model."""
    features, gold, test = (load_npz(data / f"{name}.npz") for name in ("train", "gold", "test"))
    system.prepare(features, gold, out)
    before = reset_peak()
    started = time.perf_counter()
    parts = system.train(threads)
    result: dict[str, Any] = {"trees": system.trees, "train_seconds": round(time.perf_counter() - started, 3), **parts}
    result |= {"peak_mb": peak_mb(), "extra_mb": round(peak_mb() - before, 1)}
    model = out / "model"
    system.save(model)
    result["model_mb"] = round(sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e6, 2)
    result["engines"] = {engine: _predictions(system, engine, model, test, out, threads) for engine in system.engines}
    (out / "result.json").write_text(json.dumps(result))
    return result


def _predictions(system: System, engine: str, model: Path, test: csr_matrix, out: Path, threads: int) -> dict[str, float]:
    started = time.perf_counter()
    system.load(model, engine, threads)
    result = {"load_seconds": time.perf_counter() - started}
    singles = [test[row] for row in range(min(SINGLE, test.shape[0]))]
    system.predict(test[:SINGLE], TOP, threads)  # warm up
    for name, top in (("documents_per_second", REACHED), ("documents_per_second_top", TOP)):
        started = time.perf_counter()
        scores = system.predict(test, top, threads)
        result[name] = test.shape[0] / (time.perf_counter() - started)
        if top == REACHED:
            save_npz(out / "scores.npz", csr_matrix(scores), compressed=False)
    seconds = []
    for row in singles:
        started = time.perf_counter()
        system.predict(row, TOP, 1)
        seconds.append(time.perf_counter() - started)
    result["one_document_ms"] = 1000 * float(np.median(seconds))
    return {name: round(value, 4) for name, value in result.items()}


def reset_peak() -> float:
    """Forget the peak of loading data (ru_maxrss would also inherit that of the parent process); the memory now, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def peak_mb() -> float:
    """The most memory since the last reset, in MB."""
    status = Path("/proc/self/status").read_text()
    return round(int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6, 1)


class Pecos:
    """PECOS XR-Linear with its defaults: one tree of 16 children and leaves of 100 labels."""

    trees = 1
    engines = ("binary search", "hash")

    def prepare(self, features: csr_matrix, gold: csr_matrix, folder: Path) -> None:
        self.features, self.gold, self.folder = features, gold.tocsc().astype(np.float32), folder

    def train(self, threads: int) -> dict[str, float]:
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        started = time.perf_counter()
        vectors = LabelEmbeddingFactory.create(self.gold, self.features, method="pifa", threads=threads)
        chain = Indexer.gen(vectors, indexer_type="hierarchicalkmeans", nr_splits=16, max_leaf_size=100, threads=threads)
        built = time.perf_counter()
        self.model = XLinearModel.train(
            self.features,
            self.gold,
            C=chain,
            threshold=0.1,
            Cp=1.0,
            Cn=1.0,
            threads=threads,
            pred_kwargs={"beam_size": BEAM, "only_topk": REACHED},
        )
        solved = time.perf_counter() - built
        for layer, clusters in enumerate(chain):
            save_npz(self.folder / f"tree-{layer}.npz", clusters)
        return {"tree_seconds": round(built - started, 3), "solve_seconds": round(solved, 3)}

    def save(self, folder: Path) -> None:
        self.model.save(str(folder))

    def load(self, folder: Path, engine: str, threads: int) -> None:
        from pecos.xmc.xlinear.model import XLinearModel

        kind = {"binary search": "BINARY_SEARCH_CHUNKED", "hash": "HASH_CHUNKED"}[engine]
        self.model = XLinearModel.load(str(folder), is_predict_only=True, weight_matrix_type=kind)

    def predict(self, features: csr_matrix, top: int, threads: int) -> csr_matrix:
        return self.model.predict(features, beam_size=BEAM, only_topk=top, threads=threads)


SYSTEMS = {"pecos": Pecos}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("data", type=Path, help="folder with train.npz, gold.npz and test.npz")
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    print(json.dumps(measure(SYSTEMS[given.system](), given.data, given.out, given.threads)))
