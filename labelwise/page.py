"""Reports and comparisons as one HTML file each: style and charts inside, no script, nothing fetched.

Charts are rows of small SVG bars with lengths in percent, so they fit a telephone and a wide screen without scaling their text.
Everything that comes from data goes through `escape`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from labelwise.comparison import Column, Comparison
from labelwise.tables import DAGGER, Cell, Table, heading, percent

if TYPE_CHECKING:
    from labelwise.reliability import Bin
    from labelwise.report import LabelResult, Report

HARDEST = 50  # labels listed


@dataclass(frozen=True)
class Bar:
    """One row of a chart: a score, its interval if there is one, and a remark."""

    name: str
    score: float
    interval: tuple[float, float] | None = None
    remark: str = ""
    strong: bool = False


def report_page(report: Report) -> str:
    """The page of one report."""
    parts = [
        _table(report.table(), "Scores by label group, × 100"),
        _panels(
            "By label group",
            [(heading(metric), _group_bars(report, metric)) for metric in _main_metrics(report)],
            _interval_note(bool(report.values)),
        ),
    ]
    if report.reliability:
        parts += [_table(report.reliability_table(), "How far probabilities can be trusted, × 100"), _diagrams(report)]
    if any(label.documents for label in report.labels):
        parts += [_frequency_chart(report), _hardest_labels(report)]
    parts.append(_notes(report))
    subtitle = f"{report.corpus}, {report.split} split, {_number(report.documents, 'document')}"
    return _document(f"{report.method} on {report.corpus}", report.method, subtitle, parts)


def comparison_page(comparison: Comparison) -> str:
    """The page of several reports side by side."""
    panels = [
        (f"{comparison.block(column)}: {column.group}, {heading(column.metric)}", _method_bars(comparison, column))
        for column in _chart_columns(comparison)
    ]
    note = _interval_note(any(report.values for report in comparison.reports))
    parts = [_table(comparison.table(), "Scores × 100"), _panels("By label group", panels, note)]
    corpora = list(dict.fromkeys(comparison.block(column) for column in comparison.columns))
    methods = sum(len(rows) for rows in comparison.zones.values())
    subtitle = f"{_number(methods, 'method')} on {', '.join(corpora)}"
    return _document(f"Comparison on {', '.join(corpora)}", "Comparison", subtitle, parts)


def _main_metrics(report: Report) -> list[str]:
    """The ranking metrics at the report's own cut-off, or all metrics where there are none."""
    return [metric for metric in report.metrics if metric.endswith(f"@{report.k}")] or report.metrics


def _group_bars(report: Report, metric: str) -> list[Bar]:
    return [
        Bar(name, group[metric], _interval(report, name, metric), _number(int(group.get("documents", 0)), "document"))
        for name, group in report.groups.items()
        if not math.isnan(group.get(metric, math.nan))
    ]


def _chart_columns(comparison: Comparison) -> list[Column]:
    """For each corpus and group the first metric, at the main cut-off where there is one."""
    chosen: dict[tuple[str, ...], Column] = {}
    main = {(report.corpus, report.split, str(report.k)) for report in comparison.reports}
    at_main = [column for column in comparison.columns if (*column[:2], column.metric.partition("@")[2]) in main]
    for column in [*at_main, *comparison.columns]:
        chosen.setdefault(column[:3], column)
    return [column for column in comparison.columns if column in chosen.values()]


def _method_bars(comparison: Comparison, column: Column) -> list[Bar]:
    bars = []
    for row in (row for rows in comparison.zones.values() for row in rows):
        score, report = comparison.scores.get((row, column)), comparison.report(row, column)
        if score and report:
            mark = DAGGER * score.worse
            bars.append(Bar(row, score.value, _interval(report, column.group, column.metric), mark, score.best))
    return bars


def _interval(report: Report, group: str, metric: str) -> tuple[float, float] | None:
    return report.interval(group, metric) if metric in report.values.get(group, {}) else None


def _interval_note(known: bool) -> str:
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
            remark=_number(len(bins[size]), "label"),
        )
        for size in sorted(bins)
    ]
    note = f"Share of gold labels found among the first {report.k}, by the number of training documents that have the label."
    return _panels("By training frequency", [(f"Recall@{report.k}", bars)], note)


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
    table = _scrolling("Found least often, × 100", f"<thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody>")
    note = f"Of {_number(len(candidates), 'label')} with at least {_number(support, 'document')} in the {report.split} split."
    return _section("Hardest labels", f'{table}<p class="note">{escape(note)}</p>')


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
    return _section("Reliability", f'<div class="squares">{figures}</div><p class="note">{note}</p>')


def _dot(kind: str, one: Bin) -> str:
    words = f"{kind} {one.probability:.2f}, right {one.right:.2f}, {_number(one.pairs, 'pair')}"
    place = f'cx="{100 * one.probability:.1f}%" cy="{100 - 100 * one.right:.1f}%"'
    return f'<circle class="{"dot" if kind == "probability" else "ring"}" r="4" {place}><title>{escape(words)}</title></circle>'


def _notes(report: Report) -> str:
    facts = {"cut-off k": report.k, "ties": report.ties, **report.notes, "documents and gold labels": report.fingerprint}
    items = "".join(f"<dt>{escape(str(name))}</dt><dd>{escape(str(fact))}</dd>" for name, fact in facts.items() if fact != "")
    return _section("How it was made", f"<dl>{items}</dl>")


def _table(table: Table, caption: str) -> str:
    """A results table with its legend, headings tied to their rows and columns."""
    levels = range(len(table.heads))
    corner = f'<th scope="col" rowspan="{len(levels)}">{escape(table.corner)}</th>'
    heads = "".join(f"<tr>{corner if level == 0 else ''}{_heads(table, level)}</tr>" for level in levels)
    bodies = []
    for zone in table.zones:
        title = f'<tr class="zone"><th scope="rowgroup" colspan="{len(table.heads[-1]) + 1}">{escape(zone.title)}</th></tr>'
        rows = (f'<tr><th scope="row">{escape(row.name)}</th>{"".join(map(_cell, row.cells))}</tr>' for row in zone.rows)
        bodies.append(f"<tbody>{title if zone.title else ''}{''.join(rows)}</tbody>")
    legend = "".join(f"<p>{escape(line)}</p>" for line in [*table.notes, table.legend("Bold", "underlined")] if line)
    blocks = (end - start for _, start, end in table.spans(len(levels) - 2)) if len(levels) > 1 else [len(table.heads[-1])]
    columns = "<colgroup></colgroup>" + "".join(f'<colgroup span="{span}"></colgroup>' for span in blocks)
    content = f"{columns}<thead>{heads}</thead>{''.join(bodies)}"
    return _section("", _scrolling(caption, content) + f'<div class="note">{legend}</div>')


def _heads(table: Table, level: int) -> str:
    if level == len(table.heads) - 1:
        return "".join(f'<th scope="col">{escape(name)}</th>' for name in table.heads[level])
    spans = table.spans(level)
    return "".join(f'<th scope="colgroup" colspan="{end - start}">{escape(name)}</th>' for name, start, end in spans)


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    text = f"<strong>{text}</strong>" if cell.best else text
    text = f"<u>{text}</u>" if cell.zone_best else text
    return f"<td>{text}{f'<sup>{DAGGER}</sup>' if cell.worse else ''}</td>"


def _scrolling(caption: str, content: str) -> str:
    """A table that scrolls inside its own box when it is wider than the page; the box can be reached by keyboard."""
    name = escape(caption)
    table = f"<table><caption>{name}</caption>{content}</table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">{table}</div>'


def _panels(title: str, panels: Sequence[tuple[str, Sequence[Bar]]], note: str) -> str:
    """Charts side by side as far as there is room."""
    figures = "".join(
        f'<figure><figcaption>{escape(name)}</figcaption><div class="bars">{"".join(map(_bar, bars))}{AXIS}</div></figure>'
        for name, bars in panels
    )
    return _section(title, f'<div class="panels">{figures}</div>' + (f'<p class="note">{escape(note)}</p>' if note else ""))


def _bar(bar: Bar) -> str:
    words = f"{bar.name}: {percent(bar.score)}"
    if bar.interval:
        words += f" ({percent(bar.interval[0])} to {percent(bar.interval[1])})"
    return (
        f'<span class="name">{escape(bar.name)}</span>'
        f'<svg role="img" aria-label="{escape(words)}" width="100%" height="22"><title>{escape(words)}</title>{GRID}'
        f'<rect class="{"strong" if bar.strong else "bar"}" y="4" height="14" width="{100 * bar.score:.2f}%"/>'
        f"{_whisker(*bar.interval) if bar.interval else ''}</svg>"
        f'<span class="score">{percent(bar.score)}</span><span class="remark">{escape(bar.remark)}</span>'
    )


def _whisker(low: float, high: float) -> str:
    ends = "".join(f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="7" y2="15"/>' for x in (100 * low, 100 * high))
    return f'<g class="interval"><line x1="{100 * low:.2f}%" x2="{100 * high:.2f}%" y1="11" y2="11"/>{ends}</g>'


def _number(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _section(title: str, content: str) -> str:
    return f"<section>{f'<h2>{escape(title)}</h2>' if title else ''}{content}</section>"


def _document(title: str, name: str, subtitle: str, parts: Iterable[str]) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        # Nothing may run or be fetched, whatever a name in the data holds.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(name)}</h1><p>{escape(subtitle)}</p></header>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


TICKS = (0, 25, 50, 75, 100)
GRID = "".join(f'<line class="grid" x1="{tick}%" x2="{tick}%" y1="0" y2="100%"/>' for tick in TICKS)
AXIS = (
    '<svg class="axis" aria-hidden="true" width="100%" height="18">'
    + "".join(f'<text x="{tick}%" y="13" text-anchor="middle">{tick}</text>' for tick in TICKS)
    + "</svg>"
)
SQUARE = (
    GRID
    + "".join(f'<line class="grid" x1="0" x2="100%" y1="{tick}%" y2="{tick}%"/>' for tick in TICKS)
    + '<line class="kept" x1="0" x2="100%" y1="100%" y2="0"/>'
)

STYLE = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --paper: #fff; --back: #f5f7f9;
  --bar: #9db8d9; --strong: #2f6db5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #343d49; --paper: #1a2029; --back: #12161c;
    --bar: #47658a; --strong: #79aee8; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { margin: 0; font-size: 1.7rem; overflow-wrap: anywhere; }
h2 { margin: 0 0 12px; font-size: 1.1rem; }
header p { margin: 2px 0 16px; color: var(--soft); }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 16px; margin-bottom: 16px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: 8px; }
th, td { padding: 4px 8px; text-align: right; white-space: nowrap; }
th { font-weight: 500; }
thead th { border-bottom: 1px solid var(--line); color: var(--soft); vertical-align: bottom; }
th[scope=colgroup], thead tr:first-child > th:first-child, tbody th { text-align: left; }
tbody th { position: sticky; left: 0; background: var(--paper); }
tbody th:has(small) { white-space: normal; min-width: 9em; overflow-wrap: anywhere; }
colgroup + colgroup { border-left: 1px solid var(--line); }
tbody th small { color: var(--soft); font-weight: 400; }
td sup { display: inline-block; width: 0; line-height: 0; }
tbody + tbody > tr:first-child > * { border-top: 1px solid var(--line); }
.zone th { font-style: italic; color: var(--soft); padding-top: 8px; }
strong { font-weight: 700; }
.note, .note p { margin: 0; color: var(--soft); font-size: .87rem; }
.note { margin-top: 12px; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 20px 32px; }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 500; margin-bottom: 4px; }
.bars { display: grid; grid-template-columns: max-content minmax(80px, 1fr) max-content max-content; column-gap: 10px;
  align-items: center; font-size: .87rem; font-variant-numeric: tabular-nums; }
.bars svg { display: block; }
.bars .name { max-width: 11em; overflow-wrap: anywhere; line-height: 1.2; }
.bars .score { text-align: right; }
.bars .remark { color: var(--soft); }
.axis { grid-column: 2; overflow: visible; fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--line); }
.bar { fill: var(--bar); }
.strong { fill: var(--strong); }
.squares { display: flex; flex-wrap: wrap; gap: 20px 40px; }
.square { display: block; width: 220px; height: 220px; margin: 6px; overflow: visible; }
.kept { stroke: var(--soft); }
.ring { fill: none; stroke: var(--bar); stroke-width: 2; }
.dot { fill: var(--strong); }
.interval { stroke: var(--ink); stroke-width: 1.5; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
"""
