"""GAP of a whole corpus on one core, and beside a plain networkx version of the same definition on a sample."""

import random
import sys
import warnings
from pathlib import Path

import numpy as np
from record import data_folders, record, stopwatch
from scipy.sparse import csr_array, vstack

import labelwise
from labelwise.gap import gap

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from test_gap import slow_gap_on, slow_graph

SAMPLE = 50

if __name__ == "__main__":
    for folder in data_folders():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            splits = labelwise.read_corpus(folder)
        hierarchy = labelwise.Hierarchy(splits.labels)
        gold = csr_array(vstack([corpus.gold() for corpus in splits], format="csr"))
        gap(gold[:1], hierarchy)  # compile, or read from the cache
        with stopwatch() as whole:
            values = gap(gold, hierarchy)
        rows = sorted(random.Random(0).sample(range(gold.shape[0]), SAMPLE))
        with stopwatch() as ours:
            fast = gap(csr_array(gold[rows]), hierarchy)
        graph = slow_graph(splits.labels, [splits.labels[c].id for c in np.flatnonzero(hierarchy.tops)])
        with stopwatch() as theirs:
            slow = [slow_gap_on(graph, [splits.labels[c].id for c in gold[[row]].indices]) for row in rows]
        record(
            "gap",
            corpus=splits.info.name,
            documents=gold.shape[0],
            gap=round(float(np.nanmean(values)), 5),
            **whole,
            sample=SAMPLE,
            sample_seconds=ours["seconds"],
            networkx_sample_seconds=theirs["seconds"],
            ratio=round(theirs["seconds"] / max(ours["seconds"], 1e-3), 1),
            largest_difference=float(np.max(np.abs(fast - np.array(slow)))),
        )
