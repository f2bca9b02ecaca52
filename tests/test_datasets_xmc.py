from __future__ import annotations

import gzip
import lzma
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from labelwise.corpus import Corpus, CorpusInfo, Document, Splits
from labelwise.datasets import xmc_matrix
from labelwise.datasets.xmc import export_xmc, read_xmc, read_xmc_matrix, write_xmc_matrix
from labelwise.errors import BadCorpus, BadFile, OutputExists
from labelwise.features.words import words
from labelwise.labels import Label, LabelSet

TRAIN = "3 5 4\n0,3 0:2 4:1\n1 1:1 2:3\n 0:1 3:1\n"
TEST = "2 5 4\n2 4:2\n0,1 0:1 1:1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "pond"
    path.mkdir()
    (path / "train.txt").write_text(TRAIN)
    (path / "test.txt").write_text(TEST)
    return path


@pytest.fixture
def written(tmp_path: Path):
    def write(content: str | bytes, name: str = "train.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# The matrix


def test_a_file_reads_as_features_and_gold(written):
    features, gold = read_xmc_matrix(written(TRAIN))
    assert features.dtype == np.float32
    assert gold.dtype == bool
    assert features.toarray().tolist() == [[2, 0, 0, 0, 1], [0, 1, 3, 0, 0], [1, 0, 0, 1, 0]]
    assert gold.toarray().astype(int).tolist() == [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    "content",
    [
        "\ufeff" + TRAIN,
        TRAIN.replace("\n", "\r\n"),
        TRAIN.rstrip("\n"),
        TRAIN + "\n\n",
        TRAIN.replace(" ", "  ").replace("\n", " \n").replace("1  1:1", "1 1:1"),
        TRAIN.replace("\n 0:1", "\n0:1"),  # a document without labels whose space was stripped
        TRAIN.replace("0,3 0:2 4:1", "3,0 4:1 0:2"),
        TRAIN.replace("0,3 0:2 4:1", "3,0,3 4:0.5 0:2 4:0.5 1:0"),
        TRAIN.replace("0:2", "0:20e-1").replace("2:3", "2:+3.0"),
    ],
)
def test_marks_line_ends_spaces_order_repeats_and_zeros_make_no_difference(written, content):
    plain, gold = read_xmc_matrix(written(TRAIN, "plain.txt"))
    features, again = read_xmc_matrix(written(content))
    assert (features != plain).nnz == 0
    assert features.nnz == plain.nnz
    assert (again != gold).nnz == 0
    assert again.nnz == gold.nnz


def test_documents_may_be_empty_and_even_all_missing(written):
    features, gold = read_xmc_matrix(written("2 3 2\n\n \n"))
    assert (features.nnz, gold.nnz, features.shape, gold.shape) == (0, 0, (2, 3), (2, 2))
    assert read_xmc_matrix(written("0 3 2\n"))[0].shape == (0, 3)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_packed_files_read_and_write(written, tmp_path, suffix, pack):
    features, gold = read_xmc_matrix(written(pack(TRAIN.encode()), "train.txt" + suffix))
    write_xmc_matrix(tmp_path / ("again.txt" + suffix), features, gold)
    assert (read_xmc_matrix(tmp_path / ("again.txt" + suffix))[0] != features).nnz == 0


def test_values_are_written_with_six_decimals_and_counts_without(tmp_path):
    gold = csr_array(np.array([[True, True], [False, False]]))
    write_xmc_matrix(tmp_path / "a.txt", csr_array(np.array([[0.5, 0], [0, 1 / 3]], dtype=np.float32)), gold)
    assert (tmp_path / "a.txt").read_text() == "2 2 2\n0,1 0:0.500000\n 1:0.333333\n"
    write_xmc_matrix(tmp_path / "b.txt", csr_array(np.array([[2, 0], [0, 0]], dtype=np.float32)), gold)
    assert (tmp_path / "b.txt").read_text() == "2 2 2\n0,1 0:2\n \n"


@st.composite
def matrices(draw: st.DrawFn, whole: bool) -> tuple[csr_array, csr_array]:
    rows, columns, labels = (draw(st.integers(0, 6)) for _ in range(3))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    values = random.integers(-5, 1000, (rows, columns)) if whole else random.normal(0, 10, (rows, columns))
    features = values * (random.random((rows, columns)) < 0.4)
    return csr_array(features.astype(np.float32)), csr_array(random.random((rows, labels)) < 0.3)


@given(matrices(whole=True))
def test_counts_come_back_as_they_were_written(tmp_path_factory, pair):
    path = tmp_path_factory.getbasetemp() / "counts.txt"
    write_xmc_matrix(path, *pair)
    for one, other in zip(pair, read_xmc_matrix(path), strict=True):
        assert np.array_equal(one.toarray(), other.toarray())


@given(matrices(whole=False))
def test_values_come_back_to_six_decimals(tmp_path_factory, pair):
    path = tmp_path_factory.getbasetemp() / "values.txt"
    write_xmc_matrix(path, *pair)
    features, gold = read_xmc_matrix(path)
    np.testing.assert_allclose(features.toarray(), pair[0].toarray(), atol=6e-7, rtol=1e-6)
    assert np.array_equal(gold.toarray(), pair[1].toarray())


NUMBERS = st.one_of(
    st.floats(0, 1e6).map("{:.6f}".format),
    st.floats(-1e6, 1e6).map(repr),
    st.integers(0, 99).map(str),
    st.just(".5"),
    st.sampled_from(["5.", "0." + "0" * 20 + "125", "12345678901234567890"]),
)


@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_a_value_reads_as_python_reads_it(tmp_path_factory, numbers):
    path = tmp_path_factory.getbasetemp() / "numbers.txt"
    pairs = " ".join(f"{column}:{number}" for column, number in enumerate(numbers))
    path.write_text(f"1 {len(numbers)} 1\n0 {pairs}\n")
    assert read_xmc_matrix(path)[0].toarray()[0].tolist() == np.array([float(n) for n in numbers], dtype=np.float32).tolist()


@settings(max_examples=400)
@given(st.text(alphabet="0123,: .-e\n\t\rx", max_size=25))
@example("0,1 2:0.5")
@example("1,2:3")
@example("1:2,3")
@example("0 1:2:3")
@example("0 1:1.5.2")
@example("0 1:1\r")
@example("0 1:.")
@example("0 1:1e99")
def test_what_is_accepted_is_what_the_plain_reading_of_each_line_accepts(text):
    chunk = (text + "\n").replace("\r\n", "\n").encode()
    faults = [xmc_matrix._fault(line, 4, 4) for line in chunk.split(b"\n")]
    assert (xmc_matrix._parse(chunk, 4, 4) is None) == any(faults)


def test_a_file_of_many_chunks_reads_as_one(written, monkeypatch):
    path = written(TRAIN)
    whole = read_xmc_matrix(path)
    monkeypatch.setattr(xmc_matrix, "CHUNK", 3)
    for one, other in zip(whole, read_xmc_matrix(path), strict=True):
        assert np.array_equal(one.toarray(), other.toarray())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "train.txt:1: the header is ''; it must be 3 whole numbers: documents, features, labels"),
        ("3 5\n", "train.txt:1: the header is '3 5'"),
        ("3 five 4\n", "train.txt:1: the header is '3 five 4'"),
        ("-1 5 4\n", "train.txt:1: the header is"),
        (TRAIN.replace("0,3", "0," + "9" * 5000), "train.txt:2: the label '999"),
        (TRAIN.replace("0,3", "0,4"), "train.txt:2: the label '4' is out of range; the header promises 4 labels"),
        (TRAIN.replace("2:3", "5:3"), "train.txt:3: the feature '5' is out of range; the header promises 5 features"),
        (TRAIN.replace("2:3", "2:nan"), "train.txt:3: the value 'nan' of feature '2' is not a finite number"),
        (TRAIN.replace("2:3", "2:1e39"), "train.txt:3: the value '1e39' of feature '2' is not a finite number"),
        (TRAIN.replace("2:3", "2:much"), "train.txt:3: the value 'much' of feature '2' is not a finite number"),
        (TRAIN.replace("2:3", "2"), "train.txt:3: '2' is not a feature with its value"),
        (TRAIN.replace("2:3", "-2:3"), "train.txt:3: '-2:3' is not a feature with its value"),
        (TRAIN.replace("0,3", "0,,3"), "train.txt:2: '' is not a label"),
        (TRAIN.replace("0,3", "0,frog"), "train.txt:2: 'frog' is not a label"),
        (TRAIN.replace("3 5 4", "4 5 4"), "train.txt:1: the header promises 4 documents, but 3 lines follow it"),
        (TRAIN.replace("3 5 4", "2 5 4"), "train.txt:4: more documents than the 2 that the header promises"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(written, content, message):
    with pytest.raises(BadFile) as told:
        read_xmc_matrix(written(content))
    assert message in str(told.value)


def test_the_line_is_right_in_a_later_chunk_too(written, monkeypatch):
    monkeypatch.setattr(xmc_matrix, "CHUNK", 4)
    with pytest.raises(BadFile, match=r"train.txt:4: the feature '9'"):
        read_xmc_matrix(written(TRAIN.replace("3:1\n", "9:1\n")))


def test_a_missing_or_broken_file_is_an_error(written, tmp_path):
    with pytest.raises(BadFile, match=r"nowhere.txt: no such file"):
        read_xmc_matrix(tmp_path / "nowhere.txt")
    with pytest.raises(BadFile, match="a folder, not a file"):
        read_xmc_matrix(tmp_path)
    with pytest.raises(BadFile, match=r"broken .gz file"):
        read_xmc_matrix(written(gzip.compress(TRAIN.encode())[:-9], "train.txt.gz"))


def test_matrices_that_do_not_fit_or_hold_nan_are_not_written(tmp_path):
    one, two = csr_array((1, 2), dtype=np.float32), csr_array((2, 2), dtype=bool)
    with pytest.raises(BadCorpus, match="features of 1 documents do not fit gold labels of 2"):
        write_xmc_matrix(tmp_path / "a.txt", one, two)
    with pytest.raises(BadCorpus, match="not a finite number"):
        write_xmc_matrix(tmp_path / "a.txt", csr_array(np.array([[np.nan], [1.0]])), two)
    assert not list(tmp_path.iterdir())


def test_some_megabytes_read_within_a_second(tmp_path):
    random = np.random.default_rng(1)
    features = csr_array(
        (random.random(400_000, dtype=np.float32), random.integers(0, 90_000, 400_000), np.arange(0, 400_001, 100))
    )
    write_xmc_matrix(tmp_path / "a.txt", features, csr_array((4000, 10), dtype=bool))
    assert (tmp_path / "a.txt").stat().st_size > 5_000_000
    start = time.perf_counter()
    read_xmc_matrix(tmp_path / "a.txt")
    assert time.perf_counter() - start < 1


# The data set


def test_a_folder_reads_as_splits_of_bags_of_features(folder):
    splits = read_xmc(folder)
    assert [len(split) for split in splits] == [3, 0, 2]
    assert splits.info == CorpusInfo(name="pond")
    assert list(splits.train) == [
        Document("train-0", "f0 f0 f4", ("0", "3")),
        Document("train-1", "f1 f2 f2 f2", ("1",)),
        Document("train-2", "f0 f3"),
    ]
    assert splits.test[-1] == Document("test-1", "f0 f1", ("0", "1"))
    assert splits.test.gold().toarray().astype(int).tolist() == [[0, 0, 1, 0], [1, 1, 0, 0]]


def test_a_slice_of_the_documents_is_the_documents_of_the_slice(folder):
    train = read_xmc(folder).train
    assert list(train[1:]) == list(train)[1:]


def test_features_and_labels_are_named_by_their_files(folder):
    (folder / "Xf.txt").write_text("frog\ntoad\nnewt\n\nreed\n")
    (folder / "labels.txt").write_text("animals\n\nQ7\twater plants\nponds\n")
    splits = read_xmc(folder)
    assert splits.train[0].text == "frog frog reed"
    assert splits.train[2].text == "frog f3"
    assert list(splits.labels) == [Label("0", "animals"), Label("1", "1"), Label("Q7", "water plants"), Label("3", "ponds")]


def test_features_that_are_not_counts_are_named_once(folder):
    (folder / "test.txt").write_text("1 5 4\n2 4:2.5\n")
    splits = read_xmc(folder)
    assert splits.train[0].text == "f0 f4"
    assert splits.test[0].text == "f4"


def test_documents_without_features_are_left_out_and_counted(folder):
    (folder / "train.txt").write_text("3 5 4\n0 0:1\n1 \n2 1:1\n")
    with pytest.warns(UserWarning, match="1 train documents have no features"):
        train = read_xmc(folder).train
    assert [document.id for document in train] == ["train-0", "train-2"]
    assert train.gold().indices.tolist() == [0, 2]


@pytest.mark.parametrize("names", [("trn.txt", "tst.txt"), ("pond_train.txt", "pond_test.txt")])
def test_the_other_names_of_the_repository_are_known(folder, names):
    (folder / "train.txt").rename(folder / names[0])
    (folder / "test.txt").rename(folder / names[1])
    assert [len(split) for split in read_xmc(folder)] == [3, 0, 2]


def test_features_and_labels_may_stand_in_two_files(folder):
    expected = [list(split) for split in read_xmc(folder)]
    for old, new in (("train", "trn"), ("test", "tst")):
        features, gold = read_xmc_matrix(folder / f"{old}.txt")
        _write_pairs(folder / f"{new}_X_Xf.txt", features)
        _write_pairs(folder / f"{new}_X_Y.txt", gold.astype(int))
        (folder / f"{old}.txt").unlink()
    splits = read_xmc(folder)
    assert [[(d.text, d.labels) for d in split] for split in splits] == [
        [(d.text, d.labels) for d in split] for split in expected
    ]
    assert splits.train.gold().dtype == bool
    (folder / "trn_X_Y.txt").write_text("1 4\n0:1\n")
    with pytest.raises(BadFile, match=r"trn_X_Y.txt:1: labels of 1 documents, but trn_X_Xf.txt has 3"):
        read_xmc(folder)


def _write_pairs(path: Path, matrix: csr_array) -> None:
    rows = [
        " ".join(f"{column}:{value:g}" for column, value in zip(row.indices, row.data, strict=True))
        for row in (matrix[[number]] for number in range(matrix.shape[0]))
    ]
    path.write_text(f"{matrix.shape[0]} {matrix.shape[1]}\n" + "".join(row + "\n" for row in rows))


def test_files_may_be_named_for_each_split(folder):
    splits = read_xmc({"train": folder / "train.txt", "dev": folder / "test.txt"})
    assert [len(split) for split in splits] == [3, 2, 0]
    assert splits.dev[0].id == "dev-0"


def test_a_folder_that_cannot_be_read_says_why(folder, tmp_path):
    with pytest.raises(BadCorpus, match="no such folder"):
        read_xmc(tmp_path / "nowhere")
    with pytest.raises(BadCorpus, match="there is no split 'tests'; did you mean 'test'"):
        read_xmc({"tests": folder / "test.txt"})
    with pytest.raises(BadCorpus, match="no files named"):
        read_xmc({})
    (folder / "features.txt").write_text("frog\n")
    with pytest.raises(BadFile, match=r"features.txt: 1 lines, but the matrices have 5 features"):
        read_xmc(folder)
    (folder / "features.txt").unlink()
    (folder / "labels.txt").write_text("a\tx\nb\ty\na\tz\nc\tw\n")
    with pytest.raises(BadFile, match="label id 'a' occurs twice, again on line 3"):
        read_xmc(folder)
    (folder / "test.txt").write_text("1 6 4\n0 0:1\n")
    with pytest.raises(BadFile, match=r"test.txt:1: not as many features and labels as in .*train.txt"):
        read_xmc(folder)
    (folder / "pond_train.txt").write_text(TRAIN)
    with pytest.raises(BadCorpus, match=r"pond_train.txt and train.txt may both be meant"):
        read_xmc(folder)
    (folder / "pond_train.txt").unlink()
    (folder / "train.txt").unlink()
    with pytest.raises(BadCorpus, match=r"no train.txt"):
        read_xmc(folder)


# The way out


def _splits() -> Splits:
    labels = LabelSet([Label("Q1", "frogs"), Label("Q2", "small\twaters"), Label("Q3", "reeds")])
    train = [
        Document("a", "The frog, the FROG and the pond.", ("Q1", "Q2")),
        Document("b", "A pond isn't a lake; 10,000 ponds.", ("Q2",)),
        Document("c", "Nothing here"),
    ]
    test = [Document("d", "A frog in unseen reeds", ("Q1", "Q3"))]
    info = CorpusInfo("pond")
    return Splits(Corpus(train, labels, info), Corpus([], labels, info), Corpus(test, labels, info))


def test_an_exported_corpus_comes_back_as_the_same_bags_of_words(tmp_path):
    splits = _splits()
    export_xmc(splits, tmp_path / "out")
    back = read_xmc(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "checksums.json", "features.txt", "labels.txt", "test.txt", "train.txt",
    ]  # fmt: skip
    for old, new in zip(splits.train, back.train, strict=True):
        assert Counter(words(new.text)) == Counter(words(old.text))
        assert new.labels == old.labels
    assert Counter(words(back.test[0].text)) == Counter(["a", "frog"])
    assert back.labels.ids == splits.labels.ids
    assert back.labels[1].name == "small waters"
    assert (back.test.gold() != splits.test.gold()).nnz == 0


def test_an_export_replaces_nothing_unless_told_to(tmp_path):
    export_xmc(_splits(), tmp_path / "out")
    with pytest.raises(OutputExists, match="--force"):
        export_xmc(_splits(), tmp_path / "out")
    export_xmc(_splits(), tmp_path / "out", force=True)


def test_an_export_without_training_documents_is_an_error_and_leaves_nothing(tmp_path):
    splits = _splits()
    with pytest.raises(BadCorpus, match="no train documents"):
        export_xmc(splits._replace(train=splits.dev), tmp_path / "out")
    assert not list(tmp_path.iterdir())
