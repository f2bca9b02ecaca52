"""Several reports side by side: methods as rows, corpus × group × metric as columns, with the significance of differences.

Only like is compared with like: reports of the same split must have been made on the same documents and gold labels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from labelwise.errors import LabelwiseError
from labelwise.report import Report
from labelwise.significance import ROUNDS, holm, randomisations
from labelwise.storage import new_folder
from labelwise.tables import COUNTS, Cell, Rendered, Row, Table, Zone, heading, percent, plain, to_csv

T = TypeVar("T")

LEVEL = 0.05  # of significance
TEST = (
    f"significantly worse than the best of the column (paired approximate randomisation, two-sided, {ROUNDS:,} rounds, "
    f"p < {LEVEL} after Holm's correction within the column)"
)


class Column(NamedTuple):
    """What one column holds."""

    corpus: str
    split: str
    group: str
    metric: str


RECORD = (
    *("zone", "method", *Column._fields, "ties", "score", "best", "zone_best", "p", "worse"),
    *("seeds", "spread", "low", "high"),  # standard deviation over seeds, interval over documents
)


@dataclass(frozen=True, slots=True)
class Score:
    """One cell: a score from 0 to 1 and how it stands in its column."""

    value: float
    best: bool  # at the printed precision
    zone_best: bool
    p: float | None  # against the best, corrected; None where nothing was tested

    @property
    def worse(self) -> bool:
        """Whether it is significantly worse than the best of its column."""
        return self.p is not None and self.p < LEVEL


@dataclass(frozen=True)
class Repeated(Report):
    """The mean of what one method came to with several seeds, for each document too."""

    seeds: int = 1
    spread: dict[str, dict[str, float]] = field(default_factory=dict)  # group → metric → standard deviation over seeds

    @classmethod
    def of(cls, reports: Sequence[Report]) -> Report:
        """One report from several of the same method and documents; the only one is what it is."""
        if len(reports) == 1:
            return reports[0]
        first = reports[0]
        scores = {
            group: {
                metric: np.array([report.groups[group][metric] for report in reports]) for metric in found.keys() - set(COUNTS)
            }
            for group, found in first.groups.items()
        }
        values = {
            group: {metric: np.mean([report.values[group][metric] for report in reports], axis=0) for metric in found}
            for group, found in first.values.items()
            if all(report.values.get(group) for report in reports)
        }
        facts = {one.name: getattr(first, one.name) for one in fields(Report)} | {"values": values}
        facts["groups"] = {
            group: {name: float(scores[group][name].mean()) if name in scores[group] else value for name, value in found.items()}
            for group, found in first.groups.items()
        }
        spread = {group: {name: float(some.std(ddof=1)) for name, some in found.items()} for group, found in scores.items()}
        return cls(**facts, seeds=len(reports), spread=spread)


class Comparison(Rendered):
    """Methods in the given order, one row each; a method that comes twice on a split gets a number.

    `zones` puts methods under a title, such as "label trees"; `metrics` chooses columns, by "rp" at every cut-off or "rp@5",
    and `groups` too. A method's reports with several seeds come as one `Repeated`, printed as mean ± spread.
    """

    def __init__(
        self,
        reports: Sequence[Report],
        zones: Mapping[str, str] | None = None,
        *,
        metrics: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
    ) -> None:
        if not reports:
            raise LabelwiseError("nothing to compare; give at least one report")
        _check_comparable(reports)
        self.reports = tuple(reports)
        self._placed = _place(reports)
        titles = {row: (zones or {}).get(report.method, "") for (row, _, _), report in self._placed.items()}
        self.zones = {title: [row for row in titles if titles[row] == title] for title in titles.values()}
        self.columns = _columns(reports, metrics, groups)
        self._intervals: dict[tuple[str, Column], tuple[float, float]] = {}

    def report(self, row: str, column: Column) -> Report | None:
        """The report behind a cell."""
        return self._placed.get((row, column.corpus, column.split))

    def interval(self, row: str, column: Column) -> tuple[float, float] | None:
        """The bootstrap interval of a cell, where there are scores per document; found once, as it takes a while."""
        report = self.report(row, column)
        if report is None or column.metric not in report.values.get(column.group, {}):
            return None
        if (row, column) not in self._intervals:
            self._intervals[row, column] = report.interval(column.group, column.metric)
        return self._intervals[row, column]

    @cached_property
    def scores(self) -> dict[tuple[str, Column], Score]:
        """The cells that are not empty."""
        cells = {}
        for column in self.columns:
            values = self._by_row(column)
            best = _best(values)
            zones = [[row for row in rows if row in values] for rows in self.zones.values()] if len(self.zones) > 1 else []
            zone_best = {row for rows in zones if len(rows) > 1 for row in _best(values, rows)}  # who is alone beats nobody
            for row, value in values.items():
                cells[row, column] = Score(value, row in best, row in zone_best, self._p_values.get((row, column)))
        return cells

    def table(self) -> Table:
        """The paper's shape: zones of methods under corpus, group and metric."""
        zones = (
            Zone(title, tuple(Row(row, tuple(self._cell(row, column) for column in self.columns)) for row in rows))
            for title, rows in self.zones.items()
        )
        heads = zip(*((self.block(column), column.group, heading(column.metric)) for column in self.columns), strict=True)
        test = TEST if self._p_values else ""
        return Table("method", tuple(heads), tuple(zones), tuple(self._notes()), test)

    def csv(self) -> str:
        """One line per score, from 0 to 1: its corrected p-value, spread over seeds and interval over documents."""
        return to_csv(RECORD, self.records)

    def json(self) -> str:
        """The records of `csv`, and which test made the p-values."""
        records = [{name: plain(value) for name, value in record.items()} for record in self.records]
        return json.dumps({"test": TEST if self._p_values else None, "scores": records}, ensure_ascii=False, indent=1) + "\n"

    def html(self) -> str:
        """A page that needs nothing but a browser."""
        from labelwise.page import comparison_page

        return comparison_page(self)

    def save(self, folder: Path | str, force: bool = False) -> None:
        """Write every rendering into a folder, whole or not at all."""
        with new_folder(Path(folder), "report", force=force) as draft:
            self.write_renderings(draft)

    def block(self, column: Column) -> str:
        """The corpus of a column, with its split where the corpus comes with several."""
        splits = {report.split for report in self.reports if report.corpus == column.corpus}
        return column.corpus if len(splits) == 1 else f"{column.corpus} {column.split}"

    @cached_property
    def _p_values(self) -> dict[tuple[str, Column], float]:
        """Against the best of the column, corrected, wherever there are scores per document."""
        corrected: dict[tuple[str, Column], float] = {}
        for place in _union(column[:2] for column in self.columns):
            tests = {column: self._pairs(column) for column in self.columns if column[:2] == place}
            # All tests on the same documents share their random swaps, which are what takes the time.
            raw = iter(randomisations([pair for pairs in tests.values() for pair in pairs.values()]))
            for column, pairs in tests.items():
                adjusted = holm([float(next(raw)) for _ in pairs])
                corrected |= {(row, column): float(p) for row, p in zip(pairs, adjusted, strict=True)}
        return corrected

    def _pairs(self, column: Column) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """For each method that is not the best, the scores per document of the best and its own."""
        values = self._by_row(column)
        best = _best(values)
        if not best:
            return {}
        leader = self._placed[max(values, key=lambda row: values[row]), *column[:2]]
        reference = leader.values.get(column.group, {}).get(column.metric)
        pairs = {}
        for row in [row for row in values if row not in best]:
            report = self._placed[row, *column[:2]]
            mine = report.values.get(column.group, {}).get(column.metric)
            if reference is not None and mine is not None and report.fingerprint == leader.fingerprint:
                pairs[row] = (reference, mine)
        return pairs

    def _by_row(self, column: Column) -> dict[str, float]:
        """The scores of a column by row."""
        found = {}
        for row in (row for rows in self.zones.values() for row in rows):
            report = self.report(row, column)
            value = report.groups.get(column.group, {}).get(column.metric) if report else None
            if value is not None and not math.isnan(value):
                found[row] = float(value)
        return found

    def _of(self, column: Column) -> list[Report]:
        """The reports of a column's corpus and split."""
        return [report for report in self.reports if (report.corpus, report.split) == column[:2]]

    def _cell(self, row: str, column: Column) -> Cell:
        score, report = self.scores.get((row, column)), self.report(row, column)
        if score is None:
            return Cell()
        spread = report.spread.get(column.group, {}).get(column.metric) if isinstance(report, Repeated) else None
        text = percent(score.value) + (f" ± {percent(spread)}" if spread is not None else "")
        return Cell(text, score.best, score.zone_best, score.worse)

    def _notes(self) -> Iterator[str]:
        blocks = {self.block(column): max(self._of(column), key=lambda report: report.documents) for column in self.columns}
        sizes = {name: f", {report.documents:,} documents" if report.documents else "" for name, report in blocks.items()}
        places = (f"{name}: {report.split} split{sizes[name]}" for name, report in blocks.items())
        yield "; ".join(places) + "; scores × 100."
        modes = {report.ties: _union(r.method for r in self.reports if r.ties == report.ties) for report in self.reports}
        named = (f"{mode} ({', '.join(methods)})" if len(modes) > 1 else mode for mode, methods in modes.items())
        yield f"Ties: {'; '.join(named)}."
        if any(isinstance(report, Repeated) for report in self.reports):
            tested = "; tests compare each document's mean over seeds" if self._p_values else ""
            yield f"Means over seeds ± their standard deviation{tested}."

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """One for each score, with all that is known of it."""
        zones = {row: title for title, rows in self.zones.items() for row in rows}
        found = []
        for (row, column), score in self.scores.items():
            report, group, metric = self._placed[row, *column[:2]], column.group, column.metric
            low, high = self.interval(row, column) or (None, None)
            seeds, spread = (report.seeds, report.spread[group][metric]) if isinstance(report, Repeated) else (1, None)
            marks = (score.value, score.best, score.zone_best, score.p, score.worse)
            known = (zones[row], row, *column, report.ties, *marks, seeds, spread, low, high)
            found.append(dict(zip(RECORD, known, strict=True)))
        return found


def _check_comparable(reports: Sequence[Report]) -> None:
    first: dict[tuple[str, str], Report] = {}
    for report in reports:
        if not report.fingerprint:
            continue  # such as published figures, of which the documents are not known
        other = first.setdefault((report.corpus, report.split), report)
        who = f"{other.method!r} and {report.method!r} were evaluated on different"
        where = f"of {report.corpus!r} ({report.split}), so their scores cannot be compared; evaluate both on the same"
        if other.fingerprint != report.fingerprint:
            raise LabelwiseError(f"{who} documents or gold labels {where} corpus folder")
        shared = report.groups.keys() & other.groups.keys()
        if any(report.groups[group].get(count) != other.groups[group].get(count) for group in shared for count in COUNTS):
            raise LabelwiseError(f"{who} label groups {where} --few")


def _place(reports: Sequence[Report]) -> dict[tuple[str, str, str], Report]:
    """Each report under (row, corpus, split)."""
    placed: dict[tuple[str, str, str], Report] = {}
    for report in reports:
        row, number = report.method, 1
        while (row, report.corpus, report.split) in placed:
            number += 1
            row = f"{report.method} ({number})"
        placed[row, report.corpus, report.split] = report
    return placed


def _columns(reports: Sequence[Report], metrics: Sequence[str] | None, groups: Sequence[str] | None) -> list[Column]:
    known = _union(metric for report in reports for metric in report.metrics)
    chosen = [name for name in known if metrics is None or name in metrics or name.partition("@")[0] in metrics]
    columns = [
        Column(*place, group, metric)
        for place in _union((report.corpus, report.split) for report in reports)
        for group in _union(name for report in reports for name in report.groups if groups is None or name in groups)
        for metric in chosen
        if any((report.corpus, report.split) == place and metric in report.groups.get(group, {}) for report in reports)
    ]
    if not columns:
        raise LabelwiseError(f"no report has any of the metrics asked for (they have: {', '.join(known) or 'none'})")
    return columns


def _best(values: Mapping[str, float], among: Iterable[str] | None = None) -> set[str]:
    """The rows with the highest score as it is printed; there can be several, and none where nothing was found at all."""
    shown = {row: float(percent(values[row])) for row in (values if among is None else among) if row in values}
    return {row for row, value in shown.items() if value == max(shown.values()) > 0}


def _union(items: Iterable[T]) -> list[T]:
    """Each item once, in the order of first appearance."""
    return list(dict.fromkeys(items))
