"""Making worlds: time, memory and GAP."""

import subprocess
import sys

import numpy as np
from record import peak_gib, record, stopwatch

from labelwise.corpus import Groups
from labelwise.datasets.worlds import HABITS, make_world
from labelwise.gap import gap
from labelwise.hierarchy import Hierarchy

PAPER = {"any-level": 0.45, "leaves": 0.27, "closed": 0.86}


def measure(guideline: str, documents: int, labels: int) -> None:
    with stopwatch() as clock:
        splits = make_world(guideline, documents=documents, labels=labels)
    memory = peak_gib()
    sample = splits.train.gold()[:2000] if labels < 100_000 else splits.train.gold()[:200]
    value = float(np.nanmean(gap(sample, Hierarchy(splits.labels))))
    groups = {name: int(mask.sum()) for name, mask in Groups.of(splits).masks().items()}
    record(
        "world",
        guideline=guideline,
        documents=documents,
        labels=labels,
        **clock,
        peak_gib=memory,
        gap=round(value, 4),
        paper_gap=PAPER[guideline],
        groups=groups,
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        sys.exit()
    for documents, labels in ((5000, 500), (45_000, 4271), (100_000, 500_000)):
        for guideline in HABITS:  # each in a process of its own, so that peak memory is its own
            subprocess.run([sys.executable, __file__, guideline, str(documents), str(labels)], check=True)
