"""Tables as text, Markdown and LaTeX, checked sign by sign."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from labelwise.tables import Cell, Row, Table, Zone, heading, percent, plain, to_csv

TABLE = Table(
    "method",
    (("news", "news", "laws"), ("all", "few", "all"), ("RP@5", "RP@5", "nDCG@15")),
    (
        Zone("label trees", (Row("parabel", (Cell("78.1", worse=True), Cell("9.6", zone_best=True, worse=True), Cell())),)),
        Zone(
            "", (Row("bert & co_1", (Cell("80.3", best=True, zone_best=True), Cell("61.0", best=True), Cell("5.5", best=True))),)
        ),
    ),
    ("A note with 50 % & a <tag>.",),
    "worse",
)


def test_text_aligns_digits_and_centres_headings_over_their_columns() -> None:
    assert TABLE.text() == (
        "                    news        laws\n"
        "                all    few      all\n"
        "method          RP@5    RP@5  nDCG@15\n"
        "label trees\n"
        "  parabel      78.1†   9.6°†       –\n"
        "  bert & co_1  80.3*  61.0*      5.5*\n"
        "A note with 50 % & a <tag>.\n"
        "*: best of the column; °: best of its zone; †: worse.\n"
    )


def test_markdown_is_bold_for_best_and_underlined_for_best_of_zone() -> None:
    lines = TABLE.markdown().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:5]]
    assert cells[0] == ["method", "news all RP@5", "news few RP@5", "laws all nDCG@15"]
    assert cells[2] == ["*label trees*", "", "", ""]
    assert cells[3] == ["parabel", "78.1†", "<u>9.6</u>†", "–"]
    assert cells[4] == [r"bert &amp; co\_1", "<u>**80.3**</u>", "**61.0**", "**5.5**"]
    assert len({len(line) for line in lines[:5]}) == 1  # the source is aligned too
    assert lines[6:] == [
        "A note with 50 % &amp; a &lt;tag>.  ",
        "**Bold**: best of the column; <u>underlined</u>: best of its zone; †: worse.",
    ]


def test_markdown_leaves_out_a_heading_that_all_columns_share() -> None:
    table = Table("method", (("news", "news"), ("all", "few")), (Zone("", (Row("a", (Cell("1"), Cell("2"))),)),))
    assert table.markdown().startswith("| method | all | few |\n")


def test_latex_has_the_shape_of_the_paper() -> None:
    assert TABLE.latex().splitlines() == [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r" & \multicolumn{2}{c}{news} & \multicolumn{1}{c}{laws} \\",
        r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}",
        r" & \multicolumn{1}{c}{all} & \multicolumn{1}{c}{few} & \multicolumn{1}{c}{all} \\",
        r"\cmidrule(lr){2-2} \cmidrule(lr){3-3} \cmidrule(lr){4-4}",
        r"method & RP@5 & RP@5 & nDCG@15 \\",
        r"\midrule",
        r"\multicolumn{4}{l}{\textit{label trees}} \\",
        r"parabel & 78.1\rlap{$^\dagger$} & \underline{9.6}\rlap{$^\dagger$} & -- \\",
        r"\midrule",
        r"bert \& co\_1 & \underline{\textbf{80.3}} & \textbf{61.0} & \textbf{5.5} \\",
        r"\bottomrule",
        r"\end{tabular}}",
        r"\caption{A note with 50 \% \& a \textless{}tag\textgreater{}. "
        r"Bold: best of the column; underlined: best of its zone; $\dagger$: worse.}",
        r"\end{table}",
    ]


def test_every_special_character_of_latex_is_escaped() -> None:
    table = Table("method", (("a",),), (Zone("", (Row("\\ & % $ # _ { } ~ ^ < > |\n\nx", (Cell("1"),)),)),))
    words = r"\textbackslash{} \& \% \$ \# \_ \{ \} \textasciitilde{} \textasciicircum{} \textless{} \textgreater{} \textbar{} x"
    assert rf"{words} & 1 \\" in table.latex().splitlines()


def test_a_name_with_line_breaks_or_pipes_cannot_break_a_table() -> None:
    table = Table("method", (("a",),), (Zone("", (Row("two\nlines | and a pipe", (Cell("1"),)),)),))
    assert len(table.text().splitlines()) == 2
    assert r"two lines \| and a pipe" in table.markdown()


def test_a_wide_heading_widens_its_columns() -> None:
    table = Table("m", (("a very long corpus name",), ("x",)), (Zone("", (Row("a", (Cell("1"),)),)),))
    assert table.text() == "   a very long corpus name\nm                        x\na                        1\n"


@pytest.mark.parametrize(
    ("metric", "title"),
    [("rp@5", "RP@5"), ("ndcg@15", "nDCG@15"), ("p@1", "P@1"), ("micro-f1", "micro-F1"), ("macro-p", "macro-P")],
)
def test_metrics_are_written_as_in_papers(metric: str, title: str) -> None:
    assert heading(metric) == title


def test_scores_are_printed_in_percent_and_written_with_six_digits() -> None:
    assert [percent(value) for value in (0.7714, 1, 0, None, float("nan"))] == ["77.1", "100.0", "0.0", "–", "–"]
    assert plain(np.float32(1 / 3)) == 0.333333
    assert type(plain(np.int64(3))) is int
    assert plain(float("nan")) is None
    assert plain("text") == "text"


def test_csv_quotes_what_needs_it_and_leaves_missing_values_empty() -> None:
    text = to_csv(["name", "score"], [{"name": 'a, "b"\nc', "score": 0.5}, {"name": "d"}, {"name": "e", "score": float("nan")}])
    assert list(csv.reader(io.StringIO(text))) == [["name", "score"], ['a, "b"\nc', "0.5"], ["d", ""], ["e", ""]]
