"""Corpora: make a world, measure a corpus."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from labelwise.cli.options import Few, Force, Json, Out, Seed, UnknownLabelRule, UnknownLabelsOption, read


class GuidelineName(StrEnum):
    """How documents of a world are annotated."""

    any_level = "any-level"
    leaves = "leaves"
    closed = "closed"


def world(
    out: Out,
    guideline: Annotated[
        GuidelineName, typer.Option(help="Annotated as EURLEX57K, MIMIC-III or AMAZON13K are.")
    ] = GuidelineName.any_level,
    documents: Annotated[int, typer.Option(help="Documents, split 80/10/10.")] = 5000,
    labels: Annotated[int, typer.Option(help="Labels of the hierarchy.")] = 500,
    words: Annotated[int, typer.Option(help="Mean words of a document.")] = 100,
    seed: Seed = 1,
    force: Force = False,
) -> None:
    """Make a corpus with a known truth."""
    from labelwise.datasets.worlds import make_world
    from labelwise.jsonl import write_corpus
    from labelwise.progress import bar
    from labelwise.storage import check_place

    check_place(out, "corpus", force=force)
    splits = make_world(guideline.value, documents=documents, labels=labels, seed=seed, words=words, progress=bar)
    write_corpus(splits, out, force=force)
    print(f"wrote {out}: {documents:,} documents, {labels:,} labels")


def stats(
    corpus: Annotated[Path, typer.Argument(help="Corpus folder.", show_default=False)],
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A tokenizer.json, or a folder with one: adds the fragmentation ratio.", show_default=False),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Image file for label frequency and depth (.png, .svg, .pdf).", show_default=False)
    ] = None,
    few: Few = None,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say what a corpus is like: documents, words, labels, groups, levels, GAP, density."""
    from labelwise import statistics
    from labelwise.progress import bar
    from labelwise.storage import check_file

    if plot is not None:
        check_file(plot, force=force)
    splits = read(corpus, unknown_labels)
    figures = statistics.describe(splits, few=few, tokenizer=tokenizer, progress=bar)
    if plot is not None:
        statistics.plot(splits, plot, few=few, force=force)
    print(figures.json() if as_json else figures.text())
