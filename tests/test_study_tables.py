"""The tables, files and page of a study, from made results whose scores are known."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from labelwise.comparison import Comparison, Repeated
from labelwise.datasets.worlds import make_world
from labelwise.hierarchy import Hierarchy
from labelwise.recipe import Recipe
from labelwise.report import LabelResult, Report
from labelwise.statistics import describe
from labelwise.studies.report import StudyReport
from labelwise.studies.results import CorpusFacts, Failure, Job, Results, Run
from labelwise.studies.tables import spell_seconds, study_tables

DOCUMENTS = 80
WORLD = make_world(documents=50, labels=20, words=10)
FACTS = CorpusFacts(
    "digest", replace(describe(WORLD), gap=0.4), dict(zip(WORLD.labels.ids, Hierarchy(WORLD.labels).levels.tolist(), strict=True))
)
SETTINGS = {
    "encoder": {"kind": "recurrent", "dropout": 0.4, "word_dropout": 0.02, "segment": 512, "segments": 8},
    "training": {"batch": 16, "learning_rate": 0.001},
    "words": {"max_length": 2000},
}
NOTES = {
    "parameters": 80_221_400,
    "trained parameters": 221_400,
    "layers": 1,
    "units": 100,
    "training documents per second": 640.0,
}
GROUPS = ("all", "frequent", "few", "zero")


def made(row: str, share: float, seed: int = 1, corpus: str = "laws", *, settings: dict | None = SETTINGS, **notes) -> Run:
    """A run that is right on about this share of the documents in every group; nDCG is half of RP."""
    hits = (np.random.default_rng([seed, len(row), int(1000 * share)]).random(DOCUMENTS) < share).astype(np.float32)
    values = {group: {"rp@5": hits, "ndcg@5": hits / 2} for group in GROUPS}
    groups = {
        group: {"documents": DOCUMENTS, "labels": 9, **{name: float(found.mean()) for name, found in metrics.items()}}
        for group, metrics in values.items()
    }
    labels = tuple(
        LabelResult(label.id, label.name, "few", number, 4, number % 5, 8, 0.5, 0.5, 0.25)
        for number, label in enumerate(WORLD.labels)
    )
    told = {"hardware": "2 cores", "seconds of training": 90.0, "seconds of evaluation": 0.5, **notes}
    report = Report(row, corpus, "test", 5, "pessimistic", groups, values, labels, "same", told)
    return Run(Job(corpus, row, seed), report, Recipe(row, settings=settings or {}))


def results(*runs: Run, rows: dict[str, str] | None = None, **more) -> Results:
    corpora = {run.job.corpus: FACTS for run in runs} or {"laws": FACTS}
    return Results(rows or {run.job.row: run.job.row for run in runs}, corpora, runs, **more)


def tables(found: Results) -> dict[str, dict[str, list[str]]]:
    """Title → row → texts of its cells."""
    return {
        title.split(".")[0]: {row.name: [cell.text for cell in row.cells] for row in table.rows}
        for title, table in study_tables(found)
    }


def test_several_seeds_are_a_mean_with_its_spread():
    runs = [made("bigru-lwan", 0.6, seed) for seed in (1, 2, 3)]
    scores = [run.report.groups["few"]["rp@5"] for run in runs]
    mean = Repeated.of([run.report for run in runs])
    assert isinstance(mean, Repeated)
    assert mean.groups["few"]["rp@5"] == pytest.approx(np.mean(scores))
    assert mean.groups["few"]["documents"] == DOCUMENTS
    assert mean.spread["few"]["rp@5"] == pytest.approx(np.std(scores, ddof=1))
    by_hand = sum(run.report.values["few"]["rp@5"] for run in runs) / 3
    assert mean.values["few"]["rp@5"] == pytest.approx(by_hand)
    text = f"{100 * np.mean(scores):.1f} ± {100 * np.std(scores, ddof=1):.1f}"
    found = StudyReport(results(*runs))
    assert found.table().rows[0].cells[4].text == text
    assert "standard deviation" in found.text()
    assert text.replace("±", r"$\pm$") in found.latex()
    assert Repeated.of([runs[0].report]) is runs[0].report


def test_marks_compare_the_means_over_seeds_of_each_document():
    runs = [made(row, share, seed) for row, share in {"bonsai": 0.9, "parabel": 0.3}.items() for seed in (1, 2)]
    comparison = results(*runs).comparison
    assert comparison is not None
    plain = Comparison([Repeated.of([run.report for run in runs[:2]]), Repeated.of([run.report for run in runs[2:]])])
    for column in comparison.columns:
        assert comparison.scores["parabel", column].p == plain.scores["parabel", column].p
        assert comparison.scores["parabel", column].worse


def test_table_1_holds_every_row_in_its_zone_and_no_ablation():
    found = results(*(made(row, 0.5) for row in ("bonsai", "bigru-lwan", "lexical", "bigru-lwan-shuffled")))
    zones = {zone.title: [row.name for row in zone.rows] for zone in study_tables(found)[0].table.zones}
    assert list(zones.items()) == [
        ("networks over words", ["bigru-lwan"]),
        ("label trees", ["bonsai"]),
        ("beyond the paper", ["lexical"]),
    ]


def test_rows_that_did_not_run_are_listed_with_the_reason():
    missing = (
        Failure(Job("laws", "bert-base", 1), "not run", "bert-base-uncased is not on this machine"),
        Failure(Job("laws", "bert-base", 2), "not run", "bert-base-uncased is not on this machine"),
        Failure(Job("laws", "parabel", 1), "failed", "MemoryError: too much"),
    )
    rows = {name: name for name in ("parabel", "bonsai", "bert-base")}
    found = results(
        made("bonsai", 0.5),
        rows=rows,
        failures=missing,
        waiting=3,
        running=Job("laws", "bonsai", 2),
        left_out={"bonsai": ("device",)},
    )
    shown = tables(found)["Table 1"]
    assert list(shown) == ["parabel", "bonsai", "bert-base"]  # in the order of the tables, whether they ran or not
    assert shown["bert-base"] == ["not run"] + ["–"] * 7
    assert shown["parabel"][0] == "failed"
    text = StudyReport(found).text()
    assert "Not run: bert-base: bert-base-uncased is not on this machine." in text
    assert "Failed: parabel on laws, seed 1: MemoryError: too much." in text
    assert "Runs done: 1; still to be done: 3 (now: bonsai on laws, seed 2)." in text
    assert "Left out for bonsai, where there is no such setting: device." in text


def test_a_study_without_a_finished_run_has_a_report_too(tmp_path):
    found = StudyReport(results(rows={"broken": "broken"}, failures=(Failure(Job("laws", "broken", 1), "failed", "oh <no>"),)))
    assert "Failed: broken on laws, seed 1: oh <no>." in found.text()
    page = found.save(tmp_path).read_text()
    assert "oh &lt;no&gt;" in page
    assert json.loads(found.json())["failures"] == [
        {"corpus": "laws", "row": "broken", "seed": 1, "kind": "failed", "reason": "oh <no>"}
    ]


def test_tables_3_and_7_hold_few_and_zero_labels_of_the_zero_shot_family():
    runs = [
        made(row, share) for row, share in {"bigru-lwan": 0.2, "dc-bigru-lwan": 0.6, "gc-cnn-lwan": 0.5, "bonsai": 0.7}.items()
    ]
    shown = tables(results(*runs))
    rp = f"{100 * runs[1].report.groups['few']['rp@5']:.1f}"
    assert shown["Table 7"]["dc-bigru-lwan"] == [rp, rp]
    assert shown["Table 3"].keys() == shown["Table 7"].keys() == {"bigru-lwan", "dc-bigru-lwan"}
    assert shown["Table 3"]["dc-bigru-lwan"] == [f"{100 * runs[1].report.groups['few']['ndcg@5']:.1f}"] * 2
    assert not {"Table 3", "Table 7"} & tables(results(runs[0], runs[3])).keys()
    mine = tables(results(made("mine", 0.6), rows={"mine": "dc-bigru-lwan"}))  # a recipe of one's own
    assert mine["Table 3"].keys() == mine["Table 7"].keys() == {"mine"}


def test_table_5_holds_pairs_only():
    runs = [made(row, 0.5) for row in ("bigru-lwan", "cnn-lwan", "c-bigru-lwan")]
    assert tables(results(*runs))["Table 5"].keys() == {"bigru-lwan", "cnn-lwan"}
    assert "Table 5" not in tables(results(*runs[1:]))


def test_table_2_holds_tokens_and_fragmentation():
    transformer = SETTINGS | {"encoder": SETTINGS["encoder"] | {"kind": "transformer"}}
    runs = [made("attention-xml", 0.5), made("hier-sci-bert", 0.4, settings=transformer, **{"sub-words per word": 1.349})]
    shown = tables(results(*runs))["Table 2"]
    assert shown["attention-xml"][:2] == ["2,000", "–"]
    assert shown["hier-sci-bert"][:2] == ["4,096", "1.35"]


def test_table_4_holds_settings_of_networks_and_table_6_what_they_took():
    runs = [made("c-bigru-lwan", 0.5, **NOTES), made("bonsai", 0.5, settings={})]
    shown = tables(results(*runs))
    assert shown["Table 4"] == {"c-bigru-lwan": ["1", "100", "0.4", "0.02", "16", "0.001"]}
    assert shown["Table 6"]["c-bigru-lwan"] == ["80.2", "0.22", "90.0 s", "640", "10"]  # five test documents in half a second
    assert shown["Table 6"]["bonsai"] == ["–", "–", "90.0 s", "–", "10"]
    assert [spell_seconds(seconds) for seconds in (0.04, 99, 600, 7200)] == ["0.0 s", "99.0 s", "10.0 min", "2.0 h"]


def test_the_drop_by_shuffled_words_is_in_percent_of_the_score():
    runs = [made("bigru-lwan", 0.8), made("bigru-lwan-shuffled", 0.4)]
    found = results(*runs)
    before, after = (run.report.groups["all"]["rp@5"] for run in runs)
    drop = f"{100 * (1 - after / before):.1f}"
    assert tables(found)["What word order is worth"]["drop, %"] == [drop] * 6  # three groups, two measures
    assert f"Mean drop over these measures: laws {drop} %." in StudyReport(found).text()
    assert "What word order is worth" not in tables(results(runs[1]))


def test_the_gain_of_the_hierarchy_is_told_with_the_gap_of_the_corpus():
    runs = [made("dc-bigru-lwan", 0.5), made("gc-bigru-lwan", 0.7), made("gc-bigru-lwan", 0.7, corpus="news")]
    found = results(*runs)
    scores = [run.report.groups["zero"]["ndcg@5"] for run in runs]
    assert tables(found)["What the hierarchy is worth to zero-shot labels"] == {
        "GC over DC": [f"{100 * (scores[1] - scores[0]):+.1f}"] * 2
    }
    assert "laws, GAP 0.40" in StudyReport(found).text()
    gains = json.loads(StudyReport(found).json())["gains"]
    assert [(one["corpus"], one["gap"], one["group"]) for one in gains] == [("laws", 0.4, "few"), ("laws", 0.4, "zero")]


def test_scores_come_as_csv_with_seeds_spread_and_intervals():
    runs = [made("bonsai", 0.6, seed) for seed in (1, 2)] + [made("lexical", 0.4)]
    found = StudyReport(results(*runs))
    rows = {(row["method"], row["group"], row["metric"]): row for row in csv.DictReader(io.StringIO(found.csv()))}
    row = rows["bonsai", "few", "rp@5"]
    mean = Repeated.of([run.report for run in runs[:2]])
    assert [float(row[name]) for name in ("low", "high")] == pytest.approx(mean.interval("few", "rp@5"), abs=1e-6)
    assert (row["seeds"], float(row["spread"])) == ("2", pytest.approx(mean.spread["few"]["rp@5"], abs=1e-6))
    assert rows["lexical", "few", "rp@5"]["spread"] == ""


def test_results_of_every_label_are_means_over_seeds():
    found = StudyReport(results(made("bonsai", 0.6, 1), made("bonsai", 0.6, 2)))
    rows = list(csv.DictReader(io.StringIO(found.label_csv())))
    assert len(rows) == len(WORLD.labels)
    assert (rows[3]["label"], float(rows[3]["recall@k"]), float(rows[3]["precision@k"])) == (WORLD.labels[3].id, 3 / 4, 3 / 8)
    assert int(rows[3]["level"]) == FACTS.levels[WORLD.labels[3].id]


def test_the_page_has_plots_and_links_and_nothing_that_runs(tmp_path):
    rows = ("dc-bigru-lwan", "gc-bigru-lwan", "bonsai")
    runs = [made(row, 0.3 + 0.1 * len(row) / 10, corpus=corpus) for row in rows for corpus in ("laws", "a <b> & 50%")]
    page = StudyReport(results(*runs)).save(tmp_path).read_text()
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert "a <b>" not in page
    for title in (
        "By label frequency and depth",
        "GAP and the gain of the hierarchy",
        "By label group",
        "Table 1. ",
        "Table 6. ",
    ):
        assert title in page
    bins = {label.train_documents.bit_length() for label in runs[0].report.labels}
    frequency = re.search(r"<figcaption>laws: by training documents of a label</figcaption>(.*?)</figure>", page)[1]
    for number in range(len(rows)):
        group = re.search(rf'<g class="k{number}">(.*?)</g>', frequency)[1]
        assert (group.count("<circle"), group.count("<line")) == (len(bins), len(bins) - 1)
    assert 'href="../runs/laws/bonsai/seed-1/report/report.html"' in page
    assert 'href="../runs/a%20%253Cb%253E%20%2526%2050%2525/bonsai/seed-1/report/report.html"' in page
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        *(f"report.{form}" for form in ("json", "md", "tex", "csv", "html")),
        *("labels.csv", "checksums.json"),
    }


def test_curves_are_the_share_of_gold_labels_found():
    run = made("bonsai", 0.5)
    page = StudyReport(results(run)).html()
    of_level = [label for label in run.report.labels if FACTS.levels[label.id] == 1]
    share = sum(label.hits for label in of_level) / sum(label.documents for label in of_level)
    assert f"bonsai, 1: {100 * share:.1f} ({len(of_level)} labels)" in page
