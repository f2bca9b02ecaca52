"""What the members of an ensemble are worth, for each label group, and scales that bring the groups in line.

Weights of a mean are found by trying all of a short list on the development documents, others by a logistic regression on them
(docs/ensembles.md). Only labels that some member ranks high are looked at, so that a trial takes milliseconds and memory does not
grow with the labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from math import comb
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from labelwise.corpus import PARTS, Corpus, relabel
from labelwise.labels import LabelSet
from labelwise.methods.base import Method
from labelwise.pools import Pool, first, joined, quality
from labelwise.progress import Progress
from labelwise.scores import Scores, at
from labelwise.thresholds import ENOUGH

FEW, ZERO = 1, 2  # their numbers among the groups
POINTS = 300  # weights tried for a group, at most
DEPTH = 10  # times k: labels that each member proposes for a document
PRETENDED = 2000  # development documents, the last ones, whose few labels are scored as if they were new
UNSEEN = 3.0  # things that none of some trials was: more of them than these are not to be expected (19 times in 20)
LEAST = np.float32(1e-6)  # score that a regression sees in the place of smaller ones, 0 among them


class Scale(NamedTuple):
    """A change of scores that keeps their order: their odds to a power, halved some times."""

    power: float = 1.0
    halvings: int = 0

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """The changed scores; 0 stays 0."""
        with np.errstate(divide="ignore"):
            against = (1 - scores.astype(np.float64)) / scores
        return (1 / (1 + against**self.power * 2.0**self.halvings)).astype(np.float32)


SAME, LAST = Scale(), Scale(halvings=64)
SCALES = [Scale(power, halvings) for halvings in range(12, -13, -1) for power in (1.0, 2.0, 0.5)]  # cautious ones first


class Line(NamedTuple):
    """A score by regression: how likely members' scores and their log-odds make a label; 0 where no member gives it a score."""

    odds: np.ndarray  # (members,)
    scores: np.ndarray  # (members,)
    shift: float

    def of(self, members: np.ndarray) -> Line:
        """The same for some of the members."""
        return self._replace(odds=self.odds[members], scores=self.scores[members])

    def terms(self, scores: np.ndarray) -> np.ndarray:
        """(members,), what each adds to the log-odds of one label by its score."""
        return self.odds * log_odds(scores) + self.scores * scores

    def told(self) -> tuple[list[float], list[float], float]:
        """All of it as plain numbers."""
        return self.odds.tolist(), self.scores.tolist(), self.shift

    @classmethod
    def of_told(cls, odds: Sequence[float], scores: Sequence[float], shift: float) -> Line:
        """From what `told` gave."""
        return cls(np.array(odds), np.array(scores), shift)

    def __call__(self, several: Iterable[np.ndarray]) -> np.ndarray:
        """The score of each label from those of the members."""
        several = list(several)
        total = np.full(several[0].shape, self.shift, dtype=np.float32)
        said = np.zeros(total.shape, dtype=bool)
        for odds, plain, scores in zip(self.odds, self.scores, several, strict=True):
            if odds or plain:  # others have no say on this group
                total += np.float32(odds) * log_odds(scores) + np.float32(plain) * scores
                said |= scores > 0
        return np.where(said, np.maximum(expit(total), np.finfo(np.float32).tiny), np.float32(0))


class Mix(NamedTuple):
    """Weights and scales."""

    weights: np.ndarray  # (groups, members), rows sum to 1, or to 0 where no member has a say
    scales: Sequence[Scale]  # of each group
    lines: Sequence[Line | None] = (None, None, None)  # of groups whose scores are no means

    @property
    def heard(self) -> np.ndarray:
        """The numbers of the members that have a say on some label."""
        return np.flatnonzero(self.weights.any(axis=0))

    def of(self, members: np.ndarray) -> Mix:
        """The same for some of the members."""
        lines = [line and line.of(members) for line in self.lines]
        return self._replace(weights=self.weights[:, members], lines=lines)

    def apply(self, several: Sequence[Scores], groups: np.ndarray) -> Scores:
        """The mean of the members' scores, weighted and scaled by the group of each label; sparse if all scores are."""
        weights = self.weights.T[:, groups].astype(np.float32)  # (members, labels)
        if not all(scores.sparse for scores in several):
            dense = [scores.dense() for scores in several]
            total = _mean(weights, dense)
            for number, line in enumerate(self.lines):
                if line is not None:
                    own = groups == number
                    total[:, own] = line([scores[:, own] for scores in dense])
            self._scale(total, groups)
            return Scores(total, several[0].labels)
        sparse = csr_array(
            sum(csr_array(scores.values).multiply(own[None]) for own, scores in zip(weights, several, strict=True))
        )
        np.minimum(sparse.data, 1, out=sparse.data)
        rows, columns = np.repeat(np.arange(sparse.shape[0]), np.diff(sparse.indptr)), sparse.indices
        for number, line in enumerate(self.lines):
            if line is not None:
                own = groups[columns] == number
                sparse.data[own] = line([at(scores.values, rows[own], columns[own]) for scores in several])
        self._scale(sparse.data, groups[sparse.indices])
        return Scores(sparse, several[0].labels)

    def blend(self, number: int, scores: np.ndarray) -> np.ndarray:
        """What labels of a group get for their members' scores, which the first axis holds."""
        line, scale = self.lines[number], self.scales[number]
        values = _mean(self.weights[number], scores) if line is None else line(scores)
        return values if scale == SAME else scale(values)

    def _scale(self, values: np.ndarray, groups: np.ndarray) -> None:
        """Change scores in place; `groups` goes with their last axis."""
        for number, scale in enumerate(self.scales):
            if scale != SAME:
                values[..., groups == number] = scale(values[..., groups == number])


def make_pools(
    models: Sequence[Method], groups: np.ndarray, dev: Corpus, k: int, progress: Progress, wanted: Sequence[int] = range(3)
) -> list[Pool]:
    """The pool of each group, or of those wanted: labels that are among the best of some model.

    Unlike in `evaluate`, zero labels that no document has are ranked too: what does not suffer from all of them does not
    suffer from some, and nobody knows today which of them will be used.
    """
    batches = dev.to_score()
    parts: list[list[Pool]] = [[] for _ in wanted]
    for batch in progress(batches, "score development documents", len(batches)):
        several = [model.predict(batch) for model in models]
        for number, part in zip(wanted, parts, strict=True):
            part.append(Pool.of(several, batch.gold(), groups == number, DEPTH * k))
    return [joined(part, axis=0) for part in parts]


def pool_as_new(models: Sequence[Method], groups: np.ndarray, dev: Corpus, k: int, progress: Progress) -> Pool:
    """The pool of few labels as models score them that take them for new: what zero labels to come will be like."""
    return make_pools(models, groups, pretend_new(dev[-PRETENDED:], groups == FEW), k, progress, [FEW])[0]


def pretend_new(corpus: Corpus, which: np.ndarray) -> Corpus:
    """The same documents, with some of their labels under ids that nobody has seen, so that they are scored as new ones are."""
    mark = "new "
    while any(mark + id in corpus.labels for id in corpus.labels.ids):
        mark += "new "
    ids = {id: mark + id if new else id for id, new in zip(corpus.labels.ids, which, strict=True)}
    labels = (replace(label, id=ids[label.id], parents=tuple(ids[id] for id in label.parents)) for label in corpus.labels)
    return relabel(corpus, corpus.gold(), LabelSet(labels))


def search(
    pools: list[Pool],
    groups: np.ndarray,
    able: np.ndarray,
    given: dict[int, np.ndarray],
    k: int,
    progress: Progress,
    *,
    regress: bool = False,
    as_new: Pool | None = None,
) -> Mix:
    """Weights of highest nDCG@k in each group, or lines of highest likelihood, then scales of highest nDCG@k over all labels.

    `able` (groups, members) says who has a say on whom, `given` has the weights of groups that are not searched. `as_new` is a
    pool of the members who have a say on zero labels that teaches them their line: development documents may have too few, or
    none. Where they have none, zero labels come up as seldom as that lets expect.
    """
    lines: list[Line | None] = [None, None, None]
    weights, scales = np.stack([shares(own) for own in able]), [SAME, SAME, LAST]
    missing = [n for n, pool in enumerate(pools) if not pool.gold.any() and able[n].any() and (groups == n).any()]
    if as_new is not None and as_new.hits.any():
        missing = [n for n in missing if n != ZERO]
    else:
        as_new = None
    if missing:
        names = " or ".join(PARTS[number] for number in missing)
        last = ", and zero labels come after all others" if ZERO in missing else ""
        warn(f"no development document has a {names} label: weights that are not given are those of all seen labels{last}")
    for number, own in enumerate(able):
        if number in given:
            weights[number] = given[number]
        elif number in missing:
            shared = _best_weights(joined(pools[:ZERO], axis=1), k, progress, "all") * own
            weights[number] = shares(shared if shared.any() else own)
        elif own.any():
            pool = pools[number]._replace(scores=pools[number].scores[own])
            if number == ZERO and as_new is not None:
                pool = as_new
            said = pool.hits[(pool.scores > 0).any(axis=0)]
            if regress and said.sum() >= ENOUGH and not said.all():
                line, weights[number, own] = fit_line(pool)
                spread = np.zeros((2, len(own)))
                spread[:, own] = line.odds, line.scores
                lines[number] = Line(spread[0], spread[1], line.shift)
            else:
                weights[number, own] = _best_weights(pool, k, progress, PARTS[number])
    mix = Mix(weights, [SAME, SAME, SAME], lines)
    blended = [mix.blend(number, pool.scores) for number, pool in enumerate(pools)]
    for number in (FEW, ZERO):
        if pools[number].gold.any():
            scales[number] = _best_scale(pools, blended, scales, number, k)
        elif number == ZERO and lines[ZERO] is not None:
            scales[ZERO] = _seldom(blended[ZERO])
    return mix._replace(scales=scales)


def shares(weights: np.ndarray) -> np.ndarray:
    """Weights that sum to 1, or to 0 if all are 0."""
    return weights / (weights.sum() or 1)


def warn(message: str) -> None:
    """Tell the user of something that is not as it should be."""
    warnings.warn(f"ensemble: {message}", stacklevel=4)


def _best_weights(pool: Pool, k: int, progress: Progress, task: str) -> np.ndarray:
    """The best of all weights on the finest grid of at most POINTS points; of equally good ones, the most even."""
    inside, members = pool.gold > 0, len(pool.scores)
    scores, hits, gold = pool.scores[:, inside], pool.hits[inside], pool.gold[inside]
    parts = next((n for n in (20, 10, 5, 4, 3, 2) if comb(n + members - 1, n) <= POINTS), 1)
    choices = combinations_with_replacement(range(members), parts)
    points = [np.ones(members) / members, *(np.bincount(chosen, minlength=members) / parts for chosen in choices)]
    points.sort(key=lambda point: float(point @ point))

    def worth(point: np.ndarray) -> float:
        return quality(_mean(point, scores), hits, gold, k)

    return max(progress(points, f"weigh members for {task} labels", len(points)), key=worth)


def fit_line(pool: Pool) -> tuple[Line, np.ndarray]:
    """The line of a logistic regression on what the members say, and each member's share in how its result varies."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    said = (pool.scores > 0).any(axis=0)
    scores = pool.scores[:, said].astype(np.float64)
    odds_of = log_odds(scores)  # (members, labels), as are the scores
    features = np.concatenate([odds_of, scores]).T
    scaler = StandardScaler().fit(features)
    found = LogisticRegression(max_iter=1000).fit(scaler.transform(features), pool.hits[said])
    slopes = found.coef_[0] / scaler.scale_
    odds, plain = np.split(slopes, 2)
    moves = (odds[:, None] * odds_of + plain[:, None] * scores).std(axis=1)
    return Line(odds, plain, float(found.intercept_[0] - slopes @ scaler.mean_)), shares(moves)


def _best_scale(pools: list[Pool], blended: list[np.ndarray], scales: list[Scale], number: int, k: int) -> Scale:
    """The scale of a group under which its labels and those of the groups before it rank best; at a draw, what it has.

    A scale keeps the order inside the group, so the first k of each group are all that can come among the first k.
    """
    gold = np.sum([pool.gold for pool in pools], axis=0)
    inside = gold > 0
    best = [first(values[inside], pool.hits[inside], k) for values, pool in zip(blended[: number + 1], pools, strict=False)]
    before = [scale(values) for scale, (values, _) in zip(scales, best[:-1], strict=False)]
    hits = np.concatenate([found for _, found in best], axis=1)

    def worth(scale: Scale) -> float:
        return quality(np.concatenate([*before, scale(best[-1][0])], axis=1), hits, gold[inside], k)

    return max([scales[number], *SCALES], key=worth)


def _seldom(probabilities: np.ndarray) -> Scale:
    """The scale under which no more of these are to be expected right than chance may have hidden: none was."""
    found = SAME
    while found.halvings < LAST.halvings and float(found(probabilities[probabilities > 0]).sum()) > UNSEEN:
        found = Scale(halvings=found.halvings + 1)
    return found


def log_odds(scores: np.ndarray) -> np.ndarray:
    """Finite for every score, 0 and 1 included."""
    values = np.clip(scores, LEAST, 1 - LEAST)
    return np.log(values / (1 - values))


def _mean(weights: np.ndarray, several: Iterable[np.ndarray]) -> np.ndarray:
    """The weighted mean; search and prediction add in the same order, so that they break ties alike."""
    total = sum(own * scores for own, scores in zip(weights.astype(np.float32), several, strict=True))
    return np.minimum(total, 1)  # rounding may have gone past it
