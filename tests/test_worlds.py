from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelwise.corpus import Groups
from labelwise.datasets.worlds import HABITS, make_world
from labelwise.errors import BadSettings
from labelwise.gap import gap
from labelwise.hierarchy import Hierarchy

PAPER = {"any-level": 0.45, "leaves": 0.27, "closed": 0.86}


@pytest.mark.parametrize("guideline", PAPER)
@pytest.mark.parametrize(
    ("documents", "labels", "seed"), [(1500, 500, 1), (1500, 500, 2), (1500, 500, 3), (3000, 4271, 1), (3000, 4271, 2)]
)
def test_presets_land_near_the_papers_gap(guideline, documents, labels, seed):
    splits = make_world(guideline, documents=documents, labels=labels, words=10, seed=seed)
    values = gap(splits.train.gold()[:1500], Hierarchy(splits.labels))
    assert np.nanmean(values) == pytest.approx(PAPER[guideline], abs=0.05)


@pytest.mark.parametrize("guideline", HABITS)
def test_the_same_seed_gives_the_same_world(guideline):
    one, same, other = (make_world(guideline, documents=60, labels=40, seed=seed) for seed in (4, 4, 5))
    assert [list(a) for a in one] == [list(a) for a in same]
    assert one.labels == same.labels
    assert list(one.test) != list(other.test)


@given(st.sampled_from(sorted(HABITS)), st.integers(10, 300), st.integers(20, 300), st.integers(0, 9))
@settings(max_examples=25)
def test_any_size_makes_a_sound_corpus(guideline, documents, labels, seed):
    splits = make_world(guideline, documents=documents, labels=labels, seed=seed, words=12)
    assert sum(map(len, splits)) == documents
    assert len(splits.labels) == labels
    assert all(document.text and document.labels for corpus in splits for document in corpus)
    for corpus in splits:
        assert corpus.gold().indices.tolist() == [corpus.labels.column(id) for document in corpus for id in document.labels]
    hierarchy = Hierarchy(splits.labels)
    assert not hierarchy.cycles
    used = Groups.of(splits).all
    if guideline == "leaves":
        assert hierarchy.leaves[used].all()
    if guideline == "closed":
        assert all((hierarchy.close(corpus.gold()) != corpus.gold()).nnz == 0 for corpus in splits)


def test_there_are_frequent_few_and_zero_labels():
    sizes = {name: int(mask.sum()) for name, mask in Groups.of(make_world()).masks().items()}
    assert sizes["frequent"] > 50
    assert sizes["few"] > 200
    assert sizes["zero"] > 15


def test_new_labels_are_in_no_training_document():
    splits = make_world(documents=1000, labels=100, new=0.2)
    groups = Groups.of(splits)
    assert 10 <= groups.zero.sum() <= 20
    assert Groups.of(make_world(documents=3000, labels=50, new=0.0)).zero.sum() <= 1


def test_names_are_made_of_words_that_stand_in_the_texts():
    splits = make_world(documents=2000, labels=100)
    seen = {word.strip(".") for document in splits.train for word in document.text.split()}
    zero = np.flatnonzero(Groups.of(splits).zero)
    names = [splits.labels[column].name.split() for column in zero]
    assert sum(word in seen for name in names for word in name) > 0.9 * sum(map(len, names))


def test_some_labels_have_several_parents():
    assert any(len(label.parents) == 2 for label in make_world().labels)


def test_bad_requests_are_refused():
    with pytest.raises(BadSettings, match="guideline: 'levaes' is not one of any-level, leaves, closed"):
        make_world("levaes")
    with pytest.raises(BadSettings, match="at least 10 documents, 20 labels"):
        make_world(labels=3)


def test_names_can_be_kept_from_telling_of_the_labels_above():
    habits = [replace(HABITS["leaves"], names=names) for names in ("path", "own")]
    path, own = (make_world("leaves", documents=60, labels=200, habit=habit) for habit in habits)
    assert [list(corpus) for corpus in path] == [list(corpus) for corpus in own]
    assert [label.parents for label in path.labels] == [label.parents for label in own.labels]
    shared = {"path": 0, "own": 0}
    for kind, labels in (("path", path.labels), ("own", own.labels)):
        words = {label.id: set(label.name.split()) for label in labels}
        shared[kind] = sum(bool(words[label.id] & words[parent]) for label in labels for parent in label.parents)
    below = sum(len(label.parents) for label in path.labels)
    assert shared["path"] == below
    assert shared["own"] < 0.05 * below
    assert len({label.name for label in own.labels}) > 190


def test_a_habit_of_ones_own_replaces_the_guidelines():
    few = replace(HABITS["leaves"], draws=2, zipf=1)
    splits = make_world("leaves", documents=300, labels=100, habit=few)
    assert splits.train.gold().nnz / len(splits.train) < 2.1
    assert Hierarchy(splits.labels).leaves[Groups.of(splits).all].all()
