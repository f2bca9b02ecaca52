"""docs/results.html: the quality of methods by label group as a page for a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labelwise.comparison import Comparison, Repeated
from labelwise.markup import counted, panels_section, section, table_section, whole_page
from labelwise.page import method_bars
from labelwise.report import Report

SHOWN = 8  # rows of a chart
ZONES = {  # what the names of their rows have
    "ours": ("read-and-learned", "best"),
    "transformers": ("minilm", "gte-small", "scratch"),
    "networks over word vectors": ("lwan", "attention-xml"),
    "classifiers and trees": ("parabel", "bonsai", "neighbours", "linear"),
}
OTHERS = "nothing learned from documents, or their labels alone"


def results_page(rows: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """The page, from the recorded lines of each row, one for each seed."""
    reports = [Repeated.of([_report(line) for line in several]) for several in rows]
    corpora = list(dict.fromkeys(report.corpus for report in reports))
    parts = [part for corpus in corpora for part in _corpus([report for report in reports if report.corpus == corpus])]
    parts.append(_missing(reports, corpora))
    subtitle = f"{counted(len({report.method for report in reports}), 'method')} on {', '.join(corpora)}, test documents"
    return whole_page("Results of Labelwise", "Results", subtitle, parts)


def _corpus(reports: Sequence[Report]) -> list[str]:
    """One corpus: its table, and who leads in each label group."""
    comparison = Comparison(reports, {report.method: _zone(report.method) for report in reports})
    k, corpus = reports[0].k, reports[0].corpus
    panels = []
    for column in (column for column in comparison.columns if column.metric == f"ndcg@{k}"):
        bars = sorted(method_bars(comparison, column), key=lambda bar: -bar.score)
        panels.append((f"{column.group}, nDCG@{k}", bars[:SHOWN]))
    return [
        panels_section(corpus, panels, f"The {SHOWN} rows with the highest nDCG@{k} in each label group."),
        table_section(comparison.table(), f"{corpus}: scores × 100"),
    ]


def _missing(reports: Sequence[Report], corpora: Sequence[str]) -> str:
    """What was not run."""
    known = {(report.corpus, report.method) for report in reports}
    lines = []
    for corpus in corpora:
        absent = [name for name in dict.fromkeys(report.method for report in reports) if (corpus, name) not in known]
        lines.append(f"<p><strong>{corpus}</strong>: {', '.join(absent) or 'nothing'}.</p>")
    return section("Not run", "".join(lines))


def _report(line: Mapping[str, Any]) -> Report:
    return Report(*(line[key] for key in ("method", "corpus", "split", "k", "ties", "groups")))


def _zone(method: str) -> str:
    return next((title for title, parts in ZONES.items() if any(part in method for part in parts)), OTHERS)
