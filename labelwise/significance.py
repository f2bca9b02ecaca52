"""How sure a difference or a mean is: paired randomisation, bootstrap intervals, Holm's correction (SPEC 4.6, 12.5).

All three work on scores per document, NaN where a document does not count (no gold label in the group). The same seed gives
the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from labelwise.errors import LabelwiseError

ROUNDS = 10_000  # of the randomisation test
ROUNDS_AT_ONCE, DOCUMENTS_AT_ONCE = 1024, 512  # what is drawn in one go stays in the processor's cache


def randomisation(a: np.ndarray, b: np.ndarray, rounds: int = ROUNDS, seed: int = 0, plus_one: bool = False) -> float:
    """Two-sided p-value of the difference of two systems' means over the same documents.

    In each round every document's two scores are swapped or not; p is the share of rounds with a difference of means at
    least as large as the observed one, or with `plus_one` (count + 1) / (rounds + 1), which is never 0.
    """
    return float(randomisations([(a, b)], rounds, seed, plus_one)[0])


def randomisations(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], rounds: int = ROUNDS, seed: int = 0, plus_one: bool = False
) -> np.ndarray:
    """The p-value of `randomisation` for each of several pairs over the same documents, all tested with the same swaps."""
    if rounds < 1:
        raise LabelwiseError(f"a randomisation test of {rounds} rounds; it needs at least 1")
    if not pairs:
        return np.ones(0)
    if len({np.shape(a) for a, _ in pairs}) > 1:
        raise LabelwiseError("pairs of different numbers of documents cannot be tested together")
    differences, slack = (np.stack(parts, axis=-1) for parts in zip(*(_difference(a, b) for a, b in pairs), strict=True))
    observed = differences.sum(axis=0)  # (pairs,)
    reached = np.zeros(len(pairs), dtype=np.int64)
    generator = np.random.default_rng(seed)
    for block in _blocks(rounds, ROUNDS_AT_ONCE):
        sums = observed - 2 * _swapped_sums(differences, len(block), generator)  # (rounds of the block, pairs)
        reached += np.count_nonzero(np.abs(sums) >= np.abs(observed) - slack, axis=0)
    return (reached + 1) / (rounds + 1) if plus_one else reached / rounds


def bootstrap(values: np.ndarray, confidence: float = 0.95, rounds: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Percentile interval of the mean when documents are drawn again with replacement."""
    if not 0 < confidence < 1:
        raise LabelwiseError(f"a confidence of {confidence}; it must lie between 0 and 1, such as 0.95")
    values = np.asarray(values, dtype=np.float64)
    values = values[~np.isnan(values)]
    if not len(values) or rounds < 1:
        raise LabelwiseError("an interval needs at least one document with a score, and one round")
    means = _resampled_means(values, rounds, np.random.default_rng(seed))
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """p-values of several tests, corrected step by step (Holm 1979) so that the chance of any false alarm keeps the level."""
    p_values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p_values, kind="stable")
    steps = np.arange(len(p_values), 0, -1) * p_values[order]
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def _difference(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, float]:
    """Per document a - b, 0 where either is NaN; and how far apart two sums may be and still count as equal."""
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim != 1 or a.shape != b.shape:
        raise LabelwiseError(f"scores of shape {a.shape} and {b.shape} cannot be paired; both need one score per document")
    difference = a.astype(np.float64) - b.astype(np.float64)
    counts = ~np.isnan(difference)
    # Scores kept as float32 are rounded, and sums that are truly equal then differ by up to that rounding.
    single = np.float32 in (a.dtype, b.dtype)
    tolerance = float(np.finfo(np.float32).eps) if single else 1e-12
    return np.where(counts, difference, 0.0), tolerance * int(counts.sum())


def _resampled_means(values: np.ndarray, rounds: int, generator: np.random.Generator) -> np.ndarray:
    """(rounds,), the means of as many values, drawn from them with replacement."""
    size = len(values)
    distinct, counts = np.unique(values, return_counts=True)
    # Most measures take few distinct values. To draw how often each of them comes is the same law and costs next to nothing.
    if len(distinct) <= min(size // 8, 4096):
        return generator.multinomial(size, counts / size, size=rounds) @ distinct / size
    step = max(1, ROUNDS_AT_ONCE * DOCUMENTS_AT_ONCE // size)
    drawn = (values[generator.integers(0, size, size=(len(block), size))] for block in _blocks(rounds, step))
    return np.concatenate([part.mean(axis=1) for part in drawn])


def _swapped_sums(differences: np.ndarray, rounds: int, generator: np.random.Generator) -> np.ndarray:
    """(rounds, pairs), sums of the differences of those documents that a fair coin swaps."""
    sums = np.zeros((rounds, differences.shape[1]))
    for block in _blocks(len(differences), DOCUMENTS_AT_ONCE):
        bits = generator.integers(0, 256, size=(rounds, -(-len(block) // 8)), dtype=np.uint8)
        coins = np.unpackbits(bits, axis=1, count=len(block)).astype(np.float64)  # (rounds, documents of the block)
        sums += coins @ differences[block.start : block.stop]
    return sums


def _blocks(number: int, step: int) -> Iterator[range]:
    """0 to `number` in consecutive ranges of at most `step`."""
    return (range(start, min(start + step, number)) for start in range(0, number, step))
