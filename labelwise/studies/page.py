"""The page of a study: tables, bars by label group, curves by label frequency and depth, and what the hierarchy was worth.

As on other pages there is no script and nothing is fetched. Curves are SVG lines placed in percent, so that a plot takes the
width there is and its text keeps its size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from urllib.parse import quote

from labelwise.comparison import Comparison
from labelwise.markup import GRID, counted, panels_section, scrolling, section, table_section, whole_page
from labelwise.page import chart_columns, interval_note, method_bars
from labelwise.report import LabelResult
from labelwise.studies.results import CorpusFacts, Results
from labelwise.studies.tables import Titled, gains
from labelwise.tables import heading, percent

LINES = 6  # methods that a plot can show and still be read
LEVELS = (0, 25, 50, 75, 100)


@dataclass(frozen=True)
class Point:
    """A place in a plot, both from 0 to 1, and what it says."""

    x: float
    y: float
    words: str
    label: str = ""  # printed beside it


def study_page(results: Results, tables: Sequence[Titled]) -> str:
    """The page of what a study has come to so far."""
    made = {title: table_section(table, title) for title, table in tables}
    first, *others = made.values()
    parts = [first]
    if comparison := results.comparison:
        panels = [
            (f"{comparison.block(column)}: {column.group}, {heading(column.metric)}", method_bars(comparison, column))
            for column in chart_columns(comparison)
        ]
        note = interval_note(any(report.values for report in results.reports))
        parts += [_curves(results, comparison), gap_plot(results), panels_section("By label group", panels, note)]
    parts += [*others, _pages_of_runs(results)]
    corpora = ", ".join(results.corpora)
    done = f"{counted(len(results.runs), 'run')} done" + (f", {results.waiting} to go" if results.waiting else "")
    subtitle = f"{counted(len(results.rows), 'method')} on {corpora}; {done}"
    return whole_page(f"Study of {corpora}", "Study", subtitle, filter(None, parts), STYLE)


def _curves(results: Results, comparison: Comparison) -> str:
    """Recall of labels by how often training saw them, and by their level in the hierarchy, for the methods to look at."""
    figures = []
    for corpus, facts in results.corpora.items():
        rows = leaders(comparison, corpus)
        if not rows:
            continue
        frequency = {row: _recall(results, row, corpus, lambda label: label.train_documents.bit_length()) for row in rows}
        figures.append(line_plot(f"{corpus}: by training documents of a label", frequency, least_count))
        depth = {row: _recall(results, row, corpus, _level_of(facts)) for row in rows}
        figures.append(line_plot(f"{corpus}: by level in the hierarchy", depth, str))
    return curves_section("By label frequency and depth", figures, "; level 1 is the top")


def curves_section(title: str, figures: Sequence[str], more: str = "") -> str:
    """Line plots, and what they show; `more` goes with what stands at the bottom."""
    note = (
        "Share of gold labels found among the first k of all labels, over all seeds. A number of training documents stands for "
        f"those up to the next{more}. Rest on a dot to see of how many labels. "
        f"Of more than {LINES} methods the best of each label group and zone are shown."
    )
    return section(title, f'<div class="panels">{"".join(figures)}</div><p class="note">{note}</p>')


def leaders(comparison: Comparison, corpus: str) -> list[str]:
    """The best row of each label group, the best of each zone, then the best of the rest; by the last metric, in table order."""
    columns = [column for column in comparison.columns if column.corpus == corpus]
    columns = [column for column in columns if column.metric == columns[-1].metric]
    rows = [row for members in comparison.zones.values() for row in members]
    chosen: dict[str, None] = {}
    for among in (rows, *comparison.zones.values()):
        for column in columns if among is rows else columns[:1]:
            there = [row for row in among if (row, column) in comparison.scores]
            if there:
                chosen[max(there, key=lambda row: comparison.scores[row, column].value)] = None
    there = [row for row in rows if (row, columns[0]) in comparison.scores]
    rest = sorted(there, key=lambda row: -comparison.scores[row, columns[0]].value)
    kept = list(dict.fromkeys([*chosen, *rest]))[:LINES]
    return [row for row in rows if row in kept]


def _level_of(facts: CorpusFacts) -> Callable[[LabelResult], int]:
    return lambda label: facts.levels[label.id]


def _recall(results: Results, row: str, corpus: str, bin_of: Callable[[LabelResult], int]) -> dict[int, tuple[float, int]]:
    """Bin → share of its gold labels that were found among the first k, and how many labels it has."""
    bins: defaultdict[int, list[LabelResult]] = defaultdict(list)
    runs = results.cells.get((row, corpus), [])
    for run in runs:
        for label in run.report.labels:
            if label.documents:
                bins[bin_of(label)].append(label)
    return {
        number: (sum(label.hits for label in some) / sum(label.documents for label in some), len(some) // len(runs))
        for number, some in sorted(bins.items())
    }


def line_plot(title: str, curves: Mapping[str, Mapping[int, tuple[float, int]]], name: Callable[[int], str]) -> str:
    """One line for each method over the bins that any of them has."""
    bins = sorted({number for curve in curves.values() for number in curve})
    places = {number: (place + 0.5) / len(bins) for place, number in enumerate(bins)}
    drawn = {
        row: [
            Point(places[number], share, f"{row}, {name(number)}: {percent(share)} ({counted(labels, 'label')})")
            for number, (share, labels) in curve.items()
        ]
        for row, curve in curves.items()
    }
    scale = "".join(f'<text x="0" y="{100 - level}%" dx="-8" dy="4" text-anchor="end">{level}</text>' for level in LEVELS)
    marks = "".join(f'<text x="{100 * places[n]:.2f}%" y="100%" dy="18" text-anchor="middle">{name(n)}</text>' for n in bins)
    return _plot(title, drawn, scale + marks, joined=True)


def gap_plot(results: Results) -> str:
    """GAP of a corpus to the right, gain of encoders that know the hierarchy upwards."""
    figures = []
    for group in ("few", "zero"):
        found = list(gains(results, group))
        if not found:
            continue
        reach = max(5, 5 * -(-max(abs(100 * gain) for *_, gain in found) // 5)) / 100  # in steps of five points
        highest = {corpus: max(gain for _, other, _, gain in found if other == corpus) for _, corpus, *_ in found}
        points: dict[str, list[Point]] = {}
        for compared, corpus, gap, gain in found:
            words = f"{compared} on {corpus}: {100 * gain:+.1f} at a GAP of {gap:.2f}"
            named = highest.get(corpus) == gain  # all points of a corpus stand above each other; its name goes to the highest
            if named:
                del highest[corpus]
            label = corpus if named else ""
            points.setdefault(compared, []).append(Point(gap, 0.5 + gain / reach / 2, words, label))
        levels = {0.0: -reach, 0.25: -reach / 2, 0.5: 0.0, 0.75: reach / 2, 1.0: reach}
        scale = "".join(
            f'<text x="0" y="{100 - 100 * place:.0f}%" dx="-8" dy="4" text-anchor="end">{100 * gain:+.3g}</text>'
            for place, gain in levels.items()
        ).replace("+0<", "0<")
        marks = "".join(f'<text x="{x}%" y="100%" dy="18" text-anchor="middle">{x / 100:g}</text>' for x in LEVELS)
        figures.append(_plot(f"{group}-shot labels", points, scale + marks, joined=False))
    note = (
        "To the right: GAP of the corpus. Upwards: nDCG × 100 of labels that know the hierarchy, less that of DC, which do not."
    )
    content = f'<div class="panels">{"".join(figures)}</div><p class="note">{note}</p>'
    return section("GAP and the gain of the hierarchy", content) if figures else ""


def _plot(title: str, drawn: Mapping[str, Sequence[Point]], axes: str, *, joined: bool) -> str:
    """Points of several kinds in a frame, joined by lines or not, with a legend."""
    grid = "".join(f'<line class="grid" x1="0" x2="100%" y1="{level}%" y2="{level}%"/>' for level in LEVELS)
    grid += "" if joined else GRID + '<line class="kept" x1="0" x2="100%" y1="50%" y2="50%"/>'
    content = "".join(f'<g class="k{number}">{_kind(points, joined)}</g>' for number, points in enumerate(drawn.values()))
    legend = "".join(
        f'<li class="k{number}"><svg width="22" height="10" aria-hidden="true">{_sample(joined)}</svg>{escape(name)}</li>'
        for number, name in enumerate(drawn)
    )
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg class="plot" role="img" aria-label="{escape(title)}">'
        f'{grid}<g class="scale">{axes}</g>{content}</svg><ul class="legend">{legend}</ul></figure>'
    )


def _kind(points: Sequence[Point], joined: bool) -> str:
    pairs = pairwise(points) if joined else ()
    lines = (f"<line {_at(one, '1')} {_at(other, '2')}/>" for one, other in pairs)
    dots = (f'<circle r="4" {_at(point, "")}><title>{escape(point.words)}</title></circle>{_beside(point)}' for point in points)
    return "".join([*lines, *dots])


def _at(point: Point, end: str) -> str:
    """A point as attributes: of the first or second end of a line, or of a circle."""
    x, y = (f"x{end}", f"y{end}") if end else ("cx", "cy")
    return f'{x}="{100 * point.x:.2f}%" {y}="{100 - 100 * point.y:.2f}%"'


def _beside(point: Point) -> str:
    if not point.label:
        return ""
    right = point.x > 0.7  # the name goes to the side where there is room
    side = 'dx="-8" text-anchor="end"' if right else 'dx="8"'
    return f'<text x="{100 * point.x:.2f}%" y="{100 - 100 * point.y:.2f}%" dy="4" {side}>{escape(point.label)}</text>'


def _sample(joined: bool) -> str:
    return ('<line x1="0" x2="22" y1="5" y2="5"/>' if joined else "") + '<circle r="4" cx="11" cy="5"/>'


def least_count(size: int) -> str:
    """The smallest of the training counts with so many binary digits: 0, 1, 2, 4, …, 1k."""
    low = 1 << size >> 1
    return f"{low >> 10}k" if low >= 1024 else str(low)


def _pages_of_runs(results: Results) -> str:
    """Links to the report of every run, with its results label by label."""
    heads = "".join(f'<th scope="col">{escape(corpus)}</th>' for corpus in results.corpora)
    lines = "".join(
        f'<tr><th scope="row">{escape(row)}</th>'
        + "".join(f"<td>{_links(results, row, corpus)}</td>" for corpus in results.corpora)
        + "</tr>"
        for row in results.rows
        if any((row, corpus) in results.cells for corpus in results.corpora)
    )
    content = f'<thead><tr><th scope="col">method</th>{heads}</tr></thead><tbody>{lines}</tbody>'
    note = "The report of each run by its seed, with hardest labels and results for every label; all of them are in labels.csv."
    return section("Runs", f'{scrolling("Runs", content)}<p class="note">{note}</p>')


def _links(results: Results, row: str, corpus: str) -> str:
    places: Iterable[tuple[int, str]] = (
        (run.job.seed, quote(f"../{run.job.place.as_posix()}/report/report.html")) for run in results.cells.get((row, corpus), [])
    )
    return " ".join(f'<a href="{place}">seed {seed}</a>' for seed, place in places)


STYLE = """
:root { --k0: #2f6db5; --k1: #c2601c; --k2: #23805c; --k3: #9a3f95; --k4: #b03434; --k5: #67707d; }
@media (prefers-color-scheme: dark) {
  :root { --k0: #79aee8; --k1: #f0a063; --k2: #62c79b; --k3: #d78fd2; --k4: #ef8a85; --k5: #a7b0bc; }
}
a { color: var(--strong); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0; padding: 0; font-size: .87rem; }
.legend svg { margin-right: 6px; vertical-align: middle; }
""" + "".join(
    f".k{n} line {{ stroke: var(--k{n}); stroke-width: 2; }} .k{n} circle {{ fill: var(--k{n}); }}\n" for n in range(LINES)
)
