"""Search: labelwise tune."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelwise.cli.options import CorpusFolder, Json, UnknownLabelRule, UnknownLabelsOption, adapt, minutes

if TYPE_CHECKING:
    from labelwise.tuning.page import TrialResult


class SamplerName(StrEnum):
    """How the next settings are found."""

    tpe = "tpe"
    random = "random"
    grid = "grid"


def tune(
    method: Annotated[
        str, typer.Argument(metavar="METHOD|RECIPE", help="A method, a packaged recipe or a .toml file.", show_default=False)
    ],
    on: CorpusFolder,
    trials: Annotated[int, typer.Option(min=1, help="Trials in all; those of earlier runs count.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="Folder of the search; the same command goes on with the one in it.", show_default=False)
    ],
    space: Annotated[
        list[str],
        typer.Option(
            metavar="paper|KEY[=LOW..HIGH|=A,B]", help="What to search; may be repeated. By default what is marked as worth it."
        ),
    ] = [],
    objective: Annotated[
        str, typer.Option(help="loss (default of networks), or a measure such as ndcg (of others), rp@10, ndcg:few; on dev.")
    ] = "",
    sampler: Annotated[
        SamplerName, typer.Option(help="By what was good so far, at random, or every combination.")
    ] = SamplerName.tpe,
    settings: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; may be repeated.")] = [],
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="Same seed, same trials with one worker.", show_default=False)
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.", show_default=False)] = None,
    budget: Annotated[str | None, typer.Option(metavar="10m", help="Time for each trial.", show_default=False)] = None,
    timeout: Annotated[str | None, typer.Option(metavar="2h", help="Begin no trial after this time.", show_default=False)] = None,
    workers: Annotated[int, typer.Option(min=1, help="Trials at once, each in a process.")] = 1,
    storage: Annotated[
        str, typer.Option(metavar="URL", help="Database, as postgresql://USER@HOST/NAME; by default a file in the folder.")
    ] = "",
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    as_json: Json = False,
) -> None:
    """Search the settings of a method on the development documents, and write the best as a recipe."""
    from labelwise.progress import bar
    from labelwise.recipe import find_recipe
    from labelwise.tuning import search

    report = search.tune(
        adapt(find_recipe(method), [], {"device": device, "budget": minutes(budget)}),
        on,
        out,
        trials=trials,
        space=space,
        settings=settings,
        objective=objective,
        sampler=sampler.value,
        seed=seed,
        storage=storage,
        workers=workers,
        timeout=minutes(timeout, "--timeout"),
        unknown_labels=unknown_labels.value,
        told=_say,
        progress=bar,
    )
    if as_json:
        print(report.json(), end="")
        return
    print(report.text())
    print(f"wrote {out / search.BEST}: labelwise train {out / search.BEST} --on {on} --out MODEL")
    print(f"report: {out / 'report.html'}")


def _say(trial: TrialResult, best: bool) -> None:
    value = "" if trial.value is None else f" {trial.value:.5g}"
    reason = f": {trial.error}" if trial.error else ""
    print(f"trial {trial.number} {trial.end}{value}, {trial.seconds:.1f} s{', the best so far' * best}{reason}", file=sys.stderr)
