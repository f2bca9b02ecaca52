"""Our label trees beside PECOS XR-Linear, omikuji, napkinXC and LibMultiLabel: same matrices, same cores, one run.

Peers run in an environment of their own, named by --peers PYTHON or LABELWISE_PEERS. Ours and PECOS take turns and give
medians of three; the others run once. Labels without a training document are left out for all of them: they have no score.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from record import record, stopwatch
from scipy.sparse import csr_array, csr_matrix, load_npz, save_npz
from tree_floor import floor, machine
from tree_ours import SYSTEMS as OURS

import labelwise
from labelwise.corpus import Splits
from labelwise.datasets.worlds import make_world
from labelwise.features.tfidf import Tfidf, TfidfSettings
from labelwise.scores import Scores

HERE = Path(__file__).parent
FEATURES = 200_000
CORPORA = {"crs-1gram": 1, "crs-5gram": 5, "world-5gram": 5}  # longest n-gram
PEERS = ("pecos", "pecos-squared", "omikuji-parabel", "omikuji-bonsai", "napkinxc", "libmultilabel")
ROUNDS = 3  # of ours and PECOS
LIMIT = 1800  # seconds that one run of one system may take


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds the crs corpus")
    parser.add_argument("--peers", default=os.environ.get("LABELWISE_PEERS"), help="interpreter with the peers installed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--systems", nargs="+", choices=[*PEERS, *OURS], default=[*PEERS, *OURS])
    return parser.parse_args()


def read(corpus: str, data: str | None) -> Splits | None:
    """The documents of a corpus, or none, with a message, where it is not to be found."""
    name = corpus.partition("-")[0]
    if name == "world":
        return make_world(documents=45_000, labels=4271)
    if data is None or not (Path(data) / name).is_dir():
        print(f"{corpus} skipped: name the folder of {name} with --data FOLDER or LABELWISE_DATA")
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits: Splits = labelwise.read_corpus(Path(data) / name)
    return splits


def write_matrices(splits: Splits, ngrams: int, folder: Path) -> np.ndarray:
    """Write the features and gold labels that every system gets; give the columns of the labels that training has."""
    tfidf = Tfidf(TfidfSettings(ngrams=ngrams, max_features=FEATURES))
    gold = splits.train.gold()
    known = np.flatnonzero(np.bincount(gold.indices, minlength=gold.shape[1]))
    matrices = {
        "train": tfidf.fit_transform(document.text for document in splits.train),
        "test": tfidf.transform(document.text for document in splits.test),
        "gold": gold[:, known].astype(np.float32),
    }
    for name, matrix in matrices.items():
        save_npz(folder / f"{name}.npz", csr_matrix(matrix), compressed=False)  # a form that old scipy reads
    return known


def turns(systems: list[str], rounds: int) -> Iterator[str]:
    """Who runs when: ours and PECOS in every round, side by side, so that a busy minute hits both."""
    yield from (name for name in systems if name in PEERS and name != "pecos")
    for _ in range(rounds):
        yield from (name for name in systems if name == "pecos" or name in OURS)


def run(name: str, folder: Path, peers: str | None, threads: int) -> dict[str, Any] | None:
    """Measure one system in a new process; none, with a message, where it cannot be run."""
    interpreter, script = (sys.executable, "tree_ours.py") if name in OURS else (peers, "tree_peers.py")
    if interpreter is None:
        print(f"{name} skipped: name an interpreter that has it with --peers PYTHON or LABELWISE_PEERS")
        return None
    out = folder / name
    out.mkdir(exist_ok=True)
    command = [interpreter, str(HERE / script), name, str(folder), str(out), "--threads", str(threads)]
    limits = {f"{kind}_NUM_THREADS": str(threads) for kind in ("OMP", "OPENBLAS", "NUMBA", "RAYON")}
    try:
        done = subprocess.run(command, env=os.environ | limits, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        print(f"{name} skipped: not done after {LIMIT} s")
        return None
    if done.returncode:
        print(f"{name} skipped: {(done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1]}")
        return None
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    with stopwatch() as cold:
        done = subprocess.run([*command, "--cold"], env=os.environ | limits, capture_output=True, text=True, check=False)
    return result | ({"cold_start_seconds": cold["seconds"]} if done.returncode == 0 else {})


def quality(scores: csr_matrix, known: np.ndarray, splits: Splits) -> dict[str, Any]:
    """RP@k and nDCG@k by group; also with equal scores in all orders, since hinge scores often tie at 1."""
    scores.sort_indices()
    data = np.maximum(scores.data / max(1.0, scores.data.max(initial=0)), 0).astype(np.float32)
    values = csr_array((data, known[scores.indices], scores.indptr), shape=(scores.shape[0], len(splits.labels)))
    found = {}
    for name, ties in (("groups", "pessimistic"), ("groups_expected", "expected")):
        report = labelwise.evaluate(Scores(values, splits.labels), splits, ties=ties)
        found[name] = {group: {key: round(value, 5) for key, value in of.items()} for group, of in report.groups.items()}
    del found["groups_expected"]["zero"]  # nothing is scored there: it would be chance
    return {"k": report.k, "ties": "pessimistic", **found}


def median(several: list[Any]) -> Any:
    """The medians of results, figure by figure."""
    if isinstance(several[0], dict):
        return {key: median([one[key] for one in several]) for key in several[0] if all(key in one for one in several)}
    return round(statistics.median(several), 4)


def compare(corpus: str, splits: Splits, folder: Path, given: argparse.Namespace) -> None:
    """Measure every system on one corpus and record it."""
    known = write_matrices(splits, CORPORA[corpus], folder)
    results: dict[str, list[dict[str, Any]]] = {}
    skipped = set()
    for name in turns(given.systems, given.rounds):
        if name in skipped:
            continue
        result = run(name, folder, given.peers, given.threads)
        if result:
            results.setdefault(name, []).append(result)
        else:
            skipped.add(name)
    for name, several in results.items():
        scores = load_npz(folder / name / "scores.npz")
        record(
            "trees",
            corpus=corpus,
            method=name,
            threads=given.threads,
            rounds=len(several),
            **median(several),
            train_seconds_each=[round(one["train_seconds"], 2) for one in several],
            labels_per_document=round(scores.nnz / scores.shape[0], 1),
            **quality(scores, known, splits),
        )
    if "pecos" in results:
        solved = {name: median(results[name])["solve_seconds"] for name in ("pecos", "labelwise-pecos-tree") if name in results}
        bound = floor(folder, folder / "pecos", given.threads)
        record("trees-floor", corpus=corpus, threads=given.threads, **bound, solve_seconds=solved)


if __name__ == "__main__":
    given = arguments()
    for count in sorted({1, given.threads}):
        record("machine", method=f"{count} threads", **machine(count))
    for corpus in given.corpora:
        splits = read(corpus, given.data)
        if splits is not None:
            with tempfile.TemporaryDirectory() as place:
                compare(corpus, splits, Path(place), given)
