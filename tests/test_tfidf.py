"""scikit-learn's TfidfVectorizer is the oracle: the same matrix for the same settings."""

import mmap
import re
import tracemalloc
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from labelwise.datasets.worlds import make_world
from labelwise.errors import BadSettings
from labelwise.features import ngrams, tfidf
from labelwise.features.tfidf import Tfidf, TfidfSettings

PATTERN = r"(?u)\b\w\w+\b"  # scikit-learn's own
TEXTS = ["Grey herons stand in the lake", "the lake, the lake!", "owls and grey owls of the grey lake", "?", "zz"]


def by_name(features: Tfidf, matrix) -> dict[str, list[float]]:
    return dict(zip(features.names(range(len(features))), matrix.toarray().T.tolist(), strict=True))


def theirs(texts: list[str], **settings) -> dict[str, list[float]]:
    vectorizer = TfidfVectorizer(token_pattern=PATTERN, **settings)
    matrix = vectorizer.fit_transform(texts).toarray()
    return {name: matrix[:, column].tolist() for name, column in vectorizer.vocabulary_.items()}


def same(ours: dict[str, list[float]], oracle: dict[str, list[float]]) -> None:
    assert ours.keys() == oracle.keys()
    assert np.abs(np.array([ours[name] for name in oracle]) - list(oracle.values())).max() < 1e-6


words = st.lists(st.sampled_from(["grey", "heron", "lake", "owl", "the", "of", "night"]), max_size=12).map(" ".join)


@given(
    st.lists(words, min_size=1, max_size=6).filter(lambda texts: any(set(t.split()) - {"the", "of"} for t in texts)),
    st.integers(1, 5),
    st.booleans(),
)
def test_the_matrix_is_scikit_learns(texts, ngrams, stop_words):
    features = Tfidf(TfidfSettings(ngrams=ngrams, stop_words=stop_words, pattern=PATTERN))
    ours = by_name(features, features.fit_transform(texts))
    same(ours, theirs(texts, ngram_range=(1, ngrams), stop_words="english" if stop_words else None))


def test_the_matrix_is_scikit_learns_on_a_corpus_of_some_size():
    texts = [document.text for document in make_world(documents=200, labels=40).train]
    features = Tfidf(TfidfSettings(ngrams=3, pattern=PATTERN))
    same(by_name(features, features.fit_transform(texts)), theirs(texts, ngram_range=(1, 3), stop_words="english"))


@given(st.lists(words, min_size=1, max_size=6), st.integers(1, 5))
def test_the_beginning_of_a_text_is_read_as_if_it_were_the_whole(texts, count):
    texts = ["grey herons, grey owls", *texts]
    settings = TfidfSettings(ngrams=2, pattern=PATTERN)
    stops = tfidf._stop_words()
    cut = [" ".join([word for word in re.findall(PATTERN, text.lower()) if word not in stops][:count]) for text in texts]
    whole, begun = Tfidf(settings), Tfidf(replace(settings, beginning=count))
    same(by_name(begun, begun.fit_transform(texts)), by_name(whole, whole.fit_transform(cut)))
    spread = begun.spread(texts[0], dict.fromkeys(range(len(begun)), 1.0))
    assert max(end for _, end, _ in spread) == [4, 11, 17, 22, 22][count - 1]


@pytest.mark.parametrize("limit", [5, 50, 400])
def test_the_most_frequent_n_grams_are_kept(limit):
    texts = [document.text for document in make_world(documents=300, labels=40).train]
    everything = Tfidf(TfidfSettings(ngrams=4, pattern=PATTERN)).fit(texts)
    some = Tfidf(TfidfSettings(ngrams=4, pattern=PATTERN, max_features=limit)).fit(texts)
    cut = re.compile(PATTERN).findall
    counts: dict[str, int] = {}
    for text in texts:
        tokens = [word for word in cut(text.lower()) if word not in some._stops]
        for length in range(1, 5):
            for start in range(len(tokens) - length + 1):
                gram = " ".join(tokens[start : start + length])
                counts[gram] = counts.get(gram, 0) + 1
    assert len(everything) == len(counts)
    kept = some.names(range(len(some)))
    assert len(kept) == limit
    least = min(counts[name] for name in kept)
    assert sum(count > least for count in counts.values()) <= limit
    assert all(name in kept for name, count in counts.items() if count > least)
    assert [counts[name] for name in kept] == sorted((counts[name] for name in kept), reverse=True), "columns by falling count"


@given(st.lists(words, min_size=1, max_size=9), st.integers(1, 9), st.integers(1, 60), st.integers(1, 3))
def test_counting_in_many_passes_gives_what_one_pass_gives(texts, several, limit, min_count):
    texts = [*texts, "night night night"]
    settings = TfidfSettings(ngrams=4, max_features=limit, min_count=min_count, stop_words=False)
    at_once, bit_by_bit = Tfidf(settings), Tfidf(settings)
    expected = at_once.fit_transform(texts)
    with patch.object(ngrams, "PASS", several), patch.multiple(tfidf, BLOCK=several, CHUNK=several):
        found = bit_by_bit.fit_transform(texts)
    assert bit_by_bit.names(range(len(bit_by_bit))) == at_once.names(range(len(at_once)))
    for one, other in ((found.indptr, expected.indptr), (found.indices, expected.indices), (found.data, expected.data)):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def test_the_matrix_stays_in_its_file():
    matrix = Tfidf().fit_transform(TEXTS)
    for array in (matrix.indices, matrix.data):
        while isinstance(array, np.ndarray):
            array = array.base
        assert isinstance(array.obj, mmap.mmap)


def test_memory_does_not_grow_with_the_texts():
    text = " ".join(f"word{number}" for number in range(100))
    with patch.object(ngrams, "PASS", 5000), patch.multiple(tfidf, BLOCK=5000, CHUNK=50):
        tracemalloc.start()
        matrix = Tfidf(TfidfSettings(ngrams=2)).fit_transform(text for _ in range(4000))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 0.2 * (matrix.indices.nbytes + matrix.data.nbytes)


def test_stop_words_go_before_n_grams_are_made():
    features = Tfidf(TfidfSettings(ngrams=2)).fit(["herons stand in the lake"])
    assert "stand lake" in features.names(range(len(features)))


def test_transform_of_the_training_texts_is_fit_transform():
    features = Tfidf(TfidfSettings(ngrams=3))
    fitted = features.fit_transform(TEXTS)
    again = features.transform(TEXTS)
    assert (abs(fitted - again) > 1e-7).nnz == 0
    assert again.dtype == np.float32
    assert again.indices.dtype == np.int32
    assert again.has_canonical_format


def test_texts_without_a_known_word_are_rows_of_zeros():
    features = Tfidf().fit(TEXTS)
    row = features.transform(["nothing known here", "", "lake"])
    assert np.diff(row.indptr).tolist() == [0, 0, 1]
    assert np.isfinite(row.data).all()
    assert features.transform([]).shape == (0, len(features))


def test_what_is_saved_is_read_back(tmp_path):
    features = Tfidf(TfidfSettings(ngrams=3)).fit(TEXTS)
    features.save(tmp_path)
    loaded = Tfidf.load(tmp_path, features.settings)
    assert (loaded.transform(TEXTS) != features.transform(TEXTS)).nnz == 0
    assert loaded.names(range(len(loaded))) == features.names(range(len(features)))


def test_occurrences_point_at_the_n_grams_of_the_text():
    features = Tfidf(TfidfSettings(ngrams=3)).fit(TEXTS)
    text = "Grey OWLS, of the grey lake."
    found = [(features.names([column])[0], text[start:end]) for column, start, end in features.occurrences(text)]
    assert ("grey", "Grey") in found
    assert ("owls grey lake", "OWLS, of the grey lake") in found
    columns = {column for column, _, _ in features.occurrences(text)}
    assert columns == set(features.transform([text]).indices.tolist())


@pytest.mark.parametrize(("texts", "settings"), [(["the of and"], {}), (["one two"], {"min_count": 2}), ([], {})])
def test_no_features_is_an_error_that_names_the_setting(texts, settings):
    with pytest.raises(BadSettings, match=r"no n-gram occurs \d times \(min_count\) in the training texts; lower min_count"):
        Tfidf(TfidfSettings(**settings)).fit(texts)


def test_rare_n_grams_can_be_left_out():
    features = Tfidf(TfidfSettings(ngrams=2, min_count=2)).fit(["grey owls", "grey owls", "grey herons"])
    assert sorted(features.names(range(len(features)))) == ["grey", "grey owls", "owls"]
