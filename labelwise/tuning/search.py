"""Search: settings are tried one after the other or several at once, and the best become a recipe.

Trials lie in a database, sqlite in the folder of the search or PostgreSQL by URL, which only this process talks to. What is
tried next follows from the seed and the trials that are done; so a search that was killed and taken up again, with one worker,
comes to the same trials as one that was not.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
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
from labelwise.recipe import Recipe, find_recipe
from labelwise.registry import find, methods
from labelwise.settings import override
from labelwise.storage import new_file, to_toml
from labelwise.tuning.page import FAILED, FINISHED, KILLED, RUNNING, STOPPED, SearchReport, TrialResult
from labelwise.tuning.space import Between, OneOf, Space, Value, grid, make_space
from labelwise.tuning.storage import Database, claimed, quiet_optuna
from labelwise.tuning.trials import USED, Objective, Outcome, Task, run_apart, run_here

try:
    import optuna
    from optuna.trial import FrozenTrial, TrialState
except ModuleNotFoundError as missing:
    raise MissingExtra(f"a search needs {missing.name}: pip install 'labelwise[tune]'") from None

BEST = "best.toml"
MACHINE = ("device", "threads")  # settings that say where to compute, not what
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
    recipe = replace(recipe, settings=override(recipe.settings, settings), seed=recipe.seed if seed is None else seed)
    method = find(recipe.method, methods(), "method").load()
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
    recipe = _shared_out(recipe, method.Settings, workers)
    deadline = time.monotonic() + 60 * timeout if timeout else math.inf
    with quiet_optuna(), claimed(folder, search, database) as (owner, study):
        leader = _Search(folder, search, recipe, tried, points, trials, deadline, owner, study, database.safely)
        how = {"unknown_labels": unknown_labels}
        run = run_apart(leader, workers, corpus, how, aim) if workers > 1 else run_here(leader, splits, aim)
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
    safely: Callable[[Callable[[], Any]], Any]
    running: dict[int, optuna.Trial] = field(default_factory=dict)
    failed: int = 0  # trials of this run, before one succeeds
    written: float = 0.0  # when the report was

    def begin(self) -> int:
        """Take trials that were killed for failed; how many are left to do."""
        for trial in self._trials():
            if trial.state == TrialState.RUNNING and _begun(trial).get("owner") == self.owner:
                self.safely(partial(self.study.tell, trial.number, state=TrialState.FAIL))
        return max(0, self.trials - sum(map(self._counts, self._trials())))

    def ask(self) -> Task | None:
        """The next trial, unless there are enough, time is up, or nothing works."""
        if time.monotonic() >= self.deadline or self.failed >= HOPELESS:
            return None
        trial = self.safely(self._ask)
        if trial is None:
            return None
        self.running[trial.number] = trial
        return Task(trial.number, self._at(trial.params))

    def look(self, number: int, round: int, value: float) -> bool:
        """Whether a trial goes on: until it does worse than the median of those before it."""
        trial = self.running[number]

        def report() -> bool:
            trial.report(value, round)
            return not trial.should_prune()

        return self.safely(report)

    def tell(self, number: int, outcome: Outcome) -> None:
        """Write down what a trial came to."""
        trial = self.running.pop(number)

        def write() -> None:
            trial.set_user_attr("outcome", outcome._asdict())
            # To the sampler a failed trial is a hopeless one: it will look elsewhere.
            state = TrialState.PRUNED if outcome.value is None else TrialState.COMPLETE
            self.study.tell(trial, outcome.value, state=state)

        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # it had been written when the database went away
            self.safely(write)

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
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        importance = {}
        if whole and len(complete) >= TELLING and len({trial.value for trial in complete}) > 1:
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
            importance = self.safely(lambda: optuna.importance.get_param_importances(self.study, evaluator=evaluator))
        return SearchReport(self.search, results, importance)

    def _ask(self) -> optuna.Trial | None:
        known = [trial for trial in self._trials() if self._counts(trial)]
        if len(known) >= self.trials:
            return None
        taken = {_begun(trial).get("place") for trial in known}
        place = next(place for place in count() if place not in taken)  # that of a killed trial is free again
        seed = int(np.random.SeedSequence([self.recipe.seed, place]).generate_state(1)[0])
        self.study.sampler = optuna.samplers.RandomSampler(seed=seed)
        if self.search["sampler"] == "tpe":
            self.study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        elif self.search["sampler"] == "grid":
            if place >= len(self.points):
                return None
            self.study.sampler = optuna.samplers.PartialFixedSampler(self.points[place], self.study.sampler)
        trial = self.study.ask({key: _distribution(tried, bool(self.points)) for key, tried in self.space.items()})
        trial.set_user_attr("begun", {"owner": self.owner, "place": place})  # killed before this line, a trial counts for nobody
        return trial

    def _trials(self) -> list[FrozenTrial]:
        return self.safely(lambda: self.study.get_trials(deepcopy=False))

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
        assignments = [f"{key}={json.dumps(self.space[key].tidy(value))}" for key, value in params.items()]
        return replace(self.recipe, settings=override(self.recipe.settings, assignments))

    def _write_best(self, report: SearchReport) -> None:
        best = report.best
        assert best is not None
        recipe, found = self._at(best.settings), f"dev {self.search['objective']}"
        values = {
            "method": recipe.method,
            "corpus": self.search["corpus"],
            "seed": recipe.seed,
            "settings": {key: value for key, value in recipe.settings.items() if key not in MACHINE},
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
        "documents": _digest(splits),
        "objective": str(objective),
        "sampler": sampler,
        "seed": recipe.seed,
        "space": {key: str(tried) for key, tried in space.items()},
        "settings": {key: value for key, value in recipe.settings.items() if key not in MACHINE},
        "storage": str(database) if database.elsewhere else "",
    }


def _digest(splits: Splits) -> str:
    """A short name for labels, training and development documents, texts and all."""
    digest = hashlib.sha256()
    for label in splits.labels:
        digest.update(json.dumps(asdict(label)).encode())
    for corpus in (splits.train, splits.dev):
        for document in corpus:
            digest.update(json.dumps([document.id, document.text, document.labels]).encode())
        digest.update(b"\n")
    return digest.hexdigest()[:16]


def _shared_out(recipe: Recipe, kind: type, workers: int) -> Recipe:
    """The recipe with a worker's share of the processor cores, unless it says how many."""
    if workers == 1 or "threads" in recipe.settings or "threads" not in getattr(kind, "__dataclass_fields__", {}):
        return recipe
    return replace(recipe, settings={**recipe.settings, "threads": max(1, (os.cpu_count() or 1) // workers)})
