"""What an evaluation found: a `Report`, as text, Markdown, LaTeX, CSV, JSON and HTML, saved and read back.

A report keeps the scores of every document, so that intervals and significance can be had later. Several reports make a
`Comparison`.
"""

from __future__ import annotations

import csv
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, get_type_hints
from zipfile import BadZipFile

import numpy as np

from labelwise.errors import BadFile, LabelwiseError, did_you_mean
from labelwise.reliability import Bin, Reliability
from labelwise.significance import bootstrap
from labelwise.storage import new_folder, read_json
from labelwise.tables import COUNTS, MISSING, Cell, Rendered, Row, Table, Zone, heading, percent, plain, to_csv

FORMAT = 1  # of report.json
ERRORS = ("ECE", "Brier")  # columns of the reliability table


@dataclass(frozen=True, slots=True)
class LabelResult:
    """How one label fared."""

    id: str
    name: str
    group: str
    train_documents: int
    documents: int
    hits: int  # documents where it is gold and among the first k
    retrieved: int  # documents where it is among the first k
    precision: float  # this and the next two: of the decisions by threshold
    recall: float
    f1: float

    @property
    def recall_at_k(self) -> float:
        """Of the documents that have the label, the share where it is among the first k."""
        return self.hits / self.documents if self.documents else 0.0

    @property
    def precision_at_k(self) -> float:
        """Of the documents where it is among the first k, the share that have it."""
        return self.hits / self.retrieved if self.retrieved else 0.0


LABEL_FIELDS: dict[str, type] = get_type_hints(LabelResult)


@dataclass(frozen=True)
class Report(Rendered):
    """The scores of one method on one split, from 0 to 1, by label group."""

    method: str
    corpus: str
    split: str
    k: int  # main cut-off
    ties: str
    groups: dict[str, dict[str, float]]  # group → documents, labels and metrics; a group without documents is absent
    values: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, compare=False, repr=False)
    """Group → ranking metric → (documents,), NaN where a document has no gold label in the group; may be empty."""
    labels: tuple[LabelResult, ...] = field(default=(), repr=False)
    fingerprint: str = ""  # of the evaluated documents and their gold labels
    notes: dict[str, str | float] = field(default_factory=dict)
    reliability: dict[str, dict[str, Reliability]] = field(default_factory=dict, repr=False)
    """Group → score or probability → how far it can be trusted; may be empty."""

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics, in order."""
        return list(dict.fromkeys(name for group in self.groups.values() for name in group if name not in COUNTS))

    @property
    def documents(self) -> int:
        """How many documents were evaluated."""
        return int(max((group.get("documents", 0) for group in self.groups.values()), default=0))

    def interval(
        self, group: str, metric: str, confidence: float = 0.95, rounds: int = 1000, seed: int = 0
    ) -> tuple[float, float]:
        """Percentile bootstrap interval of a ranking metric in a group."""
        values = self.values.get(group, {}).get(metric)
        if values is None:
            kept = [f"{one} {other}" for one, metrics in self.values.items() for other in metrics]
            raise LabelwiseError(
                f"no scores per document of {metric!r} for group {group!r} in the report of {self.method!r}"
                f"{did_you_mean(f'{group} {metric}', kept)} (kept: {', '.join(kept) or 'none'})"
            )
        return bootstrap(values, confidence, rounds, seed)

    def table(self) -> Table:
        """Groups as rows, metrics as columns."""
        rows = tuple(
            Row(name, (*(_count(group, key) for key in COUNTS), *(Cell(percent(group.get(metric))) for metric in self.metrics)))
            for name, group in self.groups.items()
        )
        note = (
            f"{self.method} on {self.corpus}, {self.split} split: {self.documents:,} documents; scores × 100; ties: {self.ties}."
        )
        order = f"Labels are ranked by {self.notes['ranked by']}." if "ranked by" in self.notes else ""
        chosen = f"Chosen: {self.notes['chosen']}." if "chosen" in self.notes else ""
        return Table("group", ((*COUNTS, *map(heading, self.metrics)),), (Zone("", rows),), (note, order, chosen))

    def tables(self) -> list[Table]:
        """The scores, and how far they can be trusted where that is known."""
        return [self.table(), self.reliability_table()] if self.reliability else [self.table()]

    def reliability_table(self) -> Table:
        """Groups as rows; errors of scores taken for probabilities, and of probabilities."""
        kinds = list(dict.fromkeys(kind for group in self.reliability.values() for kind in group))
        rows = tuple(
            Row(name, (*(Cell(text) for kind in kinds for text in _errors(group.get(kind))),))
            for name, group in self.reliability.items()
        )
        heads = tuple(kind for kind in kinds for _ in ERRORS), ERRORS * len(kinds)
        note = "Expected calibration error and Brier score × 100, over the best labels of each group for each document."
        return Table("group", heads, (Zone("", rows),), (note,))

    def csv(self) -> str:
        """One line per group, scores from 0 to 1."""
        where = {"method": self.method, "corpus": self.corpus, "split": self.split, "ties": self.ties}
        return to_csv(
            [*where, "group", *COUNTS, *self.metrics],
            (where | {"group": name} | _plain_group(group) for name, group in self.groups.items()),
        )

    def label_csv(self) -> str:
        """One line per label."""
        recall, precision = f"recall@{self.k}", f"precision@{self.k}"
        return to_csv(
            [*LABEL_FIELDS, recall, precision],
            (asdict(label) | {recall: label.recall_at_k, precision: label.precision_at_k} for label in self.labels),
        )

    def json(self) -> str:
        """What `evaluate --json` prints."""
        value = {
            "corpus": self.corpus,
            "split": self.split,
            "method": self.method,
            "k": self.k,
            "ties": self.ties,
            "groups": {name: _plain_group(group) for name, group in self.groups.items()},
            "notes": {name: plain(note) for name, note in self.notes.items()},
            "fingerprint": self.fingerprint,
            "format": FORMAT,
        }
        if self.reliability:
            value["reliability"] = {
                name: {kind: asdict(one) for kind, one in group.items()} for name, group in self.reliability.items()
            }
        return json.dumps(value, ensure_ascii=False, indent=1) + "\n"

    def html(self) -> str:
        """A page that needs nothing but a browser."""
        from labelwise.page import report_page

        return report_page(self)

    def save(self, folder: Path | str, force: bool = False) -> None:
        """Write every rendering and the scores per document into a folder, whole or not at all."""
        with new_folder(Path(folder), "report", force=force) as draft:
            self.write_renderings(draft)
            if self.labels:
                (draft / "labels.csv").write_text(self.label_csv(), encoding="utf-8", newline="\n")
            if self.values:
                np.savez_compressed(draft / "values.npz", **self._arrays())  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a saved folder, or a `report.json` with what lies beside it, or the output of `evaluate --json`."""
        path = Path(path)
        path = path / "report.json" if path.is_dir() else path
        value = read_json(path)
        whole = path.name == "report.json"
        try:
            if value.get("format", FORMAT) > FORMAT:
                raise BadFile(f"{path}: written by a later version (format {value['format']}); update labelwise to read it")
            return cls(
                method=str(value["method"]),
                corpus=str(value["corpus"]),
                split=str(value["split"]),
                k=int(value["k"]),
                ties=str(value["ties"]),
                groups={name: _read_group(group) for name, group in value["groups"].items()},
                values=_read_values(path.with_name("values.npz")) if whole else {},
                labels=_read_labels(path.with_name("labels.csv")) if whole else (),
                reliability={name: _read_reliability(group) for name, group in value.get("reliability", {}).items()},
                fingerprint=str(value.get("fingerprint", "")),
                notes=dict(value.get("notes", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadFile(
                f"{path}: not a report ({type(error).__name__}: {error}); it needs corpus, split, method, k, ties and groups, "
                "as `labelwise evaluate --json` writes them"
            ) from None

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            f"{group}/{metric}": np.asarray(values, dtype=np.float32)
            for group, metrics in self.values.items()
            for metric, values in metrics.items()
        }


def _count(group: Mapping[str, float], name: str) -> Cell:
    return Cell(f"{int(group[name]):,}") if name in group else Cell()


def _plain_group(group: Mapping[str, float]) -> dict[str, Any]:
    return {name: int(value) if name in COUNTS else plain(value) for name, value in group.items()}


def _read_group(group: Mapping[str, Any]) -> dict[str, float]:
    return {name: int(value) if name in COUNTS else math.nan if value is None else float(value) for name, value in group.items()}


def _errors(one: Reliability | None) -> tuple[str, ...]:
    return (MISSING,) * len(ERRORS) if one is None else (f"{100 * one.error:.2f}", f"{100 * one.brier:.2f}")


def _read_reliability(group: Mapping[str, Any]) -> dict[str, Reliability]:
    return {
        kind: Reliability(float(one["error"]), float(one["brier"]), tuple(Bin(*row) for row in one["bins"]))
        for kind, one in group.items()
    }


def _read_values(path: Path) -> dict[str, dict[str, np.ndarray]]:
    values: dict[str, dict[str, np.ndarray]] = {}
    if not path.exists():
        return values
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            for name, array in arrays.items():
                group, _, metric = name.partition("/")
                if array.ndim != 1 or array.dtype.kind != "f":
                    raise ValueError(f"{name} is not one score per document")
                values.setdefault(group, {})[metric] = array
    # What numpy raises on a damaged or foreign file depends on where the damage is.
    except (ValueError, OSError, EOFError, TypeError, AttributeError, BadZipFile, zlib.error) as error:
        raise BadFile(f"{path}: damaged ({error}); evaluate again, or delete it to go on without scores per document") from None
    return values


def _read_labels(path: Path) -> tuple[LabelResult, ...]:
    if not path.exists():
        return ()
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        try:
            return tuple(LabelResult(**{name: kind(row[name]) for name, kind in LABEL_FIELDS.items()}) for row in rows)
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise BadFile(f"{path}:{rows.line_num}: not a line of label results ({error}); evaluate again") from None
