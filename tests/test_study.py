"""A study: what it runs, how it goes on after a kill, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer import Exit

from labelwise import registry
from labelwise.cli.study import study
from labelwise.corpus import Corpus, CorpusInfo, Splits
from labelwise.datasets.worlds import make_world
from labelwise.errors import LabelwiseError
from labelwise.jsonl import write_corpus
from labelwise.methods.prior import Prior
from labelwise.registry import Entry
from labelwise.report import Report
from labelwise.studies.results import Failure, Job, Run
from labelwise.studies.rows import PAPER, find_rows, zone
from labelwise.studies.study import Study

WORLD = make_world(documents=120, labels=30, words=20)
NETWORK = ("words.width=8", "encoder.units=4", "device=cpu", "threads=1")


def named(name: str, splits: Splits = WORLD) -> Splits:
    return splits.map(lambda corpus: Corpus(corpus.documents, corpus.labels, CorpusInfo(name, k=5, few=10)))


def do(folder: Path, *methods: str, corpora: list[Splits] | None = None, **options) -> list[Run | Failure]:
    return list(Study.begin(folder).run(corpora or [WORLD], methods, **options))


class Broken(Prior):
    name = "broken"

    def fit(self, train, dev=None, *, progress=None):
        raise ZeroDivisionError("by nothing")


@pytest.fixture
def broken(monkeypatch):
    monkeypatch.setitem(registry.METHODS, "broken", Entry("test_study:Broken", "always fails"))


def test_methods_run_on_every_corpus_with_every_seed_they_depend_on(tmp_path):
    done = do(tmp_path, "prior", "bonsai", corpora=[named("a"), named("b")], seeds=2)
    assert {run.job for run in done} == {
        *(Job(corpus, "bonsai", seed) for corpus in "ab" for seed in (1, 2)),
        *(Job(corpus, "prior", 1) for corpus in "ab"),  # the same every time
    }
    assert [run.job.seed for run in done] == [1, 1, 1, 1, 2, 2]  # a whole table first, then its spread
    results = Study.open(tmp_path).results()
    assert {run.job for run in results.runs} == {run.job for run in done}
    assert list(results.rows) == ["bonsai", "prior"]
    assert results.waiting == 0
    assert results.corpora["a"].statistics.labels_per_document > 1


def test_finished_runs_are_not_run_again(tmp_path):
    do(tmp_path, "prior", "lexical")
    assert do(tmp_path, "prior", "lexical") == []
    assert [run.job.row for run in do(tmp_path, "prior", "lexical", "bonsai")] == ["bonsai"]
    assert [run.job.seed for run in do(tmp_path, "bonsai", seeds=2)] == [2]


def test_models_are_kept_if_wanted(tmp_path):
    do(tmp_path / "with", "prior", keep_models=True)
    do(tmp_path / "without", "prior")
    assert [len(list((tmp_path / name).rglob("model.toml"))) for name in ("with", "without")] == [1, 0]


def test_a_failed_method_does_not_stop_the_others_and_is_tried_again(tmp_path, broken):
    done = do(tmp_path, "prior", "broken", "lexical")
    assert [type(one) for one in done] == [Run, Failure, Run]
    results = Study.open(tmp_path).results()
    assert results.failures == (Failure(Job(WORLD.info.name, "broken", 1), "failed", "ZeroDivisionError: by nothing"),)
    assert "in fit" in json.loads((tmp_path / "failures.json").read_text())[0]["traceback"]
    assert [one.job.row for one in do(tmp_path, "prior", "broken")] == ["broken"]
    assert len(Study.open(tmp_path).results().failures) == 1


def test_a_row_without_its_weights_is_not_run(tmp_path):
    do(tmp_path, "prior", "bert-base", "bigru-lwan", assignments=["words.vectors=none.txt"])
    failures = {one.job.row: (one.kind, one.reason) for one in Study.open(tmp_path).results().failures}
    assert failures["bert-base"][0] == failures["bigru-lwan"][0] == "not run"
    assert "bert-base-uncased is not on this machine; name a folder with --set encoder.checkpoint" in failures["bert-base"][1]
    assert "none.txt is not on this machine; name a file with --set words.vectors" in failures["bigru-lwan"][1]


def test_a_row_without_an_extra_is_not_run(tmp_path, monkeypatch):
    missing = Entry("test_study_needs_torch:Nothing", "needs what is not installed")
    monkeypatch.setitem(registry.METHODS, "bigru-lwan", missing)
    monkeypatch.setattr("labelwise.registry.import_module", lambda name: (_ for _ in ()).throw(ModuleNotFoundError(name="torch")))
    (row,) = find_rows(["bigru-lwan"])
    assert "pip install 'labelwise[neural]'" in row.absent
    do(tmp_path, "bigru-lwan")
    assert [one.kind for one in Study.open(tmp_path).results().failures] == ["not run"]


def test_another_encoder_gives_transformers_its_own_name():
    asked = [
        "bert-base",
        "roberta-base",
        "bert-base-lwan",
        "hier-sci-bert",
        "gc-bert-base-lwan",
        "bigru-lwan",
        "read-and-learned",
    ]
    rows = {row.name: row for row in find_rows(asked, ["encoder.checkpoint=some/where/minilm/"])}
    assert list(rows) == ["bigru-lwan", "minilm", "minilm-lwan", "hier-minilm", "gc-minilm-lwan", "read-and-learned-minilm"]
    assert rows["minilm"].method == "bert-base"  # and roberta-base with the same encoder is the same row
    assert rows["bigru-lwan"].assignments == ()  # not a transformer
    assert rows["minilm"].recipe("x", 1, {}).settings["encoder"]["checkpoint"] == "some/where/minilm/"
    own = find_rows(["bert-base-lwan", "sci-bert"], ["encoder.checkpoint=models/bert-base-uncased"])
    assert [row.name for row in own] == ["bert-base-lwan", "bert-base-uncased"]  # a copy of the paper's own encoder is no other


def test_settings_go_to_the_methods_that_have_them():
    rows = {row.name: row for row in find_rows(["prior", "bonsai", "cnn-lwan"], ["trees=1", "training.epochs=2"])}
    assert {name: row.assignments for name, row in rows.items()} == {
        "cnn-lwan": ("training.epochs=2",),
        "bonsai": ("trees=1",),
        "prior": (),
    }
    assert rows["prior"].left_out == ("trees", "training.epochs")
    assert find_rows(["prior", "bert-base"], ["encoder.checkpoint=x"])[1].left_out == ()  # nobody expects it there


def test_all_and_paper_are_lists_of_methods():
    assert [row.name for row in find_rows(["paper"])] == PAPER
    every = [row.name for row in find_rows(["all"])]
    assert every[: len(PAPER)] == PAPER
    assert {"lexical", "best", "read-and-learned", "ensemble"} <= set(every)
    assert find_rows(["bigru-lwan-shuffled"])[0].recipe("x", 1, {}).settings["words"]["shuffle"] is True
    assert (zone("parabel"), zone("lexical")) == ("label trees", "beyond the paper")


def test_a_corpus_with_a_packaged_recipe_is_run_by_it():
    (row,) = find_rows(["bigru-lwan"])
    assert row.recipe("eurlex57k", 3, {}).settings["words"]["vectors"] == "glove.6B.200d.txt"
    assert row.recipe("eurlex57k", 3, {}).seed == 3
    assert row.recipe("another", 3, {}).settings == {}


def test_recipes_of_ones_own_are_rows_by_their_file_names(tmp_path):
    (tmp_path / "shallow.toml").write_text('method = "bonsai"\n[settings]\ntrees = 1\n')
    done = do(tmp_path / "study", str(tmp_path / "shallow.toml"), "bonsai")
    assert {run.job.row: run.recipe.settings["trees"] for run in done} == {"shallow": 1, "bonsai": 3}
    (tmp_path / "other").mkdir()
    for method in ("bonsai", "parabel"):
        (tmp_path / "other" / "shallow.toml").write_text(f'method = "{method}"')
        with pytest.raises(LabelwiseError, match="would both be called 'shallow'"):
            find_rows([str(tmp_path / "shallow.toml"), str(tmp_path / "other" / "shallow.toml")])


@pytest.mark.parametrize(
    ("methods", "assignments", "message"),
    [
        (["bonsay"], [], "there is no method or recipe 'bonsay'; did you mean 'bonsai'?"),
        (["bonsai"], ["tres=1"], "--set tres: none of these methods has such a setting; did you mean 'trees'?"),
        (["bonsai"], ["trees"], "--set trees: write it as key=value"),
        (["bonsai"], ["seed=7"], "a study has seeds of its own"),
        (["bonsai"], ["trees=0"], "bonsai: trees: 0 will not do"),
        (["none.toml"], [], "none.toml: no such recipe file"),
        (["bert-base"], ["encoder.checkpoint=minlm"], "--set encoder.checkpoint: minlm: no such folder on this machine"),
        ([], [], "no methods are named"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(tmp_path, methods, assignments, message):
    with pytest.raises(LabelwiseError) as error:
        do(tmp_path / "study", *methods, assignments=assignments)
    assert message in str(error.value)
    assert not (tmp_path / "study").exists()


def test_other_settings_than_those_of_finished_runs_are_refused(tmp_path):
    do(tmp_path, "bonsai", assignments=["trees=1"])
    with pytest.raises(LabelwiseError, match=r"bonsai was run with other settings \(trees=1, not 3\); repeat those"):
        do(tmp_path, "bonsai", "prior")
    assert [run.job.row for run in do(tmp_path, "bonsai", "prior", assignments=["trees=1", "threads=1"])] == ["prior"]


def test_another_cut_off_or_few_shot_limit_is_refused(tmp_path):
    list(Study.begin(tmp_path, k=3).run([WORLD], ["prior"]))
    with pytest.raises(LabelwiseError, match="begun with k=3, not 5"):
        Study.begin(tmp_path, k=5)
    with pytest.raises(LabelwiseError, match="begun with few=the corpora's own, not 9"):
        Study.begin(tmp_path, few=9)
    assert [run.report.k for run in do(tmp_path, "lexical")] == [3]


def test_a_corpus_that_changed_is_refused_with_the_way_out(tmp_path):
    do(tmp_path, "prior")
    first = WORLD.train[0]
    changed = WORLD._replace(train=Corpus([replace(first, text=first.text + "!"), *WORLD.train[1:]], WORLD.labels, WORLD.info))
    with pytest.raises(LabelwiseError, match="has changed since this study began.*another name in its corpus.toml"):
        do(tmp_path, "lexical", corpora=[changed])
    assert list(Study.open(tmp_path).results().rows) == ["prior"]
    do(tmp_path, "lexical", corpora=[named("another", changed)])


def test_a_corpus_without_test_documents_is_refused_before_anything_is_trained(tmp_path):
    untested = WORLD._replace(test=Corpus([], WORLD.labels, WORLD.info))
    with pytest.raises(LabelwiseError, match="has no test documents"):
        do(tmp_path / "study", "prior", corpora=[untested])
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("name", ["..", "a/b"])
def test_whatever_the_name_of_a_corpus_is_its_runs_stay_in_the_study(tmp_path, name):
    do(tmp_path / "study", "prior", corpora=[named(name)])
    (place,) = (tmp_path / "study" / "runs").glob("*/prior/seed-1")
    assert not place.parts[-3].startswith(".")
    assert len(Study.open(tmp_path / "study").results().runs) == 1


def test_two_corpora_of_one_name_are_refused(tmp_path):
    with pytest.raises(LabelwiseError, match="two of these corpora have one name"):
        do(tmp_path, "prior", corpora=[WORLD, WORLD])


def test_two_studies_in_one_folder_are_refused_and_the_report_is_not(tmp_path):
    running = Study.begin(tmp_path).run([WORLD], ["prior", "lexical"])
    next(running)
    with pytest.raises(LabelwiseError, match="another study is running in this folder"):
        do(tmp_path, "bonsai")
    results = Study.open(tmp_path).results()
    assert (len(results.runs), results.waiting) == (1, 1)
    running.close()
    assert [run.job.row for run in do(tmp_path, "lexical")] == ["lexical"]


def test_a_folder_of_another_format_or_of_somebody_else_is_refused(tmp_path):
    do(tmp_path / "study", "prior")
    plan = tmp_path / "study" / "study.json"
    plan.write_text(plan.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(LabelwiseError, match="written in format 2, this version reads 1"):
        Study.open(tmp_path / "study")
    with pytest.raises(LabelwiseError, match="written in format 2"):
        Study.begin(tmp_path / "study")
    for damaged in ("[]", "7", '{"format": 1}'):
        plan.write_text(damaged)
        with pytest.raises(LabelwiseError, match="study.json: damaged: it needs .*rows, corpora; name another folder"):
            Study.open(tmp_path / "study")
    with pytest.raises(LabelwiseError, match=r"not a study \(no study.json\)"):
        Study.open(tmp_path)
    with pytest.raises(LabelwiseError, match="holds something that is not a study"):
        Study.begin(tmp_path)


def test_only_what_was_asked_for_is_still_to_be_done(tmp_path):
    do(tmp_path, "prior", "bonsai", corpora=[named("a")], seeds=2)
    do(tmp_path, "lexical", corpora=[named("b")])
    study = Study.open(tmp_path)
    assert study.results().waiting == 0
    plan = json.loads((tmp_path / "study.json").read_text())
    assert plan["rows"]["bonsai"]["seeds"] == {"a": 2}
    plan["rows"]["bonsai"]["seeds"] = 2  # as the first version wrote it
    (tmp_path / "study.json").write_text(json.dumps(plan))
    assert Study.open(tmp_path).results().waiting == 2  # it stood for all corpora


def test_a_row_that_lacks_something_is_damage(tmp_path):
    do(tmp_path, "prior")
    plan = json.loads((tmp_path / "study.json").read_text())
    del plan["rows"]["prior"]["seeds"]
    (tmp_path / "study.json").write_text(json.dumps(plan))
    with pytest.raises(LabelwiseError, match=r"study.json: damaged: row 'prior' needs seeds; name another folder"):
        Study.open(tmp_path)


def test_a_run_that_failed_before_it_began_leaves_nothing_beside_it(tmp_path):
    do(tmp_path, "bigru-lwan", assignments=["words.vectors=WORLD.txt"])  # not there: not run
    nothing = tmp_path / "empty.txt"
    nothing.write_text("")
    (failure,) = do(tmp_path, "bigru-lwan", assignments=[f"words.vectors={nothing}", *NETWORK[1:]])
    assert isinstance(failure, Failure)
    assert failure.kind == "failed"
    assert not list(tmp_path.rglob("*.training"))


def test_a_run_that_was_killed_comes_last(tmp_path):
    do(tmp_path, "prior")
    (tmp_path / "running.json").write_text(json.dumps(Job(WORLD.info.name, "bonsai", 1)))
    assert Study.open(tmp_path).results().running is None  # nobody holds the study
    assert [run.job.row for run in do(tmp_path, "bonsai", "lexical")] == ["lexical", "bonsai"]


def labelwise(*arguments: object) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "labelwise", *map(str, arguments)]


def test_a_study_killed_in_mid_training_ends_as_if_it_had_not_been(tmp_path):
    write_corpus(WORLD, tmp_path / "world")
    epochs = 12
    settings = [part for one in (*NETWORK, f"training.epochs={epochs}", f"training.patience={epochs}") for part in ("--set", one)]
    common = ["study", tmp_path / "world", "--methods", "cnn-lwan,prior", *settings]
    process = subprocess.Popen(labelwise(*common, "--out", tmp_path / "killed"), stdout=subprocess.DEVNULL)
    place = tmp_path / "killed" / "runs" / WORLD.info.name / "cnn-lwan"
    deadline = time.monotonic() + 60
    while not list(place.glob(".seed-1.training/*/checkpoint.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (place / "seed-1").exists()
    assert Study.open(tmp_path / "killed").results().waiting == 2
    done = subprocess.run(labelwise(*common, "--out", tmp_path / "killed"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed" / "report" / "report.html").is_file()
    assert "cnn-lwan on world-any-level, seed 1: RP@5 × 100 all" in done.stdout
    straight = do(tmp_path / "straight", "cnn-lwan", assignments=settings[1::2])
    assert isinstance(straight[0], Run)
    assert Report.load(place / "seed-1" / "report").groups == straight[0].report.groups
    assert not list(place.glob(".*")), "what was unfinished is gone"


def test_the_exit_code_says_that_a_run_failed_and_machines_get_json(tmp_path, broken, capsys):
    write_corpus(WORLD, tmp_path / "world")
    with pytest.raises(Exit) as ended:
        study([tmp_path / "world"], tmp_path / "study", methods="prior,broken", as_json=True)
    assert ended.value.exit_code == 1
    told = json.loads(capsys.readouterr().out)
    assert ([run["row"] for run in told["runs"]], [one["row"] for one in told["failures"]]) == (["prior"], ["broken"])
    study([tmp_path / "world"], tmp_path / "study", methods="prior")


def test_the_command_line_refuses_with_exit_code_2(tmp_path):
    write_corpus(WORLD, tmp_path / "world")
    for arguments, message in {
        ("study", tmp_path / "world", "--methods", "pior", "--out", tmp_path / "s"): "did you mean 'prior'?",
        ("report", tmp_path): "not a study (no study.json)",
    }.items():
        done = subprocess.run(labelwise(*arguments), capture_output=True, text=True, check=False)
        assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
