"""What a study knows at a moment: runs, failures and corpora, and what several seeds of one row come to together.

Plain data, without a folder: tables and pages are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from labelwise.comparison import Comparison, Repeated
from labelwise.recipe import Recipe
from labelwise.report import Report
from labelwise.statistics import Statistics
from labelwise.studies.rows import ABLATIONS, zone


def file_name(name: str) -> str:
    """A name as one that files can have; none is hidden or leads out of its folder."""
    found = quote(name, safe=" ")
    return f"%2E{found[1:]}" if found.startswith(".") else found


class Job(NamedTuple):
    """One cell of the study."""

    corpus: str
    row: str
    seed: int

    def __str__(self) -> str:
        return f"{self.row} on {self.corpus}, seed {self.seed}"

    @property
    def place(self) -> Path:
        """Where the run lies inside the study."""
        return Path("runs", file_name(self.corpus), file_name(self.row), f"seed-{self.seed}")


class Run(NamedTuple):
    """A job that is done."""

    job: Job
    report: Report
    recipe: Recipe


class Failure(NamedTuple):
    """A job that could not be done."""

    job: Job
    kind: str  # "failed", or "not run" where something it needs is not there
    reason: str


@dataclass(frozen=True)
class CorpusFacts:
    """What a study keeps of a corpus."""

    checksum: str
    statistics: Statistics
    levels: dict[str, int]  # label → level in the hierarchy


@dataclass(frozen=True)
class Results:
    """All that is known at a moment."""

    rows: dict[str, str]  # row → method, in the order of the tables
    corpora: dict[str, CorpusFacts]
    runs: tuple[Run, ...] = ()
    failures: tuple[Failure, ...] = ()
    running: Job | None = None
    waiting: int = 0  # jobs, the running one among them
    left_out: dict[str, tuple[str, ...]] | None = None  # row → settings asked for that its method does not have

    @cached_property
    def cells(self) -> dict[tuple[str, str], list[Run]]:
        """The runs of each row on each corpus, in the order of the tables."""
        found: dict[tuple[str, str], list[Run]] = {(row, corpus): [] for row in self.rows for corpus in self.corpora}
        for run in self.runs:
            found[run.job.row, run.job.corpus].append(run)
        return {place: runs for place, runs in found.items() if runs}

    @cached_property
    def reports(self) -> list[Report]:
        """One report for each row and corpus: the mean over seeds."""
        return [Repeated.of([run.report for run in runs]) for runs in self.cells.values()]

    @cached_property
    def comparison(self) -> Comparison | None:
        """All rows but those that only serve another one, in the paper's zones; nothing while no run is done."""
        reports = [report for report in self.reports if report.method not in ABLATIONS]
        return Comparison(reports, {row: zone(method) for row, method in self.rows.items()}) if reports else None

    def score(self, row: str, corpus: str, group: str, measure: str) -> float | None:
        """The mean score of a row in a group by a measure at the corpus's cut-off."""
        for report in self.reports:
            if (report.method, report.corpus) == (row, corpus):
                return report.groups.get(group, {}).get(f"{measure}@{report.k}")
        return None
