"""`labelwise compare` finds the reports in what it is given, evaluates models, and tells rows apart."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from labelwise import Comparison, LabelwiseError, Report, evaluate, make_method, make_world, write_corpus
from labelwise.cli.compare import compare
from labelwise.cli.options import UnknownLabelRule
from labelwise.recipe import Recipe
from labelwise.running import run

WORLD = make_world(documents=600, labels=60, words=30)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A corpus, two models, their reports, and a run."""
    folder = tmp_path_factory.mktemp("compare")
    write_corpus(WORLD, folder / "corpus")
    for name in ("prior", "lexical"):
        model = make_method(name).fit(WORLD.train)
        model.save(folder / "models" / name)
        report = evaluate(model, WORLD)
        report.save(folder / "reports" / name)
        (folder / f"{name}.json").write_text(report.json())
    run(Recipe("bonsai", seed=1, settings={"trees": 1, "features": {"ngrams": 1}}), WORLD, folder / "run")
    return folder


def shown(capsys, *places, **options):
    compare(list(places), **options)
    return capsys.readouterr().out


def test_folders_files_and_runs_stand_side_by_side_with_their_significance(place, capsys):
    text = shown(capsys, place / "reports" / "prior", place / "lexical.json", place / "run")
    parts = [Report.load(path) for path in (place / "reports" / "prior", place / "lexical.json", place / "run" / "report")]
    assert text == Comparison(parts).text()
    assert [line.split()[0] for line in text.splitlines()[3:6]] == ["prior", "lexical", "bonsai"]
    assert "†" in text


def test_models_are_evaluated_on_the_corpus(place, capsys):
    models = [place / "models" / name for name in ("prior", "lexical")]
    by_model = shown(capsys, *models, on=place / "corpus")
    assert by_model == shown(capsys, *(place / "reports" / name for name in ("prior", "lexical")))
    with pytest.raises(LabelwiseError, match=r"prior: a model has no scores yet; name the corpus .* with --on CORPUS"):
        compare(models)


def test_labels_that_are_not_in_the_set_and_the_limit_of_few_are_as_in_evaluate(place, tmp_path, capsys):
    with (place / "corpus" / "test.jsonl").open("rb") as file:
        lines = file.readlines()
    whole = json.loads(lines[0])
    (tmp_path / "corpus").mkdir()
    for path in (place / "corpus").iterdir():
        (tmp_path / "corpus" / path.name).write_bytes(path.read_bytes())
    odd = json.dumps(whole | {"labels": [*whole["labels"], "nobody knows it"]}).encode() + b"\n"
    (tmp_path / "corpus" / "test.jsonl").write_bytes(b"".join([odd, *lines[1:]]))
    model = place / "models" / "lexical"
    with pytest.raises(LabelwiseError, match="nobody knows it.*--unknown-labels drop"):
        compare([model], on=tmp_path / "corpus")
    with pytest.warns(UserWarning, match="were dropped"):
        known = shown(capsys, model, on=tmp_path / "corpus", unknown_labels=UnknownLabelRule.drop, few=1000)
    assert "frequent" not in known
    assert "frequent" in shown(capsys, model, on=place / "corpus")


def test_measures_are_chosen_and_models_evaluated_by_them(place, capsys):
    told = json.loads(shown(capsys, place / "models" / "prior", on=place / "corpus", measures=["P@3"], as_json=True))
    assert {score["metric"] for score in told["scores"]} == {"p@3"}
    told = json.loads(shown(capsys, place / "run", place / "prior.json", measures=["ndcg"], as_json=True))
    assert {score["metric"] for score in told["scores"]} == {"ndcg@5"}
    with pytest.raises(LabelwiseError, match="there is no metric 'ndgc'; did you mean 'ndcg'"):
        compare([place / "run"], measures=["ndgc"])


def test_two_reports_of_one_method_are_told_apart_by_their_place(place, capsys):
    told = json.loads(shown(capsys, place / "lexical.json", place / "reports" / "lexical", place / "run", as_json=True))
    assert {score["method"] for score in told["scores"]} == {
        f"lexical ({place / 'lexical.json'})",
        f"lexical ({place / 'reports' / 'lexical'})",
        "bonsai",
    }


def test_runs_that_differ_in_their_seed_only_become_one_row(place, tmp_path, capsys):
    first = Report.load(place / "run" / "report")
    shifted = {group: scores | {"rp@5": scores["rp@5"] / 2} for group, scores in first.groups.items()}
    replace(first, groups=shifted, notes=first.notes | {"seed": 2}).save(tmp_path / "second")
    text = shown(capsys, place / "prior.json", place / "run", tmp_path / "second", measures=["rp"])
    (row,) = [line for line in text.splitlines() if line.startswith("bonsai")]
    score = first.groups["all"]["rp@5"]
    mean, spread = np.mean([score, score / 2]), np.std([score, score / 2], ddof=1)
    assert f"{100 * mean:.1f} ± {100 * spread:.1f}" in row
    replace(first, notes=first.notes | {"seed": 2}).save(tmp_path / "third")
    assert shown(capsys, place / "run", tmp_path / "second", tmp_path / "third").count("bonsai (") == 3  # seed 2 comes twice


def test_runs_with_other_settings_are_not_taken_for_other_seeds(place, tmp_path, capsys):
    for trees in (1, 2):
        settings = {"trees": trees, "features": {"ngrams": 1}, "threads": trees}
        run(Recipe("bonsai", seed=2, settings=settings), WORLD, tmp_path / f"trees-{trees}")
    told = json.loads(shown(capsys, place / "run", tmp_path / "trees-1", as_json=True))
    assert {(score["method"], score["seeds"], score["spread"] is None) for score in told["scores"]} == {("bonsai", 2, False)}
    assert shown(capsys, place / "run", tmp_path / "trees-2").count("bonsai (") == 2


def test_seeds_without_scores_per_document_are_not_averaged(place, tmp_path, capsys):
    first = Report.load(place / "run" / "report")
    (tmp_path / "second.json").write_text(replace(first, notes=first.notes | {"seed": 2}).json())
    assert shown(capsys, place / "run", tmp_path / "second.json").count("bonsai (") == 2


def test_the_comparison_is_written_whole(place, tmp_path, capsys):
    shown(capsys, place / "prior.json", place / "run", out=tmp_path / "out")
    assert {path.suffix for path in (tmp_path / "out").glob("report.*")} == {".html", ".md", ".tex", ".csv", ".json"}
    with pytest.raises(LabelwiseError, match="already exists; add --force"):
        compare([place / "run"], out=tmp_path / "out")
    shown(capsys, place / "run", out=tmp_path / "out", force=True)
    assert "prior" not in (tmp_path / "out" / "report.md").read_text()


def test_what_is_no_report_is_named(place, tmp_path):
    with pytest.raises(LabelwiseError, match="nowhere: no such file or folder"):
        compare([place / "run", tmp_path / "nowhere"])
    with pytest.raises(LabelwiseError, match=r"corpus: neither a model nor a report \(no model.toml, report.json or report/"):
        compare([place / "corpus"])
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(LabelwiseError, match=r"a study, which `labelwise report .*` compares; or name runs of it: .*/runs/"):
        compare([tmp_path])
    (tmp_path / "odd.json").write_text('{"corpus": 1}')
    with pytest.raises(LabelwiseError, match=r"odd.json: not a report"):
        compare([tmp_path / "odd.json"])


def test_reports_on_other_documents_are_refused(place, tmp_path):
    other = make_world(documents=600, labels=60, words=30, seed=2)
    evaluate(make_method("prior").fit(other.train), other).save(tmp_path / "other")
    done = subprocess.run(
        [sys.executable, "-m", "labelwise", "compare", place / "run", tmp_path / "other"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "were evaluated on different documents or gold labels" in done.stderr
