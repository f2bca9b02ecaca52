"""What bounds the training of a label tree: the bytes and the arithmetic of a pass, and how fast this machine can do them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, load_npz

from labelwise.trees.tree import LabelTree

SIZE = 1 << 28  # float32 values in 1 GiB
SIDE = 2048  # of a matrix product
ENTRY = 8  # bytes of a stored value and its index


def machine(threads: int) -> dict[str, float]:
    """GB per second of reading, copying and adding 1 GiB arrays, each thread its own part, and GFLOP per second; best of five."""
    from threadpoolctl import threadpool_limits

    a, b, c = (np.ones(SIZE, dtype=np.float32) for _ in range(3))
    parts = [slice(SIZE * part // threads, SIZE * (part + 1) // threads) for part in range(threads)]
    work: dict[str, tuple[int, Callable[[slice], object]]] = {
        "read_gb_s": (1, lambda part: a[part].max()),
        "copy_gb_s": (2, lambda part: np.copyto(b[part], a[part])),
        "add_gb_s": (3, lambda part: np.add(a[part], b[part], out=c[part])),
    }
    speeds = {name: arrays * a.nbytes / 1e9 / _best(parts, step) for name, (arrays, step) in work.items()}
    square = a[: SIDE * SIDE].reshape(SIDE, SIDE)
    with threadpool_limits(threads):
        speeds["gflops"] = 2 * SIDE**3 / 1e9 / _best([slice(None)], lambda _: square @ square)
    return {name: round(speed, 2) for name, speed in speeds.items()}


def _best(parts: list[slice], step: Callable[[slice], object]) -> float:
    seconds = []
    with ThreadPoolExecutor(len(parts)) as workers:
        for _ in range(5):
            started = time.perf_counter()
            list(workers.map(step, parts))
            seconds.append(time.perf_counter() - started)
    return min(seconds)


def pecos_tree(folder: Path) -> LabelTree:
    """The tree that PECOS built in its run."""
    paths = sorted(folder.glob("tree-*.npz"))
    if not paths:
        sys.exit("PECOS' tree is not there; let the system pecos run as well")
    return LabelTree.from_chain([load_npz(path) for path in paths])


def floor(data: Path, pecos: Path, threads: int) -> dict[str, float]:
    """One pass over PECOS' tree: bytes of the rows it reads, (value, classifier) pairs it works through, and their seconds.

    A pair costs two operations for the margin and two for the update; updates of zero are free, so a solver may need less.
    """
    tree, gold = pecos_tree(pecos), csr_array(load_npz(data / "gold.npz").astype(bool))
    sizes = np.diff(load_npz(data / "train.npz").indptr).astype(np.int64)
    inside = [np.array([sizes[np.diff(gold.indptr) > 0].sum()]), *(level.T @ sizes for level in tree.members(gold))]
    children = [np.diff(tree.children(level)) for level in range(tree.depth)]
    read = ENTRY / 1e9 * sum(int(inside[level][count > 1].sum()) for level, count in enumerate(children))
    pairs = sum(int(inside[level] @ count) for level, count in enumerate(children))
    speed = machine(threads)
    return {
        "gb_per_pass": round(read, 4),
        "pairs_per_pass": pairs,
        "read_seconds_per_pass": round(read / speed["read_gb_s"], 4),
        "arithmetic_seconds_per_pass": round(4 * pairs / 1e9 / speed["gflops"], 4),
        **speed,
    }
