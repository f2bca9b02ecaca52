import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
from itertools import count, pairwise

import numpy as np
import optuna
import pytest
from typer.testing import CliRunner

import labelwise
from labelwise.cli.main import app
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadCorpus, LabelwiseError, MissingExtra, OutputExists, UnknownName
from labelwise.evaluation import evaluate
from labelwise.jsonl import read_corpus, write_corpus
from labelwise.recipe import find_recipe, make_recipe_method, read_recipe
from labelwise.registry import METHODS, make_method
from labelwise.settings import override
from labelwise.tuning.page import SearchReport, TrialResult
from labelwise.tuning.search import importances, tune
from labelwise.tuning.space import grid, make_space
from labelwise.tuning.trials import Objective, run_apart

TINY = ["words.width=8", "words.max_length=20", "encoder.units=4", "training.epochs=3", "threads=1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("search") / "whole"


@pytest.fixture(scope="module")
def whole(world, place):
    """A search that nothing happened to."""
    return tune("lexical", world, place, trials=11)


def space_of(name, *entries, settings=(), pinned=()):
    recipe = find_recipe(name)
    return make_space(METHODS[recipe.method].load().Settings, override(recipe.settings, settings), entries, pinned)


def tried(report):
    return [trial.settings for trial in report.trials if trial.end == "finished"]


# The search.


def test_the_same_seed_makes_the_same_trials(world, whole, tmp_path):
    assert tried(tune("lexical", world, tmp_path / "again", trials=2)) == tried(whole)[:2]
    assert tried(tune("lexical", world, tmp_path / "other", trials=2, seed=2)) != tried(whole)[:2]
    assert len({tuple(settings.values()) for settings in tried(whole)}) == 11


def test_the_first_trials_look_everywhere(whole):
    for key, low, high in (("coverage", 0.2, 0.8), ("apart", 0.2, 1.0)):
        places = [(settings[key] - low) / (high - low) for settings in tried(whole)[:10]]
        assert 0 <= min(places) < 0.3
        assert 0.7 < max(places) <= 1


def test_the_best_recipe_can_be_trained_and_does_what_the_search_says(world, tmp_path):
    report = tune("lexical", world, tmp_path / "search", trials=3, settings=["plurals=false"], objective="rp@3")
    recipe = read_recipe(tmp_path / "search" / "best.toml")
    splits = read_corpus(world)
    model = make_recipe_method(recipe, {}).fit(splits.train, splits.dev)
    value = evaluate(model, labelwise.Splits(splits.train, splits.dev, splits.test[:0]), split="dev", measures=["rp@3"])
    assert recipe.settings == {"plurals": False, **report.best.settings}
    assert value.groups["all"]["rp@3"] == report.best.value == max(trial.value for trial in report.trials)
    assert recipe.source == {"search": "tpe, 3 trials", "trial": report.best.number, "dev rp@3": report.best.value}


def test_test_documents_are_never_read(world, whole, tmp_path):
    write_corpus(read_corpus(world), tmp_path / "broken")
    (tmp_path / "broken" / "test.jsonl").write_text("not JSON")
    assert tried(tune("lexical", tmp_path / "broken", tmp_path / "search", trials=3)) == tried(whole)[:3]


def test_a_grid_search_ends_when_all_is_tried(world, tmp_path):
    space = ["coverage=0.3,0.5", "synonyms"]
    some = tune("lexical", world, tmp_path / "search", trials=3, space=space, sampler="grid")
    assert len(some.trials) == 3
    every = tune("lexical", world, tmp_path / "search", trials=99, space=space, sampler="grid")
    assert len(every.trials) == 4
    assert {tuple(settings.values()) for settings in tried(every)} == {(s, c) for c in (0.3, 0.5) for s in (True, False)}


def test_finished_trials_count_when_a_search_goes_on(world, whole, tmp_path):
    heard = []
    tune("lexical", world, tmp_path / "parts", trials=2)
    (tmp_path / "parts" / ".report.html.partial-1").touch()  # by a kill as the report was written
    parts = tune("lexical", world, tmp_path / "parts", trials=4, told=lambda trial, best: heard.append(trial.number))
    assert heard == [2, 3]
    assert tried(parts) == tried(whole)[:4]
    assert not list((tmp_path / "parts").glob("*.partial-*"))


KILLED = """
import os, signal, sys
import labelwise.tuning.trials as trials
from labelwise.tuning.search import tune
calls, evaluate = [], trials.evaluate
def killed(*given, **how):
    calls.append(1)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate(*given, **how)
trials.evaluate = killed
tune("lexical", sys.argv[1], sys.argv[2], trials=11)
"""


def test_a_search_that_was_killed_comes_to_the_same_trials_as_one_that_was_not(world, whole, tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, world, tmp_path / "killed"], check=False)
    assert done.returncode == -signal.SIGKILL
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 'killed' / 'trials.sqlite'}")
    study.ask(study.trials[0].distributions)  # and once more, before the trial was anybody's
    resumed = tune("lexical", world, tmp_path / "killed", trials=11)
    assert [trial.end for trial in resumed.trials] == ["finished"] * 3 + ["killed"] + ["finished"] * 8
    assert tried(resumed) == tried(whole)
    assert resumed.trials[3].settings == resumed.trials[4].settings  # what was killed is tried again


def test_several_workers_try_what_one_would(world, tmp_path):
    one, two = (tune("lexical", world, tmp_path / str(n), trials=3, sampler="random", workers=n) for n in (1, 2))

    def found(report):
        return sorted((tuple(trial.settings.values()), trial.value) for trial in report.trials)

    assert found(one) == found(two)


class Cruel:
    """Leads a search and kills the workers as soon as one of them has something to do."""

    def __init__(self):
        self.numbers, self.outcomes = list(range(5)), {}

    def ask(self):
        if len(self.numbers) == 4:
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGKILL)
        return (self.numbers.pop(0), find_recipe("lexical")) if self.numbers else None

    def tell(self, number, outcome):
        assert number not in self.outcomes
        self.outcomes[number] = outcome


def test_a_worker_that_dies_takes_its_trial_with_it_and_no_other(world):
    leader = Cruel()
    assert sorted(run_apart(leader, 2, world, "error", Objective("ndcg"))) == [0, 1, 2, 3, 4]
    assert "exit code -9" in leader.outcomes[0].error
    assert all(leader.outcomes[number].value for number in (2, 3, 4))
    assert not multiprocessing.active_children()


def test_hopeless_trials_of_a_network_are_stopped_early(world, tmp_path):
    rates = [0.05, 0.04, 0.03, 0.02, 0.01, 1e-6]
    space = ["training.learning_rate=" + ",".join(map(str, rates))]
    found = space_of("bigru-lwan", *space)
    seed = next(seed for seed in count() if grid(found, seed)[-1]["training.learning_rate"] == 1e-6)  # the last of all
    report = tune("bigru-lwan", world, tmp_path / "search", trials=6, space=space, settings=TINY, sampler="grid", seed=seed)
    assert [(trial.end, trial.rounds) for trial in report.trials] == [("finished", 3)] * 5 + [("stopped", 2)]
    recipe = read_recipe(tmp_path / "search" / "best.toml")
    splits = read_corpus(world)
    history = make_recipe_method(recipe, {"threads": 1}).fit(splits.train, splits.dev).history
    assert report.best.value == min(line["dev"]["loss"] for line in history) == min(t.value for t in report.trials)
    assert "threads" not in recipe.settings  # of the machine, not of the recipe


def test_a_trial_whose_loss_is_not_a_number_fails(world, tmp_path, monkeypatch):
    monkeypatch.setattr("labelwise.network.training.Trainer._dev_scores", lambda self: {"loss": math.nan})
    with pytest.raises(LabelwiseError, match="the last one: loss is nan after round 1"):
        tune("bigru-lwan", world, tmp_path / "search", trials=1, settings=TINY)


def test_whoever_watches_a_network_hears_of_every_look_and_may_end_it(world):
    splits, seen = read_corpus(world), []

    def watch(line):
        seen.append(line)
        if line["epoch"] == 2:
            raise StopIteration

    method = make_method("bigru-lwan", override({}, [*TINY, "training.judge_steps=2"]))
    method.watch = watch
    with pytest.raises(StopIteration):
        method.fit(splits.train, splits.dev)
    assert [(line["epoch"], line["step"]) for line in seen] == [(1, 2), (1, 3), (2, 2)]
    assert all({"loss", "rp", "ndcg"} <= set(line["dev"]) for line in seen)


def test_the_objective_can_be_a_measure_of_a_label_group(world, tmp_path):
    report = tune("lexical", world, tmp_path / "search", trials=2, objective="ndcg:few")
    splits = read_corpus(world, only=("train", "dev"))
    model = make_method("lexical", report.best.settings).fit(splits.train)
    assert report.best.value == evaluate(model, splits, split="dev").groups["few"]["ndcg@5"]


@pytest.mark.parametrize(
    ("kind", "objective", "message"),
    [
        (LabelwiseError, "loss", "lexical has no loss to tell; choose rp or ndcg"),
        (UnknownName, "ndgc", r"--objective ndgc: .*did you mean 'ndcg'\?.*; or loss"),
        (UnknownName, "ndcg:fwe", "did you mean 'few'"),
        (BadCorpus, "ndcg:frequent", "no development document .* has a label of group 'frequent'"),
    ],
)
def test_an_objective_that_cannot_be_is_refused_before_long_work(world, tmp_path, kind, objective, message):
    with pytest.raises(kind, match=message):
        tune("lexical", world, tmp_path / "search", trials=2, objective=objective)
    assert not (tmp_path / "search").exists()


def test_a_trial_that_fails_does_not_stop_the_others(world, tmp_path):
    report = tune(
        "bigru-lwan", world, tmp_path / "search", trials=2, space=["labels.refine=none,dense"], settings=TINY, sampler="grid"
    )
    ends = {trial.settings["labels.refine"]: (trial.end, trial.error) for trial in report.trials}
    assert ends["none"] == ("finished", "")
    assert ends["dense"][0] == "failed"
    assert "needs described labels" in ends["dense"][1]
    assert "needs described labels" in (tmp_path / "search" / "report.md").read_text()


def test_a_search_in_which_everything_fails_ends_soon_and_says_why(world, tmp_path):
    with pytest.raises(LabelwiseError, match=r"none of 3 trials came to an end; the last one: .*nowhere"):
        tune("bigru-lwan", world, tmp_path / "search", trials=50, settings=[*TINY, "words.vectors=nowhere.txt"])


def test_no_trial_begins_after_the_time_is_up(world, tmp_path):
    report = tune("lexical", world, tmp_path / "search", trials=10_000, timeout=0.2 / 60)
    assert 1 <= len(report.trials) < 1000


# The folder.


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("lexical", {"seed": 2}, "seed is 1 there, 2 here"),
        (
            "lexical",
            {"space": ["coverage"]},
            "space.coverage is 0.2..0.8 there, 0..1 here; space.apart is 0.2..1 there, not given here",
        ),
        ("lexical", {"settings": ["plurals=false"]}, "settings.plurals is not given there, False here"),
        ("lexical", {"objective": "rp"}, "objective is ndcg there, rp here"),
        ("bonsai", {}, "method is lexical there, bonsai here"),
    ],
)
@pytest.mark.usefixtures("whole")
def test_a_folder_of_another_search_is_refused_and_the_difference_named(world, place, name, changed, message):
    with pytest.raises(OutputExists, match=f"holds another search: .*{message}"):
        tune(name, world, place, trials=1, **changed)


@pytest.mark.usefixtures("whole")
def test_a_corpus_that_changed_under_a_search_is_refused(place, tmp_path):
    write_corpus(make_world(documents=60, labels=20, words=20, seed=2), tmp_path / "world")
    with pytest.raises(OutputExists, match="the corpus has changed since this search began"):
        tune("lexical", tmp_path / "world", place, trials=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[1]", "damaged"), ('{"format": 1, "owner": "", "search": 1}', "damaged"), ('{"format": 2}', "a later version")],
)
def test_a_search_that_cannot_be_read_is_not_touched(world, tmp_path, text, message):
    (tmp_path / "search.json").write_text(text)
    with pytest.raises(OutputExists, match=f"search.json: .*{message}"):
        tune("lexical", world, tmp_path, trials=1)


def test_a_search_whose_trials_are_gone_does_not_begin_anew(world, place, tmp_path):
    lost = tmp_path / "lost"
    tune("lexical", world, lost, trials=1, seed=7)
    best = (lost / "best.toml").read_text()
    (lost / "trials.sqlite").unlink()
    with pytest.raises(OutputExists, match=r"lost: its trials are gone \(trials.sqlite\); put that file back"):
        tune("lexical", world, lost, trials=2, seed=7)
    assert (lost / "best.toml").read_text() == best


def test_two_searches_at_once_in_one_folder_and_a_folder_of_something_else_are_refused(world, tmp_path):
    def second(*_):
        with pytest.raises(LabelwiseError, match="a search is at work in it"):
            tune("lexical", world, tmp_path / "search", trials=1)

    tune("lexical", world, tmp_path / "search", trials=1, told=second)
    with pytest.raises(OutputExists, match="exists, and holds no search"):
        tune("lexical", world, world, trials=1)


def test_a_search_killed_as_it_begins_can_begin_again_whatever_its_folder_is_called(world, tmp_path):
    folder = tmp_path / "100 %41 {of} what?x=é"
    folder.mkdir()
    (folder / "trials.sqlite").touch()  # before search.json was there
    assert len(tune("lexical", world, folder, trials=1).trials) == 1
    assert (folder / "trials.sqlite").stat().st_size
    assert list(tmp_path.iterdir()) == [folder]


def test_optuna_says_nothing(world, tmp_path, capfd, caplog):
    tune("lexical", world, tmp_path / "search", trials=1)
    tune("lexical", world, tmp_path / "grid", trials=1, sampler="grid")
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_without_optuna_the_way_to_install_it_is_told(monkeypatch):
    for name in ("labelwise.tuning.search", "labelwise.tuning.storage"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"a search needs optuna: pip install 'labelwise\[tune\]'"):
        labelwise.tune  # noqa: B018


# The report and the command.


def test_importance_goes_by_ratio_where_a_range_does():
    number, rng = optuna.distributions.FloatDistribution, np.random.default_rng(1)
    drawn = {"rate": number(1e-5, 1e-1, log=True), "other": number(0, 1)}
    trials = [
        optuna.create_trial(value=float(rate < 1e-3) + 0.2 * other, params={"rate": rate, "other": other}, distributions=drawn)
        for rate, other in zip(10 ** rng.uniform(-5, -1, 40), rng.random(40), strict=True)
    ]
    found = importances(trials)
    assert found["rate"] > 0.8  # half of the range makes all the difference; taken evenly, it would be 1 % of it
    assert found["rate"] + found["other"] == pytest.approx(1)
    assert importances(trials[:4]) == {}


def test_the_report_tells_every_trial_the_best_so_far_and_what_mattered(world, tmp_path):
    report = tune("lexical", world, tmp_path / "search", trials=6)
    assert math.isclose(sum(report.importance.values()), 1)
    assert set(report.importance) == {"coverage", "apart"}
    values = [trial.value for trial in report.trials]
    assert report.best_so_far() == [max(values[: number + 1]) for number in range(6)]
    told = json.loads((tmp_path / "search" / "report.json").read_text())
    assert [trial["value"] for trial in told["trials"]] == values
    assert told["best"]["value"] == max(values)
    page = (tmp_path / "search" / "report.html").read_text()
    assert page.count("<circle") == 6
    assert page.count('class="dot"') == 1
    assert "<script" not in page
    rows = (tmp_path / "search" / "report.csv").read_text().splitlines()
    assert rows[0] == "number,end,value,coverage,apart,rounds,seconds,error"
    assert len(rows) == 7


def test_the_line_of_the_best_never_gets_worse_and_stays_on_the_page_whatever_the_values():
    told = {"objective": "loss", "sampler": "random", "seed": 1, "space": {"a": "0..1"}, "settings": {"c": 3}}
    search = {"method": "<b>", "corpus": "c", **told}
    for values in ([0.5], [0.3, 0.3, 0.3], [0.9, 0.2, 700.0, 0.25]):
        trials = tuple(TrialResult(number, "finished", {"a": 0.1}, value) for number, value in enumerate(values))
        report = SearchReport(search, (*trials, TrialResult(9, "running", {})), {})
        assert all(after <= before for before, after in pairwise(report.best_so_far()))
        page = report.html()
        places = [float(part.split("%")[0]) for part in page.split('cy="')[1:]]
        assert len(places) == len(values)
        assert all(5 <= place <= 95 for place in places)
        assert "<b>" not in page


def test_the_command_searches_and_prints_for_people_and_machines(world, tmp_path):
    command = ["tune", "lexical", "--on", str(world), "--out", str(tmp_path / "search"), "--trials", "2"]
    done = CliRunner().invoke(app, [*command, "--device", "cpu"])
    assert done.exit_code == 0, done.exception
    assert "trial     nDCG  coverage" in done.stdout
    assert f"labelwise train {tmp_path / 'search' / 'best.toml'} --on {world}" in done.stdout
    notes = done.stderr.splitlines()
    assert notes[0] == "note: lexical has no use for --device"
    assert [line.split(",")[0].rsplit(maxsplit=1)[0] for line in notes[1:]] == ["trial 0 finished", "trial 1 finished"]
    assert len(json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["trials"]) == 2
    wrong = [sys.executable, "-W", "error", "-m", "labelwise", *command, "--seed", "9"]
    refused = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: {tmp_path / 'search'}: holds another search: seed is 1 there, 9 here")
