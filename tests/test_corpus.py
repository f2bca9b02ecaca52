import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import LABELS, zoo

from labelwise.corpus import Corpus, CorpusInfo, Document, Groups, Splits
from labelwise.errors import BadCorpus, UnknownLabel
from labelwise.labels import Label, LabelSet


def test_gold_has_a_row_per_document_and_a_column_per_label(splits):
    gold = splits.train.gold()
    assert gold.shape == (6, 8)
    assert gold.dtype == bool
    assert gold.toarray()[2].nonzero()[0].tolist() == [1, 3, 6]


def test_slices_and_batches_are_corpora_with_their_gold(splits):
    part = splits.train[2:4]
    assert isinstance(part, Corpus)
    assert (part.gold().toarray() == splits.train.gold().toarray()[2:4]).all()
    assert [len(batch) for batch in splits.train.batches(4)] == [4, 2]
    assert splits.train[-1].text == "An owl in the dark wood"


def test_a_label_outside_the_set_is_named_with_its_document():
    with pytest.raises(UnknownLabel, match="document 'x': label 'cow' is not in the label set"):
        Corpus([Document("x", "moo", ("cow",))], LABELS).gold()


def test_groups_count_training_documents_only(splits):
    groups = Groups.of(splits)  # few = 2
    assert groups.counts.tolist() == [0, 1, 2, 3, 0, 3, 2, 0]
    named = {name: [LABELS[c].id for c in np.flatnonzero(mask)] for name, mask in groups.masks().items()}
    assert named["frequent"] == ["owl", "lake"]
    assert named["few"] == ["bird", "fish", "duck"]
    assert named["zero"] == ["heron"]
    assert set(named["all"]) == {"owl", "lake", "bird", "fish", "duck", "heron"}, "unused labels are in no group"
    assert groups.names().tolist() == ["unused", "few", "few", "frequent", "unused", "frequent", "few", "zero"]


def test_few_labels_are_those_seen_1_to_threshold_times(splits):
    assert Groups.of(splits, few=3).frequent.sum() == 0
    assert Groups.of(splits, few=1).few.sum() == 1


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=12), st.integers(0, 20))
def test_the_groups_part_the_labels_in_use(labels: list[tuple[int, bool]], few: int):
    counts = np.array([count for count, _ in labels])
    groups = Groups(few, counts, np.array([count > 0 or later for count, later in labels]))
    parts = groups.frequent.astype(int) + groups.few + groups.zero
    assert (parts == groups.all).all()


def test_other_labels_move_the_gold_columns(splits):
    other = LabelSet([Label("heron", "h"), Label("owl", "o")])
    moved = splits.test.with_labels(other)
    assert moved.gold().toarray().tolist() == [[False, True], [True, False], [False, False]]
    assert moved[0].labels == ("owl",)
    assert splits.test.with_labels(LABELS) is splits.test


def test_relabelled_documents_agree_with_the_gold_matrix_in_slices_too():
    closed = zoo().closed().train
    part = closed[1:3]
    assert [len(document.labels) for document in part] == part.gold().sum(axis=1).tolist()
    assert list(part) == list(closed)[1:3]
    assert set(closed[-1].labels) == {"owl", "bird", "animal"}


def test_a_missing_split_is_asked_for_by_name(splits):
    empty = Splits(splits.train, Corpus([], LABELS, CorpusInfo("zoo")), splits.test)
    with pytest.raises(BadCorpus, match=r"corpus 'zoo' has no dev documents; add dev\.jsonl"):
        empty.split("dev")
    with pytest.raises(BadCorpus, match="there is no split 'tset'"):
        empty.split("tset")


@given(st.integers(0, 12), st.integers(1, 10))
def test_some_documents_are_spread_over_the_corpus_with_their_gold(count, length):
    documents = [Document(f"d{number}", str(number), (LABELS.ids[number % 3],)) for number in range(length)]
    some = Corpus(documents, LABELS).spread(count)
    rows = [int(document.id[1:]) for document in some]
    assert len(rows) == (count if 0 < count < length else length)
    assert rows[0] == 0
    assert np.diff([*rows, length]).max() - np.diff([*rows, length]).min() <= 1
    np.testing.assert_array_equal(some.gold().toarray(), Corpus(documents, LABELS).gold()[rows].toarray())
    np.testing.assert_array_equal(some[1:].gold().toarray(), some.gold()[1:].toarray())
