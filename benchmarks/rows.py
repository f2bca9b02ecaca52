"""Rows of the tables that need a GPU, each with the settings it is measured with; several are trained side by side.

A row that results.jsonl has is not run again, and trainings go on from their checkpoints: so the same command goes on where it
was stopped. Small networks leave most of a GPU idle, and processes that take turns on it do not change that; with an MPS server
they share it (--mps, the folder of its pipes).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from record import RESULTS

HOME = Path(__file__).parent
TRIES = 3  # of a row: one that fails goes on from its checkpoint
SEEDS = (1, 2, 3)
LENGTHS = {"eurlex": [], "ctgov": ["words.max_length=400"], "crs": ["words.max_length=300"]}
AVERAGED = ["training.average=0.99", "words.complete=true", "training.epochs=100", "training.monitor=ndcg"]
FLAT = [*AVERAGED, "labels.start=prior", "encoder.dropout=0.4", "training.learning_rate=0.003", "training.patience=4"]
FLAT_BATCH = {"eurlex": 256, "ctgov": 64, "crs": 256}
DESCRIBED = ["training.unseen=masked", "training.patience=5", "training.warmup=0.02", "training.learning_rate=0.004"]
DESCRIBED_BATCH = {"eurlex": 128, "ctgov": 64, "crs": 128}
NODES = ["labels.nodes.width=50", "labels.nodes.batch=16384", "labels.nodes.learning_rate=0.01", "labels.nodes.root=true"]
XML = ["training.average=0.99", "training.average_from=0", "training.judge_steps=0", "training.patience=5", "words.complete=true"]
XML_SIZES = {  # batch, step size, epochs, epochs of a tree's level
    "eurlex": (64, 0.002, 25, 12),
    "ctgov": (64, 0.003, 40, 24),
    "crs": (128, 0.002, 20, 8),
}
TUNED = ["training.warmup=0.1", "training.decay=true", "training.patience=99", "training.monitor=ndcg", "training.batch=64"]
STEPS = ["training.learning_rate=5e-5", "training.head_rate=40"]
PASSES = {
    "eurlex": ["training.epochs=10", "encoder.segment=256"],
    "ctgov": ["training.epochs=15", "encoder.segment=384"],
    "crs": ["training.epochs=4", "encoder.segment=256"],
}
LONG = ["training.epochs=15", "encoder.segment=256", "encoder.segments=4"]
BLEND = ("--budget", "0", "--beside", "--threads", "4")


class Row(NamedTuple):
    """A line of the tables that is to be made."""

    corpus: str
    name: str
    seed: int
    script: str
    arguments: tuple[str, ...]
    checkpoint: str = ""  # folder of a transformer that it needs; without one it reads words

    def __str__(self) -> str:
        return f"{self.corpus}, {self.name}, seed {self.seed}"

    def place(self, work: Path) -> Path:
        """Where it keeps its checkpoints."""
        return work / re.sub(r"\W+", "-", str(self))

    def command(self, work: Path) -> list[str]:
        """What makes it."""
        place = self.place(work)
        given = ["--corpora", self.corpus, "--seeds", str(self.seed), "--row", self.name, "--work", str(place), *self.arguments]
        return [sys.executable, str(HOME / self.script), *given]


def rows() -> Iterator[Row]:
    """All of them; one seed of each comes before the others."""
    for seed in SEEDS:
        main = seed == 1
        for corpus in LENGTHS:
            yield _best(corpus, "gte-small", seed)
            yield _over_words(corpus, "bigru-lwan", seed)
            yield from (_over_words(corpus, f"{kind}-bigru-lwan", seed) for kind in ("dc", "gc"))
            yield from (_tuned(corpus, kind, "minilm", seed) for kind in ("lwan", "dc", "dnc"))
            if main or corpus == "eurlex":  # three of these are taken together
                yield _xml(corpus, seed)
            if main:
                yield _xml(corpus, seed, tree=True)
                yield _tuned(corpus, "tree", "minilm", seed)
                yield _tuned(corpus, "lwan", "scratch", seed)
                yield from (_over_words(corpus, name, seed) for name in ("cnn-lwan", "c-cnn-lwan", "gc-cnn-lwan"))
                yield from (_over_words(corpus, f"{kind}-bigru-lwan", seed) for kind in ("c", "dn", "dnc", "gnc"))
                yield from (_tuned(corpus, kind, "minilm", seed) for kind in ("first", "c", "gc"))
                yield from (_tuned(corpus, kind, "gte-small", seed) for kind in ("lwan", "dc"))
    yield _tuned("ctgov", "hier", "minilm", 1)


def _over_words(corpus: str, method: str, seed: int) -> Row:
    """A network of the paper over word vectors."""
    if method in ("bigru-lwan", "cnn-lwan"):
        return _network(corpus, method, method, seed, [*FLAT, f"training.batch={FLAT_BATCH[corpus]}", *LENGTHS[corpus]])
    settings = [*AVERAGED, *DESCRIBED, f"training.batch={DESCRIBED_BATCH[corpus]}", *LENGTHS[corpus]]
    nodes = NODES if "n" in method.partition("-")[0] else []
    return _network(corpus, method, f"{method} (unseen masked)", seed, [*settings, *nodes])


def _xml(corpus: str, seed: int, tree: bool = False) -> Row:
    batch, rate, epochs, of_level = XML_SIZES[corpus]
    settings = [*XML, f"training.learning_rate={rate}", f"training.batch={batch}", *LENGTHS[corpus]]
    settings += [f"training.epochs={of_level if tree else epochs}", *(["tree.use=always"] if tree else [])]
    return _network(corpus, "attention-xml", "attention-xml tree" if tree else "attention-xml", seed, settings)


def _tuned(corpus: str, kind: str, checkpoint: str, seed: int) -> Row:
    """A transformer of the paper's, or in its way, with another encoder."""
    known = {"first": ("bert-base", ""), "lwan": ("bert-base-lwan", "-lwan"), "tree": ("bert-tree", "-tree")}
    if kind in known:
        method, name = known[kind][0], checkpoint + known[kind][1]
    elif kind == "hier":
        method, name = "hier-sci-bert", f"hier-{checkpoint}"
    else:
        method, name = f"{kind}-bert-base-lwan", f"{kind}-{checkpoint}-lwan"
    learned = kind in known or kind == "hier"
    settings = [f"encoder.checkpoint={checkpoint}", *TUNED, "labels.start=prior" if learned else "training.unseen=masked", *STEPS]
    settings += LONG if kind == "hier" else PASSES[corpus]
    settings += {"dnc": NODES, "tree": ["tree.use=always"]}.get(kind, [])
    return _network(corpus, method, name, seed, settings, checkpoint)


def _best(corpus: str, checkpoint: str, seed: int) -> Row:
    given = ("--checkpoint", checkpoint, "--reader", f"read-and-learned, {checkpoint}", *BLEND)
    return Row(corpus, f"best, {checkpoint}, GPU", seed, "best.py", given, checkpoint)


def _network(corpus: str, method: str, name: str, seed: int, settings: list[str], checkpoint: str = "") -> Row:
    given = (word for setting in settings for word in ("--set", setting))
    return Row(corpus, name, seed, "networks.py", ("--methods", method, *given), checkpoint)


def missing(wanted: str, again: bool) -> list[Row]:
    """Rows whose description has the pattern and that no line of the results is; or all that have it."""
    lines = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    known = {(line["corpus"], line["method"], line.get("seed")) for line in lines if line["benchmark"] == "quality"}
    return [row for row in rows() if re.search(wanted, str(row)) and (again or (row.corpus, row.name, row.seed) not in known)]


def train(todo: list[Row], given: argparse.Namespace) -> None:
    """Run them, so many at a time; what is still to come waits for a place, or for its checkpoint to be there."""
    waiting, running, tries, begun = list(todo), dict[Row, subprocess.Popen[bytes]](), dict[str, int](), time.monotonic()
    given.work.mkdir(parents=True, exist_ok=True)

    def say(what: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {what}", flush=True)

    while waiting or running:
        for row, process in list(running.items()):
            if process.poll() is not None:
                del running[row]
                say(f"{row}: {'done' if process.returncode == 0 else f'failed ({process.returncode})'}")
                if process.returncode and tries[str(row)] < TRIES:
                    waiting.insert(0, row)
        for row in list(waiting):
            busy = sum(bool(other.checkpoint) == bool(row.checkpoint) for other in running)
            there = not row.checkpoint or (given.checkpoints / row.checkpoint / "model.safetensors").is_file()
            if there and busy < (given.transformers if row.checkpoint else given.networks):
                waiting.remove(row)
                tries[str(row)] = tries.get(str(row), 0) + 1
                running[row] = _begin(row, given)
                say(f"{row}: begun")
        if waiting and not running and not given.wait:
            say(f"{len(waiting)} rows are left out, as their checkpoints are not in {given.checkpoints}")
            return
        time.sleep(0.5)


def _begin(row: Row, given: argparse.Namespace) -> subprocess.Popen[bytes]:
    command = row.command(given.work)
    share = {"CUDA_MPS_PIPE_DIRECTORY": str(given.mps)} if given.mps else {}
    with row.place(given.work).with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, cwd=given.checkpoints, env=os.environ | share, stdout=log, stderr=log)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wanted", nargs="?", default="", help="pattern of the rows to run, such as 'crs, attention-xml'")
    parser.add_argument("--checkpoints", type=Path, help="folder that holds folders of transformers: minilm, gte-small, scratch")
    parser.add_argument("--work", type=Path, default=Path("work"), help="folder for checkpoints and logs")
    parser.add_argument("--networks", type=int, default=4, help="networks over words that are trained side by side")
    parser.add_argument("--transformers", type=int, default=2, help="transformers that are trained side by side")
    parser.add_argument("--mps", type=Path, help="folder of the pipes of an MPS server")
    parser.add_argument("--wait", action="store_true", help="wait for checkpoints that are not there yet")
    parser.add_argument("--again", action="store_true", help="rows that are there too, as the code has changed since")
    parser.add_argument("--run", action="store_true", help="run them; without it they are listed")
    given = parser.parse_args()
    todo = missing(given.wanted, given.again)
    if not given.run or given.checkpoints is None or "LABELWISE_DATA" not in os.environ:
        print("\n".join([*map(str, todo), f"{len(todo)} rows; LABELWISE_DATA, --checkpoints and --run make them"]))
        sys.exit()
    given.work, given.checkpoints = given.work.resolve(), given.checkpoints.resolve()
    train(todo, given)
