"""Comparison: labelwise compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.cli.calibrate import found_in
from labelwise.cli.options import Few, Force, Json, UnknownLabelRule, UnknownLabelsOption, read
from labelwise.errors import BadFile, LabelwiseError

if TYPE_CHECKING:
    from labelwise.report import Report


def compare(
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL|REPORT...",
            help="Folders of models, reports, runs or reproductions; report.json files; what `evaluate --json` printed.",
            show_default=False,
        ),
    ],
    on: Annotated[Path | None, typer.Option(help="Corpus folder to evaluate models on.", show_default=False)] = None,
    measures: Annotated[list[str], typer.Option("-m", "--metric", help="Measure to show; may be repeated.")] = [],
    few: Few = None,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    out: Annotated[
        Path | None, typer.Option(help="Also write the comparison to this folder: HTML, Markdown, LaTeX, CSV, JSON.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Lay reports side by side and say which differences are significant; models are evaluated first.

    Runs of a method that differ in their seed only become one row, mean ± spread.
    """
    from labelwise.comparison import Comparison
    from labelwise.metrics import parse
    from labelwise.report import Report
    from labelwise.storage import check_place

    measures = [measure.lower() for measure in measures]
    for measure in measures:
        parse(measure)
    if out is not None:
        check_place(out, "report", force=force)
    found = {place: _report(place) for place in places}
    models = [place for place, path in found.items() if path is None]
    if models and on is None:
        raise LabelwiseError(f"{models[0]}: a model has no scores yet; name the corpus to evaluate it on with --on CORPUS")
    splits = read(on, unknown_labels) if models and on else None
    reports = {place: Report.load(path) if path else _evaluated(place, splits, measures, few) for place, path in found.items()}
    comparison = Comparison(_rows(reports), metrics=measures or None)
    if out is not None:
        comparison.save(out, force=force)
    print(comparison.json() if as_json else comparison.text(), end="")


def _report(place: Path) -> Path | None:
    """The report that lies at a place, or None where a model does."""
    if (place / "model.toml").is_file():
        return None
    if (place / "study.json").is_file():
        raise BadFile(f"{place}: a study, which `labelwise report {place}` compares; or name runs of it: {place}/runs/*/*/seed-*")
    for path in (place, place / "report.json", place / "report" / "report.json"):
        if path.is_file():
            return path
    if not place.exists():
        raise BadFile(f"{place}: no such file or folder")
    raise BadFile(f"{place}: neither a model nor a report (no model.toml, report.json or report/report.json in it)")


def _evaluated(model: Path, splits: Any, measures: list[str], few: int | None) -> Report:
    """The report of a model on the test documents."""
    from labelwise.evaluation import evaluate
    from labelwise.methods.base import load
    from labelwise.progress import bar
    from labelwise.running import facts

    fitted = load(model)
    calibration = found_in(model, raw=False)
    report = evaluate(fitted, splits, measures=measures or ("rp", "ndcg"), few=few, calibration=calibration, progress=bar)
    report.notes.update(facts(fitted))
    return report


def _rows(reports: dict[Path, Report]) -> list[Report]:
    """One report per row: the mean over seeds where those of a method differ in nothing else, else each with its place."""
    from labelwise.comparison import Repeated

    same: dict[tuple[str, ...], dict[Path, Report]] = {}
    for place, report in reports.items():
        same.setdefault((report.method, report.corpus, report.split), {})[place] = report
    rows: list[Report] = []
    for found in same.values():
        alone, seeds = len(found) == 1, {report.notes.get("seed") for report in found.values()}
        if not alone and len(seeds - {None}) == len(found) and len({_shape(report) for report in found.values()}) == 1:
            rows.append(Repeated.of(list(found.values())))
        else:
            rows += [report if alone else replace(report, method=f"{report.method} ({place})") for place, report in found.items()]
    return rows


def _shape(report: Report) -> tuple[Any, ...]:
    """What reports must share before a mean of them can be taken."""
    return (
        report.fingerprint,
        report.ties,
        report.notes.get("digest of the settings"),
        *((group, *scores) for group, scores in report.groups.items()),
        *((group, *values) for group, values in report.values.items()),
    )
