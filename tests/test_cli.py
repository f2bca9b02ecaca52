"""The command line as a user meets it: in a process of its own."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy import TEST


def run(*arguments: object, stdin: str | None = None, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run labelwise; `limit` is the largest file it may write, as on a full disk."""

    def shrink() -> None:
        import resource

        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "labelwise", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, preexec_fn=shrink, check=False)


def ok(*arguments: object, stdin: str | None = None) -> str:
    done = run(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(message: str, *arguments: object, **options) -> None:
    done = run(*arguments, **options)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def _world(folder: Path) -> Path:
    ok("world", "--documents", 20, "--labels", 20, "--out", folder / "world")
    return folder / "world"


@pytest.fixture
def model(corpus_folder: Path, tmp_path: Path) -> Path:
    ok("train", "lexical", "--on", corpus_folder, "--out", tmp_path / "model")
    return tmp_path / "model"


def test_a_model_goes_from_training_to_evaluation(corpus_folder, model):
    plain = json.loads(
        ok("evaluate", model, "--on", corpus_folder, "--json", "-k", 1, "-k", 2, "-m", "rp", "-m", "ndcg", "-m", "micro-f1")
    )
    assert (plain["corpus"], plain["split"], plain["method"]) == ("zoo", "test", "lexical")
    assert set(plain["groups"]) == {"all", "frequent", "few", "zero"}
    assert plain["groups"]["zero"] == {
        "documents": 1,
        "labels": 1,
        "rp@1": 1.0,
        "rp@2": 1.0,
        "ndcg@1": 1.0,
        "ndcg@2": 1.0,
        "micro-f1": 0.0,
    }
    text = ok("evaluate", model, "--on", corpus_folder)
    assert "frequent" in text
    assert "pessimistic" in text


def test_reports_and_results_per_label_are_written(corpus_folder, model, tmp_path):
    ok("evaluate", model, "--on", corpus_folder, "--per-label", tmp_path / "labels.csv", "--out", tmp_path / "report")
    assert (tmp_path / "labels.csv").read_text().startswith("id,name,group,")
    assert {path.name for path in (tmp_path / "report").iterdir()} >= {
        "report.html",
        "report.md",
        "report.tex",
        "report.csv",
        "report.json",
    }


def test_predictions_come_in_the_order_of_the_input(model, corpus_folder, tmp_path):
    lines = "".join(json.dumps({"id": d.id, "text": d.text}) + "\n" for d in TEST)
    rows = [json.loads(line) for line in ok("predict", model, "-", "--top", 1, stdin=lines).splitlines()]
    assert [row["id"] for row in rows] == ["d0", "d1", "d2"]
    assert rows[0]["labels"][0].keys() == {"id", "name", "score"}
    assert [row["labels"][0]["id"] for row in rows[:2]] == ["owl", "heron"]
    ok("predict", model, corpus_folder / "test.jsonl", "--out", tmp_path / "p.jsonl", "--top", 8)
    of_file = json.loads(ok("evaluate", "--predictions", tmp_path / "p.jsonl", "--on", corpus_folder, "--json"))
    of_model = json.loads(ok("evaluate", model, "--on", corpus_folder, "--json"))
    assert of_file["groups"] == of_model["groups"]


def test_an_existing_file_is_not_overwritten(model, corpus_folder):
    before = (corpus_folder / "test.jsonl").read_text()
    refused("already exists", "predict", model, corpus_folder / "test.jsonl", "--out", corpus_folder / "test.jsonl")
    assert (corpus_folder / "test.jsonl").read_text() == before


def test_a_corpus_is_not_replaced_by_a_model(corpus_folder):
    refused("holds a corpus", "train", "prior", "--on", corpus_folder, "--out", corpus_folder, "--force")
    assert (corpus_folder / "train.jsonl").exists()


def test_a_byte_order_mark_on_standard_input_is_skipped(model):
    assert json.loads(ok("predict", model, "-", stdin='\ufeff{"id": "1", "text": "owls"}'))["labels"][0]["id"] == "owl"


def test_any_number_of_labels_may_be_asked_for(model):
    assert (
        len(json.loads(ok("predict", model, "-", "--top", 2_000_000_000, stdin='{"id": "1", "text": "owls, lakes"}'))["labels"])
        == 2
    )


def test_the_version_is_told():
    assert ok("--version").startswith("labelwise 0.")


def test_a_plain_text_is_one_document(model, tmp_path):
    (tmp_path / "note.txt").write_text("A heron, grey as ever")
    row = json.loads(ok("predict", model, tmp_path / "note.txt"))
    assert (row["id"], row["labels"][0]["id"]) == ("note", "heron")


def test_labels_added_this_morning_are_predicted(model, tmp_path):
    (tmp_path / "new.jsonl").write_text((model / "labels.jsonl").read_text() + '{"id": "cow", "name": "cows"}\n')
    row = json.loads(ok("predict", model, "-", "--labels", tmp_path / "new.jsonl", stdin='{"id": "1", "text": "a cow"}'))
    assert row["labels"][0]["id"] == "cow"


def test_new_labels_can_be_asked_for_apart_from_all_others(model, tmp_path):
    (tmp_path / "new.jsonl").write_text(
        (model / "labels.jsonl").read_text() + '{"id": "cow", "name": "cows"}\n{"id": "calf", "name": "calves"}\n'
    )
    asked = ("predict", model, "-", "--labels", tmp_path / "new.jsonl", "--top", 1)
    both = ok(*asked, "--new", 5, stdin='{"id": "1", "text": "owls, owls and a cow"}\n{"id": "2", "text": "owls"}')
    first, second = map(json.loads, both.splitlines())
    assert ([label["id"] for label in first["new"]], second["new"]) == (["cow"], [])
    alone = json.loads(ok(*asked, stdin='{"id": "2", "text": "owls"}'))
    assert {key: second[key] for key in ("id", "labels")} == alone
    refused("--new: name the label set that has new labels with --labels FILE", "predict", model, "-", "--new", 1, stdin="")
    refused("knows all labels of", "predict", model, "-", "--new", 1, "--labels", model / "labels.jsonl", stdin="")


def test_a_label_is_explained(model):
    plain = json.loads(ok("explain", model, "-", "--json", stdin="Two owls on the lake"))
    assert plain["label"] == "owl"
    assert plain["words"][0]["word"] == "owls"
    assert "lakes (lake)" in ok("explain", model, "-", "--label", "lake", stdin="Two owls on the lake")
    refused(
        "label 'lak' is not in the label set (8 labels); did you mean 'lake'?", "explain", model, "-", "--label", "lak", stdin="x"
    )


def test_all_parts_of_a_score_are_told_where_two_members_are_of_one_method(tmp_path):
    ok("world", "--documents", 200, "--labels", 30, "--out", tmp_path / "world")
    members = ["--set", "members=[lexical,linear,linear]", "--set", "weights=regression"]
    ok("train", "ensemble", "--on", tmp_path / "world", "--out", tmp_path / "model", *members)
    text = json.loads((tmp_path / "world" / "train.jsonl").read_text().splitlines()[0])["text"]
    told = json.loads(ok("explain", tmp_path / "model", "-", "--json", stdin=text))
    assert {"linear (seed=2)", "linear (seed=3)"} <= {part["from"] for part in told["sources"]}
    assert 1 / (1 + math.exp(-sum(part["part"] for part in told["sources"]))) == pytest.approx(told["score"], abs=1e-4)


def test_a_world_is_made_and_measured(tmp_path):
    ok("world", "--documents", 50, "--labels", 30, "--guideline", "closed", "--seed", 2, "--out", tmp_path / "world")
    plain = json.loads(ok("stats", tmp_path / "world", "--json", "--plot", tmp_path / "plot.png"))
    assert plain["documents"] == {"train": 40, "dev": 5, "test": 5}
    assert (tmp_path / "plot.png").stat().st_size > 5000
    assert "GAP" in ok("stats", tmp_path / "world")


def test_the_lists_are_there_for_people_and_machines():
    for name, member in {"methods": "lexical", "recipes": "world/lexical", "datasets": "skos", "metrics": "ndcg@k"}.items():
        assert member in ok(name)
        assert member in json.loads(ok(name, "--json"))
    assert "coverage" in ok("methods", "lexical")


def test_every_reader_has_help_with_its_source():
    for name in json.loads(ok("datasets", "--json")):
        text = " ".join(ok("data", name, "--help").split())
        assert "icence" in text, name
        assert "--out" in text


def test_reading_a_folder_closed_and_smaller(corpus_folder, tmp_path):
    ok("data", "jsonl", corpus_folder, "--out", tmp_path / "closed", "--closed", "--limit", 3)
    lines = (tmp_path / "closed" / "train.jsonl").read_text().splitlines()
    assert len(lines) == 3
    closed = [set(json.loads(line)["labels"]) for line in lines]
    assert any("animal" in labels or "place" in labels for labels in closed)
    assert all("bird" in labels and "animal" in labels for labels in closed if "owl" in labels)


def test_the_demo_is_a_study_that_ends_in_a_table_and_a_report(tmp_path, monkeypatch, capsys):
    from labelwise.cli import demo

    small = [one for one in demo.SETTINGS if not one.startswith(("training.epochs", "words", "encoder"))]
    monkeypatch.setattr(demo, "WORLD", {"documents": 60, "labels": 20, "words": 10})
    monkeypatch.setattr(demo, "SETTINGS", [*small, "training.epochs=1", "words.width=4", "encoder.units=2"])
    demo.demo(tmp_path / "demo")
    text = capsys.readouterr().out
    for word in ("all", "few", "zero", "bonsai", "bigru-lwan", "dc-bigru-lwan", "gc-bigru-lwan"):
        assert word in text
    report = Path(text.split("report: ")[1].strip())
    assert report.read_text().startswith("<!doctype html>")
    assert report.parent.parent == tmp_path / "demo"
    assert "gc-bigru-lwan" in ok("report", tmp_path / "demo")
    assert "few" in ok("evaluate", tmp_path / "demo/runs/world-any-level/bonsai/seed-1/model", "--on", tmp_path / "demo/corpus")


def test_resuming_a_finished_training_does_nothing_and_other_settings_are_refused(corpus_folder, model):
    assert "already trained" in ok("train", "lexical", "--on", corpus_folder, "--out", model, "--resume")
    told = (model / "model.toml").read_text()
    (model / "model.toml").write_text(re.sub("^apart = .*\n", "", told, flags=re.MULTILINE))  # as if it was not known yet
    assert "already trained" in ok("train", "lexical", "--on", corpus_folder, "--out", model, "--resume")
    (model / "model.toml").write_text(told)
    refused(
        "trained with other settings", "train", "lexical", "--on", corpus_folder, "--out", model, "--resume", "--set", "apart=0.1"
    )


def test_a_training_that_was_begun_is_not_thrown_away_unasked(corpus_folder, tmp_path):
    (tmp_path / ".model.training").mkdir()
    (tmp_path / ".model.training" / "checkpoint").touch()
    for command in (("train", "lexical", "--on", corpus_folder), ("pretrain", corpus_folder)):
        refused("begun and not finished; --resume goes on with it, --force begins again", *command, "--out", tmp_path / "model")
    assert (tmp_path / ".model.training" / "checkpoint").exists()
    ok("train", "lexical", "--on", corpus_folder, "--out", tmp_path / "model", "--force")
    assert not (tmp_path / ".model.training").exists()


def test_resuming_a_finished_training_on_other_documents_is_refused(corpus_folder, tmp_path):
    shutil.copytree(corpus_folder, tmp_path / "other")
    text = (tmp_path / "other" / "train.jsonl").read_text()
    (tmp_path / "other" / "train.jsonl").write_text(text.replace('"text": "', '"text": "more ', 1))
    ok("train", "lexical", "--on", corpus_folder, "--out", tmp_path / "model")
    command = ("train", "lexical", "--out", tmp_path / "model", "--resume", "--on")
    assert "already trained" in ok(*command, corpus_folder)
    refused("trained on other documents", *command, tmp_path / "other")


def test_options_a_method_has_no_use_for_are_noted(corpus_folder, tmp_path):
    done = run("train", "prior", "--on", corpus_folder, "--out", tmp_path / "m", "--seed", 3, "--device", "cpu")
    assert done.returncode == 0
    assert "prior has no use for --seed" in done.stderr


# Bad input: a clear message, exit code 2, nothing half-written.


def test_an_existing_output_is_refused_before_any_work(corpus_folder, model):
    refused("already exists; add --force", "train", "lexical", "--on", corpus_folder, "--out", model)
    ok("train", "prior", "--on", corpus_folder, "--out", model, "--force")


def test_force_does_not_delete_a_folder_of_somebody_else(corpus_folder, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    refused("not written by labelwise", "train", "prior", "--on", corpus_folder, "--out", tmp_path / "home", "--force")
    assert (tmp_path / "home" / "letter.txt").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.jsonl", '{"id": "1", "text": "x", "labels": ["owl"]}\n{"id"', "train.jsonl:2: not JSON"),
        ("train.jsonl", "", "train.jsonl: no documents in it"),
        ("train.jsonl", '{"id": "1", "text": "x", "labels": ["cow"]}', "train.jsonl:1: label 'cow' is not in the label set"),
        ("test.jsonl", '{"id": "1", "text": " ", "labels": []}', "test.jsonl:1: document '1' has an empty text"),
        ("labels.jsonl", '{"id": "a", "name": "a", "parents": ["b"]}', "labels.jsonl:1: label 'a' has the parent 'b'"),
    ],
)
def test_a_damaged_corpus_is_refused_and_nothing_is_written(corpus_folder, tmp_path, name, content, message):
    (corpus_folder / name).write_text(content)
    refused(message, "train", "lexical", "--on", corpus_folder, "--out", tmp_path / "out")
    refused(message, "stats", corpus_folder)
    assert not (tmp_path / "out").exists()


def test_unknown_labels_can_be_dropped_or_added(corpus_folder, tmp_path):
    (corpus_folder / "train.jsonl").write_text('{"id": "1", "text": "x", "labels": ["cow", "owl"]}')
    for rule in ("drop", "add"):
        ok("train", "prior", "--on", corpus_folder, "--out", tmp_path / rule, "--unknown-labels", rule)
    assert '"cow"' in (tmp_path / "add" / "labels.jsonl").read_text()
    assert '"cow"' not in (tmp_path / "drop" / "labels.jsonl").read_text()


def test_cycles_are_refused_by_the_checking_reader_and_can_be_broken(corpus_folder, tmp_path):
    path = corpus_folder / "labels.jsonl"
    path.write_text(path.read_text().replace('"name": "animals", "parents": []', '"name": "animals", "parents": ["owl"]'))
    refused("the hierarchy has a cycle: ", "data", "jsonl", corpus_folder, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    ok("data", "jsonl", corpus_folder, "--out", tmp_path / "out", "--break-cycles")
    assert "warning" in run("stats", corpus_folder).stderr
    assert "warning" not in run("stats", tmp_path / "out").stderr


def test_predictions_with_unknown_documents_or_nan_are_refused(corpus_folder, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"id": "d9", "scores": {"owl": 1}}')
    refused(
        "p.jsonl:1: document 'd9' is not among the 3", "evaluate", "--predictions", tmp_path / "p.jsonl", "--on", corpus_folder
    )
    (tmp_path / "p.jsonl").write_text('{"id": "d0", "scores": {"owl": NaN}}')
    refused("p.jsonl:1: the score nan", "evaluate", "--predictions", tmp_path / "p.jsonl", "--on", corpus_folder)


def test_a_split_that_is_not_there_is_named(corpus_folder, model):
    (corpus_folder / "test.jsonl").unlink()
    refused("corpus 'zoo' has no test documents", "evaluate", model, "--on", corpus_folder)
    refused("there is no split 'tst'", "evaluate", model, "--on", corpus_folder, "--split", "tst")


def test_a_model_that_knows_no_label_of_a_corpus_is_noted(corpus_folder, model, tmp_path):
    assert "note" not in run("evaluate", model, "--on", corpus_folder).stderr
    shutil.copytree(corpus_folder, tmp_path / "other")
    for id in [json.loads(line)["id"] for line in (corpus_folder / "labels.jsonl").read_text().splitlines()]:
        for path in (tmp_path / "other").glob("*.jsonl"):
            path.write_text(path.read_text().replace(f'"{id}"', f'"other {id}"'))
    done = run("evaluate", model, "--on", tmp_path / "other")
    assert "trained on other labels; it knows none of those of" in done.stderr


def test_a_damaged_model_is_refused(corpus_folder, model):
    (model / "lexical.npz").write_bytes(b"not a model")
    refused("lexical.npz: changed since it was written", "evaluate", model, "--on", corpus_folder)
    (model / "model.toml").unlink()
    refused("not a model folder (no model.toml)", "predict", model, corpus_folder / "test.jsonl")


def test_a_model_of_a_later_format_is_refused(corpus_folder, model):
    path = model / "model.toml"
    path.write_text(path.read_text().replace("format = 1", "format = 99"))
    refused("written in format 99, this version reads up to 1", "evaluate", model, "--on", corpus_folder)


def test_a_full_disk_leaves_nothing_half_written(corpus_folder, tmp_path):
    before = sorted(tmp_path.iterdir())
    refused(
        f"{tmp_path / 'out'}: the file grew past the allowed size; nothing was left",
        "world",
        "--out",
        tmp_path / "out",
        limit=20_000,
    )
    refused("nothing was left half-written", "data", "jsonl", corpus_folder, "--out", tmp_path / "out", limit=200)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_named(corpus_folder, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    refused("no permission", "data", "jsonl", corpus_folder, "--out", tmp_path / "locked" / "out")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_exits_130_and_leaves_nothing(tmp_path, stop):
    command = [
        sys.executable,
        "-m",
        "labelwise",
        "world",
        "--documents",
        "400000",
        "--labels",
        "2000",
        "--out",
        str(tmp_path / "out"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    time.sleep(2.5)
    process.send_signal(stop)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; nothing was left half-written" in errors
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_in_mid_write_leaves_nothing(tmp_path):
    command = [
        sys.executable,
        "-m",
        "labelwise",
        "world",
        "--documents",
        "60000",
        "--labels",
        "2000",
        "--out",
        str(tmp_path / "out"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    deadline = time.monotonic() + 60
    while not any(tmp_path.glob(".out.partial-*/train.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_ends_the_command_quietly(model, tmp_path):
    (tmp_path / "many.jsonl").write_text("".join(f'{{"id": "{n}", "text": "owls and lakes"}}\n' for n in range(20_000)))
    command = f"{sys.executable} -m labelwise predict {model} {tmp_path / 'many.jsonl'} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_usage_mistakes_exit_2():
    refused("No such command", "trian")
    refused("Missing", "train", "lexical")


def test_a_budget_is_a_time(corpus_folder, tmp_path):
    command = ("train", "cnn-lwan", "--on", corpus_folder, "--out", tmp_path / "m", "--set", "words.width=8", "--device", "cpu")
    refused("--budget soon: write a time as 90s, 10m or 2h", *command, "--budget", "soon")
    assert "cnn-lwan" in ok(*command, "--budget", "1s", "--set", "training.patience=10000")
    assert "already trained" in ok(*command, "--budget", "1s", "--set", "training.patience=10000", "--resume")
