import json

import numpy as np
import pytest
from toy import LABELS

from labelwise.corpus import Corpus
from labelwise.errors import BadFile, UnknownLabel
from labelwise.evaluation import evaluate
from labelwise.predictions import prediction, read_predictions
from labelwise.scores import Scores


def lines(path, *rows: object) -> str:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return str(path)


FULL = [
    {"id": "d0", "labels": [{"id": "owl", "name": "owls", "score": 0.9}, {"id": "lake", "score": 0.4}]},
    {"id": "d2", "scores": {"fish": 0.5}},
    {"id": "d1", "labels": []},
]


def test_both_json_shapes_are_read_in_any_order(splits, tmp_path):
    scores = read_predictions(lines(tmp_path / "p.jsonl", *FULL), splits.test)
    assert scores.sparse
    dense = scores.dense()
    assert dense[0, LABELS.column("owl")] == pytest.approx(0.9)
    assert dense[2, LABELS.column("fish")] == pytest.approx(0.5)
    assert dense.sum() == pytest.approx(1.8)


def test_what_predict_writes_is_read_back(splits, tmp_path):
    values = (np.random.default_rng(0).random((3, 8)) ** 8).astype(np.float32)  # some near 0
    best = Scores(values, LABELS).top(8)
    path = lines(
        tmp_path / "p.jsonl", *({"id": d.id, "labels": prediction(row)} for d, row in zip(splits.test, best, strict=True))
    )
    assert read_predictions(path, splits.test).dense() == pytest.approx(values, rel=1e-5)


def test_a_trec_run_is_read_and_keeps_its_order(splits, tmp_path):
    run = [
        "d0 Q0 lake 1 12.5 bm25",
        "d0 Q0 owl 2 -3.0 bm25",
        "d0 Q0 fish 3 -3.0 bm25",
        "d1 Q0 heron 1 2 bm25",
        "d2 Q0 fish 1 1 bm25",
    ]
    path = lines(tmp_path / "run.trec", *run)
    with pytest.warns(UserWarning, match="only their order is used"):
        scores = read_predictions(path, splits.test)
    row = scores.dense()[0]
    assert row[LABELS.column("lake")] == 1
    assert row[LABELS.column("owl")] == row[LABELS.column("fish")] == 0.5
    assert evaluate(scores, splits, ks=[1]).groups["zero"]["rp@1"] == 1


def test_documents_without_predictions_are_counted_in_a_warning(splits, tmp_path):
    with pytest.warns(UserWarning, match="no predictions for 2 of 3 documents"):
        scores = read_predictions(lines(tmp_path / "p.jsonl", FULL[0]), splits.test)
    assert len(scores) == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "d9", "scores": {"owl": 1}}, r"p\.jsonl:2: document 'd9' is not among the 3 of this split"),
        ({"id": "d2", "scores": {"owl": float("nan")}}, r"p\.jsonl:2: the score nan is not a finite number"),
        ({"id": "d2", "scores": {"owl": "high"}}, r"p\.jsonl:2: the score 'high' is not a finite number"),
        ({"id": "d2", "scores": {"owl": None}}, r"p\.jsonl:2: the score None is not a finite number"),
        ({"id": "d2", "scores": {"owl": True}}, r"p\.jsonl:2: the score True is not a finite number"),
        ({"id": "d0", "scores": {"owl": 0.1}}, r"p\.jsonl:2: label 'owl' has two scores for document 'd0'"),
        ({"id": "d2", "scores": {"owl": int("9" * 400)}}, r"is not a finite number"),
        ({"id": "d2", "labels": [{"id": "owl", "score": 0.1}, {"id": "owl", "score": 0.2}]}, r"label 'owl' has two scores"),
        ({"id": "d2", "labels": ["owl"]}, r"p\.jsonl:2: each entry of 'labels' needs 'id' and 'score'"),
        ({"id": "d2"}, r"p\.jsonl:2: needs 'id' \(a text\) and 'labels'"),
        ("d0 Q0 owl 1 0.5", r"p\.jsonl:2: 5 columns; a TREC run has six"),
        ("{broken", r"p\.jsonl:2: not JSON"),
    ],
)
def test_bad_lines_are_errors_with_file_and_line(splits, tmp_path, row, message):
    with pytest.raises(BadFile, match=message):
        read_predictions(lines(tmp_path / "p.jsonl", FULL[0], row), splits.test)


def test_labels_outside_the_set_are_refused_or_dropped(splits, tmp_path):
    path = lines(tmp_path / "p.jsonl", {"id": "d0", "scores": {"owls": 1, "owl": 0.5}}, *FULL[1:])
    with pytest.raises(UnknownLabel, match=r"p\.jsonl:1: label 'owls' is not in the label set \(8 labels\); did you mean 'owl'"):
        read_predictions(path, splits.test)
    with pytest.warns(UserWarning, match="1 scores of labels that are not in the label set were dropped"):
        assert read_predictions(path, splits.test, unknown_labels="drop").dense()[0].sum() == pytest.approx(0.5)


def test_a_document_that_stands_twice_in_the_corpus_gets_its_scores_twice(splits, tmp_path):
    twice = Corpus([*splits.test, splits.test[0]], LABELS, splits.info)
    path = lines(tmp_path / "p.jsonl", *FULL, FULL[0])
    scores = read_predictions(path, twice).dense()
    assert scores[3].tolist() == scores[0].tolist() != [0] * 8


def test_an_empty_file_is_no_prediction(splits, tmp_path):
    with pytest.raises(BadFile, match="no predictions in it"):
        read_predictions(lines(tmp_path / "p.jsonl"), splits.test)


def test_a_missing_file_is_named(splits, tmp_path):
    with pytest.raises(BadFile, match="no such file"):
        read_predictions(tmp_path / "none.jsonl", splits.test)
