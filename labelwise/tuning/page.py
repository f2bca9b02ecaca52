"""What a search found, as text, Markdown, LaTeX, CSV, JSON and one HTML page: every trial, the best so far, what mattered."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import accumulate, count, pairwise
from statistics import median
from typing import Any

from labelwise.markup import Bar, panels_section, section, table_section, whole_page
from labelwise.tables import MISSING, Cell, Rendered, Row, Table, Zone, heading, percent, to_csv
from labelwise.tuning.space import Value

SHOWN = 10  # trials in a text
FINISHED, STOPPED, FAILED, KILLED, RUNNING = "finished", "stopped", "failed", "killed", "running"


@dataclass(frozen=True)
class TrialResult:
    """One trial: what was tried and how it ended."""

    number: int
    end: str
    settings: dict[str, Value]
    value: float | None = None
    """Of a finished trial; of one that was stopped as hopeless, what its last round came to."""
    rounds: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class SearchReport(Rendered):
    """A search as far as it has come."""

    search: dict[str, Any]
    """What was searched: method, corpus, objective, sampler, seed, space."""
    trials: tuple[TrialResult, ...]
    importance: dict[str, float]
    """Share of each setting in what settings explain of the objective (fANOVA); empty where trials are too few to tell."""

    @property
    def lower(self) -> bool:
        """Whether lower is better."""
        return bool(self.search["objective"] == "loss")

    @property
    def aim(self) -> str:
        """The objective as papers write it."""
        measure, _, group = self.search["objective"].partition(":")
        return (measure if self.lower else heading(measure)) + (f" of {group}" if group else "")

    @property
    def best(self) -> TrialResult | None:
        """The trial to go by; the first of several that are as good."""
        finished = self._ended(FINISHED)
        return min(finished, key=self._badness) if finished else None

    def table(self) -> Table:
        """Every trial, the best first."""
        return self._trial_table(self._ranked(), "")

    def tables(self) -> Sequence[Table]:
        """Trials, then what mattered."""
        rows = tuple(Row(name, (Cell(percent(share)),)) for name, share in self.importance.items())
        return [self.table(), *([Table("setting", (("importance",),), (Zone("", rows),), (IMPORTANCE,))] if rows else [])]

    def text(self) -> str:
        """The best trials, and what mattered."""
        ranked = self._ranked()
        hidden = f"{len(ranked) - SHOWN} more in the report." if len(ranked) > SHOWN else ""
        return "\n".join(table.text() for table in [self._trial_table(ranked[:SHOWN], hidden), *self.tables()[1:]])

    def csv(self) -> str:
        """One line per trial, in their order."""
        names = ["number", "end", "value", *self.search["space"], "rounds", "seconds", "error"]
        rows = [{**asdict(trial), **trial.settings} for trial in self.trials]
        return to_csv(names, [{name: row.get(name) for name in names} for row in rows])

    def json(self) -> str:
        """One JSON object."""
        told = {"search": self.search, "best": self.best and asdict(self.best), **asdict(self)}
        return json.dumps(told, ensure_ascii=False, indent=1) + "\n"

    def html(self) -> str:
        """A page that needs nothing but a browser."""
        bars = [Bar(name, share) for name, share in self.importance.items()]
        mattered = panels_section("What mattered", [("Importance", bars)], IMPORTANCE) if bars else ""
        trials = table_section(replace(self.table(), notes=self._errors(self.trials)), "All trials, the best first")
        title = f"Search: {self.search['method']} on {self.search['corpus']}"
        return whole_page(title, title, self._summary(), filter(None, [self._chart(), mattered, trials, self._facts()]))

    def best_so_far(self) -> list[float]:
        """After each finished trial, in their order, the best value up to then."""
        choose = min if self.lower else max
        return list(accumulate((trial.value for trial in self._ended(FINISHED) if trial.value is not None), choose))

    def _ended(self, *ends: str) -> list[TrialResult]:
        return [trial for trial in self.trials if trial.end in ends]

    def _badness(self, trial: TrialResult) -> float:
        return math.inf if trial.value is None else trial.value if self.lower else -trial.value

    def _ranked(self) -> list[TrialResult]:
        order = (FINISHED, STOPPED, FAILED, KILLED, RUNNING)
        return sorted(self.trials, key=lambda trial: (order.index(trial.end), self._badness(trial), trial.number))

    def _trial_table(self, trials: Sequence[TrialResult], hidden: str) -> Table:
        keys = sorted(self.search["space"], key=lambda key: key.rpartition(".")[0])
        groups, names = zip(*((key.rpartition(".")[0], key.rpartition(".")[2]) for key in keys), strict=True)
        above, below = ("", *groups, "", "", ""), (self.aim, *names, "rounds", "seconds", "end")
        rows = tuple(
            Row(
                str(trial.number),
                (
                    Cell(_shown(trial.value), best=trial is self.best),
                    *(Cell(_spelt(trial.settings.get(key))) for key in keys),
                    Cell(str(trial.rounds) if trial.rounds else MISSING),
                    Cell(f"{trial.seconds:,.1f}" if trial.seconds else MISSING),
                    Cell(trial.end),
                ),
            )
            for trial in trials
        )
        heads = (above, below) if any(groups) else (below,)
        return Table("trial", heads, (Zone("", rows),), (hidden, self._summary(), *self._errors(trials)))

    def _errors(self, trials: Sequence[TrialResult]) -> tuple[str, ...]:
        return tuple(f"Trial {trial.number} failed: {trial.error}" for trial in trials if trial.error)[:SHOWN]

    def _summary(self) -> str:
        counts = {end: len(self._ended(end)) for end in (FINISHED, STOPPED, FAILED, KILLED, RUNNING)}
        told = ", ".join(f"{count} {end}" for end, count in counts.items() if count) or "no trial yet"
        better = "lower" if self.lower else "higher"
        how = f"{self.search['sampler']}, seed {self.search['seed']}: {told}"
        return f"{how}; {self.aim} on the development documents, {better} is better."

    def _chart(self) -> str:
        """Every finished trial as a dot, the best value so far as a line; places in percent, so that text is not scaled."""
        finished = self._ended(FINISHED)
        if not finished:
            return ""
        values, best = [trial.value or 0.0 for trial in finished], self.best_so_far()
        # One hopeless trial is not to flatten all others.
        far = 3 * abs(median(values) - best[-1]) or max(values) - min(values) or 1.0

        def place(number: int, value: float) -> tuple[float, float]:
            share = min(1.0, abs(value - best[-1]) / far)  # 0 at the best, 1 at the edge
            return 100 * (number + 0.5) / len(values), 5 + 90 * (1 - share if self.lower else share)

        dots = "".join(
            f'<circle class="{"dot" if trial is self.best else "ring"}" r="4" cx="{x:.2f}%" cy="{y:.2f}%">'
            f"<title>{escape(_told(trial))}</title></circle>"
            for trial, (x, y) in zip(finished, map(place, count(), values), strict=True)
        )
        lines = "".join(f'<line class="grid" x1="0" x2="100%" y1="{y}%" y2="{y}%"/>' for y in (5, 95))
        lines += "".join(
            f'<line class="interval" x1="{x1:.2f}%" x2="{x2:.2f}%" y1="{y1:.2f}%" y2="{y1:.2f}%"/>'
            f'<line class="interval" x1="{x2:.2f}%" x2="{x2:.2f}%" y1="{y1:.2f}%" y2="{y2:.2f}%"/>'
            for (x1, y1), (x2, y2) in pairwise(map(place, count(), best))
        )
        ends = {"95%": best[-1], "5%": best[-1] + far} if self.lower else {"5%": best[-1], "95%": best[-1] - far}
        marks = "".join(
            f'<text x="0" y="{y}" dx="-6" dy="4" text-anchor="end">{_shown(value)}</text>' for y, value in ends.items()
        )
        words = escape(f"Best {self.aim} so far: from {_shown(best[0])} to {_shown(best[-1])}")
        svg = f'<svg class="plot" role="img" aria-label="{words}">{lines}{dots}<g class="scale">{marks}</g></svg>'
        note = f"From left to right: finished trials. Upwards: {self.aim}. Line: the best up to then; filled: the best of all."
        return section("Best so far", f'{svg}<p class="note">{escape(note)} What is far off stands at the edge.</p>')

    def _facts(self) -> str:
        flat = {key: value for key, value in self.search.items() if not isinstance(value, dict)}
        flat |= {"fixed": json.dumps(self.search["settings"])} if self.search["settings"] else {}
        flat |= {key: f"tried {value}" for key, value in self.search["space"].items()}
        items = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>" for key, value in flat.items())
        return section("How it was made", f"<dl>{items}</dl>")


IMPORTANCE = "Share of each setting in what settings explain one by one of the variance of the objective (fANOVA), × 100."


def _told(trial: TrialResult) -> str:
    settings = ", ".join(f"{key} {_spelt(value)}" for key, value in trial.settings.items())
    return f"trial {trial.number}: {_shown(trial.value)}; {settings}"


def _shown(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}" if abs(value) >= 0.1 else f"{value:.4g}"


def _spelt(value: Value | None) -> str:
    return MISSING if value is None else value if isinstance(value, str) else json.dumps(value)
