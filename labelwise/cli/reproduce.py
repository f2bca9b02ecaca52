"""Reproduction: labelwise reproduce."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from labelwise.cli.options import CorpusFolder, Json, UnknownLabelRule, UnknownLabelsOption, adapt, read


def reproduce(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A packaged recipe or a .toml file with expectations.", show_default=False)
    ],
    on: CorpusFolder,
    out: Annotated[
        Path, typer.Option(help="Folder for model, report and comparison; a finished one is read again.", show_default=False)
    ],
    settings: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; may be repeated.")] = [],
    seed: Annotated[int | None, typer.Option(help="Same seed, same model.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.", show_default=False)] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Processor cores to use.", show_default=False)] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="How far a score may lie off, from 0 to 1; the recipe's own by default."),
    ] = None,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    as_json: Json = False,
) -> None:
    """Train and evaluate a recipe and compare with the results it expects; exit 1 if they are further off than the tolerance.

    After a kill, the same command goes on.
    """
    from labelwise import reproduction
    from labelwise.progress import bar
    from labelwise.recipe import find_recipe

    wanted = adapt(find_recipe(recipe), settings, {"seed": seed, "device": device, "threads": threads})
    reproduction.check_ready(wanted, out, recipe)
    splits = read(on, unknown_labels)
    if wanted.corpus and wanted.corpus != splits.info.name:
        print(f"note: the figures are for {wanted.corpus}, not for {splits.info.name}", file=sys.stderr)
    found = reproduction.reproduce(wanted, splits, out, name=recipe, tolerance=tolerance, progress=bar)
    if as_json:
        print(found.json(), end="")
    else:
        print(found.table().text(), end="")
        print(f"report: {out / 'report' / 'report.html'}")
    if not found.passed:
        raise typer.Exit(1)
