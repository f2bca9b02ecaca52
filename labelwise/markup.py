"""What HTML pages are built of: tables, bar charts, sections, and the page around them; no script, nothing fetched.

Charts are rows of small SVG bars with lengths in percent, so they fit a telephone and a wide screen without scaling their text.
Everything that comes from data goes through `escape`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from labelwise.tables import DAGGER, Cell, Table, percent


@dataclass(frozen=True)
class Bar:
    """One row of a chart: a score, its interval if there is one, and a remark."""

    name: str
    score: float
    interval: tuple[float, float] | None = None
    remark: str = ""
    strong: bool = False


def table_section(table: Table, name: str) -> str:
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
    return section(name, scrolling(name, content) + f'<div class="note">{legend}</div>')


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


def scrolling(title: str, content: str) -> str:
    """A table that scrolls inside its own box when it is wider than the page; the box can be reached by keyboard.

    Its title stands above the box, where it does not scroll away.
    """
    label = f'aria-label="{escape(title)}"'
    return f'<div class="scroll" tabindex="0" role="region" {label}><table {label}>{content}</table></div>'


def panels_section(title: str, panels: Sequence[tuple[str, Sequence[Bar]]], note: str) -> str:
    """Charts side by side as far as there is room."""
    figures = "".join(
        f'<figure><figcaption>{escape(name)}</figcaption><div class="bars">{"".join(map(_bar, bars))}{AXIS}</div></figure>'
        for name, bars in panels
    )
    return section(title, f'<div class="panels">{figures}</div>' + (f'<p class="note">{escape(note)}</p>' if note else ""))


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


def counted(number: int, thing: str) -> str:
    """'1 label', '2,000 labels'."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def section(title: str, content: str) -> str:
    """A box of the page."""
    return f"<section>{f'<h2>{escape(title)}</h2>' if title else ''}{content}</section>"


def whole_page(title: str, name: str, subtitle: str, parts: Iterable[str], style: str = "") -> str:
    """The page, with style of its own added to that of all."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        # Nothing may run or be fetched, whatever a name in the data holds.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
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
th, td { padding: 4px 8px; text-align: right; white-space: nowrap; }
th { font-weight: 500; }
thead th { border-bottom: 1px solid var(--line); color: var(--soft); vertical-align: bottom; }
th[scope=colgroup], thead tr:first-child > th:first-child, tbody th { text-align: left; }
tbody th { position: sticky; left: 0; background: var(--paper); }
tbody th:has(small) { white-space: normal; min-width: 9em; overflow-wrap: anywhere; }
@media (max-width: 640px) {
  tbody th[scope=row] { white-space: normal; min-width: 30vw; max-width: 36vw; overflow-wrap: anywhere; }
}
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
.bars .name { max-width: 13em; overflow-wrap: anywhere; line-height: 1.2; }
.bars .score { text-align: right; }
.bars .remark { color: var(--soft); }
.axis { grid-column: 2; overflow: visible; fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--line); }
.bar { fill: var(--bar); }
.strong { fill: var(--strong); }
.plot { display: block; width: calc(100% - 56px); height: 240px; margin: 8px 12px 30px 44px; overflow: visible; }
.plot text { fill: var(--ink); font-size: 11px; }
.plot .scale text { fill: var(--soft); }
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
