"""The demo: a small study on a made world, from corpus to report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labelwise.cli.options import Force

METHODS = ("bonsai", "bigru-lwan", "dc-bigru-lwan", "gc-bigru-lwan")
WORLD = {"documents": 2000, "labels": 200, "words": 40, "new": 0.1}
# Networks are small and learn in large steps, so that two cores do in seconds what takes hours in earnest.
SETTINGS = (
    "words.width=100",
    "encoder.units=50",
    "labels.start=prior",
    "training.epochs=12",
    "training.patience=12",
    "training.batch=32",
    "training.learning_rate=0.004",
    "training.average=0.99",
    "training.unseen=masked",
    "device=cpu",
    "threads=1",  # such small networks gain nothing from a second core, and lose much where another program wants it
)


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for corpus, runs and report.")] = Path("demo"),
    force: Force = False,
) -> None:
    """Make a world, study a label tree and three networks on it, and write a report to open."""
    from labelwise.cli.study import told, write_report
    from labelwise.datasets.worlds import make_world
    from labelwise.jsonl import write_corpus
    from labelwise.progress import bar
    from labelwise.storage import new_folder
    from labelwise.studies.study import Study

    with new_folder(out, "demo", force=force) as draft:
        splits = make_world(**WORLD)  # type: ignore[arg-type]
        print(f"made a corpus: {len(splits.train):,} training documents, {len(splits.labels):,} labels", flush=True)
        study = Study.begin(draft)
        for outcome in study.run([splits], METHODS, assignments=SETTINGS, keep_models=True, progress=bar):
            print(told(outcome), flush=True)
        write_corpus(splits, draft / "corpus")
        made, page = write_report(study)
    print()
    print(made.table().text())
    print(f"report: {out / page.relative_to(draft)}")
