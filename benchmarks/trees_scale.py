"""How training a label tree grows with documents and with labels: seconds and peak memory of one PARABEL tree on made worlds."""

import json
import subprocess
import sys

from record import peak_gib, record, stopwatch

from labelwise.datasets.worlds import make_world
from labelwise.registry import make_method

WORDS = 60
SIZES = [(50_000, 4000), (100_000, 4000), (200_000, 4000), (50_000, 1000), (50_000, 16_000), (400_000, 4000)]


def measure(documents: int, labels: int) -> None:
    splits = make_world("closed", documents=documents, labels=labels, words=WORDS)
    before = peak_gib()
    model = make_method("parabel", {"trees": 1, "branching": 16, "threads": 2})
    with stopwatch() as clock:
        model.fit(splits.train)
    with stopwatch() as predicting:
        model.predict(splits.test)
    speed = round(len(splits.test) / predicting["seconds"])
    print(json.dumps({**clock, "peak_gib": peak_gib(), "before_gib": before, "documents_per_second_from_text": speed}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]), int(sys.argv[2]))
        sys.exit()
    for documents, labels in SIZES:
        done = subprocess.run([sys.executable, __file__, str(documents), str(labels)], check=True, capture_output=True, text=True)
        record("trees-scale", documents=documents, labels=labels, words=WORDS, **json.loads(done.stdout.splitlines()[-1]))
