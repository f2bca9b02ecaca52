"""A report: every rendering, saving and reading back, intervals, and files that are not reports."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labelwise.errors import BadFile, BadModel, LabelwiseError, OutputExists
from labelwise.reliability import Bin, Reliability
from labelwise.report import LabelResult, Report

NAN = float("nan")
LABELS = (
    LabelResult("l1", "fishing, coastal", "frequent", 120, 8, 6, 12, 0.5, 0.75, 0.6),
    LabelResult("l2", 'a "quoted"\nname', "zero", 0, 0, 0, 0, 0.0, 0.0, 0.0),
)
REPORT = Report(
    method="lexical",
    corpus="news",
    split="test",
    k=5,
    ties="pessimistic",
    groups={
        "all": {"documents": 1200, "labels": 37, "rp@5": 0.77142857, "ndcg@5": 0.8, "micro-f1": 0.05},
        "zero": {"documents": 4, "labels": 3, "rp@5": 0.5, "ndcg@5": 1.0},
    },
    values={"all": {"rp@5": np.linspace(0, 1, 1200, dtype=np.float32)}, "zero": {"rp@5": np.array([0, 1, NAN, 0.5], np.float32)}},
    labels=LABELS,
    fingerprint="abc",
    notes={"seed": 3, "version": "0.1.0"},
)


def test_text_is_an_aligned_table_and_a_line_about_it() -> None:
    assert (
        str(REPORT)
        == REPORT.text()
        == (
            "group  documents  labels  RP@5  nDCG@5  micro-F1\n"
            "all        1,200      37  77.1    80.0       5.0\n"
            "zero           4       3  50.0   100.0         –\n"
            "lexical on news, test split: 1,200 documents; scores × 100; ties: pessimistic.\n"
        )
    )


def test_json_has_the_shape_that_the_command_line_promises() -> None:
    value = json.loads(REPORT.json())
    assert value["corpus"] == "news"
    assert value["split"] == "test"
    assert value["groups"]["all"] == {"documents": 1200, "labels": 37, "rp@5": 0.771429, "ndcg@5": 0.8, "micro-f1": 0.05}
    assert list(value["groups"]) == ["all", "zero"]
    assert (value["method"], value["k"], value["ties"], value["notes"]) == (
        "lexical",
        5,
        "pessimistic",
        {"seed": 3, "version": "0.1.0"},
    )


def test_json_takes_the_numbers_of_numpy() -> None:
    group = {"documents": np.int64(3), "labels": 2.0, "rp@5": np.float32(0.1), "ndcg@5": NAN}
    value = json.loads(replace(REPORT, groups={"all": group}, notes={"seconds": np.float64(1.5)}).json())
    assert value["groups"] == {"all": {"documents": 3, "labels": 2, "rp@5": 0.1, "ndcg@5": None}}
    assert value["notes"] == {"seconds": 1.5}


def test_csv_has_one_line_per_group_with_scores_from_0_to_1() -> None:
    rows = list(csv.DictReader(io.StringIO(REPORT.csv())))
    assert [row["group"] for row in rows] == ["all", "zero"]
    assert rows[0]["rp@5"] == "0.771429"
    assert rows[1]["micro-f1"] == ""
    assert {row["ties"] for row in rows} == {"pessimistic"}


def test_every_rendering_names_the_tie_mode() -> None:
    for text in (REPORT.text(), REPORT.markdown(), REPORT.latex(), REPORT.csv(), REPORT.json(), REPORT.html()):
        assert "pessimistic" in text


def test_label_csv_has_one_line_per_label_with_its_shares_at_k() -> None:
    rows = list(csv.DictReader(io.StringIO(REPORT.label_csv())))
    assert [row["name"] for row in rows] == [label.name for label in LABELS]
    assert (rows[0]["recall@5"], rows[0]["precision@5"], rows[0]["f1"]) == ("0.75", "0.5", "0.6")
    assert (rows[1]["recall@5"], rows[1]["precision@5"]) == ("0.0", "0.0")


def test_a_saved_report_is_read_back_from_its_folder_or_its_json(tmp_path: Path) -> None:
    REPORT.save(tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {f"report.{suffix}" for suffix in ("json", "md", "tex", "csv", "html")} | {
        "labels.csv",
        "values.npz",
        "checksums.json",
    }
    for path in (tmp_path / "out", tmp_path / "out" / "report.json"):
        read = Report.load(path)
        assert read.labels == LABELS
        assert read.values.keys() == REPORT.values.keys()
        for group, metrics in REPORT.values.items():
            for metric, values in metrics.items():
                np.testing.assert_array_equal(read.values[group][metric], values)
        for render in (Report.text, Report.json, Report.csv, Report.label_csv, Report.latex, Report.html):
            assert render(read) == render(REPORT)


def test_reliability_is_a_second_table_and_is_read_back(tmp_path: Path) -> None:
    known = {"score": Reliability(0.1, 0.2, (Bin(0.25, 0.5, 4), Bin(0.75, 1.0, 2))), "probability": Reliability(0.01, 0.1, ())}
    report = replace(REPORT, reliability={"all": known, "zero": {"score": known["score"]}}, notes={"ranked by": "probability"})
    ranked, _, *lines, note = report.text().splitlines()[4:]
    assert ranked == "Labels are ranked by probability."
    assert [line.split() for line in lines] == [
        ["score", "probability"],
        ["group", "ECE", "Brier", "ECE", "Brier"],
        ["all", "10.00", "20.00", "1.00", "10.00"],
        ["zero", "10.00", "20.00", "–", "–"],
    ]
    assert note.startswith("Expected calibration error and Brier score × 100")
    report.save(tmp_path / "out")
    assert Report.load(tmp_path / "out").reliability == report.reliability
    assert "reliability" not in json.loads(REPORT.json())


def test_a_report_without_labels_and_values_saves_and_loads(tmp_path: Path) -> None:
    bare = Report("prior", "news", "dev", 5, "authors", {"all": {"documents": 1, "labels": 1, "rp@5": 0.5}})
    bare.save(tmp_path / "out")
    assert Report.load(tmp_path / "out") == bare
    assert not (tmp_path / "out" / "values.npz").exists()
    assert not (tmp_path / "out" / "labels.csv").exists()


def test_printed_json_is_read_without_what_happens_to_lie_beside_it(tmp_path: Path) -> None:
    REPORT.save(tmp_path / "out")
    (tmp_path / "out" / "printed.json").write_text(REPORT.json())
    read = Report.load(tmp_path / "out" / "printed.json")
    assert read.text() == REPORT.text()
    assert not read.values
    assert not read.labels


def test_saving_over_something_needs_force(tmp_path: Path) -> None:
    REPORT.save(tmp_path / "out")
    with pytest.raises(OutputExists):
        REPORT.save(tmp_path / "out")
    replace(REPORT, method="other").save(tmp_path / "out", force=True)
    assert Report.load(tmp_path / "out").method == "other"


def test_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    broken = replace(REPORT, values={"all": {"rp@5": np.array(["no number"], dtype=object)}})
    with pytest.raises(ValueError):
        broken.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_interval_lies_around_the_mean() -> None:
    low, high = REPORT.interval("all", "rp@5")
    assert 0.48 < low < 0.5 < high < 0.52
    assert REPORT.interval("all", "rp@5") == (low, high)
    assert REPORT.interval("zero", "rp@5", confidence=0.5, rounds=50, seed=1)[0] >= 0


def test_an_interval_of_a_metric_without_scores_per_document_is_refused_with_what_there_is() -> None:
    with pytest.raises(LabelwiseError, match=r"'micro-f1' for group 'all'.*kept: all rp@5, zero rp@5"):
        REPORT.interval("all", "micro-f1")
    with pytest.raises(LabelwiseError, match="kept: none"):
        replace(REPORT, values={}).interval("all", "rp@5")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "not a report"),
        ('{"corpus": "news"}', "KeyError: 'method'"),
        ('{"corpus": "c", "split": "s", "method": "m", "k": 5, "ties": "t", "groups": []}', "not a report"),
        (
            '{"corpus": "c", "split": "s", "method": "m", "k": 5, "ties": "t", "groups": {"all": {"rp@5": "high"}}}',
            "not a report",
        ),
        ('{"format": 99, "groups": {}}', r"later version \(format 99\)"),
    ],
)
def test_a_file_that_is_not_a_report_is_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(BadFile, match=message) as caught:
        Report.load(path)
    assert str(caught.value).startswith(str(path))


def test_broken_json_and_missing_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"corpus":\n oops')
    with pytest.raises(BadModel, match=r"report\.json:2: not JSON"):
        Report.load(tmp_path)
    with pytest.raises(BadModel, match="no such file"):
        Report.load(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x93NUMPY\x01\x00", b"words"])
def test_damaged_scores_per_document_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    REPORT.save(tmp_path / "out")
    (tmp_path / "out" / "values.npz").write_bytes(content)
    with pytest.raises(BadFile, match=r"values\.npz: damaged"):
        Report.load(tmp_path / "out")


def test_arrays_that_are_not_one_score_per_document_are_refused(tmp_path: Path) -> None:
    REPORT.save(tmp_path / "out")
    for array in (np.zeros((2, 2)), np.array(["a"]), np.array([{}], dtype=object)):
        np.savez(tmp_path / "out" / "values.npz", **{"all/rp@5": array})
        with pytest.raises(BadFile, match=r"values\.npz: damaged"):
            Report.load(tmp_path / "out")


def test_a_damaged_line_of_label_results_is_named(tmp_path: Path) -> None:
    REPORT.save(tmp_path / "out")
    path = tmp_path / "out" / "labels.csv"
    path.write_text(REPORT.label_csv().replace(",120,8,", ",many,8,"))
    with pytest.raises(BadFile, match=r"labels\.csv:2: "):
        Report.load(tmp_path / "out")
