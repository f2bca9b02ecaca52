"""evaluate(): metrics × label groups, batch by batch, so that memory does not grow with the documents.

Each group ranks among its own labels only, and documents without a gold label in the group are left out of it (SPEC 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from scipy.sparse import csr_array

from labelwise import __version__, metrics
from labelwise.calibration import DEPTH, Calibration, every_label, join, make_pools, together
from labelwise.corpus import Corpus, Groups, Splits, fingerprint
from labelwise.errors import BadCorpus, BadScores, BadSettings, did_you_mean
from labelwise.labels import LabelSet
from labelwise.pools import Pool
from labelwise.progress import Progress, silent
from labelwise.reliability import Reliability
from labelwise.report import LabelResult, Report
from labelwise.scores import CHUNK, Scores, at

if TYPE_CHECKING:
    from labelwise.methods.base import Method

Ties = Literal["authors", "lower_index", "expected", "pessimistic"]


def evaluate(
    source: Method | Scores,
    splits: Splits,
    *,
    split: str = "test",
    measures: Sequence[str] = ("rp", "ndcg"),
    ks: Sequence[int] = (),
    few: int | None = None,
    ties: Ties | None = None,
    threshold: float = 0.5,
    per_label: bool = False,
    calibration: Calibration | None = None,
    reliability: bool = False,
    name: str = "",
    progress: Progress = silent,
) -> Report:
    """Score a model, or ready scores, on one split.

    `ks` and `few` are the corpus's own unless given. Equal scores fall as `ties` says: by default "authors" (higher column
    first) for dense scores and "pessimistic" for sparse ones, where a label without a score never counts as a hit. With a
    `calibration` labels are given by probability, and ranked by it if that was better on the development documents. The report
    then tells how far probabilities can be trusted, and with `reliability` also how far plain scores can.
    """
    corpus = splits.split(split)
    ks = tuple(ks) or (splits.info.k,)
    groups = Groups.of(splits, few)
    tally = _Tally(groups, _wanted(measures, ks), ks[0], _checked(ties), threshold, per_label)
    if not corpus.gold().nnz:
        raise BadCorpus(f"no document of the {split} split has a label, so there is nothing to evaluate")
    judged: dict[str, list[dict[str, Pool]]] = {}
    for documents, scores in _batches(source, corpus, progress):
        gold = documents.gold()
        ranked, chances = calibration.judge(scores) if calibration else (scores, scores)
        tally.add(ranked, chances, gold)
        if calibration or reliability:
            for kind, values in {"score": scores, "probability" if calibration else "score": chances}.items():
                judged.setdefault(kind, []).append(make_pools(values, gold, every_label(groups), DEPTH * splits.info.k))
    return tally.report(
        method=name or getattr(source, "name", "scores"),
        corpus=splits.info.name,
        split=split,
        k=ks[0],
        labels=tally.label_results(corpus.labels) if per_label else (),
        reliability=_reliability(judged),
        fingerprint=fingerprint(corpus),
        notes={
            "few": groups.threshold,
            "threshold": threshold,
            "labelwise": __version__,
            **_chosen(source),
            **_calibrated(calibration),
        },
    )


def relevance(scores: Scores, gold: csr_array, among: np.ndarray, depth: int, ties: Ties) -> np.ndarray:
    """(documents, depth) whether the label at each rank of the group is gold; a fraction where ties are averaged."""
    if ties == "expected":
        return _expected(Scores(scores.dense(), scores.labels), gold, among, depth)
    ranked = _ranked(scores, gold, among, depth, ties)
    found = np.zeros(ranked.shape)
    rows, places = np.nonzero(ranked >= 0)
    found[rows, places] = at(gold, rows, ranked[rows, places])
    return found


def _chosen(source: Method | Scores) -> dict[str, str]:
    """What a method that decides for itself decided."""
    from labelwise.methods.base import Decides

    return {"chosen": source.why} if isinstance(source, Decides) else {}


def _calibrated(calibration: Calibration | None) -> dict[str, str]:
    if calibration is None:
        return {}
    order = "probability" if calibration.by_probability else "score"
    return {"ranked by": order, "calibrated on": f"{calibration.corpus}, {calibration.split} split"}


def _reliability(judged: dict[str, list[dict[str, Pool]]]) -> dict[str, dict[str, Reliability]]:
    """Group → score or probability → how far it can be trusted, over the candidates of all batches."""
    found: dict[str, dict[str, Reliability]] = {}
    for kind, batches in judged.items():
        pools = join(batches)
        for name, pool in {"all": together(pools), **pools}.items():
            chances, right = pool.pairs()
            if len(chances):
                found.setdefault(name, {})[kind] = Reliability.of(chances, right)
    return found


@dataclass
class _Tally:
    """What has been counted so far."""

    groups: Groups
    measures: list[tuple[str, int | None]]
    k: int
    ties: Ties | None
    threshold: float
    per_label: bool
    parts: list[dict[str, tuple[np.ndarray, np.ndarray]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = len(self.groups.counts)
        self.true, self.predicted, self.gold, self.hits, self.retrieved = (np.zeros(size, dtype=np.int64) for _ in range(5))

    def add(self, scores: Scores, chances: Scores, gold: csr_array) -> None:
        """Count a batch: labels are ranked by their scores and given by their chances."""
        self.ties = self.ties or ("pessimistic" if scores.sparse else "authors")
        depth = min(len(self.gold), max((k for _, k in self.measures if k), default=self.k))
        part = {}
        for name, among in self.groups.masks().items():
            counts = np.asarray(gold[:, among].sum(axis=1)).ravel() if among.any() else np.zeros(len(scores), dtype=np.int64)
            part[name] = relevance(scores, gold, among, depth, self.ties).astype(np.float32), counts
        self.parts.append(part)
        if self.per_label or any(stem not in metrics.RANKING for stem, _ in self.measures):
            self._count_decisions(chances, gold)
        if self.per_label:
            self._count_hits(scores, gold)

    def _count_decisions(self, chances: Scores, gold: csr_array) -> None:
        rows = np.repeat(np.arange(len(chances)), np.diff(gold.indptr))
        right = at(chances.values, rows, gold.indices) > self.threshold
        self.true += np.bincount(gold.indices[right], minlength=len(self.gold))
        self.gold += np.bincount(gold.indices, minlength=len(self.gold))
        self.predicted += np.asarray((chances.values > self.threshold).sum(axis=0)).ravel()

    def _count_hits(self, scores: Scores, gold: csr_array) -> None:
        ranked = _ranked(scores, gold, self.groups.all, min(self.k, len(self.gold)), self.ties or "authors")
        rows, places = np.nonzero(ranked >= 0)
        columns = ranked[rows, places]
        self.retrieved += np.bincount(columns, minlength=len(self.gold))
        hit = at(gold, rows, columns)
        self.hits += np.bincount(columns[hit], minlength=len(self.gold))

    def report(self, *, labels: tuple[LabelResult, ...], **facts: object) -> Report:
        groups, values = {}, {}
        for name, among in self.groups.masks().items():
            gold = np.concatenate([part[name][1] for part in self.parts])
            if not (gold > 0).any():
                continue
            found = np.concatenate([part[name][0] for part in self.parts])
            groups[name] = {"documents": float((gold > 0).sum()), "labels": float(among.sum())}
            values[name] = self._rank_values(found, gold)
            means = {measure: float(np.nanmean(per_document, dtype=np.float64)) for measure, per_document in values[name].items()}
            groups[name] |= {
                measure: means[measure] if measure in means else self._decision(measure, among) for measure in self._names()
            }
        return Report(ties=str(self.ties), groups=groups, values=values, labels=labels, **facts)  # type: ignore[arg-type]

    def _rank_values(self, found: np.ndarray, gold: np.ndarray) -> dict[str, np.ndarray]:
        """Per ranking measure its value for every document, NaN where the group has no gold label."""
        inside = gold > 0
        values = {}
        for stem, k in self.measures:
            if k:
                per_document = np.full(len(gold), np.nan)
                per_document[inside] = metrics.RANKING[stem](found[inside].astype(np.float64), gold[inside], k)
                values[f"{stem}@{k}"] = per_document
        return values

    def _decision(self, measure: str, among: np.ndarray) -> float:
        average, _, part = measure.partition("-")
        return metrics.DECISION[average](self.true[among], self.predicted[among], self.gold[among])[metrics.PARTS.index(part)]

    def _names(self) -> list[str]:
        return [f"{stem}@{k}" if k else stem for stem, k in self.measures]

    def label_results(self, labels: LabelSet) -> tuple[LabelResult, ...]:
        groups = self.groups.names()
        precision, recall, f1 = metrics.per_label(self.true, self.predicted, self.gold)
        return tuple(
            LabelResult(
                id=labels[c].id,
                name=labels[c].name,
                group=str(groups[c]),
                train_documents=int(self.groups.counts[c]),
                documents=int(self.gold[c]),
                hits=int(self.hits[c]),
                retrieved=int(self.retrieved[c]),
                precision=float(precision[c]),
                recall=float(recall[c]),
                f1=float(f1[c]),
            )
            for c in np.flatnonzero(self.groups.all).tolist()
        )


def _wanted(measures: Sequence[str], ks: Sequence[int]) -> list[tuple[str, int | None]]:
    """The measures with their cut-offs: one named without @k is taken at every k."""
    if any(k < 1 for k in ks):
        raise BadSettings(f"k must be 1 or more, not {min(ks)}")
    wanted: dict[tuple[str, int | None], None] = {}
    for measure in measures:
        stem, k = metrics.parse(measure)
        for cut in (k,) if k or stem not in metrics.RANKING else ks:
            wanted[stem, cut] = None
    return list(wanted)


def _checked(ties: str | None) -> Ties | None:
    if ties is not None and ties not in get_args(Ties):
        raise BadSettings(f"--ties {ties}: no such mode{did_you_mean(ties, get_args(Ties))} (known: {', '.join(get_args(Ties))})")
    return ties  # type: ignore[return-value]


def _batches(source: Method | Scores, corpus: Corpus, progress: Progress) -> Iterator[tuple[Corpus, Scores]]:
    if isinstance(source, Scores) and (len(source) != len(corpus) or source.labels != corpus.labels):
        raise BadScores(f"scores for {len(source)} documents × {len(source.labels)} labels do not fit {corpus!r}")
    parts, start = corpus.to_score(), 0
    for part in progress(parts, "evaluate", len(parts)):
        yield part, source.rows(start, start + len(part)) if isinstance(source, Scores) else source.predict(part)
        start += len(part)


def _ranked(scores: Scores, gold: csr_array, among: np.ndarray, depth: int, ties: Ties) -> np.ndarray:
    """The ranking that a tie mode means; "expected" has none of its own and takes that of the authors."""
    if ties == "pessimistic":
        return scores.ranking(depth, among, last=gold)
    everything = Scores(scores.dense(), scores.labels) if scores.sparse else scores  # labels without a score are ranked too
    return everything.ranking(depth, among, "lower_index" if ties == "lower_index" else "authors")


def _expected(scores: Scores, gold: csr_array, among: np.ndarray, depth: int) -> np.ndarray:
    """The mean over all orders of equal scores: each of their ranks holds the share of gold labels among them."""
    columns = np.flatnonzero(among)
    found = np.zeros((len(scores), depth))
    width, step = min(depth, len(columns)), max(1, CHUNK // max(1, len(columns)))
    for start in range(0, len(scores) if width else 0, step):
        rows = slice(start, start + step)
        values, true = np.asarray(scores.values[rows])[:, columns], gold[rows][:, columns].toarray()
        best = -np.partition(-values, width - 1, axis=1)[:, :width]
        ranked = -np.sort(-best, axis=1)  # (documents, ranks) the best scores, falling
        for rank in range(width):
            same = values == ranked[:, rank, None]
            found[rows, rank] = (same & true).sum(axis=1) / same.sum(axis=1)
    return found
