"""One pure function per measure (SPEC 4.2, 4.5).

Ranking measures look at `relevance`, (documents, ranks): 1 where the label at that rank is gold, a fraction where ties were
averaged; and at `gold`, (documents,), how many gold labels each document has in the group. Every document must have one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from labelwise.errors import UnknownName, did_you_mean


def precision(relevance: np.ndarray, gold: np.ndarray, k: int) -> np.ndarray:
    """P@k: share of the k first labels that are gold; always divided by k."""
    return _hits(relevance, k) / k


def recall(relevance: np.ndarray, gold: np.ndarray, k: int) -> np.ndarray:
    """R@k: share of the gold labels that are among the k first."""
    return _hits(relevance, k) / gold


def r_precision(relevance: np.ndarray, gold: np.ndarray, k: int) -> np.ndarray:
    """RP@k: gold labels among the k first, divided by the most that could be: min(k, gold labels)."""
    return _hits(relevance, k) / np.minimum(gold, k)


def ndcg(relevance: np.ndarray, gold: np.ndarray, k: int) -> np.ndarray:
    """nDCG@k: gold labels among the k first, discounted by log2(rank + 1), divided by the best possible sum."""
    deepest = min(k, max(relevance.shape[1], int(gold.max(initial=1))))
    discount = 1 / np.log2(np.arange(2, deepest + 2))
    ideal = np.cumsum(discount)[np.minimum(gold, k) - 1]
    seen = relevance[:, :k]
    return seen @ discount[: seen.shape[1]] / ideal


RANKING: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "p": precision,
    "r": recall,
    "rp": r_precision,
    "ndcg": ndcg,
}


def micro(true: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> tuple[float, float, float]:
    """Precision, recall and F1 of all decisions taken together, from counts per label."""
    values = per_label(true.sum(keepdims=True), predicted.sum(keepdims=True), gold.sum(keepdims=True))
    return tuple(float(value[0]) for value in values)  # type: ignore[return-value]


def macro(true: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> tuple[float, float, float]:
    """Precision, recall and F1 per label, then the plain mean over labels."""
    return tuple(float(value.mean()) for value in per_label(true, predicted, gold))  # type: ignore[return-value]


def weighted(true: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> tuple[float, float, float]:
    """Precision, recall and F1 per label, then the mean weighted by gold documents."""
    values = per_label(true, predicted, gold)
    return tuple(float(_ratio(value @ gold, gold.sum())) for value in values)  # type: ignore[return-value]


DECISION: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[float, float, float]]] = {
    "micro": micro,
    "macro": macro,
    "weighted": weighted,
}

PARTS = ("p", "r", "f1")


def names() -> dict[str, str]:
    """Every measure that can be asked for, with its one-line meaning."""
    ranking = {f"{name}@k": (function.__doc__ or "") for name, function in RANKING.items()}
    decision = {
        f"{name}-{part}": f"{part.upper()} in: {function.__doc__} A label is predicted when its score is above the threshold."
        for name, function in DECISION.items()
        for part in PARTS
    }
    return ranking | decision


def parse(name: str) -> tuple[str, int | None]:
    """'rp@5' → ('rp', 5); 'rp' → ('rp', None); 'micro-f1' → itself; anything else is an error with the nearest name."""
    match = re.fullmatch(r"([a-z0-9-]+)(?:@(\d+))?", name.strip().lower())
    stem, k = (match[1], match[2]) if match else (name, None)
    decision = [f"{average}-{part}" for average in DECISION for part in PARTS]
    if stem in RANKING and k != "0":
        return stem, int(k) if k else None
    if stem in decision and k is None:
        return stem, None
    known = [*RANKING, *decision]
    raise UnknownName(
        f"there is no metric {name!r}{did_you_mean(stem, known)} (known: {', '.join(known)}; ranking metrics take @k)"
    )


def _hits(relevance: np.ndarray, k: int) -> np.ndarray:
    return np.asarray(relevance[:, :k].sum(axis=1))


def per_label(true: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F1 of each label, from how often it was rightly given, given, and gold."""
    return _ratio(true, predicted), _ratio(true, gold), _ratio(2 * true, predicted + gold)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Division in which nothing out of nothing is 0, as scikit-learn has it."""
    below = np.asarray(below, dtype=np.float64)
    return np.divide(above, below, out=np.zeros_like(below), where=below > 0)
