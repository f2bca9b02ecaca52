"""What a blend gains by readers, one or more, or by the mean of their weights; no test document is looked at.

Readers are folders of models, members of `best` that `best.py --models` has saved or what `networks.py --models` has, or none.
The other members are those that `best` chooses, and are trained here. What each half of the development documents teaches is
judged on the other half.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from record import record

import labelwise
from labelwise.corpus import Splits, group_numbers
from labelwise.methods.base import load
from labelwise.methods.best import Best, BestSettings, choose
from labelwise.methods.ensemble import Fitted
from labelwise.methods.members import Member
from labelwise.progress import silent
from labelwise.registry import make_method


def mean_of(readers: list[Any]) -> Any:
    """One reader with the mean of their weights."""
    states = [reader._ready()[0].network.state_dict() for reader in readers]
    with torch.no_grad():
        mean = {name: sum(state[name] for state in states) / len(states) for name in states[0]}
    readers[0]._ready()[0].network.load_state_dict(mean)
    return readers[0]


def judge(readers: list[Any], splits: Splits, threads: int) -> dict[str, dict[str, dict[str, float]]]:
    """Means of both halves, in percent, for blends as they are and ranked again."""
    chosen = choose(BestSettings(threads=threads), splits.train, splits.dev).members
    others = [make_method(*own).fit(splits.train, splits.dev) for own in chosen if own[0] != "read-and-learned"]
    members, groups, k = [Member(model) for model in [*readers, *others]], group_numbers(splits.train), splits.train.info.k
    middle, reports = len(splits.dev) // 2, []
    halves = splits.dev[:middle], splits.dev[middle:]
    for taught, judged in (halves, halves[::-1]):
        blend = Best(BestSettings(threads=threads))
        mix, ranker = blend._weigh(members, groups, splits.train, taught, silent)
        for kept in (None, ranker):
            blend._fitted = Fitted(splits.labels, groups, members, mix, kept)
            reports.append(labelwise.evaluate(blend, Splits(splits.train, taught, judged), ties="pessimistic"))
    return {
        name: {
            group: {key: round(50 * sum(report.groups[group][key] for report in own), 2) for key in (f"rp@{k}", f"ndcg@{k}")}
            for group in ("all", "frequent", "few", "zero")
        }
        for name, own in (("blended", reports[::2]), ("groups", reports[1::2]))
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", type=Path, help="folders of models")
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds corpus folders")
    parser.add_argument("--corpus", default="ctgov")
    parser.add_argument("--mean", action="store_true", help="one reader with the mean of their weights")
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    if given.data is None:
        print("skipped: name the corpora with --data FOLDER or LABELWISE_DATA")
        sys.exit()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = labelwise.read_corpus(Path(given.data) / given.corpus)
        readers = [load(folder) for folder in given.readers]
        found = judge([mean_of(readers)] if given.mean else readers, splits, given.threads)
    told = {"readers": [folder.name for folder in given.readers], "mean": given.mean}
    told["trained"] = any(not reader.settings.encoder.kept for reader in readers)  # type: ignore[attr-defined]
    record("readers", corpus=given.corpus, **told, **found)
