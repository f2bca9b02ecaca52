"""Calibration: from the scores of a model to probabilities, by label group, and thresholds that keep a promise.

Everything is found on development documents, over the best labels of each group for each document. Maps keep the order inside
a group, but labels of different groups may change places: labels are ranked by probability only where that ranks the
development documents better, and by score where it does not.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from labelwise.corpus import GROUPS, PARTS, Corpus, Groups, Splits, count_labels
from labelwise.errors import BadCorpus, BadModel
from labelwise.labels import Label, LabelSet
from labelwise.pools import Pool, joined, quality
from labelwise.progress import Progress, silent
from labelwise.scores import Scores, at
from labelwise.storage import digest_of, new_file, read_json
from labelwise.thresholds import ENOUGH, Point, best_threshold, curve

if TYPE_CHECKING:
    from labelwise.methods.base import Method

FILE = "calibration.json"
FORMAT = 1
DEPTH = 4  # times k: labels of a group that are looked at for a document
WORTH = 1e-4  # nDCG by which probabilities must rank better than scores to be ranked by
LEAST = 1e-3  # slope of a map, so that it keeps the order


class Map(NamedTuple):
    """Beta calibration (Kull et al. 2017): odds = scoreᵃ / (1 − score)ᵇ · eᶜ, with a and b above 0.

    Three numbers can be found from a few dozen right pairs, and keep the order, which isotonic steps do not. Platt scaling, the
    case a = b, takes scores for sigmoids of something, which those of trees and `lexical` are not.
    """

    low: float
    high: float
    offset: float

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities; 0, not scored, stays 0."""
        low, high = _logs(scores)
        with np.errstate(under="ignore", over="ignore"):
            found = (1 / (1 + np.exp(-(self.low * low + self.high * high + self.offset)))).astype(np.float32)
        return np.where(scores > 0, np.maximum(found, np.finfo(np.float32).tiny), np.float32(0))


@dataclass(frozen=True)
class Calibration:
    """What was found for a model on the development documents of a corpus."""

    maps: dict[str, Map]  # group → score to probability
    curves: dict[str, list[Point]]  # group, or all → thresholds, highest first; none where nothing is right
    members: dict[str, list[str]] = field(repr=False)  # frequent, few → label ids; every other label is a zero label
    by_probability: bool  # how labels are ranked
    quality: dict[str, float]  # nDCG@k of all labels on the development documents, ranked by score and by probability
    corpus: str
    split: str

    def probabilities(self, scores: Scores) -> Scores:
        """The probability of every label that has a score."""
        values: Any = scores.values.copy()
        groups = self._groups(scores.labels)
        data, groups = (values.data, groups[values.indices]) if scores.sparse else (values, groups)
        for number, part in enumerate(PARTS):
            data[..., groups == number] = self.maps[part](data[..., groups == number])
        return Scores(values, scores.labels)

    def probability(self, label: Label, score: float) -> float:
        """That of one label with a score."""
        part = PARTS[self._numbers.get(label.id, len(PARTS) - 1)]
        return float(self.maps[part](np.array([score], dtype=np.float32))[0])

    def judge(self, scores: Scores) -> tuple[Scores, Scores]:
        """What labels are ranked by, and their probabilities."""
        probabilities = self.probabilities(scores)
        return (probabilities if self.by_probability else scores), probabilities

    def top(
        self, scores: Scores, k: int, threshold: float = 0.0, among: np.ndarray | None = None
    ) -> list[list[tuple[Label, float, float]]]:
        """For each document its k best labels with a probability above the threshold: what they are ranked by, and that."""
        ranked, chances = self.judge(scores)
        best = Scores(ranked.values * (chances.values > threshold), scores.labels).top(k, among=among)
        rows = np.repeat(np.arange(len(best)), [len(answer) for answer in best])
        columns = scores.labels.index(label.id for answer in best for label, _ in answer)
        found = iter(at(chances.values, rows, columns).tolist())
        return [[(label, score, next(found)) for label, score in answer] for answer in best]

    def threshold(self, target: str, group: str = "all") -> Point:
        """The threshold for "f1", "precision=0.9" or "recall=0.8" in a group or over all labels."""
        return best_threshold(self.curves[group], target)

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write `calibration.json` into the folder of the model, whole or not at all."""
        told = {
            "format": FORMAT,
            "model": digest_of(folder),
            "corpus": self.corpus,
            "split": self.split,
            "ranked_by": "probability" if self.by_probability else "score",
            "ndcg": self.quality,
            "maps": self.maps,
            "curves": self.curves,
            "members": self.members,
        }
        with new_file(Path(folder) / FILE, force=force) as file:
            json.dump(told, file, ensure_ascii=False)

    @classmethod
    def load(cls, folder: Path) -> Calibration | None:
        """The calibration of a model folder, or None where it has none."""
        path = Path(folder) / FILE
        if not path.is_file():
            return None
        told = read_json(path)
        try:
            if told["format"] > FORMAT:
                raise BadModel(
                    f"{path}: written in format {told['format']}, this version reads up to {FORMAT}; upgrade labelwise"
                )
            model, found = told["model"], _read(told)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadModel(
                f"{path}: damaged ({type(error).__name__}: {error}); run `labelwise calibrate` with --force, or delete it"
            ) from None
        if model != digest_of(folder):
            raise BadModel(f"{path}: made for another model; run `labelwise calibrate` with --force, or delete it")
        return found

    def _groups(self, labels: LabelSet) -> np.ndarray:
        """(labels,), the number of each label's group."""
        return np.array([self._numbers.get(id, len(PARTS) - 1) for id in labels.ids], dtype=np.int8)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {id: PARTS.index(part) for part, ids in self.members.items() for id in ids}


def calibrate(
    model: Method, splits: Splits, *, split: str = "dev", few: int | None = None, progress: Progress = silent
) -> Calibration:
    """Find maps and thresholds for a model on development documents; groups with hardly a right label are told in a warning."""
    corpus, groups, k = splits.split(split), Groups.of(splits, few), splits.info.k
    used = {"frequent": groups.frequent, "few": groups.few, "zero": (groups.counts == 0) & (count_labels(corpus) > 0)}
    parts, ranked = [], []
    for batch, scores in _scored(model, corpus, progress):
        gold = batch.gold()
        parts.append(make_pools(scores, gold, every_label(groups), DEPTH * k))
        ranked.append(make_pools(scores, gold, used, k))  # as `evaluate` would, if there were no other documents
    pools, first = join(parts), join(ranked)
    if not any(pool.pairs()[1].any() for pool in pools.values()):
        raise BadCorpus(
            f"no document of the {split} split has a label that the model scores, so there is nothing to calibrate on"
        )
    maps = _fit_maps(pools)
    pools = mapped(pools, maps)
    ndcg = {"score": _ndcg(first, k), "probability": _ndcg(mapped(first, maps), k)}
    ids = np.array(corpus.labels.ids, dtype=object)
    return Calibration(
        maps=maps,
        curves={name: curve(*pool.pairs(), int(pool.gold.sum())) for name, pool in {"all": together(pools), **pools}.items()},
        members={part: ids[getattr(groups, part)].tolist() for part in PARTS[:-1]},
        by_probability=ndcg["probability"] >= ndcg["score"] + WORTH,
        quality=ndcg,
        corpus=splits.info.name,
        split=split,
    )


def _scored(model: Method, corpus: Corpus, progress: Progress) -> Iterator[tuple[Corpus, Scores]]:
    """Batches and their scores; documents must not flatter a model that learned from them."""
    from labelwise.methods.base import Taught

    if isinstance(model, Taught) and model.taught_by(corpus):
        yield from model.cross_taught(corpus, progress)
    else:
        batches = corpus.to_score()
        yield from ((batch, model.predict(batch)) for batch in progress(batches, "calibrate", len(batches)))


def every_label(groups: Groups) -> dict[str, np.ndarray]:
    """The labels of each group; those that no document has are zero labels here, as `predict` proposes them too."""
    return {"frequent": groups.frequent, "few": groups.few, "zero": groups.counts == 0}


def make_pools(scores: Scores, gold: csr_array, masks: dict[str, np.ndarray], depth: int) -> dict[str, Pool]:
    """The best labels of each group for every document, as many as `depth` or the group has."""
    return {part: Pool.of([scores], gold, among, depth) for part, among in masks.items()}


def join(batches: Sequence[dict[str, Pool]]) -> dict[str, Pool]:
    """The pools of consecutive documents, one under the other."""
    return {part: joined([batch[part] for batch in batches], axis=0) for part in batches[0]}


def together(pools: dict[str, Pool]) -> Pool:
    """The pools of all groups side by side."""
    return joined(list(pools.values()), axis=1)


def mapped(pools: dict[str, Pool], maps: dict[str, Map]) -> dict[str, Pool]:
    """The pools with probabilities for scores."""
    return {part: pool._replace(scores=maps[part](pool.scores)) for part, pool in pools.items()}


def _ndcg(pools: dict[str, Pool], k: int) -> float:
    """The mean nDCG@k of all labels together."""
    pool = together(pools)
    return quality(pool.scores[0], pool.hits, pool.gold, k)


def _fit_maps(pools: dict[str, Pool]) -> dict[str, Map]:
    """A map for each group; the shape of one with few right pairs is that of all labels, and only its offset its own."""
    shared = _fit(*together(pools).pairs())
    maps = {}
    for part, pool in pools.items():
        scores, right = pool.pairs()
        own = int(right.sum()) >= ENOUGH
        maps[part] = (_fit(scores, right) if own else _fit(scores, right, shared)) if len(scores) else shared
        if len(scores) and not own:
            warnings.warn(
                f"calibration: of {len(scores):,} candidates among the {part} labels {int(right.sum())} are right, too few for a "
                "map of their own; they take the shape of all labels' map, at their own rate",
                stacklevel=3,
            )
    return maps


def _fit(scores: np.ndarray, right: np.ndarray, shape: Map | None = None) -> Map:
    """The map of maximum likelihood, or only its offset where the shape is given."""
    from scipy.optimize import minimize
    from scipy.special import expit

    # Platt's targets, not 0 and 1: the fit stays finite where scores part right from wrong, or where nothing is right.
    positives, negatives = right.sum(), (~right).sum()
    wanted = np.where(right, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    features = np.concatenate([_logs(scores), np.ones((1, len(scores)))])  # (3, pairs)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = weights @ features
        return float(np.mean(np.logaddexp(0, logits) - wanted * logits)), features @ (expit(logits) - wanted) / len(scores)

    slopes = [(LEAST, None)] * 2 if shape is None else [(value, value) for value in shape[:2]]
    start = np.array([1.0, 1.0, 0.0] if shape is None else shape)
    options = {"ftol": 1e-13, "gtol": 1e-9, "maxiter": 1000}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[*slopes, (None, None)], options=options)
    return Map(*found.x.tolist())


def _logs(scores: np.ndarray) -> np.ndarray:
    """(2, …) ln score and −ln (1 − score), finite for every score that a float of 32 bits can hold."""
    values = np.clip(scores.astype(np.float64), np.finfo(np.float32).tiny, 1 - 2.0**-25)
    return np.stack([np.log(values), -np.log1p(-values)])


def _read(told: dict[str, Any]) -> Calibration:
    """What a file tells; whatever is not as it should be is a ValueError, KeyError or TypeError."""
    found = Calibration(
        maps={part: Map(*map(float, told["maps"][part])) for part in PARTS},
        curves={name: [Point(*map(float, point)) for point in told["curves"][name]] for name in GROUPS},
        members={part: list(map(str, told["members"][part])) for part in PARTS[:-1]},
        by_probability=told["ranked_by"] == "probability",
        quality={name: float(told["ndcg"][name]) for name in ("score", "probability")},
        corpus=str(told["corpus"]),
        split=str(told["split"]),
    )
    if not all(min(one.low, one.high) > 0 and math.isfinite(sum(one)) for one in found.maps.values()):
        raise ValueError("a map that does not keep the order")
    return found
