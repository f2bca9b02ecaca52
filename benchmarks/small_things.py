"""Times that users wait for: start-up, a SKOS thesaurus, a significance test."""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from record import record, stopwatch

from labelwise.datasets.skos import read_skos
from labelwise.significance import randomisation


def thesaurus(path: Path, concepts: int) -> None:
    lines = ["@prefix skos: <http://www.w3.org/2004/02/skos/core#> .", "@prefix c: <http://example.org/concept/> ."]
    for n in range(concepts):
        names = f'skos:prefLabel "made topic number {n}"@en , "gemachtes Thema {n}"@de ; skos:altLabel "other name {n}"@en'
        lines.append(f"c:{n} a skos:Concept ; {names}{f' ; skos:broader c:{n // 8}' if n else ''} .")
    path.write_text("\n".join(lines))


if __name__ == "__main__":
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "labelwise", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    record("help", cpu_seconds=round(float(np.median(seconds)), 3))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "thesaurus.ttl"
        thesaurus(path, 22_000)
        with stopwatch() as clock:
            labels = read_skos([path])
        record("skos", megabytes=round(path.stat().st_size / 1e6, 2), labels=len(labels), **clock)

    scores = np.random.default_rng(0).random((2, 6000))
    with stopwatch() as clock:
        randomisation(scores[0], scores[1])
    record("randomisation", documents=6000, rounds=10_000, **clock)
