"""Studies: labelwise study, report."""

from __future__ import annotations

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
        str | None, typer.Option(metavar="10m", help="Time for the epochs of each run: 90s, 10m, 2h.", show_default=False)
    ] = None,
    keep_models: Annotated[bool, typer.Option("--keep-models", help="Keep the model of every run, not its report only.")] = False,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
) -> None:
    """Run methods on corpora with several seeds, and make the paper's tables of them; goes on where it was stopped."""
    from labelwise.progress import bar
    from labelwise.studies.rows import find_rows
    from labelwise.studies.study import Study

    names = [name.strip() for name in methods.split(",") if name.strip()]
    asked = {"device": device, "threads": threads, "budget": minutes(budget)}
    found = Study.begin(out, k=k, few=few)
    find_rows(names, settings)  # mistakes are told before corpora are read
    splits = [read(folder, unknown_labels) for folder in corpora]
    options: dict[str, Any] = {"seeds": seeds, "assignments": settings, "asked": asked, "keep_models": keep_models}
    for outcome in found.run(splits, names, progress=bar, **options):
        print(told(outcome), flush=True)
        write_report(found)
    show(found)


def report(folder: Annotated[Path, typer.Argument(help="Folder of a study.", show_default=False)], as_json: Json = False) -> None:
    """Write the tables and the page of a study anew, at any moment, also while it runs."""
    from labelwise.studies.study import Study

    found = Study.open(folder)
    if as_json:
        print(write_report(found)[0].json(), end="")
    else:
        show(found)


def show(study: Study) -> None:
    """The main table and where the rest is."""
    made, page = write_report(study)
    print()
    print("\n".join(table.text() for table in _narrow(made.table())))
    print(f"report: {page}")


def _narrow(table: Table) -> Iterator[Table]:
    """The table corpus by corpus, since a terminal is not wide enough for several; notes stand below the last."""
    *others, last = table.spans(0)
    for name, start, end in (*others, last):
        zones = tuple(
            replace(zone, rows=tuple(replace(row, cells=row.cells[start:end]) for row in zone.rows)) for zone in table.zones
        )
        part = replace(table, heads=tuple(level[start:end] for level in table.heads), zones=zones)
        yield part if (name, start, end) == last else replace(part, notes=(), test="")


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
