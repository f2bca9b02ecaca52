"""The report of a study in every form: tables as text, Markdown and LaTeX, scores as CSV and JSON, and a page with plots."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from labelwise.comparison import RECORD
from labelwise.storage import new_folder
from labelwise.studies.results import Results, Run
from labelwise.studies.tables import Titled, gains, study_tables
from labelwise.tables import Rendered, Table, plain, to_csv

FOLDER = "report"  # in the study's


class StudyReport(Rendered):
    """All that a study has come to so far."""

    def __init__(self, results: Results) -> None:
        self.results = results

    @cached_property
    def titled(self) -> list[Titled]:
        """The tables with their titles."""
        return study_tables(self.results)

    def table(self) -> Table:
        """The main table."""
        return self.titled[0].table

    def text(self) -> str:
        """Aligned tables under their titles."""
        return "\n".join(f"{title}\n\n{table.text()}" for title, table in self.titled)

    def markdown(self) -> str:
        """Markdown tables under their titles."""
        return "# Study\n\n" + "\n".join(f"## {title}\n\n{table.markdown()}" for title, table in self.titled)

    def latex(self) -> str:
        """LaTeX tables (booktabs), titles in their captions."""
        return "\n".join(table.latex(title) for title, table in self.titled)

    def csv(self) -> str:
        """One line per row, corpus, group and metric: mean, spread over seeds, interval over documents, significance."""
        return self.results.comparison.csv() if self.results.comparison else to_csv(RECORD, [])

    def json(self) -> str:
        """Scores, runs with settings and times, failures, corpora, gains of the hierarchy."""
        comparison = self.results.comparison
        told = {
            "scores": json.loads(comparison.json())["scores"] if comparison else [],
            "runs": list(map(_run, self.results.runs)),
            "failures": [one.job._asdict() | {"kind": one.kind, "reason": one.reason} for one in self.results.failures],
            "waiting": self.results.waiting,
            "running": self.results.running and self.results.running._asdict(),
            "corpora": [asdict(facts.statistics) for facts in self.results.corpora.values()],
            "gains": [
                {"compared": compared, "corpus": corpus, "gap": plain(gap), "group": group, "ndcg": plain(gain)}
                for group in ("few", "zero")
                for compared, corpus, gap, gain in gains(self.results, group)
            ],
        }
        return json.dumps(told, ensure_ascii=False, indent=1) + "\n"

    def html(self) -> str:
        """A page that needs nothing but a browser."""
        from labelwise.studies.page import study_page

        return study_page(self.results, self.titled)

    def label_csv(self) -> str:
        """One line per row, corpus and label: how often it was found among the first k, over all seeds."""
        names = (
            "method",
            "corpus",
            "label",
            "name",
            "group",
            "level",
            "train_documents",
            "documents",
            "recall@k",
            "precision@k",
            "f1",
        )
        return to_csv(names, self._labels())

    def save(self, study: Path) -> Path:
        """Write every rendering into the study's folder, in the place of earlier ones; gives the page's path."""
        with new_folder(study / FOLDER, "report", force=True) as draft:
            self.write_renderings(draft)
            (draft / "labels.csv").write_text(self.label_csv(), encoding="utf-8", newline="\n")
        return study / FOLDER / "report.html"

    def _labels(self) -> Iterator[dict[str, Any]]:
        for (row, corpus), runs in self.results.cells.items():
            levels = self.results.corpora[corpus].levels
            of_label = defaultdict(list)
            for run in runs:
                for label in run.report.labels:
                    of_label[label.id].append(label)
            for found in of_label.values():
                first, hits = found[0], sum(label.hits for label in found)
                retrieved, documents = (sum(getattr(label, name) for label in found) for name in ("retrieved", "documents"))
                yield {
                    "method": row,
                    "corpus": corpus,
                    "label": first.id,
                    "name": first.name,
                    "group": first.group,
                    "level": levels.get(first.id),
                    "train_documents": first.train_documents,
                    "documents": first.documents,
                    "recall@k": hits / documents if documents else 0.0,
                    "precision@k": hits / retrieved if retrieved else 0.0,
                    "f1": sum(label.f1 for label in found) / len(found),
                }


def _run(run: Run) -> dict[str, Any]:
    """A run for machines."""
    told = run.job._asdict() | {"method": run.recipe.method, "place": run.job.place.as_posix()}
    return told | {"notes": {name: plain(note) for name, note in run.report.notes.items()}, "settings": run.recipe.settings}
