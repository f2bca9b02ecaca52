"""Options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.errors import LabelwiseError

if TYPE_CHECKING:
    from labelwise.corpus import Splits
    from labelwise.recipe import Recipe


class UnknownLabelRule(StrEnum):
    """What to do with labels of documents that are not in the label set."""

    error = "error"
    drop = "drop"
    add = "add"


CorpusFolder = Annotated[Path, typer.Option("--on", help="Corpus folder (docs/corpus-format.md).", show_default=False)]
Out = Annotated[Path, typer.Option("--out", help="Folder to write; it appears whole or not at all.", show_default=False)]
UNCOUNTED = {"threads", "device", "budget", "checkpoint_minutes", "training.checkpoint_minutes"}  # as where training goes on
Force = Annotated[bool, typer.Option("--force", help="Replace an output that labelwise wrote before.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Few = Annotated[
    int | None, typer.Option("--few", min=0, help="Most training documents of a few-shot label; the corpus's own by default.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same choice.")]
ModelFolder = Annotated[Path, typer.Argument(help="Model folder.", show_default=False)]
TARGETS = "of a calibrated model its probability, or f1, precision=0.9, recall=0.8 as seen on dev."
Raw = Annotated[bool, typer.Option("--raw", help="Leave the calibration of the model out.")]
UnknownLabelsOption = Annotated[
    UnknownLabelRule, typer.Option("--unknown-labels", help="Labels of documents that are not in the label set.")
]


def read(folder: Path, unknown_labels: UnknownLabelRule = UnknownLabelRule.error) -> Any:
    """The splits of a corpus folder."""
    from labelwise.jsonl import read_corpus
    from labelwise.progress import bar

    return read_corpus(folder, unknown_labels=unknown_labels.value, progress=bar)


def note_strangers(model: Path, splits: Splits) -> None:
    """Say on standard error that a model knows no label of a corpus: scores of 0 may mean no more than that."""
    from labelwise.jsonl import read_labels

    if (read_labels(model / "labels.jsonl").columns(splits.labels.ids) < 0).all():
        print(f"note: {model} was trained on other labels; it knows none of those of {splits.info.name!r}", file=sys.stderr)


def require_same(out: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse a finished output that was made otherwise, and name the differences."""
    from labelwise.settings import flat

    was, now = flat(was), flat(now)
    keys = sorted((was.keys() | now.keys()) - UNCOUNTED)
    if other := [f"{key}={was.get(key)}, not {now.get(key)}" for key in keys if was.get(key) != now.get(key)]:
        raise LabelwiseError(f"{out}: trained with other settings ({', '.join(other)}); use --force to replace it")


def minutes(text: str | None, option: str = "--budget") -> float | None:
    """'90s', '10m' or '2h' as minutes."""
    if text is None:
        return None
    number, unit = text[:-1], {"s": 1 / 60, "m": 1.0, "h": 60.0}.get(text[-1:].lower())
    if unit is None or not number.replace(".", "", 1).isdigit() or not float(number):
        raise LabelwiseError(f"{option} {text}: write a time as 90s, 10m or 2h")
    return float(number) * unit


def adapt(recipe: Recipe, assignments: Iterable[str], asked: dict[str, Any]) -> Recipe:
    """The recipe with --set and other options laid over it; options that its method has no use for are told."""
    from labelwise.recipe import adapted

    found = adapted(recipe, assignments, asked)
    for key in (key for key, value in asked.items() if value is not None and key not in found.settings):
        print(f"note: {recipe.method} has no use for --{key}", file=sys.stderr)
    return found
