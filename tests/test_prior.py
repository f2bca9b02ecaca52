import pytest
from toy import LABELS, zoo

from labelwise.labels import Label
from labelwise.methods.prior import Prior


def test_scores_are_the_shares_of_training_documents(splits):
    scores = Prior().fit(splits.train).predict(splits.test)
    assert scores.dense()[2] == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6, 0, 3 / 6, 2 / 6, 0])


def test_labels_that_training_never_saw_score_0():
    labels = LABELS.extended([Label("cow", "cows")])
    assert Prior().fit(zoo().train).predict(zoo().test.with_labels(labels)).dense()[:, -1].tolist() == [0, 0, 0]
