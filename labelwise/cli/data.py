"""labelwise data: one command per data set, each with the help text of its reader."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from labelwise.cli.options import Force, Out, Seed, UnknownLabelRule, UnknownLabelsOption
from labelwise.errors import LabelwiseError
from labelwise.progress import spinner

if TYPE_CHECKING:
    from labelwise.corpus import Splits
    from labelwise.storage import Kind


class Readers(TyperGroup):
    """Commands whose help is the docstring of the reader, so that source and licence are said in one place."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command with its reader's help."""
        from labelwise.registry import DATASETS, datasets

        if cmd_name in datasets().keys() - DATASETS.keys():
            return _plugin(cmd_name)
        command = super().get_command(ctx, cmd_name)
        if command and cmd_name in DATASETS:
            paragraphs = (inspect.getdoc(DATASETS[cmd_name].load()) or "").split("\n\n")
            command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
            command.short_help = DATASETS[cmd_name].summary
        return command

    def list_commands(self, ctx: Any) -> list[str]:
        """Our readers, then those of plug-ins."""
        from labelwise.registry import DATASETS, datasets

        return [*super().list_commands(ctx), *sorted(datasets().keys() - DATASETS.keys())]


app = typer.Typer(cls=Readers, no_args_is_help=True, help="Read a data set into a corpus folder.")

Source = Annotated[Path, typer.Argument(help="Folder of the data set.", show_default=False)]
Sources = Annotated[
    list[str], typer.Argument(help="One source, or several as train=PATH dev=PATH test=PATH.", show_default=False)
]
Descriptors = Annotated[Path | None, typer.Option(help="The label file: names and parents.", show_default=False)]
Language = Annotated[str, typer.Option(help="Language of names and synonyms.")]
Reduce = Annotated[bool, typer.Option("--reduce", help="Drop parents that are also ancestors by another way.")]


@app.command()
def jsonl(
    source: Source,
    out: Out,
    closed: Annotated[bool, typer.Option("--closed", help="Make every ancestor of a gold label gold.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Keep this many training documents.", show_default=False)] = None,
    break_cycles: Annotated[bool, typer.Option("--break-cycles", help="Drop the parents that close a cycle.")] = False,
    seed: Seed = 1,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    force: Force = False,
) -> None:
    from labelwise.datasets.jsonl import read_jsonl

    _check(out, force)
    options: dict[str, Any] = {"closed": closed, "limit": limit, "seed": seed, "break_cycles": break_cycles}
    with spinner(f"reading {source}"):
        splits = read_jsonl(source, unknown_labels=unknown_labels.value, **options)
    _write(splits, out, force)


@app.command()
def eurlex57k(
    source: Source,
    out: Out,
    descriptors: Annotated[Path, typer.Option(help="The concept file: names and parents.", show_default=False)],
    zones: Annotated[list[str], typer.Option("--zone", help="Text zones to take; may be repeated.")] = [
        "header",
        "recitals",
        "main_body",
        "attachments",
    ],
    reduce: Reduce = False,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    force: Force = False,
) -> None:
    from labelwise.datasets.eurlex57k import read_eurlex57k

    _check(out, force)
    with spinner(f"reading {source}"):
        splits = read_eurlex57k(source, descriptors, zones=zones, unknown_labels=unknown_labels.value, reduce=reduce)
    _write(splits, out, force)


@app.command()
def mimic3(
    source: Source,
    out: Out,
    edges: Annotated[Path | None, typer.Option(help="Parents of codes, two columns.", show_default=False)] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Write lower-case text without punctuation.")] = False,
    seed: Seed = 1891,
    force: Force = False,
) -> None:
    from labelwise.datasets.mimic3 import read_mimic3

    _check(out, force)
    with spinner(f"reading {source}"):
        splits = read_mimic3(source, edges=edges, seed=seed, clean=clean)
    _write(splits, out, force)


@app.command()
def amazon13k(
    source: Source,
    out: Out,
    descriptors: Descriptors = None,
    dev: Annotated[float, typer.Option(min=0, max=0.5, help="Share of training held out where there is no dev split.")] = 0.1,
    drop_empty: Annotated[bool, typer.Option("--drop-empty", help="Leave out products without a text.")] = False,
    reduce: Reduce = False,
    seed: Seed = 1,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    force: Force = False,
) -> None:
    from labelwise.datasets.amazon13k import read_amazon13k

    _check(out, force)
    options: dict[str, Any] = {"dev": dev, "seed": seed, "reduce": reduce, "drop_empty": drop_empty}
    with spinner(f"reading {source}"):
        splits = read_amazon13k(source, descriptors, unknown_labels=unknown_labels.value, **options)
    _write(splits, out, force)


@app.command()
def skos(
    source: Annotated[list[Path], typer.Argument(help="SKOS files of one thesaurus.", show_default=False)],
    out: Out,
    language: Language = "en",
    force: Force = False,
) -> None:
    from labelwise.datasets.skos import read_skos
    from labelwise.jsonl import write_labels
    from labelwise.storage import new_folder

    _check(out, force, "labels")
    labels = read_skos(source, language=language)
    with new_folder(out, "labels", force=force) as draft:
        write_labels(labels, draft / "labels.jsonl")
    print(f"wrote {out}: {len(labels):,} labels")


@app.command()
def annif(
    source: Sources,
    out: Out,
    vocabulary: Annotated[Path, typer.Option(help="TSV, CSV or SKOS file of the subjects.", show_default=False)],
    language: Language = "en",
    seed: Seed = 1,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    force: Force = False,
) -> None:
    from labelwise.datasets.annif import read_annif

    _check(out, force)
    with spinner(f"reading {' '.join(source)}"):
        splits = read_annif(_by_split(source), vocabulary, language=language, unknown_labels=unknown_labels.value, seed=seed)
    _write(splits, out, force)


@app.command()
def xmc(
    source: Sources,
    out: Out,
    export: Annotated[
        bool, typer.Option("--export", help="The other way: SOURCE is a corpus folder, OUT gets the sparse files.")
    ] = False,
    force: Force = False,
) -> None:
    from labelwise.datasets.xmc import export_xmc, read_xmc
    from labelwise.jsonl import read_corpus

    _check(out, force, "matrices" if export else "corpus")
    found = _by_split(source)
    if not export:
        with spinner(f"reading {' '.join(source)}"):
            splits = read_xmc(found)
        _write(splits, out, force)
        return
    if isinstance(found, dict):
        raise LabelwiseError("--export takes one corpus folder")
    splits = read_corpus(found)
    export_xmc(splits, out, force=force)
    print(f"wrote {out}: {sum(map(len, splits)):,} documents as word counts")


def _by_split(sources: list[str]) -> Path | dict[str, Path]:
    """One plain path, or paths named by split."""
    if len(sources) == 1 and "=" not in sources[0]:
        return Path(sources[0])
    named = dict(source.partition("=")[::2] for source in sources)
    if not all(named.values()) or len(named) < len(sources) or not named.keys() <= {"train", "dev", "test"}:
        raise LabelwiseError(f"{' '.join(sources)}: give one source, or several as train=PATH dev=PATH test=PATH")
    return {split: Path(path) for split, path in named.items()}


def _check(out: Path, force: bool, kind: Kind = "corpus") -> None:
    from labelwise.storage import check_place

    check_place(out, kind, force=force)


def _write(splits: Splits, out: Path, force: bool) -> None:
    from labelwise.jsonl import write_corpus

    write_corpus(splits, out, force=force)
    print(f"wrote {out}: {sum(map(len, splits)):,} documents, {len(splits.labels):,} labels")


def _plugin(name: str) -> Any:
    """The command of a plug-in's reader: a function from a path to Splits."""
    from labelwise.registry import datasets

    reader = datasets()[name].load()

    def read(source: Source, out: Out, force: Force = False) -> None:
        _check(out, force)
        with spinner(f"reading {source}"):
            splits = reader(source)
        _write(splits, out, force)

    alone = typer.Typer()
    alone.command(name, help=inspect.getdoc(reader))(read)
    return typer.main.get_command(alone)
