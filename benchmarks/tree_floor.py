"""What bounds the training of a label tree: the bytes a pass must read, and how fast this machine can read them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy.sparse import load_npz

from labelwise.trees.tree import LabelTree

SIZE = 1 << 28  # float32 values in 1 GiB
ENTRY = 8  # bytes of a stored value and its index


def bandwidth(threads: int) -> dict[str, float]:
    """GB per second of reading, copying and adding arrays of 1 GiB, each thread its own part; the best of five."""
    a, b, c = (np.ones(SIZE, dtype=np.float32) for _ in range(3))
    parts = [slice(SIZE * part // threads, SIZE * (part + 1) // threads) for part in range(threads)]
    work: dict[str, tuple[int, Callable[[slice], object]]] = {
        "read_gb_s": (1, lambda part: a[part].max()),
        "copy_gb_s": (2, lambda part: np.copyto(b[part], a[part])),
        "add_gb_s": (3, lambda part: np.add(a[part], b[part], out=c[part])),
    }
    return {name: round(arrays * a.nbytes / 1e9 / _best(parts, step), 2) for name, (arrays, step) in work.items()}


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
    return LabelTree.from_chain([load_npz(path) for path in sorted(folder.glob("tree-*.npz"))])


def floor(data: Path, pecos: Path, threads: int) -> dict[str, float]:
    """On PECOS' tree: bytes of the rows that a pass reads, (value, classifier) pairs it works through, seconds at full speed."""
    tree, gold = pecos_tree(pecos), load_npz(data / "gold.npz")
    sizes = np.diff(load_npz(data / "train.npz").indptr)
    entries = pairs = 0.0
    inside = [np.array([sizes[np.diff(gold.indptr) > 0].sum()]), *(level.T @ sizes for level in tree.members(gold))]
    for level in range(tree.depth):
        children = np.diff(tree.children(level))
        entries += float(inside[level][children > 1].sum())
        pairs += float(inside[level] @ children)
    speed = bandwidth(threads)["read_gb_s"]
    read = entries * ENTRY / 1e9
    return {
        "gb_per_pass": round(read, 4),
        "pairs_per_pass": pairs,
        "read_gb_s": speed,
        "seconds_per_pass": round(read / speed, 4),
    }
