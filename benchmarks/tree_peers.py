"""The label trees that people use today, one per run: PECOS XR-Linear, omikuji, napkinXC and LibMultiLabel.

benchmarks/trees.py starts it with the interpreter of the peers' environment (libpecos wants numpy below 2 and scipy below
1.14), so nothing of Labelwise is imported here. Settings are those of the paper where a system has them, else its defaults.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, save_npz
from tree_measure import BEAM, System, main


class Pecos:
    """One tree, its defaults: 16 children a node, leaves of 100 labels, squared hinge, C = 1, weights under 0.1 dropped."""

    trees = 1
    engines: tuple[str, ...] = ("binary search", "hash chunks")

    def __init__(self, score: str = "l3-hinge") -> None:
        self.score = score  # exp(-hinge³) unless given; the paper's methods square it

    def prepare(self, features: csr_matrix, gold: csr_matrix, folder: Path, threads: int) -> None:
        import pecos.xmc.xlinear  # noqa: F401  (outside the clock)

        self.features, self.gold, self.folder = features, gold.tocsc(), folder

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
            pred_kwargs={"beam_size": BEAM, "post_processor": self.score},
        )
        solved = time.perf_counter()
        for layer, clusters in enumerate(chain):  # for our solver on the same tree
            save_npz(self.folder / f"tree-{layer}.npz", clusters)
        return {"tree_seconds": built - started, "solve_seconds": solved - built}

    def save(self, folder: Path) -> None:
        self.model.save(str(folder))

    def load(self, folder: Path, engine: str, threads: int) -> None:
        from pecos.xmc.xlinear.model import XLinearModel

        kind = {"binary search": "BINARY_SEARCH_CHUNKED", "hash chunks": "HASH_CHUNKED"}[engine]
        self.model = XLinearModel.load(str(folder), is_predict_only=True, weight_matrix_type=kind)

    def predict(self, features: csr_matrix, top: int, threads: int) -> csr_matrix:
        return self.model.predict(features, beam_size=BEAM, only_topk=top, threads=threads)

    def scores(self, answer: csr_matrix) -> csr_matrix:
        return answer


class Omikuji:
    """Three trees. It has no batch call: rows go to its C function from as many threads as are allowed."""

    trees = 3
    engines: tuple[str, ...] = ("sparse", "densified")

    def __init__(self, **changed: Any) -> None:
        self.changed = changed  # from its defaults, which are Parabel's

    def prepare(self, features: csr_matrix, gold: csr_matrix, folder: Path, threads: int) -> None:
        from omikuji import _ThreadPoolHandle
        from omikuji._libomikuji import ffi, lib

        path = folder / "train.txt"
        write_xmc(features, gold, path)
        self.labels = gold.shape[1]
        self.pool = _ThreadPoolHandle(threads, initialize=True)
        self.data = ffi.gc(lib.load_omikuji_data_set(str(path).encode(), self.pool.ptr), lib.free_omikuji_data_set)

    def train(self, threads: int) -> dict[str, float]:
        from omikuji import Model
        from omikuji._libomikuji import lib

        settings = Model.default_hyper_param()
        for name, value in self.changed.items():
            setattr(settings, name, value)
        self.model = Model(lib.train_omikuji_model(self.data, settings, self.pool.ptr))
        return {}

    def save(self, folder: Path) -> None:
        self.model.save(str(folder))

    def load(self, folder: Path, engine: str, threads: int) -> None:
        from omikuji import Model, _ThreadPoolHandle

        self.pool = _ThreadPoolHandle(threads, initialize=True)
        self.model = Model.load(str(folder))
        if engine == "densified":
            self.model.densify_weights(n_threads=threads)

    def predict(self, features: csr_matrix, top: int, threads: int) -> Any:
        from omikuji._libomikuji import ffi, lib

        labels = np.zeros((features.shape[0], top), dtype=np.uint32)
        scores = np.zeros((features.shape[0], top), dtype=np.float32)
        columns, values = features.indices.astype(np.uint32), features.data
        starts, model, pool = features.indptr.tolist(), self.model._model_ptr, self.pool.ptr

        def one(row: int) -> None:
            own = slice(starts[row], starts[row + 1])
            lib.omikuji_predict(
                model,
                BEAM,
                starts[row + 1] - starts[row],
                ffi.from_buffer("uint32_t[]", columns[own]),
                ffi.from_buffer("float[]", values[own]),
                top,
                ffi.from_buffer("uint32_t[]", labels[row]),
                ffi.from_buffer("float[]", scores[row]),
                pool,
            )

        if threads == 1:
            for row in range(features.shape[0]):
                one(row)
        else:
            with ThreadPoolExecutor(threads) as workers:
                list(workers.map(one, range(features.shape[0])))
        return labels, scores

    def scores(self, answer: Any) -> csr_matrix:
        labels, scores = answer
        rows, places = np.nonzero(scores > 0)
        return csr_matrix((scores[rows, places], (rows, labels[rows, places])), shape=(len(labels), self.labels))


class NapkinXC:
    """One tree (PLT) with its defaults: balanced 2-means, leaves of 100 labels, logistic loss with C = 10, exact search."""

    trees = 1
    engines: tuple[str, ...] = ("",)

    def prepare(self, features: csr_matrix, gold: csr_matrix, folder: Path, threads: int) -> None:
        self.features, self.gold, self.folder = features, gold, folder / "model"

    def train(self, threads: int) -> dict[str, float]:
        from napkinxc.models import PLT

        PLT(str(self.folder), threads=threads, seed=0).fit(self.features, self.gold)  # writes the model as it goes
        return {}

    def save(self, folder: Path) -> None:
        pass

    def load(self, folder: Path, engine: str, threads: int) -> None:
        from napkinxc.models import PLT

        self.model = PLT(str(folder), threads=threads)
        self.model.load()

    def predict(self, features: csr_matrix, top: int, threads: int) -> Any:
        return self.model.predict_proba(features, top_k=top)

    def scores(self, answer: Any) -> csr_matrix:
        rows = np.repeat(np.arange(len(answer)), [len(found) for found in answer])
        labels, scores = (np.array([pair[part] for found in answer for pair in found]) for part in (0, 1))
        return csr_matrix((scores.astype(np.float32), (rows, labels.astype(int))), shape=(len(answer), self.gold.shape[1]))


class LibMultiLabel:
    """One tree of 100 children a node, squared hinge, C = 1, bias 1. It drops no weights and saves by pickle only."""

    trees = 1
    engines: tuple[str, ...] = ("",)

    def prepare(self, features: csr_matrix, gold: csr_matrix, folder: Path, threads: int) -> None:
        import psutil

        psutil.cpu_count = lambda logical=True: threads  # the only way to say it
        self.features, self.gold = features, gold

    def train(self, threads: int) -> dict[str, float]:
        from libmultilabel import linear

        self.model = linear.train_tree(self.gold, self.features, "-s 1 -c 1 -e 0.1 -B 1", verbose=False)
        return {}

    def save(self, folder: Path) -> None:
        save_npz(folder / "weights.npz", self.model.flat_model.weights, compressed=False)

    def load(self, folder: Path, engine: str, threads: int) -> None:
        pass

    def predict(self, features: csr_matrix, top: int, threads: int) -> Any:
        step = 500  # its answers are dense
        starts = range(0, features.shape[0], step)
        return [csr_matrix(self.model.predict_values(features[start : start + step], beam_width=BEAM)) for start in starts]

    def scores(self, answer: Any) -> csr_matrix:
        from scipy.sparse import vstack

        return vstack(answer, format="csr").astype(np.float32)


def write_xmc(features: csr_matrix, gold: csr_matrix, path: Path) -> None:
    """The text format of the XMC repository."""
    with path.open("w") as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {gold.shape[1]}\n")
        for row in range(features.shape[0]):
            own = slice(features.indptr[row], features.indptr[row + 1])
            pairs = zip(features.indices[own].tolist(), features.data[own].tolist(), strict=True)
            labels = gold.indices[gold.indptr[row] : gold.indptr[row + 1]].tolist()
            file.write(",".join(map(str, labels)) + " " + " ".join(f"{column}:{value:.6f}" for column, value in pairs) + "\n")


SYSTEMS: dict[str, System] = {
    "pecos": Pecos(),
    "pecos-squared": Pecos("l2-hinge"),
    "omikuji-parabel": Omikuji(),
    "omikuji-bonsai": Omikuji(cluster_k=100, cluster_balanced=False, max_depth=3, min_branch_size=100),
    "napkinxc": NapkinXC(),
    "libmultilabel": LibMultiLabel(),
}

if __name__ == "__main__":
    main(SYSTEMS)
