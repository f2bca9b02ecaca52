"""What word vectors alone say of labels: cosine of text and name, words weighted by idf, no label of training used.

Networks that read names start from these vectors, so this is what their training has to pass.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import numpy as np
from record import record_quality, stopwatch

import labelwise
from labelwise.corpus import Corpus
from labelwise.features.vectors import WordVectors, label_words
from labelwise.features.words import tokenize
from labelwise.scores import Scores


class Similarity:
    """A method as far as `evaluate` needs one."""

    name = "glove similarity (no training)"

    def __init__(self, vectors: WordVectors, texts: Corpus) -> None:
        counts = np.zeros(len(vectors.vectors))
        for document in texts:
            counts[np.unique(vectors.numbers(tokenize(document.text)))] += 1
        self.vectors, self.idf = vectors, np.log((len(texts) + 1) / (counts + 1))
        self.idf[:2] = 0  # padding, unknown words

    def encode(self, texts: list[list[str]]) -> np.ndarray:
        found = np.zeros((len(texts), self.vectors.vectors.shape[1]), dtype=np.float32)
        for row, words in enumerate(texts):
            numbers = self.vectors.numbers(words)
            found[row] = self.idf[numbers] @ self.vectors.vectors[numbers]
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)

    def predict(self, corpus: Corpus) -> Scores:
        names = self.encode([label_words(label.name, 15) for label in corpus.labels])
        cosines = self.encode([tokenize(document.text) for document in corpus]) @ names.T
        return Scores(np.clip((cosines + 1) / 2, 0, 1), corpus.labels)


if __name__ == "__main__":
    data, file = os.environ.get("LABELWISE_DATA"), os.environ.get("LABELWISE_VECTORS")
    if data is None or file is None:
        print("skipped: name the corpora with LABELWISE_DATA and word vectors with LABELWISE_VECTORS")
        sys.exit()
    warnings.simplefilter("ignore")
    for corpus in ("eurlex", "ctgov", "crs"):
        splits = labelwise.read_corpus(Path(data) / corpus)
        with stopwatch() as fitting:
            method = Similarity(WordVectors.read(file), splits.train)
        with stopwatch() as scoring:
            report = labelwise.evaluate(method, splits, ties="pessimistic", per_label=True)  # type: ignore[arg-type]
        record_quality(report, method.name, seed=1, fit_seconds=fitting["seconds"], evaluate_seconds=scoring["seconds"])
