"""What a blend should learn to make of zero labels from: development documents that have some, or few labels scored as new.

Judged by nDCG@k of zero labels on the half of the development documents that was not learned from, over several halves. Which is
better depends on how many there are, and on whether the reader was trained: it has seen the texts of few labels then, scored as
new or not.
"""

from __future__ import annotations

import numpy as np
from record import record

from labelwise.corpus import Splits
from labelwise.methods.ensemble import Ensemble, scores_new
from labelwise.methods.weighting import ZERO, fit_line, make_pools, pool_as_new
from labelwise.pools import quality
from labelwise.progress import silent

HALVES = 12


def study(model: Ensemble, splits: Splits, row: str, seed: int) -> None:
    """Record both for a fitted blend, if its development documents can tell."""
    fitted, k = model._ready(), splits.train.info.k
    models = [member.model for member in fitted.members if scores_new(member.model)]
    dev = splits.dev.with_labels(fitted.labels)
    real, few = make_pools(models, fitted.groups, dev, k, silent)[ZERO], pool_as_new(models, fitted.groups, dev, k, silent)
    if not few.hits.any():
        return
    as_new, random, reached = fit_line(few)[0], np.random.default_rng(1), []
    for _ in range(HALVES):
        half = random.random(len(real.gold)) < 0.5
        learned, judged = real.rows(half), real.rows(~half)
        if learned.hits.any() and judged.gold.any():
            reached.append([quality(line(judged.scores), judged.hits, judged.gold, k) for line in (fit_line(learned)[0], as_new)])
    if not reached:
        return
    own, pretended = np.round(100 * np.mean(reached, axis=0), 2).tolist()
    told = {"row": row, "seed": seed, "documents": int((real.gold > 0).sum()), "gold": int(real.gold.sum())}
    record("zero-line", corpus=splits.train.info.name, **told, ndcg={"zero labels": own, "few labels as new": pretended})
