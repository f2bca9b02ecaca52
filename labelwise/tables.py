"""A table of results as plain text, Markdown and LaTeX; `page` makes it HTML.

Columns stand under shared headings (corpus, group, metric), rows in zones. A cell can be the best of its column, the best of
its zone, or significantly worse than the best; each rendering has its own sign for these and says so in a legend.
"""

from __future__ import annotations

import csv
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MISSING = "–"
DAGGER = "†"
COUNTS = ("documents", "labels")  # what stands beside the metrics of a label group
WIDE = 6  # columns from which on a LaTeX table takes both columns of a page


@dataclass(frozen=True)
class Cell:
    """One printed value and what is special about it."""

    text: str = MISSING
    best: bool = False
    zone_best: bool = False
    worse: bool = False


@dataclass(frozen=True)
class Row:
    """A name and a cell for every column."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Zone:
    """Rows of one kind; a zone without a title is not announced."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """Zones of rows under one or more levels of headings, with sentences below."""

    corner: str  # what the rows are
    heads: tuple[tuple[str, ...], ...]  # headings, widest first; every level names every column
    zones: tuple[Zone, ...]
    notes: tuple[str, ...] = ()
    test: str = ""  # what † means; empty when nothing was tested

    @property
    def rows(self) -> list[Row]:
        """The rows of all zones."""
        return [row for zone in self.zones for row in zone.rows]

    def spans(self, level: int) -> list[tuple[str, int, int]]:
        """The headings of a level, each with its first column and the one after its last."""
        keys = list(zip(*self.heads[: level + 1], strict=True))
        starts = [column for column, key in enumerate(keys) if column == 0 or key != keys[column - 1]]
        return [(self.heads[level][start], start, end) for start, end in zip(starts, [*starts[1:], len(keys)], strict=True)]

    def legend(self, best: str, zone_best: str) -> str:
        """What each sign that is used means; empty when none is."""
        cells = [cell for row in self.rows for cell in row.cells]
        signs = [f"{best}: best of the column"] if any(cell.best for cell in cells) else []
        signs += [f"{zone_best}: best of its zone"] if any(cell.zone_best for cell in cells) else []
        signs += [f"{DAGGER}: {self.test}"] if self.test else []
        return "; ".join(signs) + "." if signs else ""

    def text(self) -> str:
        """Aligned columns; * best of the column, ° best of its zone, † significantly worse."""
        indent = "  " if any(zone.title for zone in self.zones) else ""
        first = max(map(len, [self.corner, *(indent + one_line(row.name) for row in self.rows)]))
        columns = [_text_column([row.cells[column] for row in self.rows]) for column in range(len(self.heads[-1]))]
        widths = self._text_widths(columns)
        lines = [" " * first + self._text_heads(level, widths) for level in range(len(self.heads) - 1)]
        lines.append(_text_line(self.corner.ljust(first), map(one_line, self.heads[-1]), widths))
        cells = iter(list(zip(*columns, strict=True)))
        for zone in self.zones:
            lines += [one_line(zone.title)] if zone.title else []
            lines += [_text_line((indent + one_line(row.name)).ljust(first), next(cells), widths) for row in zone.rows]
        return _paragraph([*lines, *self.notes, self.legend("*", "°")], "\n")

    def markdown(self) -> str:
        """A pipe table; bold best of the column, underlined best of its zone."""
        telling = [level for level in range(len(self.heads)) if level == len(self.heads) - 1 or len(self.spans(level)) > 1]
        heads = zip(*(self.heads[level] for level in telling), strict=True)
        rows = [[_markdown(name) for name in [self.corner, *map(" ".join, heads)]]]
        for zone in self.zones:
            rows += [[f"*{_markdown(zone.title)}*", *([""] * (len(rows[0]) - 1))]] if zone.title else []
            rows += [[_markdown(row.name), *map(_markdown_cell, row.cells)] for row in zone.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
        lines = ["| " + " | ".join([row[0].ljust(widths[0]), *_right(row[1:], widths[1:])]) + " |" for row in rows]
        below = _paragraph([*map(_markdown, self.notes), self.legend("**Bold**", "<u>underlined</u>")], "  \n")
        return "\n".join([lines[0], rule, *lines[1:], "", below])

    def latex(self, title: str = "") -> str:
        """A booktabs table in the paper's shape: one block per zone, headings over several columns; no wider than its place."""
        columns = len(self.heads[-1])
        lines = [line for level in range(len(self.heads) - 1) for line in self._latex_heads(level)]
        lines.append(" & ".join(map(_latex, [self.corner, *self.heads[-1]])) + r" \\")
        for zone in self.zones:
            lines.append(r"\midrule")
            lines += [rf"\multicolumn{{{columns + 1}}}{{l}}{{\textit{{{_latex(zone.title)}}}}} \\"] if zone.title else []
            lines += [" & ".join([_latex(row.name), *map(_latex_cell, row.cells)]) + r" \\" for row in zone.rows]
        place = "table*" if columns >= WIDE else "table"
        caption = [*map(_latex, [f"{title}." if title else "", *self.notes, self.legend("Bold", "underlined")])]
        return "\n".join(
            [
                r"% needs \usepackage{booktabs,graphicx}",
                rf"\begin{{{place}}}",
                r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
                r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
                rf"\begin{{tabular}}{{l{'r' * columns}}}",
                r"\toprule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}}",
                rf"\caption{{{' '.join(filter(None, caption))}}}",
                rf"\end{{{place}}}",
                "",
            ]
        )

    def _text_widths(self, columns: Sequence[Sequence[str]]) -> list[int]:
        """The width of each column, such that the headings above it fit too."""
        widths = [max(map(len, [one_line(head), *cells])) for head, cells in zip(self.heads[-1], columns, strict=True)]
        for level in range(len(self.heads) - 1):
            for name, start, end in self.spans(level):
                widths[start] += max(0, len(one_line(name)) - _span_width(widths[start:end]))
        return widths

    def _text_heads(self, level: int, widths: Sequence[int]) -> str:
        names = (one_line(name).center(_span_width(widths[start:end])) for name, start, end in self.spans(level))
        return ("  " + "  ".join(names)).rstrip()

    def _latex_heads(self, level: int) -> Iterator[str]:
        spans = self.spans(level)
        yield "".join(rf" & \multicolumn{{{end - start}}}{{c}}{{{_latex(name)}}}" for name, start, end in spans) + r" \\"
        yield " ".join(rf"\cmidrule(lr){{{start + 2}-{end + 1}}}" for _, start, end in spans)


class Rendered(ABC):
    """What comes in every form: a report or a comparison."""

    @abstractmethod
    def table(self) -> Table:
        """The table of scores."""

    @abstractmethod
    def csv(self) -> str:
        """One line per record, scores from 0 to 1."""

    @abstractmethod
    def json(self) -> str:
        """One JSON object, scores from 0 to 1."""

    @abstractmethod
    def html(self) -> str:
        """A page that needs nothing but a browser."""

    def tables(self) -> Sequence[Table]:
        """All tables of text, Markdown and LaTeX."""
        return [self.table()]

    def text(self) -> str:
        """Aligned tables."""
        return "\n".join(table.text() for table in self.tables())

    def __str__(self) -> str:
        return self.text()

    def markdown(self) -> str:
        """A Markdown table; bold best of the column, underlined best of its zone."""
        return "\n".join(table.markdown() for table in self.tables())

    def latex(self) -> str:
        """A LaTeX table (booktabs) in the paper's shape."""
        return "\n".join(table.latex() for table in self.tables())

    def write_renderings(self, folder: Path) -> None:
        """Write report.json, .md, .tex, .csv and .html into a folder."""
        forms = {"json": self.json, "md": self.markdown, "tex": self.latex, "csv": self.csv, "html": self.html}
        for suffix, render in forms.items():
            (folder / f"report.{suffix}").write_text(render(), encoding="utf-8", newline="\n")


def one_line(text: str) -> str:
    """The text with every run of white space made one blank, so that a name cannot break a table."""
    return " ".join(text.split())


def heading(metric: str) -> str:
    """A metric as papers write it: 'ndcg@5' → 'nDCG@5', 'micro-f1' → 'micro-F1'."""
    average, dash, name = metric.rpartition("-")
    return average + dash + name.upper().replace("NDCG", "nDCG")


def percent(score: float | None) -> str:
    """A score × 100 with one decimal."""
    return MISSING if score is None or math.isnan(score) else f"{100 * score:.1f}"


def plain(value: Any) -> Any:
    """A value as JSON and CSV can hold it: scores with six digits, nothing for NaN."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def to_csv(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A heading and one line per row; what a row does not have stays empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain(value) for name, value in row.items()} for row in rows)
    return file.getvalue()


def _text_column(cells: Sequence[Cell]) -> list[str]:
    """The cells of a column with their signs, the signs outside the alignment of the digits."""
    signs = ["*" * cell.best + "°" * (cell.zone_best and not cell.best) + DAGGER * cell.worse for cell in cells]
    room = max(map(len, signs), default=0)
    return [cell.text + sign.ljust(room) for cell, sign in zip(cells, signs, strict=True)]


def _text_line(first: str, cells: Iterable[str], widths: Sequence[int]) -> str:
    return "  ".join([first, *_right(cells, widths)]).rstrip()


def _right(cells: Iterable[str], widths: Sequence[int]) -> Iterator[str]:
    return (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _span_width(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _paragraph(lines: Sequence[str], end: str) -> str:
    return end.join(filter(None, lines)) + "\n"


def _markdown(text: str) -> str:
    for sign, escaped in {"&": "&amp;", "<": "&lt;"}.items():
        text = text.replace(sign, escaped)
    return "".join(f"\\{sign}" if sign in "\\`*_[]|" else sign for sign in one_line(text))


def _markdown_cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return (f"<u>{text}</u>" if cell.zone_best else text) + DAGGER * cell.worse


LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    MISSING: "--",
    DAGGER: r"$\dagger$",
}


def _latex(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in one_line(text))


def _latex_cell(cell: Cell) -> str:
    text = rf"\textbf{{{_latex(cell.text)}}}" if cell.best else _latex(cell.text)
    text = rf"\underline{{{text}}}" if cell.zone_best else text
    return text + r"\rlap{$^\dagger$}" * cell.worse  # takes no room, so that the digits stay aligned
