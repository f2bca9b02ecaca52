"""The HTML pages: well formed, self-contained, accessible, and safe with any name."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from labelwise.comparison import Comparison
from labelwise.reliability import Bin, Reliability
from labelwise.report import LabelResult, Report

NASTY = """<script>alert("1")</script> & 'x'"""
VOID = {"meta", "rect", "line"}  # elements that need no end: HTML's own, and SVG's that close themselves


class Page(HTMLParser):
    """Collects elements and text, and checks that every element is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [attrs for name, attrs in self.elements if name == tag and wanted.items() <= attrs.items()]


def label(number: int, train: int, documents: int = 20, hits: int = 5, group: str = "few") -> LabelResult:
    return LabelResult(f"id{number}", f"label {number}", group, train, documents, hits, 10, 0.5, 0.5, 0.5)


def made(method: str = "lexical", seed: int = 0, labels: tuple[LabelResult, ...] = ()) -> Report:
    values = np.random.default_rng(seed).choice([0, 0.5, 1], size=50).astype(np.float32)
    group = {"documents": 50, "labels": 9, "rp@1": 0.2, "rp@5": float(values.mean()), "ndcg@5": 0.4}
    values_of = {"all": {"rp@5": values}, "few": {"rp@5": values}}
    return Report(method, "news", "test", 5, "authors", {"all": group, "few": group}, values_of, labels, notes={"seed": 7})


LABELS = tuple(label(number, number % 9, hits=number % 20) for number in range(80))


@pytest.fixture(scope="module")
def report_page() -> Page:
    return Page(made(labels=LABELS).html())


def test_a_reliability_diagram_has_a_ring_for_scores_and_a_dot_for_probabilities() -> None:
    known = {"score": Reliability(0.1, 0.2, (Bin(0.25, 0.5, 4),)), "probability": Reliability(0.0, 0.1, (Bin(0.5, 0.5, 1),))}
    page = Page(replace(made(), reliability={"all": known, NASTY: known}).html())
    assert len(page.all("svg", class_="square")) == 2
    assert page.all("circle", class_="ring", cx="25.0%", cy="50.0%") == page.all("circle", class_="ring")
    assert len(page.all("circle", class_="dot", cx="50.0%")) == 2
    assert "score 0.25, right 0.50, 4 pairs" in page.words
    assert "script" not in [tag for tag, _ in page.elements]


def test_a_report_page_shows_table_charts_hardest_labels_and_notes(report_page: Page) -> None:
    headings = ["By label group", "By training frequency", "Hardest labels", "How it was made"]
    assert [word for word in report_page.words if word in headings] == headings
    assert [table["aria-label"] for table in report_page.all("table")] == ["Scores by label group, × 100", "Hardest labels"]
    assert "50 documents" in report_page.text
    assert "seed" in report_page.words


def test_a_page_needs_nothing_from_outside_and_runs_nothing(report_page: Page) -> None:
    tags = {tag for tag, _ in report_page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "a"}
    assert not any(name in attrs for _, attrs in report_page.elements for name in ("src", "href", "onclick", "onload"))
    html = made(labels=LABELS).html()
    assert not re.search(r"https?:|url\(|@import", html)
    assert "default-src 'none'" in html


def test_headings_are_tied_to_their_rows_and_columns() -> None:
    page = Page(Comparison([made("a"), made("b", 1)], {"a": "one", "b": "two"}).html())
    assert all("scope" in attrs for attrs in page.all("th"))
    assert len(page.all("th", scope="rowgroup")) == 2
    assert len(page.all("th", scope="row")) == 2
    assert {attrs["colspan"] for attrs in page.all("th", scope="colgroup")} == {"3", "6"}
    assert (
        sum(int(attrs["span"] or 0) for attrs in page.all("colgroup") if "span" in attrs) == len(page.all("th", scope="col")) - 1
    )


def test_bars_have_the_length_of_their_score_and_say_it_in_words() -> None:
    report = made()
    page = Page(report.html())
    bars = page.all("rect", class_="bar")
    assert len(bars) == 4  # two groups in two charts: the metrics at the main cut-off
    assert bars[0]["width"] == f"{100 * report.groups['all']['rp@5']:.2f}%"
    low, high = report.interval("all", "rp@5")
    words = [attrs["aria-label"] for attrs in page.all("svg", role="img")]
    assert words[0] == f"all: {100 * report.groups['all']['rp@5']:.1f} ({100 * low:.1f} to {100 * high:.1f})"
    assert words[2] == "all: 40.0"  # no scores per document, no interval
    assert page.all("line", x1=f"{100 * low:.2f}%", x2=f"{100 * high:.2f}%")


def test_training_frequencies_are_binned_by_doubling() -> None:
    labels = (
        label(1, 0, 10, 1),
        label(2, 1, 10, 2),
        label(3, 2, 10, 3),
        label(4, 3, 30, 9),
        label(5, 1500, 10, 10),
        label(6, 4, 0, 0),
    )
    page = Page(made(labels=labels).html())
    words = [attrs["aria-label"] for attrs in page.all("svg", role="img")][4:]
    assert words == ["0: 10.0", "1: 20.0", "2–3: 30.0", "1,024–2,047: 100.0"]
    assert "2 labels" in page.words


def test_the_hardest_labels_are_those_with_support_found_least_often() -> None:
    others = (label(900, 1, documents=9, hits=0), label(901, 1, documents=30, hits=0))
    page = Page(made(labels=LABELS + others).html())
    names = [word.strip() for word in page.words if word.startswith("label ")]
    assert len(names) == 50
    assert names[:6] == ["label 901", "label 0", "label 20", "label 40", "label 60", "label 1"]  # most documents first
    assert "label 900" not in names
    assert "Those found least often, × 100, of 81 labels with at least 10 documents in the test split." in page.words


def test_labels_of_which_no_document_was_evaluated_get_no_chart() -> None:
    assert "Hardest labels" not in Page(made(labels=(label(1, 3, documents=0, hits=0),)).html()).words


def test_a_small_corpus_asks_for_less_support() -> None:
    page = Page(made(labels=tuple(label(number, 1, documents=2, hits=number % 2) for number in range(12))).html())
    assert "Those found least often, × 100, of 12 labels with at least 2 documents in the test split." in page.words
    page = Page(made(labels=(label(1, 1, documents=1, hits=0),)).html())
    assert "Those found least often, × 100, of 1 label with at least 1 document in the test split." in page.words


def test_any_name_is_shown_as_it_is_and_never_becomes_markup() -> None:
    labels = tuple(replace(each, id=NASTY, name=NASTY, group=NASTY) for each in LABELS)
    report = replace(made(NASTY, labels=labels), corpus=NASTY, split=NASTY, ties=NASTY, fingerprint=NASTY, notes={NASTY: NASTY})
    report = replace(
        report,
        groups={NASTY: {NASTY: 0.5, "documents": 3, "labels": 2, "rp@5": 0.4}},
        values={NASTY: {"rp@5": np.array([0.2, 0.6], np.float32)}},
    )
    for html in (report.html(), Comparison([report, report], {NASTY: NASTY}).html()):
        page = Page(html)
        assert not page.all("script")
        assert "<script" not in html
        assert NASTY in page.text


def test_a_comparison_page_marks_the_best_and_has_a_chart_for_each_corpus_and_group() -> None:
    good, bad = made("good"), made("bad", 1)
    good = replace(good, groups={name: group | {"rp@5": 0.9} for name, group in good.groups.items()}, values={})
    page = Page(Comparison([good, bad, replace(good, corpus="laws")]).html())
    captions = ["news: all, RP@5", "news: few, RP@5", "laws: all, RP@5", "laws: few, RP@5"]
    assert [word for word in page.words if word in captions] == captions
    assert len(page.all("rect", class_="strong")) == 4
    assert len(page.all("rect", class_="bar")) == 2
    assert page.all("strong")
    assert "2 methods on news, laws" in page.words


def test_significantly_worse_scores_carry_a_dagger_on_the_page() -> None:
    good, bad = (
        replace(
            made(name),
            values={"all": {"rp@5": np.full(50, score, np.float32)}},
            groups={"all": {"documents": 50, "labels": 9, "rp@5": score}},
        )
        for name, score in (("good", 0.9), ("bad", 0.1))
    )
    page = Page(Comparison([good, bad]).html())
    assert len(page.all("sup")) == 1


def test_a_report_without_values_or_labels_still_makes_a_page() -> None:
    page = Page(Report("prior", "news", "dev", 5, "authors", {"all": {"documents": 1, "micro-f1": float("nan")}}).html())
    assert "Hardest labels" not in page.words
    assert "–" in page.words
