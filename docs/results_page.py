"""docs/results.html: the quality of methods by label group as a page for a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from labelwise.comparison import Comparison, Repeated
from labelwise.markup import counted, panels_section, section, table_section, whole_page
from labelwise.page import method_bars
from labelwise.recipe import Recipe
from labelwise.report import Report
from labelwise.studies.page import STYLE, curves_section, gap_plot, leaders, least_count, line_plot
from labelwise.studies.results import CorpusFacts, Job, Results, Run
from labelwise.studies.tables import FAMILY, PAIRS, Titled, family, gained, pairs

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SHOWN = 8  # rows of a chart
ZONES = {  # what the names of their rows have
    "ours": ("read-and-learned", "best"),
    "transformers": ("minilm", "gte-small", "scratch"),
    "networks over word vectors": ("lwan", "attention-xml"),
    "classifiers and trees": ("parabel", "bonsai", "neighbours", "linear"),
}
OTHERS = "nothing learned from documents, or their labels alone"
TESTED = "What is more than chance, of the rows and seeds whose scores are known document by document"
MASKED = " (unseen masked)"  # how rows are marked that differ from the paper's in this


def paper_results(rows: Sequence[Sequence[Mapping[str, Any]]], stats: Sequence[Mapping[str, Any]]) -> Results:
    """The rows of the paper's zero-shot family, and those over convolutions, as a study has them."""
    methods = {*FAMILY, *(method for pair in PAIRS.values() for method in pair)}
    lines = [line for several in rows for line in several if line["method"].removesuffix(MASKED) in methods]
    order = [method for method in (*FAMILY, *methods) if any(line["method"].removesuffix(MASKED) == method for line in lines)]
    facts = {line["corpus"]: CorpusFacts("", SimpleNamespace(gap=line["gap"]), {}) for line in stats}
    runs = []
    for line in lines:
        name = line["method"].removesuffix(MASKED)
        runs.append(Run(Job(line["corpus"], name, line["seed"] or 1), _report({**line, "method": name}), Recipe(name)))
    corpora = {corpus: facts[corpus] for corpus in dict.fromkeys(line["corpus"] for line in lines)}
    return Results({name: name for name in dict.fromkeys(order)}, corpora, tuple(runs))


def paper_tables(results: Results) -> list[Titled]:
    """The paper's tables that compare the zero-shot family, and networks over GRU states with those over convolutions."""
    return [
        Titled("The paper's Table 3: zero-shot methods by nDCG", family(results, "ndcg")),
        Titled("Table 7: zero-shot methods by RP", family(results, "rp")),
        Titled("Table 5: GRU against CNN", pairs(results)),
        Titled("What the hierarchy is worth, by GAP", gained(results)),
    ]


def tested(rows: Sequence[Sequence[Mapping[str, Any]]]) -> Comparison | None:
    """The rows, of those seeds whose scores are known document by document, so that differences can be tested."""
    reports = [
        Repeated.of([replace(_report(line), values=_values(line), fingerprint=line["fingerprint"]) for line in several])
        for several in _known(rows)
    ]
    return Comparison(reports, _zones(reports), metrics=["ndcg"]) if reports else None


def _known(rows: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[Mapping[str, Any]]]:
    """The lines of each row that have scores document by document, of rows that have any."""
    known = ([line for line in several if line.get("scores")] for several in rows)
    return [several for several in known if several]


def _values(line: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """nDCG of each document, by group."""
    with np.load(BENCHMARKS / line["scores"], allow_pickle=False) as arrays:
        return {group: {f"ndcg@{line['k']}": values.astype(np.float32)} for group, values in arrays.items()}


def _curves(comparison: Comparison, rows: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Recall of labels by how often training saw them."""
    lines = {(several[0]["method"], several[0]["corpus"]): several for several in _known(rows)}
    figures = []
    for corpus in _corpora(comparison.reports):
        curves = {row: _by_frequency(lines[row, corpus]) for row in leaders(comparison, corpus)}
        figures.append(line_plot(f"{corpus}: by training documents of a label", curves, least_count))
    return curves_section("By label frequency", figures)


def _by_frequency(lines: Sequence[Mapping[str, Any]]) -> dict[int, tuple[float, int]]:
    """Binary digits of a number of training documents → share of gold labels found, and labels with so many."""
    found: dict[int, list[list[int]]] = {}
    for digits, *counts in (one for line in lines for one in line["by_frequency"]):
        found.setdefault(digits, []).append(counts)
    return {digits: (sum(c[1] for c in of) / sum(c[0] for c in of), of[0][2]) for digits, of in sorted(found.items())}


def results_page(rows: Sequence[Sequence[Mapping[str, Any]]], stats: Sequence[Mapping[str, Any]]) -> str:
    """The page, from the recorded lines of each row, one for each seed, and those about the corpora."""
    reports = [Repeated.of([_report(line) for line in several]) for several in rows]
    corpora = _corpora(reports)
    parts = [part for corpus in corpora for part in _corpus([report for report in reports if report.corpus == corpus])]
    if comparison := tested(rows):
        parts += [table_section(comparison.table(), TESTED), _curves(comparison, rows)]
    paper = paper_results(rows, stats)
    parts += [*(table_section(table, title) for title, table in paper_tables(paper)), gap_plot(paper), _missing(reports, corpora)]
    subtitle = f"{counted(len({report.method for report in reports}), 'method')} on {', '.join(corpora)}, test documents"
    return whole_page("Results of Labelwise", "Results", subtitle, parts, STYLE)


def _corpora(reports: Sequence[Report]) -> list[str]:
    return list(dict.fromkeys(report.corpus for report in reports))


def _zones(reports: Sequence[Report]) -> dict[str, str]:
    return {report.method: _zone(report.method) for report in reports}


def _corpus(reports: Sequence[Report]) -> list[str]:
    """One corpus: its table, and who leads in each label group."""
    comparison = Comparison(reports, _zones(reports))
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
