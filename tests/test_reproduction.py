"""Reproductions pass and fail by their tolerance, go on after a kill, and are never taken for one another."""

import json
import math
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from labelwise import Corpus, LabelwiseError, evaluate, make_method, make_world, write_corpus
from labelwise.recipe import Recipe, find_recipe
from labelwise.reproduction import Check, reproduce
from labelwise.running import alone
from labelwise.storage import to_toml

WORLD = make_world(documents=300, labels=40, words=30)
SCORES = evaluate(make_method("lexical").fit(WORLD.train), WORLD, ks=[3]).groups
LEXICAL = Recipe(
    "lexical",
    corpus=WORLD.info.name,
    source={"paper": "Us 2020", "row": "LEXICAL", "tables": [1, 2]},
    expected={group: {"rp@3": SCORES[group]["rp@3"], "ndcg@3": SCORES[group]["ndcg@3"]} for group in ("all", "few")},
)


def no_work(items, task, total=None):
    raise AssertionError(f"{task}, though all is there")


def shifted(by: float) -> Recipe:
    return replace(LEXICAL, expected={"all": {"rp@3": SCORES["all"]["rp@3"] + by}})


def labelwise(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "labelwise", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_scores_as_expected_pass_at_another_cut_off_than_the_corpus_has(tmp_path):
    found = reproduce(LEXICAL, WORLD, tmp_path / "r", name="ours/lexical")
    assert found.passed
    assert [(check.group, check.measure) for check in found.checks] == [
        ("all", "rp@3"),
        ("all", "ndcg@3"),
        ("few", "rp@3"),
        ("few", "ndcg@3"),
    ]
    assert all(check.found == pytest.approx(SCORES[check.group][check.measure]) for check in found.checks)
    lines = found.table().text().splitlines()
    value = f"{100 * SCORES['few']['ndcg@3']:.2f}"
    assert f"few nDCG@3 {value} {value} +0.00 yes" in [" ".join(line.split()) for line in lines]
    assert lines[-2:] == ["Expected: Us 2020, LEXICAL, tables 1 and 2.", "4 of 4 within 1."]


@pytest.mark.parametrize(("by", "ok"), [(0.01, True), (-0.01, True), (0.0101, False), (-0.0101, False)])
def test_the_tolerance_decides_in_both_directions(tmp_path, by, ok):
    found = reproduce(shifted(by), WORLD, tmp_path / "r")
    assert found.passed is ok
    assert found.checks[0].difference == pytest.approx(-by)
    assert ("no" in found.table().text().split()) is not ok


def test_a_difference_of_exactly_the_tolerance_passes():
    assert Check("all", "rp@5", expected=0.801, found=0.821, tolerance=0.02).ok
    assert not Check("all", "rp@5", expected=0.801, found=math.nan, tolerance=1.0).ok


def test_a_group_that_the_corpus_lacks_is_not_reproduced(tmp_path):
    known = make_world(documents=300, labels=40, words=30, new=0)
    found = reproduce(replace(LEXICAL, expected={"zero": {"rp@3": 0.0}}), known, tmp_path / "r", tolerance=1.0)
    assert not found.passed
    assert "zero RP@3 0.00 – – no" in " ".join(found.table().text().split())


def test_the_comparison_lies_in_the_folder_with_model_and_report(tmp_path):
    found = reproduce(shifted(0.02), WORLD, tmp_path / "r", name="ours/lexical-odd")
    stored = json.loads((tmp_path / "r" / "reproduction.json").read_text())
    assert stored == json.loads(found.json())
    assert (stored["recipe"], stored["corpus"], stored["tolerance"], stored["passed"]) == (
        "ours/lexical-odd",
        WORLD.info.name,
        0.01,
        False,
    )
    (check,) = stored["checks"]
    assert (check["group"], check["measure"], check["ok"]) == ("all", "rp@3", False)
    assert check["difference"] == pytest.approx(-0.02)
    assert {path.name for path in (tmp_path / "r").iterdir()} >= {"model", "report", "reproduction.json"}
    assert json.loads((tmp_path / "r" / "report" / "report.json").read_text())["method"] == "lexical-odd"  # the variant's own


def test_a_finished_reproduction_is_only_read(tmp_path):
    first = reproduce(LEXICAL, WORLD, tmp_path / "r")
    again = reproduce(LEXICAL, WORLD, tmp_path / "r", progress=no_work)
    assert [check.found for check in again.checks] == pytest.approx([check.found for check in first.checks], abs=1e-6)
    assert reproduce(
        shifted(0.5), WORLD, tmp_path / "r", tolerance=0.6, progress=no_work
    ).passed  # another tolerance is no other run
    (tmp_path / "r" / "reproduction.json").unlink()  # as after a kill before the last step
    reproduce(LEXICAL, WORLD, tmp_path / "r", progress=no_work)
    assert json.loads((tmp_path / "r" / "reproduction.json").read_text())["passed"]


def test_a_folder_with_another_run_is_refused(tmp_path):
    reproduce(LEXICAL, WORLD, tmp_path / "r")
    with pytest.raises(LabelwiseError, match=r"with other settings \(coverage=0\.5, not 0\.9\).*name another folder"):
        reproduce(replace(LEXICAL, settings={"coverage": 0.9}), WORLD, tmp_path / "r")
    with pytest.raises(LabelwiseError, match="holds a run of lexical, not of prior"):
        reproduce(replace(LEXICAL, method="prior"), WORLD, tmp_path / "r")
    with pytest.raises(LabelwiseError, match="holds a run that was not evaluated by p@1; name another folder"):
        reproduce(replace(LEXICAL, expected={"all": {"p@1": 0.5}}), WORLD, tmp_path / "r")
    first = WORLD.train[0]
    changed = WORLD._replace(train=Corpus([replace(first, text=first.text + "!"), *WORLD.train[1:]], WORLD.labels, WORLD.info))
    for other in (changed, make_world(documents=300, labels=40, words=30, seed=2)):
        with pytest.raises(
            LabelwiseError, match="on another corpus, or on 'world-any-level' before it changed; name another folder"
        ):
            reproduce(LEXICAL, other, tmp_path / "r")


def test_cores_do_not_make_another_run(tmp_path):
    tree = Recipe("bonsai", settings={"trees": 1, "threads": 1, "features": {"ngrams": 1}}, expected={"all": {"rp@5": 0.5}})
    reproduce(tree, WORLD, tmp_path / "r")
    reproduce(replace(tree, settings={**tree.settings, "threads": 2}), WORLD, tmp_path / "r", progress=no_work)
    with pytest.raises(LabelwiseError, match=r"with other settings \(seed=1, not 2\)"):
        reproduce(replace(tree, seed=2), WORLD, tmp_path / "r")


def test_what_a_stopped_run_left_is_of_use_to_the_same_settings_and_corpus_only(tmp_path):
    network = Recipe(
        "cnn-lwan",
        settings={"words": {"width": 4}, "encoder": {"units": 4}, "training": {"epochs": 2}, "device": "cpu", "threads": 1},
        expected={"all": {"rp@5": 0.5}},
    )
    world, other = (make_world(documents=100, labels=40, words=10, seed=seed) for seed in (1, 2))

    def stopped(items, task, total=None):
        if list(tmp_path.glob(f".{place}.training/*/checkpoint.safetensors")):
            raise LabelwiseError("the power went off")
        yield from items

    for place in ("r", "again"):
        with pytest.raises(LabelwiseError, match="the power went off"):
            reproduce(network, world, tmp_path / place, progress=stopped)
    found, straight = (reproduce(network, other, tmp_path / place) for place in ("r", "straight"))
    assert found.report.groups == straight.report.groups
    assert not (tmp_path / ".r.training").exists()
    (clock,) = tmp_path.glob(".again.training/*/clock.json")
    clock.write_text(json.dumps([0, json.loads(clock.read_text())[1] - 1000]))  # as if it had taken so long
    assert reproduce(network, world, tmp_path / "again").report.notes["seconds of training"] > 1000


def test_two_reproductions_in_one_folder_are_refused(tmp_path):
    tree = Recipe("bonsai", settings={"trees": 1, "features": {"ngrams": 1}}, expected={"all": {"rp@5": 0.5}})
    with alone(tmp_path / ".r.training", ""), pytest.raises(LabelwiseError, match="is being made by another process"):
        reproduce(tree, WORLD, tmp_path / "r")
    reproduce(tree, WORLD, tmp_path / "r")
    (tmp_path / ".r.training").mkdir()  # as after a kill between the last two steps
    reproduce(tree, WORLD, tmp_path / "r", progress=no_work)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


@pytest.mark.parametrize("expected", [{}, {"all": {}}])
def test_a_recipe_that_expects_nothing_is_refused(tmp_path, expected):
    with pytest.raises(LabelwiseError, match="lexical: does not say what to expect"):
        reproduce(Recipe("lexical", expected=expected), WORLD, tmp_path / "r")


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(LabelwiseError, match="already there, and not a finished reproduction; name another folder"):
        reproduce(LEXICAL, WORLD, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_failed_run_leaves_no_folder(tmp_path):
    def failing(items, task, total=None):
        yield from items
        raise LabelwiseError(f"the power went off after: {task}")

    with pytest.raises(LabelwiseError, match="the power went off"):
        reproduce(LEXICAL, WORLD, tmp_path / "r", progress=failing)
    assert not (tmp_path / "r").exists()


def test_the_command_goes_on_after_a_kill_and_says_by_its_exit_code_how_it_went(tmp_path):
    write_corpus(WORLD, tmp_path / "world")
    settings = {"trees": 50, "features": {"ngrams": 1}}
    recipe = {"method": "bonsai", "corpus": "elsewhere", "settings": settings, "expected": {"all": {"rp@5": 0.1}}}
    (tmp_path / "own.toml").write_text(to_toml(recipe))
    command = ["reproduce", tmp_path / "own.toml", "--on", tmp_path / "world", "--out", tmp_path / "out", "--threads", 1]
    process = subprocess.Popen([sys.executable, "-m", "labelwise", *map(str, command)], stderr=subprocess.DEVNULL)
    kept, deadline = tmp_path / ".out.training", time.monotonic() + 60
    while not list(kept.glob("*/tree-0-*.npz")) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    process.wait()
    assert not (tmp_path / "out").exists()
    done = len(list(kept.glob("*/tree-*.npz")))

    failed = labelwise(*command, "--device", "cpu")
    assert failed.returncode == 1, failed.stderr
    assert 0 < done < 50
    assert not kept.exists()
    assert failed.stderr.splitlines() == [
        "note: bonsai has no use for --device",
        "note: the figures are for elsewhere, not for world-any-level",
    ]
    whole = reproduce(find_recipe(str(tmp_path / "own.toml")), WORLD, tmp_path / "whole", name=str(tmp_path / "own.toml"))
    assert failed.stdout == f"{whole.table().text()}report: {tmp_path / 'out' / 'report' / 'report.html'}\n"
    told = labelwise(*command, "--tolerance", 1, "--json")
    assert (told.returncode, json.loads(told.stdout)["passed"]) == (0, True)


def test_mistakes_are_named_before_the_corpus_is_read(tmp_path):
    for recipe, more, message in (
        ("lexical", (), "error: lexical: does not say what to expect"),
        ("world/lexical", ("--set", "coverge=1"), "error: lexical: coverge: there is no such setting; did you mean 'coverage'?"),
    ):
        done = labelwise("reproduce", recipe, "--on", "no/corpus", "--out", tmp_path / "r", *more)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(message)
