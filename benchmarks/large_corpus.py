"""A corpus of AMAZON13K's size, read lazily: time and memory of reading, group counting and one pass over the texts."""

import subprocess
import sys
import tempfile
from pathlib import Path

from record import peak_gib, record, stopwatch

import labelwise
from labelwise.datasets.worlds import make_world
from labelwise.jsonl import write_labels, write_objects

DOCUMENTS, LABELS, WORDS = 1_500_000, 14_268, 250


def make(folder: Path) -> None:
    """Write the world in ten parts, so that making it does not set the peak."""
    size = DOCUMENTS // 10
    for part in range(10):
        splits = make_world("closed", documents=size, labels=LABELS, words=WORDS)
        if part == 0:
            write_labels(splits.labels, folder / "labels.jsonl")
        with (folder / "train.jsonl").open("a") as whole, tempfile.NamedTemporaryFile() as piece:
            documents = (d for corpus in splits for d in corpus)
            rows = ({"id": f"{part}-{n}", "text": d.text, "labels": d.labels} for n, d in enumerate(documents))
            write_objects(rows, Path(piece.name))
            whole.write(Path(piece.name).read_text())


def measure(folder: Path) -> None:
    with stopwatch() as reading:
        splits = labelwise.read_corpus(folder)
        labelwise.Groups.of(splits)
    peak = peak_gib()
    with stopwatch() as passing:
        words = sum(len(document.text.split()) for document in splits.train)
    record(
        "large-corpus",
        documents=len(splits.train),
        labels=len(splits.labels),
        words=words,
        file_gib=round((folder / "train.jsonl").stat().st_size / 2**30, 2),
        read_seconds=reading["seconds"],
        peak_gib_after_reading=peak,
        pass_seconds=passing["seconds"],
        peak_gib=peak_gib(),
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"make": make, "measure": measure}[sys.argv[1]](Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as place:  # processes of their own, so that peak memory is that of reading
            for step in ("make", "measure"):
                subprocess.run([sys.executable, __file__, step, place], check=True)
