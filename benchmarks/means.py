"""The mean of a method's models with several seeds, as AttentionXML's authors report three of theirs.

The models are those that `networks.py --models FOLDER` has saved.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from record import record_quality, stopwatch

import labelwise
from labelwise.registry import make_method

NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds corpus folders")
    parser.add_argument("--models", type=Path, help="folder of the models")
    parser.add_argument("--corpora", nargs="+", default=["eurlex"])
    parser.add_argument("--row", default="attention-xml", help="name in the tables of a model by itself")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    given = parser.parse_args()
    if given.data is None or given.models is None:
        print("skipped: name the corpora with --data FOLDER or LABELWISE_DATA, and the models with --models FOLDER")
        sys.exit()
    for corpus in given.corpora:
        splits = labelwise.read_corpus(Path(given.data) / corpus)
        members = [str(given.models / f"{corpus}-{given.row}-{seed}") for seed in given.seeds]
        model = make_method("ensemble", {"members": members, "weights": "equal"}).fit(splits.train, splits.dev)
        with stopwatch() as scoring:
            report = labelwise.evaluate(model, splits, ties="pessimistic", per_label=True)
        name = f"{given.row}, mean of {NUMBERS.get(len(members), len(members))}"
        record_quality(report, name, seed=None, evaluate_seconds=scoring["seconds"])
