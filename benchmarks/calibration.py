"""How far probabilities can be trusted on test documents, and whether thresholds keep what development documents promised."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from record import data_folders, record

import labelwise
from labelwise.calibration import Calibration
from labelwise.corpus import GROUPS, Splits
from labelwise.registry import make_method
from labelwise.scores import at

TARGETS = {"precision=0.9": "precision", "recall=0.7": "recall", "f1": "f1"}


def measure(name: str, splits: Splits) -> None:
    """Fit, calibrate and judge one method."""
    model = make_method(name, {}).fit(splits.train, splits.dev)
    calibration = labelwise.calibrate(model, splits)
    trust = labelwise.evaluate(model, splits, calibration=calibration).reliability
    error = {
        group: {kind: round(100 * trust[group][kind].error, 2) for kind in ("score", "probability")}
        for group in GROUPS
        if group in trust
    }
    kept = {target: [round(promised, 3), round(got, 3)] for target, promised, got in _thresholds(model, splits, calibration)}
    ranked = "probability" if calibration.by_probability else "score"
    record("calibration", corpus=splits.info.name, method=name, ranked_by=ranked, error=error, promised_and_got=kept)


def _thresholds(model: Any, splits: Splits, calibration: Calibration) -> list[tuple[str, float, float]]:
    """For each target what was promised, and what came of it on test documents."""
    points = {target: calibration.threshold(target) for target in TARGETS}
    counts = {target: np.zeros(2) for target in TARGETS}  # accepted, right
    wanted = 0
    for batch in splits.test.to_score():
        chances, gold = calibration.probabilities(model.predict(batch)).dense(), batch.gold()
        wanted += gold.nnz
        for target, point in points.items():
            found = np.nonzero(chances > point.threshold)
            counts[target] += len(found[0]), at(gold, *found).sum()
    got = {target: (right / max(1, accepted), right / max(1, wanted)) for target, (accepted, right) in counts.items()}
    measures = {target: {"precision": p, "recall": r, "f1": 2 * p * r / ((p + r) or 1)} for target, (p, r) in got.items()}
    return [(target, getattr(points[target], kind), measures[target][kind]) for target, kind in TARGETS.items()]


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for folder in data_folders():
            for name in ("linear", "best"):
                measure(name, labelwise.read_corpus(folder))
