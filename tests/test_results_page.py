"""What results keep of a report, and what the page of results makes of it."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy import zoo

from labelwise.evaluation import evaluate
from labelwise.registry import make_method
from labelwise.significance import holm, randomisation

ROOT = Path(__file__).parent.parent
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "docs")]

import record  # noqa: E402
import results_page  # noqa: E402


@pytest.fixture
def rows(tmp_path, monkeypatch, capsys):
    """The recorded lines of two methods."""
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results.jsonl")
    monkeypatch.setattr(record, "SCORES", tmp_path / "scores")
    monkeypatch.setattr(results_page, "BENCHMARKS", tmp_path)
    splits, reports = zoo(), []
    for name in ("prior", "lexical"):
        model = make_method(name).fit(splits.train, splits.dev)
        reports.append(evaluate(model, splits, split="test", ties="pessimistic", per_label=True))
        record.record_quality(reports[-1], name, seed=None)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    return reports, [[line] for line in lines]


def test_labels_are_counted_by_the_binary_digits_of_their_training_documents(rows):
    reports, recorded = rows
    for report, ([line],) in zip(reports, zip(recorded, strict=True), strict=True):
        used = [label for label in report.labels if label.documents]
        for digits, documents, hits, labels in line["by_frequency"]:
            own = [label for label in used if len(f"{label.train_documents:b}".lstrip("0")) == digits]
            assert (documents, hits, labels) == (sum(o.documents for o in own), sum(o.hits for o in own), len(own))
        assert sum(labels for *_, labels in line["by_frequency"]) == len(used)


def test_differences_are_tested_on_the_scores_that_were_recorded(rows):
    reports, recorded = rows
    comparison = results_page.tested(recorded)
    worst, best = (report.values["all"][f"ndcg@{report.k}"] for report in reports)
    column = next(column for column in comparison.columns if column.group == "all")
    assert comparison.scores["prior", column].p == pytest.approx(holm([randomisation(best, worst)])[0])
    for report in reports:
        kept = comparison.report(report.method, column).values
        for group, values in report.values.items():
            np.testing.assert_allclose(kept[group][column.metric], values[column.metric], rtol=1e-6)


def test_rows_without_scores_are_left_out_and_reports_without_labels_refused(rows):
    reports, recorded = rows
    del recorded[0][0]["scores"]
    assert list(results_page.tested(recorded).zones.values()) == [["lexical"]]
    assert results_page.tested(recorded[:1]) is None
    with pytest.raises(ValueError, match="per_label=True"):
        record.record_quality(replace(reports[0], labels=()), "prior", seed=None)


def test_curves_are_drawn_of_all_seeds_together(rows):
    _, recorded = rows
    (line,) = recorded[1]
    other = line | {"by_frequency": [[digits, documents, 0, labels] for digits, documents, _, labels in line["by_frequency"]]}
    halved = results_page._by_frequency([line, other])
    assert halved == {digits: (hits / documents / 2, labels) for digits, documents, hits, labels in line["by_frequency"]}
