"""A study: methods × corpora × seeds, each a run of its own in a folder that grows.

A kill at any moment loses no finished run: runs appear whole, and the next call takes up what is missing. One method that fails
is written down and does not stop the others. Several calls on one folder make one study, as long as corpora and settings agree.
"""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from labelwise import __version__
from labelwise.corpus import Splits
from labelwise.errors import BadCorpus, BadFile, LabelwiseError, OutputExists
from labelwise.hierarchy import Hierarchy
from labelwise.progress import Progress, silent
from labelwise.recipe import Recipe, make_recipe_method, read_recipe
from labelwise.report import Report
from labelwise.running import RECIPE, REPORT, corpus_checksum, finished, run
from labelwise.statistics import Statistics, describe
from labelwise.storage import alone, read_json, write_bytes
from labelwise.studies.results import CorpusFacts, Failure, Job, Results, Run, file_name
from labelwise.studies.rows import Row, absent_weights, find_rows, rank, require_weights

FORMAT = 1  # of study.json
KEYS, ROW_KEYS = ("format", "k", "few", "rows", "corpora"), ("method", "seeds", "left out")  # that it and its rows must have
PLAN, FAILURES, RUNNING = "study.json", "failures.json", "running.json"
TIES = "pessimistic"  # labels without a score are misses for all, whether a method gives scores to few labels or to all


class Study:
    """The folder of a study; `open` reads one that is there, `begin` takes a new one too, which `run` makes."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.folder, self.plan = folder, plan
        self._runs: dict[Job, Run] = {}  # those that were read before; a run does not change once it is there

    @classmethod
    def open(cls, folder: Path | str) -> Study:
        """A study that is there."""
        path = Path(folder) / PLAN
        if not path.is_file():
            raise BadFile(f"{folder}: not a study (no {PLAN}); begin one with `labelwise study CORPUS --out {folder}`")
        plan = read_json(path)
        plan = plan if isinstance(plan, dict) else {}
        if (number := plan.get("format", FORMAT)) != FORMAT:
            raise BadFile(
                f"{path}: written in format {number}, this version reads {FORMAT}; update labelwise, or name another folder"
            )
        if lacking := [key for key in KEYS if key not in plan]:
            raise BadFile(f"{path}: damaged: it needs {', '.join(lacking)}; name another folder")
        for name, row in plan["rows"].items():
            if lacking := [key for key in ROW_KEYS if key not in row]:
                raise BadFile(f"{path}: damaged: row {name!r} needs {', '.join(lacking)}; name another folder")
            if isinstance(row["seeds"], int):  # as it was written at first: the same number for all corpora
                row["seeds"] = dict.fromkeys(plan["corpora"], row["seeds"])
        return cls(Path(folder), plan)

    @classmethod
    def begin(cls, folder: Path | str, *, k: int | None = None, few: int | None = None) -> Study:
        """The study of a folder, or a new one for it; cut-off and few-shot limit stay what they were at first."""
        folder = Path(folder)
        if (folder / PLAN).is_file():
            study = cls.open(folder)
            for name, given in {"k": k, "few": few}.items():
                if given is not None and given != (was := study.plan[name]):
                    default = "the corpora's own" if was is None else was
                    raise LabelwiseError(
                        f"{folder}: begun with {name}={default}, not {given}; leave it out, or name another folder"
                    )
            return study
        if folder.exists() and (not folder.is_dir() or any(path.name[0] != "." for path in folder.iterdir())):
            raise OutputExists(f"{folder}: holds something that is not a study; name another folder")
        return cls(folder, {"format": FORMAT, "version": __version__, "k": k, "few": few, "rows": {}, "corpora": []})

    def run(
        self,
        corpora: Sequence[Splits],
        methods: Sequence[str],
        *,
        seeds: int = 1,
        assignments: Sequence[str] = (),
        asked: Mapping[str, Any] | None = None,
        keep_models: bool = False,
        progress: Progress = silent,
    ) -> Iterator[Run | Failure]:
        """Do what is not done yet, and give each outcome as it comes; `asked` goes to methods that have such settings."""
        by_name = {splits.info.name: splits for splits in corpora}
        if len(by_name) < len(corpora):
            names = ", ".join(splits.info.name for splits in corpora)
            raise BadCorpus(f"two of these corpora have one name ({names}); give one another name in its corpus.toml")
        for splits in corpora:
            splits.split("test")  # one without is refused before hours are spent on it
        rows = find_rows(methods, assignments)
        require_weights(assignments)
        checksums = {name: corpus_checksum(splits) for name, splits in by_name.items()}
        self._check(checksums)
        self._jobs(rows, list(by_name), seeds, dict(asked or {}))  # mistakes are told before anything is written
        with self._locked(patience=1.0):
            self.plan = Study.open(self.folder).plan if (self.folder / PLAN).is_file() else self.plan
            self._check(checksums)
            jobs, absent = self._jobs(rows, list(by_name), seeds, dict(asked or {}))
            self._enlarge(rows, list(by_name), seeds)
            for name in [name for name in checksums if name not in self.plan["corpora"]]:
                self._admit(by_name[name], checksums[name], progress)
            self._note(absent, {job for job, _ in jobs})
            for job, recipe in jobs:
                options = {"keep_model": keep_models, "checksum": checksums[job.corpus], "progress": progress}
                yield self._do(job, recipe, by_name[job.corpus], options)
                gc.collect()  # a network and what it was trained with hold each other in circles

    def results(self) -> Results:
        """All that is known by now; a study that runs elsewhere may add to it at any moment."""
        rows: dict[str, dict[str, Any]] = self.plan["rows"]
        wanted = [
            Job(corpus, name, seed)
            for name, row in rows.items()
            for corpus in self.plan["corpora"]
            for seed in range(1, row["seeds"].get(corpus, 0) + 1)
        ]
        runs = tuple(self._read(job) for job in wanted if (self.folder / job.place).is_dir())
        missing = set(wanted) - {run.job for run in runs}
        failures = tuple(one for one in self._failures() if one.job in missing)
        return Results(
            {name: row["method"] for name, row in rows.items()},
            {name: self._facts(name) for name in self.plan["corpora"]},
            runs,
            failures,
            self._running(),
            len(missing) - len(failures),
            {name: tuple(row["left out"]) for name, row in rows.items() if row["left out"]},
        )

    def _jobs(
        self, rows: Sequence[Row], corpora: Sequence[str], seeds: int, asked: dict[str, Any]
    ) -> tuple[list[tuple[Job, Recipe]], list[Failure]]:
        """What is still to be done, and what cannot be; finished runs with other settings are refused, as are bad settings."""
        jobs, absent = [], []
        for seed, corpus, row in product(range(1, seeds + 1), corpora, rows):
            job = Job(corpus, row.name, seed)
            if row.seedless and seed > 1:
                continue
            if row.absent:
                absent.append(Failure(job, "not run", row.absent))
                continue
            recipe = row.recipe(corpus, seed, asked)
            method = make_recipe_method(recipe, {})
            if finished(self.folder / job.place, method):
                continue
            if reason := absent_weights(method.settings):
                absent.append(Failure(job, "not run", reason))
            else:
                jobs.append((job, recipe))
        # A run that was killed comes last: if it was what took the machine down, the others are done before it does so again.
        killed = self._marked()
        return sorted(jobs, key=lambda one: one[0] == killed), absent

    def _enlarge(self, rows: Sequence[Row], corpora: Sequence[str], seeds: int) -> None:
        """Write rows into the plan, in the order of the tables, with the seeds that are asked for on each corpus."""
        known: dict[str, dict[str, Any]] = self.plan["rows"]
        for row in rows:
            before, number = known.get(row.name, {}).get("seeds", {}), 1 if row.seedless else seeds
            asked = before | {corpus: max(number, before.get(corpus, 1)) for corpus in corpora}
            known[row.name] = {"method": row.method, "seeds": asked, "left out": list(row.left_out)}
        self.plan["rows"] = dict(sorted(known.items(), key=lambda one: rank(one[0], one[1]["method"])))
        self._write(PLAN, self.plan)

    def _do(self, job: Job, recipe: Recipe, splits: Splits, options: Mapping[str, Any]) -> Run | Failure:
        """One run; whatever goes wrong in it is written down."""
        self._write(RUNNING, job)
        evaluation = {"ks": [self.plan["k"]] if self.plan["k"] else [], "few": self.plan["few"], "ties": TIES}
        try:
            run(recipe, splits, self.folder / job.place, name=job.row, **options, **evaluation)
            outcome: Run | Failure = self._read(job)
        except Exception as error:  # a method may raise anything
            named = str(error) if isinstance(error, LabelwiseError) else f"{type(error).__name__}: {error}"
            outcome = Failure(job, "failed", " ".join(named.split()))
            self._note([outcome], traceback="" if isinstance(error, LabelwiseError) else traceback.format_exc())
        (self.folder / RUNNING).unlink()
        return outcome

    def _read(self, job: Job) -> Run:
        if job not in self._runs:
            place = self.folder / job.place
            self._runs[job] = Run(job, Report.load(place / REPORT), read_recipe(place / RECIPE, shallow=True))
        return self._runs[job]

    def _check(self, checksums: Mapping[str, str]) -> None:
        """See that corpora are still those that the study began with."""
        for name in [name for name in checksums if name in self.plan["corpora"]]:
            if self._facts(name).checksum != checksums[name]:
                raise BadCorpus(
                    f"{self.folder}: the corpus {name!r} has changed since this study began, so results cannot be compared; "
                    "go back to it, give the new one another name in its corpus.toml, or name another folder for a new study"
                )

    def _admit(self, splits: Splits, checksum: str, progress: Progress) -> None:
        """Take a corpus into the study."""
        statistics = describe(splits, few=self.plan["few"], progress=progress)
        levels = dict(zip(splits.labels.ids, Hierarchy(splits.labels).levels.tolist(), strict=True))
        self._write(_facts_file(splits.info.name), asdict(CorpusFacts(checksum, statistics, levels)))
        self.plan["corpora"].append(splits.info.name)
        self._write(PLAN, self.plan)

    def _facts(self, name: str) -> CorpusFacts:
        told = read_json(self.folder / _facts_file(name))
        return CorpusFacts(told["checksum"], Statistics(**told["statistics"]), told["levels"])

    def _failures(self) -> list[Failure]:
        path = self.folder / FAILURES
        return [Failure(Job(*one["job"]), one["kind"], one["reason"]) for one in (read_json(path) if path.is_file() else [])]

    def _note(self, failures: Sequence[Failure], tried: Container[Job] = (), traceback: str = "") -> None:
        """Write failures down in the place of earlier ones of the same jobs, and forget those that are tried again."""
        path = self.folder / FAILURES
        new = {one.job for one in failures}
        told = read_json(path) if path.is_file() else []
        kept = [one for one in told if Job(*one["job"]) not in new and Job(*one["job"]) not in tried]
        added = [one._asdict() | ({"traceback": traceback} if traceback else {}) for one in failures]
        self._write(FAILURES, kept + added)

    def _marked(self) -> Job | None:
        """The job that was begun last and not ended."""
        path = self.folder / RUNNING
        with suppress(FileNotFoundError):
            return Job(*json.loads(path.read_text(encoding="utf-8")))
        return None

    def _running(self) -> Job | None:
        """The job that is being done at this moment, by whichever process."""
        try:
            with self._locked():
                return None
        except LabelwiseError:
            return self._marked()

    def _locked(self, patience: float = 0.0) -> AbstractContextManager[None]:
        """Hold the study; somebody who writes a report holds it for a moment, too."""
        return alone(
            self.folder, f"{self.folder}: another study is running in this folder; wait for it, or name another", patience
        )

    def _write(self, name: str, value: Any) -> None:
        write_bytes(self.folder / name, (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode(), force=True)


def _facts_file(corpus: str) -> str:
    return f"corpora/{file_name(corpus)}.json"
