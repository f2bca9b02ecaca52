"""Predictions as files, so that any system can be scored: our JSONL, a map of scores, or a TREC run.

`{"id": …, "labels": [{"id": …, "score": …}, …]}` is what `labelwise predict` writes; `{"id": …, "scores": {label: score}}`
is read as well. A TREC run has lines `document Q0 label rank score tag`. Labels a file does not list count as not scored.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from labelwise.admission import UnknownLabels
from labelwise.corpus import Corpus
from labelwise.errors import BadFile, UnknownLabel, did_you_mean
from labelwise.jsonl import parse_object, read_lines
from labelwise.scores import Scores

Row = tuple[int, str, list[tuple[str, float]]]  # line, document, labels with their scores


def read_predictions(path: Path | str, corpus: Corpus, *, unknown_labels: UnknownLabels = "error") -> Scores:
    """Sparse scores for the documents of a corpus; documents without a prediction get none, with a warning."""
    path = Path(path)
    places: dict[str, list[int]] = {}
    for row, own in enumerate(corpus):
        places.setdefault(own.id, []).append(row)  # a corpus may hold the same document twice
    found: dict[str, dict[int, float]] = {}
    dropped = 0
    for number, document, scores in _rows(path):
        if document not in places:
            close = did_you_mean(document, places)
            raise BadFile(
                f"{path}:{number}: document {document!r} is not among the {len(places)} of this split{close}; is it --split?"
            )
        row_scores = found.setdefault(document, {})
        for label, score in scores:
            if label not in corpus.labels:
                if unknown_labels == "drop":
                    dropped += 1
                    continue
                raise UnknownLabel(
                    f"{path}:{number}: label {label!r} is not in the label set ({len(corpus.labels)} labels)"
                    f"{did_you_mean(label, corpus.labels.ids)}; --unknown-labels drop leaves such labels out"
                )
            if row_scores.setdefault(corpus.labels.column(label), score) != score:
                raise BadFile(f"{path}:{number}: label {label!r} has two scores for document {document!r}; one each")
    if not found:
        raise BadFile(f"{path}: no predictions in it")
    if dropped:
        warnings.warn(f"{path}: {dropped} scores of labels that are not in the label set were dropped", stacklevel=2)
    if len(found) < len(places):
        warnings.warn(f"{path}: no predictions for {len(places) - len(found)} of {len(places)} documents", stacklevel=2)
    by_row = {row: found[document] for document, rows in places.items() if document in found for row in rows}
    return Scores(_matrix(by_row, len(corpus), len(corpus.labels)), corpus.labels)


def prediction(labels: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """One document's best labels as they are written to a file: (label, score) or (label, score, probability) each."""
    return [
        {"id": label.id, "name": label.name}
        | {name: float(f"{value:.6g}") for name, value in zip(("score", "probability"), values, strict=False)}
        for label, *values in labels
    ]


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a predictions file; its first character tells JSONL from a TREC run."""
    for number, line in read_lines(path):
        read = _json_row if line.lstrip().startswith(b"{") else _trec_row
        yield read(line, path, number)


def _json_row(line: bytes, path: Path, number: int) -> Row:
    value = parse_object(line, path, number)
    scores = value.get("scores")
    if scores is None and isinstance(value.get("labels"), list):
        try:
            scores = [(label["id"], label["score"]) for label in value["labels"]]
        except (TypeError, KeyError):
            raise BadFile(f"{path}:{number}: each entry of 'labels' needs 'id' and 'score'") from None
    scores = list(scores.items()) if isinstance(scores, dict) else scores
    if not isinstance(value.get("id"), str) or not isinstance(scores, list):
        raise BadFile(f"{path}:{number}: needs 'id' (a text) and 'labels' (a list of id and score) or 'scores' (label to score)")
    return number, value["id"], [(str(label), _number(score, path, number)) for label, score in scores]


def _trec_row(line: bytes, path: Path, number: int) -> Row:
    parts = line.decode("utf-8", "replace").split()
    if len(parts) != 6:
        raise BadFile(
            f"{path}:{number}: {len(parts)} columns; a TREC run has six (document Q0 label rank score tag), JSONL starts with {{"
        )
    return number, parts[0], [(parts[2], _number(parts[4], path, number))]


def _number(value: Any, path: Path, number: int) -> float:
    try:
        score = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = float("nan")
    if not math.isfinite(score):
        raise BadFile(f"{path}:{number}: the score {value!r} is not a finite number")
    return score


def _matrix(found: dict[int, dict[int, float]], documents: int, labels: int) -> csr_array:
    rows = np.repeat(np.fromiter(found, dtype=np.int64, count=len(found)), [len(scores) for scores in found.values()])
    columns = np.array([column for scores in found.values() for column in scores], dtype=np.int64)
    data = np.array([score for scores in found.values() for score in scores.values()])
    if len(data) and (data.min() < 0 or data.max() > 1):
        data = _rank_values(rows, data)
    kept = data > 0
    matrix = csr_array((data[kept].astype(np.float32), (rows[kept], columns[kept])), shape=(documents, labels))
    matrix.sort_indices()
    return matrix


def _rank_values(rows: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Scores on a scale of their own (BM25, log-probabilities) turned into 1, 1/2, 1/3 … by rank within each document."""
    warnings.warn("scores outside 0 to 1: only their order is used, so measures with a threshold mean nothing here", stacklevel=4)
    order = np.lexsort((-data, rows))
    new_row = np.append(True, rows[order][1:] != rows[order][:-1])
    new_value = new_row | np.append(True, data[order][1:] != data[order][:-1])
    step = np.cumsum(new_value)
    first = step[np.maximum.accumulate(np.where(new_row, np.arange(len(order)), 0))]
    ranked = np.empty(len(data))
    ranked[order] = 1 / (1 + step - first)
    return ranked
