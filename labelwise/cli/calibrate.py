"""Calibration: labelwise calibrate, and what other commands make of it."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelwise.cli.options import (
    CorpusFolder,
    Few,
    Force,
    ModelFolder,
    UnknownLabelRule,
    UnknownLabelsOption,
    note_strangers,
    read,
)
from labelwise.errors import LabelwiseError

if TYPE_CHECKING:
    from labelwise.calibration import Calibration


def calibrate(
    model: ModelFolder,
    on: CorpusFolder,
    split: Annotated[str, typer.Option(help="Documents that training did not see: dev or test.")] = "dev",
    few: Few = None,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    force: Force = False,
) -> None:
    """Find out on development documents what the scores of a model are worth: probabilities and thresholds."""
    from labelwise import calibration
    from labelwise.methods.base import load
    from labelwise.progress import bar
    from labelwise.storage import check_file
    from labelwise.tables import Cell, Row, Table, Zone, percent

    if split == "train":
        raise LabelwiseError("--split train: the model knows these documents by heart; take dev, or test")
    check_file(model / calibration.FILE, force=force)
    fitted, splits = load(model), read(on, unknown_labels)
    note_strangers(model, splits)
    found = calibration.calibrate(fitted, splits, split=split, few=few, progress=bar)
    found.save(model, force=force)
    points = {name: found.threshold("f1", name) for name, curve in found.curves.items() if curve}
    rows = tuple(
        Row(name, (Cell(f"{best.threshold:.3f}"), *(Cell(percent(value)) for value in (best.precision, best.recall, best.f1))))
        for name, best in points.items()
    )
    by_score, by_probability = (f"{100 * found.quality[kind]:.2f}" for kind in ("score", "probability"))
    notes = (
        f"Thresholds of highest F1 on {found.corpus}, {split} split.",
        f"nDCG × 100 of all labels: {by_score} by score, {by_probability} by probability; they are ranked by {_order(found)}.",
    )
    print(Table("group", (("threshold", "precision", "recall", "F1"),), (Zone("", rows),), notes).text(), end="")
    print(f"wrote {model / calibration.FILE}")


def found_in(model: Path, raw: bool) -> Calibration | None:
    """The calibration of a model, said on standard error, unless there is none or it is not wanted."""
    from labelwise.calibration import Calibration

    found = None if raw else Calibration.load(model)
    if found:
        print(f"note: {model} is calibrated; labels are ranked by {_order(found)} (--raw leaves it out)", file=sys.stderr)
    return found


def cut(threshold: str, calibration: Calibration | None) -> tuple[float, bool]:
    """The number that a threshold is, or that a target means for a calibrated model; and whether it is a target."""
    from labelwise.thresholds import parse

    with suppress(ValueError):
        if 0 <= (number := float(threshold)) <= 1:
            return number, False
    parse(threshold)
    if calibration is None:
        raise LabelwiseError(f"--threshold {threshold}: needs a calibrated model and no --raw; run `labelwise calibrate` first")
    return calibration.threshold(threshold).threshold, True


def _order(calibration: Calibration) -> str:
    return "probability" if calibration.by_probability else "score"
