"""Evaluation of a 6,000 × 4,271 dense score matrix: four groups, k = 1..10; seconds and memory beyond the matrix."""

import numpy as np
from record import peak_gib, record, stopwatch

from labelwise.corpus import Groups
from labelwise.datasets.worlds import make_world
from labelwise.evaluation import evaluate
from labelwise.scores import Scores

if __name__ == "__main__":
    splits = make_world(documents=60_000, labels=4271, words=10)
    values = np.random.default_rng(0).random((6000, 4271), dtype=np.float32)
    scores = Scores(values, splits.labels)
    before = peak_gib()
    with stopwatch() as ranking:
        for among in Groups.of(splits).masks().values():
            scores.ranking(10, among)
    for ties in ("authors", "lower_index", "expected", "pessimistic"):
        with stopwatch() as clock:
            evaluate(scores, splits, ks=range(1, 11), measures=["p", "r", "rp", "ndcg"], ties=ties)
        record(
            "evaluation",
            documents=6000,
            labels=4271,
            ties=ties,
            **clock,
            ranking_seconds=ranking["seconds"],
            extra_gib=round(peak_gib() - before, 3),
        )
