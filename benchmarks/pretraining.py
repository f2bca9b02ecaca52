"""An encoder from scratch on the training texts of several corpora: how its vocabulary cuts their words, and how long it takes.

It is the checkpoint `scratch` of rows.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path

from record import record, stopwatch

import labelwise
from labelwise.pretraining import PretrainSettings, pretrain
from labelwise.progress import bar
from labelwise.settings import make, override

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds corpus folders")
    parser.add_argument("--compare", type=Path, default=os.environ.get("LABELWISE_MINILM"), help="folder of another tokenizer")
    parser.add_argument("--corpora", nargs="+", default=["eurlex", "crs", "ctgov"])
    parser.add_argument("--out", type=Path, default=Path("scratch"), help="folder for the encoder")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    if given.data is None:
        print("skipped: name the corpora with --data FOLDER or LABELWISE_DATA")
        sys.exit()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = [labelwise.read_corpus(Path(given.data) / name) for name in given.corpora]
    train, dev = ([document.text for one in splits for document in getattr(one, part)] for part in ("train", "dev"))
    settings = make(PretrainSettings, override({}, given.set), where="--set ")
    with stopwatch() as clock:
        told = pretrain(train, dev, given.out, settings, compare=given.compare, progress=bar)
    kept = ("documents", "vocabulary", "fragmentation", "loss", "dev_loss", "steps", "parameters", "tokens_per_second")
    record("pretraining", corpus=" + ".join(given.corpora), **clock, **{name: told[name] for name in kept}, settings=given.set)
