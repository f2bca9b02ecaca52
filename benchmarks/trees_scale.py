"""How training a label tree grows with documents and with labels: seconds and peak memory of one PARABEL tree on made worlds.

`large` is the size of AMAZON13K, read from disk as it is trained on; it takes half an hour, and 10 GB under TMPDIR.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import peak_gib, record, stopwatch

from labelwise.datasets.worlds import make_world
from labelwise.jsonl import read_corpus, write_corpus
from labelwise.methods.tree import Parabel, ParabelSettings

SIZES = [
    (50_000, 4000, 60),
    (100_000, 4000, 60),
    (200_000, 4000, 60),
    (50_000, 1000, 60),
    (50_000, 16_000, 60),
    (400_000, 4000, 60),
]
LARGE = (1_875_000, 14_000, 250)  # a million and a half of the documents are for training


class Timed(Parabel):
    """Parabel that tells when the features were ready, and when the tree."""

    def _make_tree(self, *given):
        self.featured = time.perf_counter()
        tree = super()._make_tree(*given)
        self.built = time.perf_counter()
        return tree


def make(folder: Path, documents: int, labels: int, words: int) -> None:
    write_corpus(make_world("closed", documents=documents, labels=labels, words=words), folder)


def measure(folder: Path) -> None:
    splits = read_corpus(folder)
    before = peak_gib()
    model = Timed(ParabelSettings(trees=1, branching=16, threads=2))
    started = time.perf_counter()
    model.fit(splits.train)
    ended = time.perf_counter()
    result = {"seconds": ended - started, "features_seconds": model.featured - started}
    result |= {"tree_seconds": model.built - model.featured, "solve_seconds": ended - model.built}
    result |= {"peak_gib": peak_gib(), "before_gib": before}
    with stopwatch() as predicting:
        model.predict(splits.test)
    result["documents_per_second_from_text"] = round(len(splits.test) / predicting["seconds"])
    print(json.dumps({key: round(value, 3) for key, value in result.items()}))


def watch(command: list[str]) -> dict[str, float]:
    """What a process prints as its last line, and the most memory that it had to itself: mapped files can be read again."""
    most = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            if "RssAnon:" in status:  # not once it has ended
                most = max(most, int(status.split("RssAnon:")[1].split()[0]))
            time.sleep(0.02)
        assert process.returncode == 0
        return {**json.loads(process.stdout.read().splitlines()[-1]), "anonymous_gib": round(most / 2**20, 3)}


def main(documents: int, labels: int, words: int) -> None:
    with tempfile.TemporaryDirectory() as place:  # processes of their own, so that making the world does not set the peak
        command = [sys.executable, __file__, str(Path(place) / "world")]
        subprocess.run([*command, str(documents), str(labels), str(words)], check=True)
        record("trees-scale", documents=documents, labels=labels, words=words, **watch(command))


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] != "large":
        measure(Path(sys.argv[1]))
    elif len(sys.argv) > 2:
        make(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    else:
        for size in [LARGE] if len(sys.argv) == 2 else SIZES:
            main(*size)
