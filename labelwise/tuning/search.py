"""Search: settings are tried one after the other or several at once, and the best become a recipe.

Trials lie in a database, sqlite in the folder of the search or PostgreSQL by URL, which only this process talks to. What is
tried next follows from the seed and the trials that are done; so a search that was killed and taken up again, with one worker,
comes to the same trials as one that was not.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from labelwise.admission import UnknownLabels
from labelwise.corpus import Splits
from labelwise.errors import LabelwiseError, MissingExtra, UnknownName, did_you_mean
from labelwise.jsonl import read_corpus
from labelwise.methods.base import Watched
from labelwise.progress import Progress, silent
from labelwise.recipe import Recipe, adapted, find_recipe
from labelwise.registry import method_class
from labelwise.running import ELSEWHERE, corpus_checksum
from labelwise.settings import cores
from labelwise.storage import new_file, to_toml
from labelwise.tuning.page import FAILED, FINISHED, KILLED, RUNNING, STOPPED, SearchReport, TrialResult
from labelwise.tuning.space import Between, OneOf, Space, Value, grid, make_space
from labelwise.tuning.storage import Database, claimed, quiet_optuna
from labelwise.tuning.trials import USED, Objective, Outcome, run_apart, run_here

try:
    import optuna
    from optuna.trial import FrozenTrial, TrialState
except ModuleNotFoundError as missing:
    raise MissingExtra(f"a search needs {missing.name}: pip install 'labelwise[tune]'") from None

BEST = "best.toml"
WAITS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # seconds between attempts to reach a database that went away
REFRESH = 10.0  # seconds between reports
HOPELESS = 3  # trials that fail before one succeeds: the search ends
TELLING = 5  # finished trials from which on importance is told
Sampler = Literal["tpe", "random", "grid"]


def tune(
    recipe: Recipe | str,
    corpus: Path | str,
    folder: Path | str,
    *,
    trials: int,
    space: Sequence[str] = (),
    settings: Sequence[str] = (),
    objective: str = "",
    sampler: Sampler = "tpe",
    seed: int | None = None,
    storage: str = "",
    workers: int = 1,
    timeout: float | None = None,
    unknown_labels: UnknownLabels = "error",
    waits: Sequence[float] = WAITS,
    told: Callable[[TrialResult, bool], None] = lambda trial, best: None,
    progress: Progress = silent,
) -> SearchReport:
    """Search the settings of a method on the training and development documents of a corpus folder.

    The folder gets the best recipe and a report; a search that lies in it already goes on. `space` and `settings` are as --space
    and --set have them. No trial begins after `timeout` minutes. `told` hears of each that ends, and whether it is the best.
    """
    folder, corpus = Path(folder), Path(corpus)
    recipe = find_recipe(recipe) if isinstance(recipe, str) else recipe
    recipe = replace(adapted(recipe, settings), seed=recipe.seed if seed is None else seed)
    method = method_class(recipe.method)
    if sampler not in get_args(Sampler):
        raise UnknownName(f"there is no sampler {sampler!r}{did_you_mean(sampler, get_args(Sampler))}")
    pinned = {assignment.partition("=")[0].strip() for assignment in settings}
    tried = make_space(method.Settings, recipe.settings, space, pinned, where=f"{recipe.method}: ")
    aim = Objective.read(objective or ("loss" if isinstance(method(), Watched) else "ndcg"))
    splits = read_corpus(corpus, only=USED, unknown_labels=unknown_labels, progress=progress)
    aim.require(method, splits)
    points = grid(tried, recipe.seed) if sampler == "grid" else []
    database = Database(storage, folder, waits)
    search = _identity(recipe, splits, tried, aim, sampler, database)
    if workers > 1 and "threads" not in recipe.settings:
        recipe = adapted(recipe, asked={"threads": max(1, cores() // workers)})
    with quiet_optuna(), claimed(folder, search, database) as (owner, study):
        deadline = time.monotonic() + 60 * timeout if timeout else math.inf
        leader = _Search(folder, search, recipe, tried, points, trials, deadline, owner, study, database)
        run = run_apart(leader, workers, corpus, unknown_labels, aim) if workers > 1 else run_here(leader, splits, aim)
        with closing(run):
            for number in progress(run, f"try settings of {recipe.method}", leader.begin()):
                told(*leader.ended(number))
        return leader.finish()


@dataclass
class _Search:
    """Leads a search: what to try next, what to stop, what came of it."""

    folder: Path
    search: dict[str, Any]
    recipe: Recipe
    space: Space
    points: list[dict[str, Value]]  # of the grid, if it is one
    trials: int
    deadline: float
    owner: str
    study: optuna.Study
    database: Database
    running: dict[int, optuna.Trial] = field(default_factory=dict)
    failed: int = 0  # trials of this run, before one succeeds
    written: float = 0.0  # when the report was

    def begin(self) -> int:
        """Take trials that were killed for failed; how many are left to do."""
        for trial in self._trials():
            if trial.state == TrialState.RUNNING and _begun(trial).get("owner") == self.owner:
                self.database.safely(partial(self.study.tell, trial.number, state=TrialState.FAIL, skip_if_finished=True))
        return max(0, self.trials - sum(map(self._counts, self._trials())))

    def ask(self) -> tuple[int, Recipe] | None:
        """The next trial, unless there are enough, time is up, or nothing works."""
        if time.monotonic() >= self.deadline or self.failed >= HOPELESS:
            return None
        trial = self.database.safely(self._ask)
        if trial is None:
            return None
        self.running[trial.number] = trial
        return trial.number, self._at(trial.params)

    def look(self, number: int, round: int, value: float) -> bool:
        """Whether a trial goes on: until it does worse than the median of those before it."""
        trial = self.running[number]

        def report() -> bool:
            trial.report(value, round)
            return not trial.should_prune()

        return self.database.safely(report)

    def tell(self, number: int, outcome: Outcome) -> None:
        """Write down what a trial came to."""
        trial = self.running.pop(number)

        def write() -> None:
            trial.set_user_attr("outcome", outcome._asdict())
            # To the sampler a failed trial is a hopeless one: it will look elsewhere.
            state = TrialState.PRUNED if outcome.value is None else TrialState.COMPLETE
            self.study.tell(trial, outcome.value, state=state)

        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # it had been written when the database went away
            self.database.safely(write)

    def ended(self, number: int) -> tuple[TrialResult, bool]:
        """A trial that is done, and whether it is the best; recipe and report follow."""
        report = self.report(whole=False)
        trial = next(one for one in report.trials if one.number == number)
        best = report.best is not None and report.best.number == number
        self.failed = 0 if report.best else self.failed + (trial.end == FAILED)
        if best:
            self._write_best(report)
        if time.monotonic() - self.written >= REFRESH:
            self._write_report()
        return trial, best

    def finish(self) -> SearchReport:
        """Write recipe and report; a search without any result is an error."""
        report = self._write_report()
        if report.best is None:
            errors = [trial.error for trial in report.trials if trial.error]
            reason = f"; the last one: {errors[-1]}" if errors else "; give it more time"
            raise LabelwiseError(f"{self.folder}: none of {len(report.trials)} trials came to an end{reason}")
        self._write_best(report)
        return report

    def report(self, *, whole: bool = True) -> SearchReport:
        """The search as far as it has come; importance takes a second, and is left out if not `whole`."""
        trials = self._trials()
        results = tuple(result for trial in trials if (result := self._result(trial)))
        return SearchReport(self.search, results, importances(trials) if whole else {})

    def _ask(self) -> optuna.Trial | None:
        with self.database.alone():
            known = [trial for trial in self.study.get_trials(deepcopy=False) if self._counts(trial)]
            taken = {_begun(trial).get("place") for trial in known}
            place = next(place for place in count() if place not in taken)  # that of a killed trial is free again
            if len(known) >= self.trials or (self.points and place >= len(self.points)):
                return None
            # Of trials that run, only those that count are to be kept away from: what a kill left behind changes nothing.
            self.study.sampler = self._sampler(place, aside=any(trial.state == TrialState.RUNNING for trial in known))
            trial = self.study.ask({key: _distribution(tried, bool(self.points)) for key, tried in self.space.items()})
            trial.set_user_attr("begun", {"owner": self.owner, "place": place})  # killed before this, a trial counts for nobody
            return trial

    def _sampler(self, place: int, aside: bool) -> optuna.samplers.BaseSampler:
        """Draws the trial that has this place in the order of all; aside from those that run, if so wanted."""
        seed = int(np.random.SeedSequence(self.recipe.seed, spawn_key=(place,)).generate_state(1)[0])
        if self.search["sampler"] == "tpe":
            return optuna.samplers.TPESampler(seed=seed, constant_liar=aside)
        drawn = optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.PartialFixedSampler(self.points[place], drawn) if self.points else drawn

    def _trials(self) -> list[FrozenTrial]:
        return self.database.safely(lambda: self.study.get_trials(deepcopy=False))

    def _counts(self, trial: FrozenTrial) -> bool:
        """Whether a trial is one of those asked for: done, or under way here or in another folder's search."""
        if trial.state == TrialState.RUNNING:
            return trial.number in self.running or _begun(trial).get("owner", self.owner) != self.owner
        return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)

    def _result(self, trial: FrozenTrial) -> TrialResult | None:
        if not _begun(trial):
            return None
        outcome = Outcome(**trial.user_attrs.get("outcome", {}))
        stopped = FAILED if outcome.error else STOPPED
        end = {TrialState.COMPLETE: FINISHED, TrialState.PRUNED: stopped, TrialState.FAIL: KILLED}.get(trial.state, RUNNING)
        settings = {key: self.space[key].tidy(value) for key, value in trial.params.items()}
        value = trial.value if end in (FINISHED, STOPPED) else None
        return TrialResult(trial.number, end, settings, value, outcome.rounds, outcome.seconds, outcome.error)

    def _at(self, params: Mapping[str, Value]) -> Recipe:
        """The recipe for one place of the space."""
        return adapted(self.recipe, [f"{key}={json.dumps(self.space[key].tidy(value))}" for key, value in params.items()])

    def _write_best(self, report: SearchReport) -> None:
        best = report.best
        assert best is not None
        recipe, found = self._at(best.settings), f"dev {self.search['objective']}"
        values = {
            "method": recipe.method,
            "corpus": self.search["corpus"],
            "seed": recipe.seed,
            "settings": {key: value for key, value in recipe.settings.items() if key not in ELSEWHERE},
            "source": {
                "search": f"{self.search['sampler']}, {len(report.trials)} trials",
                "trial": best.number,
                found: best.value,
            },
        }
        with new_file(self.folder / BEST, force=True) as file:
            file.write(f"# The best settings that a search found: labelwise train {self.folder / BEST} --on CORPUS --out MODEL\n")
            file.write(to_toml(values))

    def _write_report(self) -> SearchReport:
        report = self.report()
        for suffix, text in {"json": report.json(), "md": report.markdown(), "csv": report.csv(), "html": report.html()}.items():
            with new_file(self.folder / f"report.{suffix}", force=True) as file:
                file.write(text)
        self.written = time.monotonic()
        return report


def _begun(trial: FrozenTrial) -> dict[str, Any]:
    """Whose trial it is, and its place in the order of all."""
    found: dict[str, Any] = trial.user_attrs.get("begun", {})
    return found


def importances(trials: Sequence[FrozenTrial]) -> dict[str, float]:
    """The share of each setting in what settings explain one by one (fANOVA), or nothing where finished trials are too few.

    Optuna's own way counts a range by ratio as if it were drawn from evenly, and so looks at its upper end only.
    """
    finished = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if len(finished) < TELLING or len({trial.value for trial in finished}) == 1:
        return {}
    study = optuna.create_study()
    for trial in finished:
        params, distributions = dict(trial.params), dict(trial.distributions)
        for key, drawn in trial.distributions.items():
            if getattr(drawn, "log", False):
                low, params[key], high = map(math.log, (drawn.low, trial.params[key], drawn.high))  # type: ignore[attr-defined]
                distributions[key] = optuna.distributions.FloatDistribution(low, high)
        study.add_trial(optuna.create_trial(value=trial.value, params=params, distributions=distributions))
    return optuna.importance.get_param_importances(study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0))


def _distribution(tried: Between | OneOf, points: bool) -> optuna.distributions.BaseDistribution:
    if points or not isinstance(tried, Between):
        return optuna.distributions.CategoricalDistribution(tried.points())
    if tried.whole:
        return optuna.distributions.IntDistribution(int(tried.low), int(tried.high), log=tried.log)
    return optuna.distributions.FloatDistribution(tried.low, tried.high, log=tried.log)


def _identity(
    recipe: Recipe, splits: Splits, space: Space, objective: Objective, sampler: Sampler, database: Database
) -> dict[str, Any]:
    """What makes two searches the same; how many trials, and where they are computed, does not."""
    return {
        "method": recipe.method,
        "corpus": splits.info.name,
        "checksum of the corpus": corpus_checksum(splits)[:16],
        "objective": str(objective),
        "sampler": sampler,
        "seed": recipe.seed,
        "space": {key: str(tried) for key, tried in space.items()},
        "settings": {key: value for key, value in recipe.settings.items() if key not in ELSEWHERE},
        **({"storage": str(database)} if database.elsewhere else {}),
    }
