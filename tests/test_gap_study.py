"""The controlled study of GAP: what it changes, what it leaves alone, and how its figures are made."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
sys.path.append(str(Path(__file__).parent.parent / "docs"))
import gap_figures
import gap_study

from labelwise.gap import gap
from labelwise.hierarchy import Hierarchy

SIZE = gap_study.Size(documents=60, labels=40, words=10)


def annotated(guideline):
    leaves = gap_study.make(1, "path", SIZE)
    hierarchy, random = Hierarchy(leaves.labels), np.random.default_rng(1)
    return leaves, leaves.map(lambda part: gap_study.annotate(part, hierarchy, gap_study.ABOVE[guideline], random))


def test_guidelines_differ_in_labels_above_the_leaves_only():
    found = {}
    for guideline in gap_study.ABOVE:
        leaves, splits = annotated(guideline)
        hierarchy = Hierarchy(leaves.labels)
        for before, after in zip(leaves, splits, strict=True):
            assert [document.text for document in before] == [document.text for document in after]
            gold, closed = after.gold().toarray(), hierarchy.close(before.gold()).toarray()
            assert (gold[:, hierarchy.leaves] == before.gold().toarray()[:, hierarchy.leaves]).all()
            assert (closed >= gold).all()
            assert guideline != "closed" or (closed == gold).all()
        found[guideline] = np.nanmean(gap(splits.train.gold(), hierarchy))
    assert found["leaves"] + 0.05 < found["any-level"] < found["closed"] - 0.2


def made_lines(gain):
    """Runs whose worlds differ wildly, and in which GNC beats DC by 1 to 3 points under `leaves` and by `gain` more under `closed`."""
    random = np.random.default_rng(0)
    for world, more in enumerate(gain):
        level, extra = random.uniform(0.2, 0.7), random.uniform(0.01, 0.03)
        for names in gap_figures.NAMES:
            for guideline, encoder in ((g, e) for g in gap_figures.GUIDELINES for e in gap_figures.ENCODERS):
                for seed in (1, 2):
                    score = level + 0.05 * seed + (extra + more * (guideline == "closed") if encoder == "GNC" else 0)
                    yield {
                        "names": names,
                        "guideline": guideline,
                        "method": f"{encoder.lower()}-bigru-lwan",
                        "world": world,
                        "seed": seed,
                        "k": 5,
                        "gap": 0.5,
                        "labels_per_document": 4.0,
                        **SIZE._asdict(),
                        "groups": {"zero": {"ndcg@5": score}, "few": {"ndcg@5": score}},
                    }


def test_differences_are_paired_within_worlds_and_intervals_are_over_worlds():
    gain = [0.02, 0.03, 0.01, 0.04, 0.02]
    runs = gap_figures._runs(list(made_lines(gain)), "zero")
    change = gap_figures._change(runs, "path", "GNC", "DC")
    low, high = ttest_1samp(100 * np.array(gain), 0).confidence_interval()
    assert (change.mean - change.reach, change.mean + change.reach) == pytest.approx((low, high))
    assert change.verdict == "rises"
    assert gap_figures._change(runs, "path", "GC", "DC").verdict == "no change is certain"


def test_the_figures_name_the_best_encoder_and_draw_what_there_is():
    lines = [line for line in made_lines([0.02] * 5) if line["method"] != "dn-bigru-lwan"]
    text, plot = gap_figures.figures(lines, lambda heads, rows: "\n".join(" | ".join(map(str, row)) for row in rows))
    assert "GNC under `closed` (in 5 of 5 worlds)" in text
    assert "DN | not run | not run | not run" in text
    assert plot.count("<circle") == 4 + 2 * 3 * 3 + 4 * 3  # the legend, three encoders in two panels, four of the paper
    assert gap_figures.figures([], None) == ("The study has not been run.", "")


def test_finished_runs_are_not_repeated(tmp_path, monkeypatch, capsys):
    out = tmp_path / "lines.jsonl"
    words = ["gap_study", "--methods", "lexical", "--worlds", "1", "--documents", "60", "--labels", "40", "--words", "10"]
    monkeypatch.setattr(sys, "argv", [*words, "--out", str(out)])
    monkeypatch.setattr(gap_study.record, "RESULTS", out)
    assert gap_study.main() == 0
    assert "0 runs are recorded, 6 to go" in capsys.readouterr().out
    whole = out.read_text().splitlines(keepends=True)
    out.write_text("".join(whole[:-2]))  # as a kill would have left it
    assert gap_study.main() == 0
    assert "4 runs are recorded, 2 to go" in capsys.readouterr().out
    scores = [
        {json.dumps([line["guideline"], line["names"], line["groups"]]) for line in map(json.loads, lines)}
        for lines in (whole, out.read_text().splitlines())
    ]
    assert scores[0] == scores[1]
