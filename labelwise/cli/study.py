"""Studies: labelwise study, report."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.cli.options import Few, Json, UnknownLabelRule, UnknownLabelsOption, minutes, read

if TYPE_CHECKING:
    from labelwise.studies.report import StudyReport
    from labelwise.studies.results import Failure, Run
    from labelwise.studies.study import Study
    from labelwise.tables import Table


SPARED = 10.0  # times what a report takes to write, before it is written anew: that of a large study takes seconds


def study(
    corpora: Annotated[list[Path], typer.Argument(metavar="CORPUS…", help="Corpus folders.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="Folder of the study; one that is there goes on.", show_default=False)],
    methods: Annotated[
        str, typer.Option(metavar="all|paper|a,b,c", help="All methods, those of the paper, or names and recipes.")
    ] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method that depends on chance.")] = 1,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Cut-off; the corpora's own by default.")] = None,
    few: Few = None,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="A setting, for all methods that have it; may be repeated.")
    ] = [],
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.", show_default=False)] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Processor cores to use.", show_default=False)] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="10m", help="Time for each run: 90s, 10m, 2h.", show_default=False)
    ] = None,
    keep_models: Annotated[bool, typer.Option("--keep-models", help="Keep the model of every run, not its report only.")] = False,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    as_json: Json = False,
) -> None:
    """Run methods on corpora with several seeds, and make the paper's tables of them; goes on where it was stopped.

    Exit 1 if a run failed; the others are not stopped by it.
    """
    from labelwise.progress import bar
    from labelwise.registry import Entry
    from labelwise.studies.results import Failure
    from labelwise.studies.rows import find_rows
    from labelwise.studies.study import Study

    names = [name.strip() for name in methods.split(",") if name.strip()]
    asked = {"device": device, "threads": threads, "budget": minutes(budget)}
    find_rows(names, settings)  # mistakes are told before anything is read or written
    if device is not None:
        Entry("labelwise.network.devices:choose_device", "").load()(device)
    found = Study.begin(out, k=k, few=few)
    splits = [read(folder, unknown_labels) for folder in corpora]
    options: dict[str, Any] = {"seeds": seeds, "assignments": settings, "asked": asked, "keep_models": keep_models}
    failed, written, took = False, 0.0, 0.0
    for outcome in found.run(splits, names, progress=bar, **options):
        print(told(outcome), file=sys.stderr if as_json else sys.stdout, flush=True)
        failed |= isinstance(outcome, Failure)
        if (begun := time.monotonic()) >= written + SPARED * took:
            write_report(found)
            written = time.monotonic()
            took = written - begun
    show(found, as_json)
    if failed:
        raise typer.Exit(1)


def report(folder: Annotated[Path, typer.Argument(help="Folder of a study.", show_default=False)], as_json: Json = False) -> None:
    """Write the tables and the page of a study anew, at any moment, also while it runs."""
    from labelwise.studies.study import Study

    show(Study.open(folder), as_json)


def show(study: Study, as_json: bool) -> None:
    """The main table and where the rest is, or all of it for machines."""
    made, page = write_report(study)
    if as_json:
        print(made.json(), end="")
        return
    print()
    print("\n".join(_narrow(made.table())))
    print(f"report: {page}")


def _narrow(table: Table) -> Iterator[str]:
    """The table corpus by corpus, since a terminal is not wide enough for several; notes and legend stand below the last."""
    for _, start, end in table.spans(0):
        zones = tuple(
            replace(zone, rows=tuple(replace(row, cells=row.cells[start:end]) for row in zone.rows)) for zone in table.zones
        )
        part = replace(table, heads=tuple(level[start:end] for level in table.heads), zones=zones)
        last = end == len(table.heads[0])
        bare = replace(part, notes=(), test="")
        yield part.text() if last else bare.text().removesuffix(bare.legend("*", "°") + "\n")


def told(outcome: Run | Failure) -> str:
    """One run in a line."""
    from labelwise.studies.results import Failure
    from labelwise.studies.tables import spell_seconds
    from labelwise.tables import percent

    if isinstance(outcome, Failure):
        return f"{outcome.job}: {outcome.kind}: {outcome.reason}"
    scores = outcome.report.groups
    shown = ", ".join(f"{group} {percent(scores[group][f'rp@{outcome.report.k}'])}" for group in scores)
    spent = spell_seconds(float(outcome.report.notes["seconds of training"]))
    return f"{outcome.job}: RP@{outcome.report.k} × 100 {shown} ({spent})"


def write_report(study: Study) -> tuple[StudyReport, Path]:
    """The report of what is there by now, written into the study's folder; and the path of its page."""
    from labelwise.studies.report import StudyReport

    made = StudyReport(study.results())
    return made, made.save(study.folder)
