"""Reproduction: a recipe is run, and what came out is laid beside what it says to expect.

The folder is that of a run, with `reproduction.json` added. A killed reproduction goes on when it is called again, and a finished
one is only read.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path, PurePath

from labelwise.corpus import Splits
from labelwise.errors import LabelwiseError, OutputExists
from labelwise.progress import Progress, silent
from labelwise.recipe import Recipe, make_recipe_method
from labelwise.report import Report
from labelwise.running import REPORT, run
from labelwise.storage import check_place, write_bytes
from labelwise.tables import Cell, Row, Table, Zone, heading, plain

FILE = "reproduction.json"
FORMAT = 1


@dataclass(frozen=True)
class Check:
    """One expected score and what was found; NaN where the corpus has no such group."""

    group: str
    measure: str
    expected: float
    found: float
    tolerance: float

    @property
    def difference(self) -> float:
        """How much higher the found score is."""
        return self.found - self.expected

    @property
    def ok(self) -> bool:
        """Whether the difference is within the tolerance."""
        # A difference of exactly the tolerance passes, whatever its last bit is.
        return abs(self.difference) <= self.tolerance + 1e-9


@dataclass(frozen=True)
class Reproduction:
    """What a recipe gave on a corpus, beside what it should have given."""

    name: str
    recipe: Recipe
    report: Report
    tolerance: float

    @property
    def checks(self) -> list[Check]:
        """Every expected score with what was found."""
        return [
            Check(group, measure, expected, self.report.groups.get(group, {}).get(measure, math.nan), self.tolerance)
            for group, scores in self.recipe.expected.items()
            for measure, expected in scores.items()
        ]

    @property
    def passed(self) -> bool:
        """Whether all scores are within the tolerance."""
        return all(check.ok for check in self.checks)

    def table(self) -> Table:
        """One line per expected score."""
        rows = tuple(Row(f"{check.group} {heading(check.measure)}", _cells(check)) for check in self.checks)
        report, origin = self.report, [str(self.recipe.source.get("paper", "")), self.recipe.origin]
        notes = (
            f"{self.name} on {report.corpus}, {report.split} split: {report.documents:,} documents; scores × 100.",
            f"Expected: {', '.join(filter(None, origin)) or 'what the recipe says'}.",
            f"{sum(check.ok for check in self.checks)} of {len(rows)} within {100 * self.tolerance:.4g}.",
        )
        return Table("group, measure", (("expected", "found", "difference", "ok"),), (Zone("", rows),), notes)

    def json(self) -> str:
        """The comparison for machines, scores from 0 to 1."""
        shown = ("group", "measure", "expected", "found", "difference", "ok")
        value = {
            "recipe": self.name,
            "method": self.recipe.method,
            "settings": self.recipe.settings,
            "source": self.recipe.source,
            "expected_on": self.recipe.corpus,
            "corpus": self.report.corpus,
            "split": self.report.split,
            "tolerance": self.tolerance,
            "passed": self.passed,
            "checks": [{name: plain(getattr(check, name)) for name in shown} for check in self.checks],
            "notes": {key: plain(note) for key, note in self.report.notes.items()},
            "format": FORMAT,
        }
        return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def reproduce(
    recipe: Recipe,
    splits: Splits,
    folder: Path | str,
    *,
    name: str = "",
    tolerance: float | None = None,
    progress: Progress = silent,
) -> Reproduction:
    """Run a recipe into a folder, or read the run that lies there, and compare with the expectation."""
    folder, name = Path(folder), name or recipe.method
    check_ready(recipe, folder, name)
    expected = [measure for scores in recipe.expected.values() for measure in scores]
    # The variants of a row are told apart by the last part of the recipe's name.
    report = run(recipe, splits, folder, name=PurePath(name).stem, measures=["rp", "ndcg", *expected], progress=progress)
    if unknown := [measure for measure in expected if measure not in report.metrics]:
        raise OutputExists(f"{folder}: holds a run that was not evaluated by {', '.join(unknown)}; name another folder")
    found = Reproduction(name, recipe, report, recipe.tolerance if tolerance is None else tolerance)
    write_bytes(folder / FILE, found.json().encode(), force=True)
    return found


def check_ready(recipe: Recipe, folder: Path, name: str) -> None:
    """Refuse, before anything is read, what cannot be reproduced or has no place to go."""
    if not any(recipe.expected.values()):
        raise LabelwiseError(
            f"{name}: does not say what to expect, so there is nothing to reproduce; take one of `labelwise recipes`, or add "
            "[expected.all] to your recipe"
        )
    make_recipe_method(recipe, {})  # its settings are checked by this
    if not (folder / REPORT / "report.json").is_file():
        try:
            check_place(folder, "run", force=False)
        except OutputExists:
            raise OutputExists(f"{folder}: already there, and not a finished reproduction; name another folder") from None


def _cells(check: Check) -> tuple[Cell, ...]:
    if math.isnan(check.found):
        return Cell(f"{100 * check.expected:.2f}"), Cell(), Cell(), Cell("no")
    difference = round(100 * check.difference, 2) + 0  # no minus before zero
    numbers = f"{100 * check.expected:.2f}", f"{100 * check.found:.2f}", f"{difference:+.2f}"
    return *map(Cell, numbers), Cell("yes" if check.ok else "no")
