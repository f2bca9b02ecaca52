"""One trial of a search: a method fitted on the training documents and judged on the development documents.

Trials run here, or several at once in processes that each hold the corpus; who leads the search stays in this process. A worker
that dies takes its trial with it and nothing else, and workers end when the process that started them does.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from labelwise.admission import UnknownLabels
from labelwise.corpus import GROUPS, Groups, Splits
from labelwise.errors import BadCorpus, LabelwiseError, UnknownName, did_you_mean
from labelwise.evaluation import evaluate
from labelwise.jsonl import read_corpus
from labelwise.methods.base import Method, Watched
from labelwise.metrics import parse
from labelwise.recipe import Recipe, make_recipe_method

USED = ("train", "dev")  # splits; test documents are never read
LOSS = "loss"


@dataclass(frozen=True)
class Objective:
    """What makes a trial better: lower loss, or a higher measure in a label group, on the development documents."""

    measure: str
    group: str = "all"

    @classmethod
    def read(cls, text: str) -> Self:
        """loss, or a measure with or without a group: ndcg, rp@10, ndcg:few."""
        measure, colon, group = text.strip().lower().partition(":")
        if colon and (group not in GROUPS or measure == LOSS):
            raise UnknownName(f"--objective {text}: write a measure and a group, as ndcg:few{did_you_mean(group, GROUPS)}")
        try:
            if measure != LOSS:
                parse(measure)
        except UnknownName as error:
            raise UnknownName(f"--objective {text}: {error}; or loss") from None
        return cls(measure, group or "all")

    def __str__(self) -> str:
        return self.measure if self.group == "all" else f"{self.measure}:{self.group}"

    @property
    def lower(self) -> bool:
        """Whether lower is better."""
        return self.measure == LOSS

    @property
    def watched(self) -> str:
        """The same as networks tell it after every round, or nothing where they do not."""
        return self.measure if self.group == "all" and self.measure in (LOSS, "rp", "ndcg") else ""

    def require(self, kind: type, splits: Splits) -> None:
        """Say so before long work where it cannot be measured."""
        if self.measure == LOSS and not isinstance(kind(), Watched):
            raise LabelwiseError(f"--objective loss: {kind.name} has no loss to tell; choose rp or ndcg")  # type: ignore[attr-defined]
        inside = Groups.of(splits).masks()[self.group]
        if not splits.split("dev").gold()[:, inside].nnz:
            raise BadCorpus(f"no development document of {splits.info.name!r} has a label of group {self.group!r} to judge by")

    def of(self, method: Method, splits: Splits) -> float:
        """Its value for a fitted method."""
        if self.measure == LOSS:
            kept = [line for line in getattr(method, "history", ()) if line["best"]][-1]
            return float(kept["dev"][LOSS])
        report = evaluate(method, splits, split="dev", measures=[self.measure])
        return report.groups[self.group][report.metrics[0]]


class Outcome(NamedTuple):
    """How a trial ended: with a value, with an error, or stopped as hopeless."""

    value: float | None = None
    error: str = ""
    rounds: int = 0
    seconds: float = 0.0


class Leader(Protocol):
    """Who knows what is to be tried next and what has come of the rest."""

    def ask(self) -> tuple[int, Recipe] | None:
        """The number of the next trial, and what it tries, if there is one."""

    def look(self, number: int, round: int, value: float) -> bool:
        """Whether a trial goes on after a round that came to this value."""

    def tell(self, number: int, outcome: Outcome) -> None:
        """What a trial came to."""


class Lost(LabelwiseError):
    """The search cannot go on, whatever comes of the trial."""


class Hopeless(Exception):
    """Ends the training of a trial that does worse than others did."""


def try_out(recipe: Recipe, splits: Splits, objective: Objective, look: Callable[[int, float], bool]) -> Outcome:
    """Run one trial; whatever goes wrong in it is its outcome."""
    rounds, begun = 0, time.perf_counter()

    def watch(line: dict[str, Any]) -> None:
        nonlocal rounds
        rounds += 1
        if objective.watched:
            now = line["dev"][objective.watched]
            if not math.isfinite(now):
                raise LabelwiseError(f"{objective} is {now} after round {rounds}")
            if not look(rounds, now):
                raise Hopeless

    value, error = None, ""
    try:
        method = make_recipe_method(recipe, {})
        if isinstance(method, Watched):
            method.watch = watch
        method.fit(splits.train, splits.dev)
        value = objective.of(method, splits)
        if not math.isfinite(value):
            value, error = None, f"{objective} is {value}"
    except Hopeless:
        pass
    except Lost:
        raise
    except LabelwiseError as trouble:
        error = str(trouble)
    except Exception as trouble:  # a night's search is not to end with one bad combination of settings
        error = f"{type(trouble).__name__}: {trouble}"
    return Outcome(value, error, rounds, round(time.perf_counter() - begun, 2))


def run_here(leader: Leader, splits: Splits, objective: Objective) -> Generator[int]:
    """Run trial after trial in this process; the number of each when it is done."""
    while (task := leader.ask()) is not None:
        number, recipe = task
        leader.tell(number, try_out(recipe, splits, objective, partial(leader.look, number)))
        yield number


def run_apart(leader: Leader, workers: int, corpus: Path, rule: UnknownLabels, objective: Objective) -> Generator[int]:
    """Run several trials at once, each in a process; the number of each when it is done."""
    crew = [_Worker(corpus, rule, objective) for _ in range(workers)]
    try:
        while True:
            for worker in crew:
                if worker.number is None and (task := leader.ask()) is not None:
                    worker.start(*task)
            busy = {worker.connection: worker for worker in crew if worker.number is not None}
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                if (number := worker.serve(leader)) is not None:
                    yield number
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """A process that runs one trial after the other, and its end of the line to it."""

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.number: int | None = None  # of its trial
        self.process: SpawnProcess | None = None

    def start(self, number: int, recipe: Recipe) -> None:
        """Give it a trial; one that has died, or was not there yet, begins first."""
        self.number = number
        if self.process is None or not self.process.is_alive():
            self.end()
            context = get_context("spawn")  # a fork would share locks and a GPU with this process
            self.connection, other = context.Pipe()
            self.process = context.Process(target=_work, args=(other, *self.given), daemon=True)
            self.process.start()
            other.close()  # so that the line breaks when the process ends
        with suppress(OSError):  # it dies at this moment: `serve` will find out
            self.connection.send(recipe)

    def serve(self, leader: Leader) -> int | None:
        """Answer one message; the number of the trial if that was its last."""
        assert self.number is not None
        assert self.process is not None
        try:
            message = self.connection.recv()
            if not isinstance(message, Outcome):
                self.connection.send(leader.look(self.number, *message))
                return None
        except (EOFError, OSError):
            self.process.join()
            message = Outcome(error=f"its process ended with exit code {self.process.exitcode}; was there too little memory?")
        number, self.number = self.number, None
        leader.tell(number, message)
        return number

    def end(self) -> None:
        """Stop the process, if there is one."""
        if self.process is not None:
            self.process.terminate()
            self.process.join()
            self.connection.close()


def _work(line: Connection, corpus: Path, rule: UnknownLabels, objective: Objective) -> None:
    """What a worker does: read the corpus, then run what it is given."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that leads
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)

    def look(round: int, value: float) -> bool:
        line.send((round, value))
        return bool(line.recv())

    splits = read_corpus(corpus, only=USED, unknown_labels=rule)
    while True:
        line.send(try_out(line.recv(), splits, objective, look))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
