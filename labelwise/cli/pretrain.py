"""Encoders: a transformer with a vocabulary of its own, from any texts."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.cli.options import Force, Json, Out, minutes, require_same
from labelwise.errors import BadCorpus, MissingExtra

if TYPE_CHECKING:
    from labelwise.pretraining import PretrainSettings


def pretrain(
    corpus: Annotated[
        Path, typer.Argument(help="Corpus folder, JSONL documents, or a .txt of one document a line.", show_default=False)
    ],
    out: Out,
    start: Annotated[
        Path | None, typer.Option("--from", help="Go on from this transformers folder, with its vocabulary.", show_default=False)
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Also measure the fragmentation by this folder's tokenizer.", show_default=False)
    ] = None,
    settings: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; may be repeated.")] = [],
    seed: Annotated[int | None, typer.Option(help="Same seed, same encoder.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.", show_default=False)] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="10m", help="Time for the steps: 90s, 10m, 2h.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after a kill; a finished encoder is left as it is.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a vocabulary and a transformer on the texts of a corpus; labels are not looked at."""
    from labelwise.progress import bar
    from labelwise.settings import make, override
    from labelwise.storage import check_place, check_unfinished, unfinished_beside

    try:
        from labelwise.pretraining import PretrainSettings
        from labelwise.pretraining import pretrain as train
    except ModuleNotFoundError as error:
        raise MissingExtra(f"pretraining needs {error.name}: pip install 'labelwise[neural]'") from None
    asked = {"seed": seed, "device": device, "budget": minutes(budget)}
    given = make(PretrainSettings, override({}, settings) | {key: value for key, value in asked.items() if value is not None})
    if resume and _finished(out, given, start):
        print(f"{out}: already trained with these settings")
        return
    check_place(out, "encoder", force=force)
    if not resume:
        check_unfinished(out, force=force)
    texts, held_out = _texts(corpus, "train"), _texts(corpus, "dev")
    unfinished = unfinished_beside(out)
    if not resume:
        shutil.rmtree(unfinished, ignore_errors=True)
    told = train(texts, held_out, out, given, start=start, compare=compare, work=unfinished, force=force, progress=bar)
    shutil.rmtree(unfinished, ignore_errors=True)
    print(json.dumps(told) if as_json else _text(out, told))


def _text(out: Path, told: dict[str, Any]) -> str:
    """What was done, for people."""
    ratio, dev = told["fragmentation"], told["dev_loss"]
    before = f"{ratio['before']:.3f} → " if ratio["before"] else ""
    return "\n".join(
        [
            f"fragmentation {before}{ratio['after']:.3f} sub-words per word, vocabulary of {told['vocabulary']:,}",
            f"loss {told['loss']:.3f}" + (f", {dev:.3f} on the development documents" if dev is not None else ""),
            f"wrote {out}: {told['parameters']:,} parameters, {told['documents']:,} documents, {told['steps']:,} steps, "
            f"{told['tokens_per_second']:,.0f} tokens/s, {told['seconds']:.1f} s",
        ]
    )


def _texts(corpus: Path, split: str) -> list[str]:
    """The texts of a split; those of a file are all for training."""
    from labelwise.datasets.files import kind, read_text
    from labelwise.jsonl import read_documents
    from labelwise.storage import find

    path = find(corpus, f"{split}.jsonl") if corpus.is_dir() else corpus if split == "train" else None
    if path is None:
        if split == "train":
            raise BadCorpus(f"{corpus}: no train.jsonl (plain, .gz or .xz) in it")
        return []
    if kind(path) == ".txt":
        return [line for line in read_text(path).split("\n") if line.strip()]
    return [document.text for _, document in read_documents(path)]


def _finished(out: Path, settings: PretrainSettings, start: Path | None) -> bool:
    """Whether this training has been done before; an encoder of other settings in its place is an error."""
    from labelwise.storage import read_json

    if not (out / "pretraining.json").is_file():
        return False
    told = read_json(out / "pretraining.json")
    now = {"from": None if start is None else str(start), **asdict(settings)}
    require_same(out, {"from": told["from"], **told["settings"]}, now)
    return True
