"""Reports and comparisons as one HTML file each, with charts."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from labelwise.comparison import Column, Comparison
from labelwise.markup import GRID, TICKS, Bar, counted, panels_section, scrolling, section, table_section, whole_page
from labelwise.tables import DAGGER, heading, percent

if TYPE_CHECKING:
    from labelwise.reliability import Bin
    from labelwise.report import LabelResult, Report

HARDEST = 50  # labels listed


def report_page(report: Report) -> str:
    """The page of one report."""
    parts = [
        table_section(report.table(), "Scores by label group, × 100"),
        panels_section(
            "By label group",
            [(heading(metric), _group_bars(report, metric)) for metric in _main_metrics(report)],
            interval_note(bool(report.values)),
        ),
    ]
    if report.reliability:
        parts += [table_section(report.reliability_table(), "How far probabilities can be trusted, × 100"), _diagrams(report)]
    if any(label.documents for label in report.labels):
        parts += [_frequency_chart(report), _hardest_labels(report)]
    parts.append(_notes(report))
    subtitle = f"{report.corpus}, {report.split} split, {counted(report.documents, 'document')}"
    return whole_page(f"{report.method} on {report.corpus}", report.method, subtitle, parts)


def comparison_page(comparison: Comparison) -> str:
    """The page of several reports side by side."""
    panels = [
        (f"{comparison.block(column)}: {column.group}, {heading(column.metric)}", method_bars(comparison, column))
        for column in chart_columns(comparison)
    ]
    note = interval_note(any(report.values for report in comparison.reports))
    parts = [table_section(comparison.table(), "Scores × 100"), panels_section("By label group", panels, note)]
    corpora = list(dict.fromkeys(comparison.block(column) for column in comparison.columns))
    methods = sum(len(rows) for rows in comparison.zones.values())
    subtitle = f"{counted(methods, 'method')} on {', '.join(corpora)}"
    return whole_page(f"Comparison on {', '.join(corpora)}", "Comparison", subtitle, parts)


def _main_metrics(report: Report) -> list[str]:
    """The ranking metrics at the report's own cut-off, or all metrics where there are none."""
    return [metric for metric in report.metrics if metric.endswith(f"@{report.k}")] or report.metrics


def _group_bars(report: Report, metric: str) -> list[Bar]:
    return [
        Bar(name, group[metric], _interval(report, name, metric), counted(int(group.get("documents", 0)), "document"))
        for name, group in report.groups.items()
        if not math.isnan(group.get(metric, math.nan))
    ]


def chart_columns(comparison: Comparison) -> list[Column]:
    """For each corpus and group the first metric, at the main cut-off where there is one."""
    chosen: dict[tuple[str, ...], Column] = {}
    main = {(report.corpus, report.split, str(report.k)) for report in comparison.reports}
    at_main = [column for column in comparison.columns if (*column[:2], column.metric.partition("@")[2]) in main]
    for column in [*at_main, *comparison.columns]:
        chosen.setdefault(column[:3], column)
    return [column for column in comparison.columns if column in chosen.values()]


def method_bars(comparison: Comparison, column: Column) -> list[Bar]:
    """A bar for each method that has a score in a column."""
    bars = []
    for row in (row for rows in comparison.zones.values() for row in rows):
        if score := comparison.scores.get((row, column)):
            bars.append(Bar(row, score.value, comparison.interval(row, column), DAGGER * score.worse, score.best))
    return bars


def _interval(report: Report, group: str, metric: str) -> tuple[float, float] | None:
    return report.interval(group, metric) if metric in report.values.get(group, {}) else None


def interval_note(known: bool) -> str:
    """What the thin lines of a chart are, if it has any."""
    return "Thin lines: 95 % bootstrap intervals of the mean over documents." if known else ""


def _frequency_chart(report: Report) -> str:
    """Recall at k of labels by how often training saw them, in bins that double."""
    bins: dict[int, list[LabelResult]] = {}
    for label in report.labels:
        if label.documents:
            bins.setdefault(int(label.train_documents).bit_length(), []).append(label)
    bars = [
        Bar(
            _bin_name(size),
            sum(label.hits for label in bins[size]) / sum(label.documents for label in bins[size]),
            remark=counted(len(bins[size]), "label"),
        )
        for size in sorted(bins)
    ]
    note = f"Share of gold labels found among the first {report.k}, by the number of training documents that have the label."
    return panels_section("By training frequency", [(f"Recall@{report.k}", bars)], note)


def _bin_name(size: int) -> str:
    """The training counts with so many binary digits: 0, 1, 2–3, 4–7, …"""
    low, high = 1 << size >> 1, (1 << size) - 1
    return f"{low:,}" if low >= high else f"{low:,}–{high:,}"


def _hardest_labels(report: Report) -> str:
    """The labels that are found least often, among those with enough documents to say so."""
    documents = [label.documents for label in report.labels]
    support = next((least for least in (10, 5, 2) if sum(number >= least for number in documents) >= 10), 1)
    candidates = [label for label in report.labels if label.documents >= support]
    hardest = sorted(candidates, key=lambda label: (label.recall_at_k, -label.documents, label.id))[:HARDEST]
    heads = ["label", "group", "in training", "documents", f"recall@{report.k}", f"precision@{report.k}", "F1"]
    rows = (
        f'<tr><th scope="row">{escape(label.name)} <small>{escape(label.id)}</small></th>'
        f"<td>{escape(label.group)}</td><td>{label.train_documents:,}</td><td>{label.documents:,}</td>"
        + "".join(f"<td>{percent(value)}</td>" for value in (label.recall_at_k, label.precision_at_k, label.f1))
        + "</tr>"
        for label in hardest
    )
    columns = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    table = scrolling("Hardest labels", f"<thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody>")
    among = f"{counted(len(candidates), 'label')} with at least {counted(support, 'document')} in the {report.split} split"
    note = f"Those found least often, × 100, of {among}."
    return section("Hardest labels", f'{table}<p class="note">{escape(note)}</p>')


def _diagrams(report: Report) -> str:
    """What was promised (to the right) beside what came true (upwards), for each group."""
    figures = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>"
        f'<svg class="square" role="img" aria-label="Reliability of {escape(name)}">'
        f"{SQUARE}{''.join(_dot(kind, one) for kind, reliability in group.items() for one in reliability.bins)}</svg></figure>"
        for name, group in report.reliability.items()
    )
    note = "To the right: mean score or probability of a bin, from 0 to 1. Upwards: share of its pairs that are right. "
    note += "Hollow: scores taken for probabilities. Filled: probabilities. On the line, promises are kept."
    return section("Reliability", f'<div class="squares">{figures}</div><p class="note">{note}</p>')


def _dot(kind: str, one: Bin) -> str:
    words = f"{kind} {one.probability:.2f}, right {one.right:.2f}, {counted(one.pairs, 'pair')}"
    place = f'cx="{100 * one.probability:.1f}%" cy="{100 - 100 * one.right:.1f}%"'
    return f'<circle class="{"dot" if kind == "probability" else "ring"}" r="4" {place}><title>{escape(words)}</title></circle>'


def _notes(report: Report) -> str:
    facts = {"cut-off k": report.k, "ties": report.ties, **report.notes, "documents and gold labels": report.fingerprint}
    items = "".join(f"<dt>{escape(str(name))}</dt><dd>{escape(str(fact))}</dd>" for name, fact in facts.items() if fact != "")
    return section("How it was made", f"<dl>{items}</dl>")


SQUARE = (
    GRID
    + "".join(f'<line class="grid" x1="0" x2="100%" y1="{tick}%" y2="{tick}%"/>' for tick in TICKS)
    + '<line class="kept" x1="0" x2="100%" y1="100%" y2="0"/>'
)
