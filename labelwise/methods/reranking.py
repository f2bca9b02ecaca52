"""Ranking again: labels that a blend ranks high are judged once more, by what else is known of them.

Boosted trees see what each member says of a label and what the blend does, how many training documents have the label and how
many are recent, whether it goes with the document's likeliest labels, in all training documents and in recent ones, how likely
its children and siblings in the hierarchy are, and how sure the blend is. Numbers of documents are rounded, so that hardly a
label has a number of its own: the trees learn about labels in general. They are fitted on the development documents, and not used
if what each half of these teaches does harm on the other. Of zero labels nothing else is known, so they keep their order and
only move as a group. numba is imported with this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from labelwise.corpus import Corpus, count_labels
from labelwise.methods.boosting import Boosted, boost
from labelwise.methods.weighting import ZERO, Mix
from labelwise.metrics import ndcg
from labelwise.pools import Pool
from labelwise.progress import Progress
from labelwise.scores import Scores, at

RANKED = 4  # times k: labels of each group that are ranked again
TREES = 200
COMPANY = 10  # labels of a document that others may go with
RARE = 0.01  # labels that go together in a smaller share of documents than this do not
RECENT = 0.2  # of the training documents, which are taken to stand in the order of their age
FAINTEST, SUREST = 1e-37, 1 - 1e-7  # scores in the place of smaller and larger ones
TAUGHT = 500_000  # candidates that trees learn from, at most: those of the last documents
BATCH = 2048  # documents ranked at once
LABELS = 4096  # whose company is counted at once
NONE = Boosted(np.zeros((0, 1), np.int32), np.zeros((0, 1), np.float32), np.zeros((0, 1), np.float32))  # no trees


class Candidates(NamedTuple):
    """Labels to be ranked again, document by document."""

    rows: np.ndarray  # (candidates,), ascending
    columns: np.ndarray  # (candidates,)
    groups: np.ndarray  # (candidates,)
    blend: np.ndarray  # (candidates,)
    members: np.ndarray  # (members, candidates), what each says


class Lesson(NamedTuple):
    """Candidates of documents whose gold labels are known."""

    found: Candidates
    hits: np.ndarray  # (candidates,), which are gold
    features: np.ndarray  # (candidates, features)
    start: np.ndarray  # (candidates,), log-odds by the blend
    gold: np.ndarray  # (documents,), gold labels of each


class Ranker(NamedTuple):
    """What ranks again, for the labels that it was fitted on."""

    trees: Boosted
    counts: np.ndarray  # (labels,), training documents, to the nearest power of two, its exponent
    recent: np.ndarray  # (labels,), tenths of them that are recent
    company: csr_array  # (labels, labels), the share of a label's training documents that have another label too
    late: csr_array | None  # (labels, labels), the same of recent ones; none in earlier versions, nor what a label's family says
    depths: np.ndarray  # (groups,), labels of each that are ranked again; none where no development document has one

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as plain arrays."""
        labels = {"counts": self.counts, "recent": self.recent, "depths": self.depths}
        late = {} if self.late is None else _arrays(self.late, "late_")
        return {**self.trees._asdict(), **labels, **_arrays(self.company), **late}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Ranker:
        """From what `arrays` gave."""
        late = _of_arrays(arrays, "late_") if "late_data" in arrays else None
        trees = Boosted(*(arrays[name] for name in Boosted._fields))
        return cls(trees, arrays["counts"], arrays["recent"], _of_arrays(arrays), late, arrays["depths"])

    def lesson(self, pools: Sequence[Pool], mix: Mix, parents: csr_array) -> Lesson:
        """What there is to learn from these documents, the last of them if they are too many."""
        pools = [pool.rows(slice(-max(1, TAUGHT // int(self.depths.sum() or 1)), None)) for pool in pools]
        found, hits = _pooled(pools, mix, self.depths)
        gold = np.sum([pool.gold for pool in pools], axis=0)
        features = self.features(found, len(gold), np.arange(len(self.counts)), parents)
        return Lesson(found, hits, features, _log_odds(found.blend), gold)

    def taught(self, lesson: Lesson, progress: Progress, threads: int = 1) -> Ranker:
        """The same with trees of these documents, none where nothing or all is right."""
        if not lesson.hits.any() or lesson.hits.all():
            return self._replace(trees=NONE)
        trees = boost(lesson.features, lesson.hits, lesson.start, TREES, progress, "rank again", threads)
        return self._replace(trees=trees)

    def apply(self, blend: Scores, several: Sequence[Scores], groups: np.ndarray, places: np.ndarray) -> Scores:
        """New scores for the first labels of each group; the others stay behind them, in their order.

        `places` are the labels' columns when the ranker was fitted, -1 for those that are new.
        """
        starts = range(0, max(1, len(blend)), BATCH)
        parts = [
            self._ranked(blend.rows(start, start + BATCH), [own.rows(start, start + BATCH) for own in several], groups, places)
            for start in starts
        ]
        return parts[0] if len(parts) == 1 else Scores.stack(parts)

    def _ranked(self, blend: Scores, several: Sequence[Scores], groups: np.ndarray, places: np.ndarray) -> Scores:
        found = _first(blend, several, groups, self.depths)
        new = self.score(found, len(blend), places, blend.labels.parents()).astype(np.float32)
        last = np.ones((2, len(blend), len(self.depths)), dtype=np.float32)  # new and old scores, by document and group
        for own, scores in zip(last, (new, found.blend), strict=True):
            np.minimum.at(own, (found.rows, found.groups), scores)
        factors = np.minimum(1, last[0] / last[1])
        if isinstance(blend.values, np.ndarray):
            values = blend.values * factors[:, groups]
            values[found.rows, found.columns] = new
            return Scores(values, blend.labels)
        rows = np.repeat(np.arange(len(blend)), np.diff(blend.values.indptr))
        others = csr_array(blend.values, copy=True)
        others.data *= factors[rows, groups[others.indices]]
        others[found.rows, found.columns] = new  # each of them has a score already
        return Scores(others, blend.labels)

    def score(self, found: Candidates, documents: int, places: np.ndarray, parents: csr_array) -> np.ndarray:
        """(candidates,) how likely each is."""
        logits = _log_odds(found.blend) + self.trees(self.features(found, documents, places, parents))
        logits = _in_order(logits, found)
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -86, 15))))

    def features(self, found: Candidates, documents: int, places: np.ndarray, parents: csr_array) -> np.ndarray:
        """(candidates, features) for the trees."""
        known = places[found.columns]
        counts, recent = (np.where(known >= 0, own[known], 0) for own in (self.counts, self.recent))
        order = np.lexsort((-found.blend, found.rows))
        starts = np.searchsorted(found.rows, np.arange(documents + 1))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) - starts[found.rows]
        top = (rank < COMPANY) & (known >= 0)
        shape = (documents, len(self.counts))
        likely = csr_array((found.blend[top].astype(np.float32), (found.rows[top], known[top])), shape=shape)
        sure = np.asarray(likely.sum(axis=1)).ravel()

        def goes_along(company: csr_array) -> np.ndarray:
            together = at(csr_array(likely @ company), found.rows, np.maximum(known, 0))
            return np.where(known >= 0, together, 0) / np.maximum(sure[found.rows], FAINTEST)

        best = np.zeros(documents)
        np.maximum.at(best, found.rows, found.blend)
        said = (_log_odds(scores) for scores in (*found.members, found.blend, best[found.rows]))
        told = [*said, counts, recent, goes_along(self.company), sure[found.rows]]
        if self.late is not None:
            told += [goes_along(self.late), *(_log_odds(scores) for scores in _family(found, parents))]
        return np.stack(told, axis=1, dtype=np.float32, casting="same_kind")


def fit_ranker(pools: list[Pool], mix: Mix, train: Corpus, progress: Progress, threads: int = 1) -> Ranker | None:
    """A ranker, or none where it does harm on development documents that it has not seen."""
    k = train.info.k
    ranker = _untaught(train, np.array([RANKED * k * pool.gold.any() for pool in pools]))
    found, hits, features, start, gold = lesson = ranker.lesson(pools, mix, train.labels.parents())
    middle, judged = int(np.searchsorted(found.rows, len(gold) // 2)), start.copy()
    halves = slice(0, middle), slice(middle, len(hits))
    for half, other in (halves, halves[::-1]):
        if not hits[half].any() or hits[half].all():
            return None
        trees = boost(features[half], hits[half], start[half], TREES, progress, "see whether ranking again helps", threads)
        judged[other] += trees(features[other])
    old, new = (_quality(found.rows, logits, hits, gold, k) for logits in (start, _in_order(judged, found)))
    gain = new - old
    # Half of the documents teach less than all: what is lost by less than a standard error is likely to be won in the end.
    harmful = gain.sum() < -np.sqrt((gain**2).sum())
    return None if harmful else ranker.taught(lesson, progress, threads)


def _family(found: Candidates, parents: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """(candidates,) the highest score among the candidates that are a label's children, and among those with a parent of its."""
    above, width = parents[found.columns], parents.shape[1]
    child = np.repeat(np.arange(len(found.columns)), np.diff(above.indptr))  # a candidate, once for each of its parents
    keys, scores = found.rows[child] * width + above.indices, found.blend[child]  # a parent in a document
    order = np.lexsort((-scores, keys))
    known, starts, of = np.unique(keys[order], return_index=True, return_inverse=True)
    ends = np.append(starts[1:], len(order))
    ranked = np.append(scores[order], 0)
    second = np.where(starts + 1 < ends, ranked[starts + 1], 0)  # a parent's best child but one
    siblings, children = np.zeros((2, len(found.columns)))
    np.maximum.at(siblings, child[order], np.where(starts[of] == np.arange(len(order)), second[of], ranked[starts[of]]))
    wanted = found.rows * width + found.columns
    place = np.searchsorted(known, wanted)
    there = np.append(known, -1)[place] == wanted
    children[there] = ranked[starts[place[there]]]
    return children, siblings


def _first(blend: Scores, several: Sequence[Scores], groups: np.ndarray, depths: np.ndarray) -> Candidates:
    """The first labels of each group by their blended scores."""
    among = [groups == number for number in range(len(depths))]
    ranked = [
        blend.ranking(min(int(depth), int(own.sum())), own, "lower_index") for own, depth in zip(among, depths, strict=True)
    ]
    columns = np.concatenate(ranked, axis=1)
    rows, places = np.nonzero(columns >= 0)
    chosen = columns[rows, places]
    scores = at(blend.values, rows, chosen)
    rows, chosen, scores = (values[scores > 0] for values in (rows, chosen, scores))
    return Candidates(rows, chosen, groups[chosen], scores, np.stack([at(own.values, rows, chosen) for own in several]))


def _pooled(pools: Sequence[Pool], mix: Mix, depths: np.ndarray) -> tuple[Candidates, np.ndarray]:
    """The same of the development documents, from their pools, and which of them are gold."""
    heard, parts = mix.heard[:, None], []
    for number, pool in enumerate(pools):
        blend = mix.blend(number, pool.scores)
        order = np.argsort(-blend, axis=1, kind="stable")[:, : depths[number]]
        rows, places = np.nonzero(np.take_along_axis(blend, order, axis=1) > 0)
        own = rows, order[rows, places]
        told = Candidates(rows, pool.columns[own], np.full(len(rows), number), blend[own], pool.scores[heard, *own])
        parts.append((*told, pool.hits[own]))
    *found, hits = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    order = np.argsort(found[0], kind="stable")
    return Candidates(*(part[..., order] for part in found)), hits[order]


def _in_order(logits: np.ndarray, found: Candidates) -> np.ndarray:
    """The same log-odds, but those of a document's zero labels dealt out in the order of the blend."""
    zero = np.flatnonzero(found.groups == ZERO)
    by_blend, by_logits = (zero[np.lexsort((-values[zero], found.rows[zero]))] for values in (found.blend, logits))
    dealt = logits.copy()
    dealt[by_blend] = logits[by_logits]
    return dealt


def _untaught(train: Corpus, depths: np.ndarray) -> Ranker:
    """What the training documents tell of labels, and no trees yet."""
    gold, counts = csr_array(train.gold(), dtype=np.float32), count_labels(train)
    late = gold[int((1 - RECENT) * len(train)) :]
    recent = np.round(10 * np.asarray(late.sum(axis=0)).ravel() / np.maximum(counts, 1))
    return Ranker(NONE, np.round(np.log2(1 + counts)), recent, _company(gold), _company(late), depths)


def _company(gold: csr_array) -> csr_array:
    """(labels, labels), what goes with a label more than once: the share of its documents that have the other too."""
    by_label = csr_array(gold.T)
    parts = [_company_of(by_label, gold, start) for start in range(0, by_label.shape[0], LABELS)]
    return csr_array(vstack(parts, format="csr"))


def _company_of(by_label: csr_array, gold: csr_array, start: int) -> csr_array:
    """The same of some labels."""
    together = csr_array(by_label[start : start + LABELS] @ gold)
    own = np.repeat(np.arange(together.shape[0]), np.diff(together.indptr))
    counts = np.diff(by_label.indptr)[start + own]
    together.data[(start + own == together.indices) | (together.data < np.maximum(2, RARE * counts))] = 0
    together.data /= np.maximum(counts, 1)
    together.eliminate_zeros()
    return together


def _quality(rows: np.ndarray, logits: np.ndarray, hits: np.ndarray, gold: np.ndarray, k: int) -> np.ndarray:
    """nDCG@k of each document with gold labels; of equal log-odds, hits come last."""
    order = np.lexsort((hits, -logits, rows))
    rank = np.arange(len(order)) - np.searchsorted(rows, np.arange(len(gold)))[rows]
    first = np.zeros((len(gold), k), dtype=bool)
    first[rows[rank < k], rank[rank < k]] = hits[order][rank < k]
    inside = gold > 0
    return ndcg(first[inside], gold[inside], k)


def _arrays(matrix: csr_array, mark: str = "") -> dict[str, np.ndarray]:
    return {mark + "data": matrix.data, mark + "indices": matrix.indices, mark + "indptr": matrix.indptr}


def _of_arrays(arrays: Mapping[str, np.ndarray], mark: str = "") -> csr_array:
    labels, parts = len(arrays["counts"]), (arrays[mark + name] for name in ("data", "indices", "indptr"))
    return csr_array(tuple(parts), shape=(labels, labels))


def _log_odds(scores: np.ndarray) -> np.ndarray:
    values = np.clip(scores.astype(np.float64), FAINTEST, SUREST)
    return np.log(values / (1 - values))
