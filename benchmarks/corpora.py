"""What the real corpora are like, and how the methods that need no GPU do on them."""

import warnings
from typing import Any

from record import data_folders, record, record_quality, stopwatch

import labelwise
from labelwise.registry import make_method

METHODS: dict[str, dict[str, Any]] = {
    "prior": {},
    "lexical": {},
    "parabel": {},
    "bonsai": {},
    "linear": {},
    "neighbours": {},
    "ensemble": {"members": ["linear", "lexical"]},
}
SHOWN = (
    "documents",
    "words_mean",
    "words_median",
    "labels",
    "labels_used",
    "labels_per_document",
    "groups",
    "test_groups",
    "levels",
    "gap",
    "density",
)

if __name__ == "__main__":
    for folder in data_folders():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            splits = labelwise.read_corpus(folder)
        with stopwatch() as clock:
            figures = labelwise.describe(splits)
        record("stats", corpus=figures.corpus, **clock, **{name: getattr(figures, name) for name in SHOWN})
        for name, settings in METHODS.items():
            with stopwatch() as fitting:
                model = make_method(name, settings).fit(splits.train, splits.dev)
            with stopwatch() as scoring:
                report = labelwise.evaluate(model, splits, ties="pessimistic", per_label=True)
            record_quality(
                report,
                " + ".join(settings.get("members", [name])),
                seed=None,
                fit_seconds=fitting["seconds"],
                evaluate_seconds=scoring["seconds"],
            )
