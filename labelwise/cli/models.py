"""Models: train, evaluate, predict, explain."""

from __future__ import annotations

import json
import shutil
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.cli.calibrate import cut, found_in
from labelwise.cli.options import (
    TARGETS,
    CorpusFolder,
    Few,
    Force,
    Json,
    ModelFolder,
    Out,
    Raw,
    UnknownLabelRule,
    UnknownLabelsOption,
    adapt,
    minutes,
    note_strangers,
    read,
    require_same,
)
from labelwise.errors import BadFile, LabelwiseError

if TYPE_CHECKING:
    from labelwise.corpus import Document
    from labelwise.labels import LabelSet
    from labelwise.methods.base import Method


OtherLabels = Annotated[
    Path | None, typer.Option("--labels", help="Another labels.jsonl, with labels training never saw.", show_default=False)
]
SHOWN = 60  # characters of a word


def train(
    method: Annotated[
        str, typer.Argument(metavar="METHOD|RECIPE", help="A method, a packaged recipe or a .toml file.", show_default=False)
    ],
    on: CorpusFolder,
    out: Out,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, lists as a,b; may be repeated.")
    ] = [],
    seed: Annotated[int | None, typer.Option(help="Same seed, same model.", show_default=False)] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Processor cores to use.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.", show_default=False)] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="10m", help="Time for reading and training: 90s, 10m, 2h; one epoch is always done."),
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same bits on every run on CUDA too; slower.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after a kill; a finished model is left as it is.")] = False,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    force: Force = False,
) -> None:
    """Train a method on a corpus and save the model."""
    from labelwise.methods.base import Decides, Resumable
    from labelwise.progress import bar
    from labelwise.recipe import find_recipe, make_recipe_method
    from labelwise.running import corpus_checksum
    from labelwise.storage import check_place, check_unfinished, unfinished_beside

    recipe = find_recipe(method)
    asked = {
        "seed": seed,
        "threads": threads,
        "device": device,
        "budget": minutes(budget),
        "deterministic": deterministic or None,
    }
    model = make_recipe_method(adapt(recipe, settings, asked), {})
    if not resume or not (out / "model.toml").is_file():
        check_place(out, "model", force=force)
    if not resume:
        check_unfinished(out, force=force)
    splits = read(on, unknown_labels)
    if recipe.corpus and recipe.corpus != splits.info.name:
        print(f"note: the recipe is for {recipe.corpus}, not for {splits.info.name}", file=sys.stderr)
    model.trained_on = checksum = corpus_checksum(splits)  # type: ignore[attr-defined]
    if resume and _finished(out, model, splits.labels, checksum):
        print(f"{out}: already trained with these settings")
        return
    started = time.perf_counter()
    dev = splits.dev if len(splits.dev) else None
    unfinished = unfinished_beside(out)
    if not resume:
        shutil.rmtree(unfinished, ignore_errors=True)
    if isinstance(model, Resumable):
        model.work = unfinished
    model.fit(splits.split("train"), dev, progress=bar).save(out, force=force)
    shutil.rmtree(unfinished, ignore_errors=True)
    print(f"wrote {out}: {model.name}, {len(splits.train):,} documents, {time.perf_counter() - started:.1f} s")
    if isinstance(model, Decides):
        print(f"chosen: {model.why}")


def evaluate(
    on: CorpusFolder,
    model: Annotated[Path | None, typer.Argument(help="Model folder.", show_default=False)] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Score this file (JSONL or TREC run) instead of a model.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    k: Annotated[list[int], typer.Option("-k", min=1, help="Cut-off; may be repeated. The corpus's own by default.")] = [],
    measures: Annotated[list[str], typer.Option("-m", "--metric", help="Measure; may be repeated (see `labelwise metrics`).")] = [
        "rp",
        "ndcg",
    ],
    per_label: Annotated[
        Path | None, typer.Option(help="Write results for every label to this CSV file.", show_default=False)
    ] = None,
    ties: Annotated[
        str | None,
        typer.Option(
            help="authors (default of dense scores), lower_index, expected, pessimistic (of sparse).", show_default=False
        ),
    ] = None,
    threshold: Annotated[str, typer.Option(help=f"Score above which a label counts as given, for F1; {TARGETS}")] = "0.5",
    few: Few = None,
    raw: Raw = False,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="Tell how far scores can be trusted, also of a model that is not calibrated.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write the report to this folder: HTML, Markdown, LaTeX, CSV, JSON.")
    ] = None,
    unknown_labels: UnknownLabelsOption = UnknownLabelRule.error,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Score a model, or anybody's predictions, for all, frequent, few and zero labels."""
    from labelwise import evaluation
    from labelwise.methods.base import load
    from labelwise.predictions import read_predictions
    from labelwise.progress import bar
    from labelwise.storage import check_file, check_place, new_file

    if (model is None) == (predictions is None):
        raise LabelwiseError("give either a model folder or --predictions FILE")
    if out is not None:
        check_place(out, "report", force=force)
    if per_label is not None:
        check_file(per_label, force=force)
    splits = read(on, unknown_labels)
    source: Any = (
        load(model) if model else read_predictions(predictions or "", splits.split(split), unknown_labels=unknown_labels.value)
    )
    calibrated = found_in(model, raw) if model else None
    if model:
        note_strangers(model, splits)
    report = evaluation.evaluate(
        source,
        splits,
        split=split,
        measures=measures,
        ks=k,
        few=few,
        ties=ties,  # type: ignore[arg-type]
        threshold=cut(threshold, calibrated)[0],
        calibration=calibrated,
        reliability=calibration,
        per_label=per_label is not None or out is not None,
        name=predictions.stem if predictions else "",
        progress=bar,
    )
    if per_label is not None:
        with new_file(per_label, force=force) as file:
            file.write(report.label_csv())
    if out is not None:
        report.save(out, force=force)
    print(report.json() if as_json else report.text())


def predict(
    model: ModelFolder,
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="JSONL documents, a .txt text, or - for standard input.", show_default=False)
    ],
    out: Annotated[str, typer.Option("--out", metavar="FILE|-", help="File to write, - for standard output.")] = "-",
    top: Annotated[
        int | None, typer.Option(min=1, help="Most labels a document gets: 5, or with a target all that reach it.")
    ] = None,
    threshold: Annotated[str, typer.Option(help=f"Leave out labels with this score or less; {TARGETS}")] = "0",
    raw: Raw = False,
    labels: OtherLabels = None,
    new: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Also so many of the labels in --labels that the model does not know, under `new` and however low their score: "
            "few come before labels that have been used often.",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Give documents their labels, one JSON object a line, in the order of the input."""
    from labelwise.corpus import Corpus, batch_size
    from labelwise.jsonl import read_labels
    from labelwise.methods.base import load
    from labelwise.methods.ensemble import scores_new
    from labelwise.predictions import prediction
    from labelwise.progress import bar
    from labelwise.storage import new_file

    if new and labels is None:
        raise LabelwiseError("--new: name the label set that has new labels with --labels FILE")
    fitted, known = load(model), read_labels(model / "labels.jsonl")
    label_set = read_labels(labels) if labels else known
    unknown = known.columns(label_set.ids) < 0
    if new and not unknown.any():
        raise LabelwiseError(f"--new: {model} knows all labels of {labels}; there is none that is new")
    if new and not scores_new(fitted):
        raise LabelwiseError(
            f"--new: {fitted.name} scores no label that it was not trained with; `best` and `lexical` do, among others"
        )
    calibrated = found_in(model, raw)
    least, aimed = cut(threshold, calibrated)
    most = top or (len(label_set) if aimed else 5)
    target: Any = nullcontext(sys.stdout) if out == "-" else new_file(Path(out), force=force)
    with target as stream:
        for batch in _batches(bar(_documents(file), "predict"), min(1000, batch_size(len(label_set)))):
            scores = fitted.predict(Corpus(batch, label_set))
            best: Any = partial(calibrated.top, scores) if calibrated else scores.top
            found = {"labels": best(most, least)} | ({"new": best(new, among=unknown)} if new else {})
            for row, document in enumerate(batch):
                answer = {"id": document.id} | {key: prediction(of[row]) for key, of in found.items()}
                stream.write(json.dumps(answer, ensure_ascii=False) + "\n")


def explain(
    model: ModelFolder,
    file: Annotated[str, typer.Argument(metavar="TEXTFILE|-", help="A text, or - for standard input.", show_default=False)],
    label: Annotated[str | None, typer.Option(help="The label to explain; the best one by default.", show_default=False)] = None,
    labels: OtherLabels = None,
    raw: Raw = False,
    as_json: Json = False,
) -> None:
    """Say which words of a text spoke for a label."""
    from labelwise.corpus import Corpus, Document
    from labelwise.jsonl import read_labels
    from labelwise.methods.base import Explains, load

    fitted, label_set, calibrated = load(model), read_labels(labels or model / "labels.jsonl"), found_in(model, raw)
    if not isinstance(fitted, Explains):
        raise LabelwiseError(f"{model}: {fitted.name} cannot explain its labels")
    document = Document("text", _read_text(file))
    if label is None:
        scores = fitted.predict(Corpus([document], label_set))
        best = (calibrated.judge(scores)[0] if calibrated else scores).top(1)[0]
        if not best:
            raise LabelwiseError("no label has a score for this text; name one with --label")
        chosen = best[0][0]
    else:
        chosen = label_set[label_set.column(label)]
    explanation = fitted.explain(document, chosen)
    chance = calibrated.probability(chosen, explanation.score) if calibrated else None
    words = [(document.text[span.start : span.end], span) for span in explanation.spans]
    if as_json:
        plain = [{"word": word, "start": span.start, "end": span.end, "weight": round(span.weight, 6)} for word, span in words]
        told: dict[str, Any] = {"label": chosen.id, "name": chosen.name, "score": round(explanation.score, 6), "words": plain}
        if chance is not None:
            told["probability"] = round(chance, 6)
        if explanation.sources:
            told["sources"] = [{"from": name, "part": round(part, 6)} for name, part in explanation.sources]
        print(json.dumps(told, ensure_ascii=False))
        return
    sure = f", probability {chance:.3f}" if chance is not None else ""
    print(f"{chosen.name} ({chosen.id}): {explanation.score:.3f}{sure}")
    for name, part in explanation.sources:
        print(f"  {part:+8.3f}  from {name}")
    for word, span in sorted(words, key=lambda pair: -abs(pair[1].weight)):
        print(f"  {span.weight:+8.3f}  {word if len(word) <= SHOWN else word[:SHOWN] + '…'}  (character {span.start})")


def _finished(out: Path, model: Method, labels: LabelSet, checksum: str) -> bool:
    """Whether this training has been done before; a model of other settings, labels or documents in its place is an error."""
    from labelwise.jsonl import read_labels
    from labelwise.methods.base import read_header
    from labelwise.settings import make

    if not (out / "model.toml").is_file():
        return False
    header, wanted = read_header(out), model.settings
    was = header["settings"]
    if header["method"] == model.name:  # what an earlier version did not know yet has its default
        was = _plain(make(type(wanted), was, where=f"{out}: "))
    require_same(out, {"method": header["method"], **was}, {"method": model.name, **_plain(wanted)})
    if read_labels(out / "labels.jsonl") != labels:
        raise LabelwiseError(f"{out}: trained on another label set; use --force to replace it")
    if header.get("trained_on", checksum) != checksum:
        raise LabelwiseError(f"{out}: trained on other documents; use --force to replace it")
    return True


def _plain(settings: Any) -> dict[str, Any]:
    """As they would be read back from a model's folder."""
    from dataclasses import asdict

    from labelwise.storage import to_toml

    return tomllib.loads(to_toml(asdict(settings)))


def _documents(file: str) -> Iterator[Document]:
    from labelwise.corpus import Document
    from labelwise.jsonl import read_documents

    if file.endswith(".txt"):
        yield Document(Path(file).stem, _read_text(file))
    else:
        yield from (document for _, document in read_documents(sys.stdin.buffer if file == "-" else file))


def _read_text(file: str) -> str:
    from labelwise.datasets.files import decode, read_text

    text = decode(sys.stdin.buffer.read(), "standard input") if file == "-" else read_text(Path(file))
    if not text.strip():
        raise BadFile(f"{file}: an empty text; give one with words")
    return text


def _batches(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
