"""Several reports side by side: what is best, what is significantly worse, what may be compared at all."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from labelwise.comparison import Comparison
from labelwise.errors import LabelwiseError
from labelwise.report import Report
from labelwise.significance import holm, randomisation

DOCUMENTS = 200


def made(method: str, share: float, corpus: str = "news", k: int = 5, seed: int = 0, ties: str = "authors") -> Report:
    """A report of a method that is right on about this share of the documents, with scores per document."""
    generator = np.random.default_rng(seed)
    hits = (generator.random(DOCUMENTS) < share).astype(np.float32)
    few = np.where(np.arange(DOCUMENTS) % 2, hits, np.nan).astype(np.float32)
    metric = f"rp@{k}"
    groups = {
        "all": {"documents": DOCUMENTS, "labels": 30, metric: float(hits.mean())},
        "few": {"documents": DOCUMENTS // 2, "labels": 10, metric: float(np.nanmean(few))},
    }
    return Report(method, corpus, "test", k, ties, groups, {"all": {metric: hits}, "few": {metric: few}}, fingerprint=corpus)


def published(method: str, score: float, corpus: str = "news") -> Report:
    """A report of which nothing but the score is known."""
    return Report(method, corpus, "test", 5, "authors", {"all": {"rp@5": score}})


def marks(comparison: Comparison) -> dict[str, tuple[bool, bool, bool]]:
    """Of the first column: best, best of zone, worse."""
    column = comparison.columns[0]
    return {row: (score.best, score.zone_best, score.worse) for (row, c), score in comparison.scores.items() if c == column}


def test_rows_keep_their_order_inside_zones() -> None:
    reports = [published(name, 0.5) for name in ("a", "b", "c", "d")]
    comparison = Comparison(reports, {"a": "flat", "b": "label trees", "c": "flat"})
    assert comparison.zones == {"flat": ["a", "c"], "label trees": ["b"], "": ["d"]}
    first_words = [line.split()[0] for line in comparison.text().splitlines()[2:]]
    assert first_words[:7] == ["method", "flat", "a", "c", "label", "b", "d"]


def test_columns_are_corpus_by_group_by_metric_and_missing_cells_are_dashes() -> None:
    comparison = Comparison([made("a", 0.5), made("a", 0.6, "laws", 15), made("b", 0.7, "laws", 15)])
    assert [tuple(column) for column in comparison.columns] == [
        ("news", "test", "all", "rp@5"),
        ("news", "test", "few", "rp@5"),
        ("laws", "test", "all", "rp@15"),
        ("laws", "test", "few", "rp@15"),
    ]
    assert [cell.text for cell in comparison.table().zones[0].rows[1].cells[:2]] == ["–", "–"]
    assert "news: test split, 200 documents; laws: test split, 200 documents" in comparison.text()


def test_metrics_can_be_chosen_with_or_without_their_cut_off() -> None:
    report = Report("a", "news", "test", 5, "authors", {"all": {"rp@1": 0.1, "rp@5": 0.2, "ndcg@5": 0.3, "micro-f1": 0.4}})
    chosen = {
        wanted: [column.metric for column in Comparison([report], metrics=[wanted]).columns]
        for wanted in ("rp", "rp@5", "micro-f1")
    }
    assert chosen == {"rp": ["rp@1", "rp@5"], "rp@5": ["rp@5"], "micro-f1": ["micro-f1"]}
    with pytest.raises(LabelwiseError, match="they have: rp@1, rp@5, ndcg@5, micro-f1"):
        Comparison([report], metrics=["rp@7"])


def test_all_that_print_the_same_are_best() -> None:
    reports = [published("a", 0.80341), published("b", 0.80339), published("c", 0.8021), published("d", 0.70)]
    zones = {"a": "one", "b": "two", "c": "two", "d": "three"}
    assert marks(Comparison(reports, zones)) == {
        "a": (True, False, False),  # the only one of its zone beats nobody there
        "b": (True, True, False),
        "c": (False, False, False),
        "d": (False, False, False),
    }


def test_the_best_of_the_only_zone_is_not_marked_twice() -> None:
    comparison = Comparison([published("a", 0.8), published("b", 0.7)])
    assert marks(comparison) == {"a": (True, False, False), "b": (False, False, False)}
    assert "zone" not in comparison.text()


def test_marks_are_those_of_pairwise_tests_with_holms_correction() -> None:
    reports = [made(f"m{seed}", share, seed=seed) for seed, share in enumerate((0.62, 0.75, 0.66, 0.45))]
    comparison = Comparison(reports)
    for column in comparison.columns:
        values = [report.values[column.group][column.metric] for report in reports]
        leader = int(np.argmax([report.groups[column.group][column.metric] for report in reports]))
        others = [number for number in range(4) if number != leader]
        expected = holm([randomisation(values[leader], values[number]) for number in others])
        found = [comparison.scores[f"m{number}", column].p for number in others]
        assert found == pytest.approx(list(expected))
        assert comparison.scores[f"m{leader}", column].p is None
        assert [comparison.scores[f"m{number}", column].worse for number in others] == [p < 0.05 for p in expected]
    assert {score.worse for score in comparison.scores.values()} == {True, False}  # the case shows both


def test_the_legend_names_test_rounds_and_level() -> None:
    comparison = Comparison([made("good", 0.9), made("bad", 0.3, seed=1)])
    assert marks(comparison)["bad"][2]
    for text in (comparison.text(), comparison.markdown(), comparison.html()):
        assert "†" in text
        assert "paired approximate randomisation, two-sided, 10,000 rounds" in text
        assert "0.05 after Holm" in text
    assert r"\rlap{$^\dagger$}" in comparison.latex()


def test_without_scores_per_document_nothing_is_marked() -> None:
    bare = [replace(made("good", 0.9), values={}), replace(made("bad", 0.3, seed=1), values={})]
    for reports in (bare, [bare[0], made("bad", 0.3, seed=1)], [published("paper", 0.99), made("bad", 0.3)]):
        comparison = Comparison(reports)
        assert not any(score.worse for score in comparison.scores.values())
        assert "†" not in comparison.text()


def test_scores_of_documents_that_may_be_others_are_not_paired() -> None:
    unknown = replace(made("bad", 0.3, seed=1), fingerprint="")
    assert not any(score.worse for score in Comparison([made("good", 0.9), unknown]).scores.values())


def test_published_figures_stand_beside_our_own() -> None:
    comparison = Comparison([published("paper", 0.42), made("good", 0.9), made("bad", 0.3, seed=1)])
    assert marks(comparison) == {"paper": (False, False, False), "good": (True, False, False), "bad": (False, False, True)}


def test_reports_on_other_documents_are_refused() -> None:
    other = replace(made("b", 0.5), fingerprint="something else")
    with pytest.raises(LabelwiseError, match="'a' and 'b' were evaluated on different documents or gold labels of 'news'"):
        Comparison([made("a", 0.5), published("paper", 0.4), other])
    Comparison([made("a", 0.5), replace(other, corpus="laws")])


def test_reports_with_other_label_groups_are_refused() -> None:
    report = made("b", 0.5)
    other = replace(report, groups=report.groups | {"few": report.groups["few"] | {"labels": 11}})
    with pytest.raises(LabelwiseError, match=r"different label groups.*--few"):
        Comparison([made("a", 0.5), other])


def test_splits_of_one_corpus_get_columns_of_their_own() -> None:
    comparison = Comparison([made("a", 0.5), replace(made("a", 0.6), split="dev", fingerprint="dev")])
    assert comparison.table().heads[0] == ("news test", "news test", "news dev", "news dev")


def test_a_method_that_comes_twice_gets_a_number() -> None:
    comparison = Comparison([published("a", 0.5), published("a", 0.6), published("a", 0.7), published("a", 0.8, "laws")])
    assert comparison.zones == {"": ["a", "a (2)", "a (3)"]}
    assert [cell.text for cell in comparison.table().rows[0].cells] == ["50.0", "80.0"]


def test_nothing_cannot_be_compared() -> None:
    with pytest.raises(LabelwiseError, match="at least one report"):
        Comparison([])


def test_tie_modes_are_named_with_their_methods_where_they_differ() -> None:
    assert "Ties: authors.\n" in Comparison([made("a", 0.5), made("b", 0.6)]).text()
    text = Comparison([made("a", 0.5), made("b", 0.6, ties="pessimistic"), made("c", 0.4)]).text()
    assert "Ties: authors (a, c); pessimistic (b).\n" in text


def test_csv_and_json_hold_every_score_once() -> None:
    comparison = Comparison([made("good", 0.9), made("bad", 0.3, seed=1)], {"good": "one", "bad": "two"})
    rows = list(csv.DictReader(io.StringIO(comparison.csv())))
    records = json.loads(comparison.json())["scores"]
    assert len(rows) == len(records) == 4
    assert rows[1] | dict.fromkeys(("score", "p", "low", "high"), "") == {
        "zone": "two",
        "method": "bad",
        "corpus": "news",
        "split": "test",
        "group": "all",
        "metric": "rp@5",
        "ties": "authors",
        "score": "",
        "best": "False",
        "zone_best": "False",
        "p": "",
        "worse": "True",
        "seeds": "1",
        "spread": "",
        "low": "",
        "high": "",
    }
    assert float(rows[1]["low"]) < float(rows[1]["score"]) < float(rows[1]["high"])
    assert [float(row["score"]) for row in rows] == [record["score"] for record in records]
    assert records[0]["p"] is None
    assert records[1]["p"] < 0.05


def test_a_comparison_of_scores_that_are_not_numbers_is_all_dashes() -> None:
    comparison = Comparison([published("a", float("nan"))])
    assert [cell.text for cell in comparison.table().rows[0].cells] == ["–"]
    assert comparison.csv().count("\n") == 1
    assert "best" not in comparison.text()


def test_nothing_is_best_where_nothing_was_found() -> None:
    assert not any(score.best or score.worse for score in Comparison([published("a", 0.0), published("b", 0.0)]).scores.values())


def test_the_paper_table_of_a_small_study() -> None:
    reports = [published("parabel", 0.781), published("bonsai", 0.793), published("bert_base", 0.803)]
    zones = {"parabel": "label trees", "bonsai": "label trees", "bert_base": "transfer & co"}
    assert Comparison(reports, zones).latex().splitlines()[5:-4] == [
        r"\toprule",
        r" & \multicolumn{1}{c}{news} \\",
        r"\cmidrule(lr){2-2}",
        r" & \multicolumn{1}{c}{all} \\",
        r"\cmidrule(lr){2-2}",
        r"method & RP@5 \\",
        r"\midrule",
        r"\multicolumn{2}{l}{\textit{label trees}} \\",
        r"parabel & 78.1 \\",
        r"bonsai & \underline{79.3} \\",
        r"\midrule",
        r"\multicolumn{2}{l}{\textit{transfer \& co}} \\",
        r"bert\_base & \textbf{80.3} \\",
    ]
