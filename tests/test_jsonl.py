import gzip
import json
import lzma
from pathlib import Path

import pytest

from labelwise import jsonl
from labelwise.errors import BadCorpus, BadFile, BadHierarchy, LabelwiseError, UnknownLabel
from labelwise.jsonl import read_corpus, read_labels, write_corpus

LABEL_LINES = ['{"id": "a", "name": "first"}', '{"id": "b", "name": "second", "parents": ["a"], "synonyms": ["zwei"]}']
TRAIN_LINES = ['{"id": "1", "text": "one", "labels": ["a"]}', '{"id": "2", "text": "two", "labels": ["b", "a"]}']


def make(folder: Path, *, labels=LABEL_LINES, train=TRAIN_LINES, **files: bytes | str) -> Path:
    folder.mkdir(exist_ok=True)
    contents = {
        "labels.jsonl": "\n".join(labels),
        "train.jsonl": "\n".join(train),
        **{k.replace("_", "."): v for k, v in files.items()},
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def same(one, other) -> bool:
    return (
        one.labels == other.labels and one.info == other.info and all(list(a) == list(b) for a, b in zip(one, other, strict=True))
    )


def test_what_is_written_is_read_back(splits, corpus_folder):
    assert same(read_corpus(corpus_folder), splits)
    assert (read_corpus(corpus_folder).test.gold() != splits.test.gold()).nnz == 0


@pytest.mark.parametrize(("suffix", "opener"), [(".gz", gzip.open), (".xz", lzma.open)])
def test_compressed_files_are_read_transparently(splits, corpus_folder, suffix, opener):
    for path in list(corpus_folder.glob("*.jsonl")):
        with opener(f"{path}{suffix}", "wb") as file:
            file.write(path.read_bytes())
        path.unlink()
    assert same(read_corpus(corpus_folder), splits)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_large_files_are_read_lazily_with_the_same_documents(splits, corpus_folder, suffix, monkeypatch):
    if suffix:
        path = corpus_folder / "train.jsonl"
        with (gzip.open if suffix == ".gz" else lzma.open)(f"{path}{suffix}", "wb") as file:
            file.write(b"\xef\xbb\xbf\n" + path.read_bytes().rstrip(b"\n"))  # a mark, a blank line, no line end
        path.unlink()
    monkeypatch.setattr(jsonl, "LAZY_BYTES", 8)
    lazy = read_corpus(corpus_folder)
    assert isinstance(lazy.train.documents, jsonl.LazyDocuments)
    assert same(lazy, splits)
    assert list(lazy.train[2:5]) == list(splits.train[2:5])
    assert lazy.train[-1] == splits.train[-1]
    assert (lazy.train.gold() != splits.train.gold()).nnz == 0


def test_marks_crlf_and_blank_lines_are_accepted(tmp_path):
    folder = make(tmp_path / "c", train_jsonl=b"\xef\xbb\xbf" + "\r\n\r\n".join(TRAIN_LINES).encode() + b"\r\n")
    assert [document.text for document in read_corpus(folder).train] == ["one", "two"]


def test_the_folder_names_the_corpus_unless_corpus_toml_does(tmp_path):
    assert read_corpus(make(tmp_path / "mine")).info == jsonl.CorpusInfo("mine", 5, 50)
    assert read_corpus(make(tmp_path / "mine", corpus_toml='name = "yours"\nk = 7\nfew = 3')).info == jsonl.CorpusInfo(
        "yours", 7, 3
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("k = 0", "k is 0; it must be a whole number above 0"),
        ("k = true", "k is True"),
        ("name = 3", "name is 3; it must be a text"),
        ("feww = 3", "unknown key 'feww'; did you mean 'few'"),
        ("k =", r"corpus\.toml: not TOML"),
    ],
)
def test_corpus_toml_is_checked(tmp_path, content, message):
    with pytest.raises(BadFile, match=message):
        read_corpus(make(tmp_path / "c", corpus_toml=content))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "3", "text": ', r"train\.jsonl:3: not JSON: Expecting value.*each line must hold one JSON object"),
        ("[1, 2]", r"train\.jsonl:3: a JSON list; each line must hold one JSON object"),
        ('{"id": "3", "labels": []}', r"train\.jsonl:3: the key 'text' is missing \(found: id, labels\)"),
        ('{"id": "3", "txt": "x", "labels": []}', r"the key 'text' is missing; did you mean 'txt'"),
        ('{"id": "3", "text": "x"}', r"train\.jsonl:3: the key 'labels' is missing"),
        ('{"id": 3, "text": "x", "labels": []}', r"train\.jsonl:3: 'id' is 3; it must be a text"),
        ('{"id": "", "text": "x", "labels": []}', r"train\.jsonl:3: 'id' is ''; it must be a text that is not empty"),
        ('{"id": "3", "text": null, "labels": []}', r"train\.jsonl:3: 'text' is None"),
        ('{"id": "3", "text": "x", "labels": "a"}', r"train\.jsonl:3: 'labels' is 'a'; it must be a list of texts"),
        ('{"id": "3", "text": "x", "labels": ""}', r"train\.jsonl:3: 'labels' is ''"),
        ('{"id": "3", "text": "x", "labels": {}}', r"train\.jsonl:3: 'labels' is \{\}"),
        ('{"id": "3", "text": "x", "labels": [], "n": ' + "9" * 5000 + "}", r"train\.jsonl:3: not JSON"),
        ('{"id": "3", "text": "x", "labels": [1]}', r"train\.jsonl:3: 'labels' is \[1\]"),
        (
            '{"id": "3", "text": " \\n", "labels": ["a"]}',
            r"train\.jsonl:3: document '3' has an empty text; give it one or take it out",
        ),
        ('{"id": "1", "text": "x", "labels": ["a"]}', r"train\.jsonl:3: document id '1' has other content on line 1"),
        ('{"id": "3", "text": "x\\ud800", "labels": []}', r"train\.jsonl:3: not UTF-8.*surrogates"),
    ],
)
def test_a_bad_document_is_an_error_with_file_and_line(tmp_path, line, message):
    with pytest.raises(LabelwiseError, match=message):
        read_corpus(make(tmp_path / "c", train=[*TRAIN_LINES, line]))


def test_another_encoding_is_named_with_its_line(tmp_path):
    content = "\n".join(TRAIN_LINES).encode() + '\n{"id": "3", "text": "grün", "labels": []}'.encode("latin-1")
    with pytest.raises(BadFile, match=r"train\.jsonl:3: not UTF-8.*save the file as UTF-8"):
        read_corpus(make(tmp_path / "c", train_jsonl=content))


def test_the_same_document_twice_is_warned_of_and_kept(tmp_path):
    folder = make(tmp_path / "c", train=[*TRAIN_LINES, TRAIN_LINES[0]])
    with pytest.warns(UserWarning, match=r"train\.jsonl:3: the same document stands above already; kept$"):
        assert len(read_corpus(folder).train) == 3


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*LABEL_LINES, LABEL_LINES[0]], r"labels\.jsonl:3: label id 'a' stands on line 1 already"),
        ([*LABEL_LINES, '{"id": "c"}'], r"labels\.jsonl:3: the key 'name' is missing"),
        ([*LABEL_LINES, '{"id": "c", "name": "x", "parents": "a"}'], r"labels\.jsonl:3: 'parents' is 'a'"),
        (
            [*LABEL_LINES, '{"id": "c", "name": "x", "parents": ["q"]}'],
            r"labels\.jsonl:3: label 'c' has the parent 'q', which is not in the file",
        ),
        ([""], r"labels\.jsonl: no labels in it"),
    ],
)
def test_a_bad_label_is_an_error_with_file_and_line(tmp_path, lines, message):
    with pytest.raises(LabelwiseError, match=message):
        read_corpus(make(tmp_path / "c", labels=lines))


def test_cycles_are_warned_of_by_name_and_refused_when_strict(tmp_path):
    lines = ['{"id": "a", "name": "x", "parents": ["b"]}', LABEL_LINES[1]]
    folder = make(tmp_path / "c", labels=lines)
    with pytest.warns(UserWarning, match="the hierarchy has a cycle: a → b → a"):
        read_corpus(folder)
    with pytest.raises(BadHierarchy, match="the hierarchy has a cycle: a → b → a.*take one of these parents out"):
        jsonl.check_cycles(read_labels(folder / "labels.jsonl"), folder / "labels.jsonl", strict=True)


def test_a_label_set_of_one_is_enough(tmp_path):
    assert len(read_corpus(make(tmp_path / "c", labels=LABEL_LINES[:1], train=TRAIN_LINES[:1])).labels) == 1


def test_a_key_that_was_almost_right_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match=r"labels\.jsonl: the key 'parent' is passed over; was 'parents' meant\?"):
        read_corpus(make(tmp_path / "c", labels=[LABEL_LINES[0], '{"id": "b", "name": "x", "parent": ["a"]}']))


def test_null_lists_are_empty_lists(tmp_path):
    labels = read_corpus(make(tmp_path / "c", labels=['{"id": "a", "name": "x", "parents": null}', LABEL_LINES[1]])).labels
    assert labels[0].parents == ()
    assert labels[1].synonyms == ("zwei",)


UNKNOWN = [*TRAIN_LINES, '{"id": "3", "text": "three", "labels": ["a", "new"]}']


def test_a_label_outside_the_set_is_an_error_by_default(tmp_path):
    with pytest.raises(
        UnknownLabel, match=r"train\.jsonl:3: label 'new' is not in the label set \(2 labels\); --unknown-labels drop or add"
    ):
        read_corpus(make(tmp_path / "c", train=UNKNOWN))


def test_labels_outside_the_set_can_be_dropped(tmp_path):
    with pytest.warns(UserWarning, match="1 labels of documents are not in the label set and were dropped"):
        splits = read_corpus(make(tmp_path / "c", train=UNKNOWN), unknown_labels="drop")
    assert splits.train[2].labels == ("a",)
    assert splits.train.gold().shape == (3, 2)


def test_labels_outside_the_set_can_be_added_in_every_split(tmp_path):
    folder = make(tmp_path / "c", train=UNKNOWN, test_jsonl='{"id": "9", "text": "x", "labels": ["newer"]}')
    splits = read_corpus(folder, unknown_labels="add")
    assert splits.labels.ids == ("a", "b", "new", "newer")
    assert splits.test.gold().toarray().tolist() == [[False, False, False, True]]


def test_documents_alone_make_a_label_set_when_labels_are_added(tmp_path):
    folder = make(tmp_path / "c")
    (folder / "labels.jsonl").unlink()
    with pytest.raises(BadCorpus, match=r"no labels\.jsonl in it; write one, or use --unknown-labels add"):
        read_corpus(folder)
    assert read_corpus(folder, unknown_labels="add").labels.ids == ("a", "b")


def test_an_empty_split_is_an_error_and_a_missing_one_is_empty(tmp_path):
    assert len(read_corpus(make(tmp_path / "c")).dev) == 0
    with pytest.raises(BadCorpus, match=r"dev\.jsonl: no documents in it; remove the file or fill it"):
        read_corpus(make(tmp_path / "c", dev_jsonl="\n"))


def test_a_folder_that_is_no_corpus_says_what_is_missing(tmp_path):
    with pytest.raises(BadCorpus, match="no such folder; a corpus is a folder with"):
        read_corpus(tmp_path / "nowhere")
    folder = make(tmp_path / "c")
    (folder / "train.jsonl").unlink()
    with pytest.raises(BadCorpus, match=r"no train\.jsonl, dev\.jsonl or test\.jsonl"):
        read_corpus(folder)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_broken_archive_is_named(tmp_path, corpus_folder, suffix):
    path = corpus_folder / "test.jsonl"
    packed = (gzip.compress if suffix == ".gz" else lzma.compress)(path.read_bytes() * 50)
    path.unlink()
    (corpus_folder / f"test.jsonl{suffix}").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(BadFile, match=rf"test\.jsonl{suffix}: broken {suffix} file.*copy or download it again"):
        read_corpus(corpus_folder)
    (corpus_folder / f"test.jsonl{suffix}").write_bytes(b"not packed at all")
    with pytest.raises(BadFile, match=rf"test\.jsonl{suffix}: broken {suffix} file"):
        read_corpus(corpus_folder)


def test_writing_leaves_out_empty_fields(corpus_folder):
    first = json.loads((corpus_folder / "labels.jsonl").read_text().splitlines()[0])
    assert first == {"id": "animal", "name": "animals", "parents": []}
    assert "sections" not in (corpus_folder / "train.jsonl").read_text()


def test_an_existing_folder_is_kept_without_force(splits, corpus_folder):
    with pytest.raises(LabelwiseError, match="already exists"):
        write_corpus(splits, corpus_folder)
    write_corpus(splits, corpus_folder, force=True)
