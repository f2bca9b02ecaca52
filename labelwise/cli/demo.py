"""The demo: the main job on made data, from corpus to report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labelwise.cli.options import Force

METHODS = ("prior", "lexical", "bonsai")


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for corpus, models and report.")] = Path("demo"),
    force: Force = False,
) -> None:
    """Make a world, fit methods, evaluate them, and write a report to open."""
    from labelwise.comparison import Comparison
    from labelwise.datasets.worlds import make_world
    from labelwise.evaluation import evaluate
    from labelwise.jsonl import write_corpus
    from labelwise.progress import bar
    from labelwise.registry import make_method
    from labelwise.storage import new_folder

    with new_folder(out, "demo", force=force) as draft:
        splits = make_world(documents=5000, labels=500)
        write_corpus(splits, draft / "corpus")
        print(f"made a corpus: {len(splits.train):,} training documents, {len(splits.labels):,} labels")
        reports = []
        for name in METHODS:
            model = make_method(name).fit(splits.train, splits.dev, progress=bar)
            model.save(draft / "models" / name)
            # Popularity gives most labels a score, names give few: count unscored labels as misses for both.
            reports.append(evaluate(model, splits, ties="pessimistic", per_label=True, progress=bar))
            reports[-1].save(draft / "reports" / name)
            print(f"trained and evaluated {name}")
        Comparison(reports).save(draft / "report")
    print()
    print(Comparison(reports).text())
    print(f"report: {out / 'report' / 'report.html'}")
