from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from labelwise.corpus import CorpusInfo, Document
from labelwise.datasets.annif import read_annif, read_vocabulary
from labelwise.errors import BadCorpus, BadFile, UnknownLabel
from labelwise.jsonl import read_corpus, write_corpus
from labelwise.labels import Label

FROG, POND, REED = (f"http://example.org/{name}" for name in ("frog", "pond", "reed"))
SUBJECTS = f"<{FROG}>\tfrogs\n<{POND}>\tponds\t42.1\n<{REED}>\tReeds\n"
LABELS = [Label(FROG, "frogs"), Label(POND, "ponds"), Label(REED, "Reeds")]
SHORT = f"A frog leaps\t<{FROG}>\nFrogs in ponds\t<{FROG}> <{POND}>\nNothing of note\t\n"


@pytest.fixture
def write(tmp_path: Path):
    def file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return file


@pytest.fixture
def vocabulary(write) -> Path:
    return write("subjects.tsv", SUBJECTS)


# Vocabularies


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("subjects.tsv", SUBJECTS),
        ("subjects.tsv", "\ufeff" + SUBJECTS.replace("<", "").replace(">", "").replace("\n", "\r\n")),
        ("subjects.tsv.gz", gzip.compress(SUBJECTS.encode(), mtime=0)),
        ("subjects.csv", f"uri,label_fi,label_en,notation\n{FROG},sammakot,frogs,\n<{POND}>,,ponds,42.1\n{REED},,Reeds,\n"),
    ],
)
def test_a_vocabulary_of_tsv_or_csv_keeps_the_order_of_the_file(write, name, content):
    assert list(read_vocabulary(write(name, content))) == LABELS


def test_a_skos_vocabulary_brings_its_hierarchy(write):
    skos = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    skos += f'<{FROG}> a skos:Concept ; skos:prefLabel "frogs"@en ; skos:broader <{POND}> .\n'
    skos += f'<{POND}> a skos:Concept ; skos:prefLabel "ponds"@en .\n'
    assert list(read_vocabulary(write("subjects.ttl", skos))) == [Label(FROG, "frogs", (POND,)), Label(POND, "ponds")]


def test_a_csv_vocabulary_names_labels_in_the_language_asked_for(write):
    path = write("subjects.csv", f"uri,label_en,label_fi\n{FROG},frogs,sammakot\n{POND},ponds,\n")
    with pytest.warns(UserWarning, match="1 concepts have no name in 'fi'; named in en"):
        assert [label.name for label in read_vocabulary(path, language="fi")] == ["sammakot", "ponds"]
    with pytest.raises(BadFile, match=r"subjects.csv: no name in the language 'sv'; choose one that is there: en, fi"):
        read_vocabulary(path, language="sv")


@pytest.mark.parametrize(("name", "header"), [("subjects.tsv", ""), ("subjects.csv", "uri,label_en\n")])
def test_subjects_without_a_label_are_left_out_as_deprecated(write, name, header):
    content = f"{FROG}\tfrogs\n{POND}\n" if not header else f"{header}{FROG},frogs\n{POND},\n"
    with pytest.warns(UserWarning, match="1 subjects without a label, deprecated in Annif, were left out"):
        assert list(read_vocabulary(write(name, content))) == LABELS[:1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("subjects.tsv", "", r"subjects.tsv: no concept with a name"),
        ("subjects.tsv", SUBJECTS + f"<{FROG}>\tfrogs\n", r"subjects.tsv:4: the URI '.*frog' stands above already"),
        ("subjects.tsv", SUBJECTS + "\ttoads\n", r"subjects.tsv:4: the URI '' is empty"),
        ("subjects.tsv", SUBJECTS.encode() + b"<http://a/b>\tcaf\xe9\n", r"subjects.tsv:4: not UTF-8"),
        ("subjects.csv", "id,label_en\n", r"subjects.csv:1: the column 'uri' is missing \(found: id, label_en\)"),
        ("subjects.csv", "", r"subjects.csv:1: the column 'uri' is missing \(found: none\)"),
        ("subjects.doc", "", r"subjects.doc: not a vocabulary by its name, which must end in .tsv, .csv, .ttl"),
    ],
)
def test_a_vocabulary_that_cannot_be_read_is_an_error(write, name, content, message):
    with pytest.raises(BadFile, match=message):
        read_vocabulary(write(name, content))


# Folders of texts


def test_a_folder_has_texts_with_subjects_by_uri_or_by_name(write, vocabulary):
    write("full/b.txt", "\ufeffFrogs\r\nleap.\n")
    write("full/b.tsv", f"<{FROG}>\tan older name\n{POND}\tponds\tmore\n\n<{FROG}>\tfrogs\n")
    write("full/a.txt", "Reeds grow.")
    write("full/a.key", f"REEDS\nponds\n<{FROG}>\n")
    splits = read_annif({"train": vocabulary.parent / "full"}, vocabulary)
    assert list(splits.train) == [
        Document("a", "Reeds grow.", (REED, POND, FROG)),
        Document("b", "Frogs\nleap.\n", (FROG, POND)),
    ]
    assert [len(split) for split in splits] == [2, 0, 0]
    assert list(splits.labels) == LABELS


def test_the_tsv_file_of_a_text_goes_before_its_key_file(write, vocabulary):
    write("full/a.txt", "text")
    write("full/a.key", "ponds\n")
    write("full/a.tsv", f"<{FROG}>\tfrogs\n")
    assert read_annif({"train": vocabulary.parent / "full"}, vocabulary).train[0].labels == (FROG,)


def test_of_labels_that_differ_in_case_only_the_exact_one_is_meant(write):
    vocabulary = write("subjects.tsv", "u1\tPolish\nu2\tpolish\nu3\tpolish\n")
    write("full/a.txt", "text")
    write("full/a.key", "polish\n")
    write("full/b.txt", "text")
    write("full/b.key", "POLISH\n")
    train = read_annif({"train": vocabulary.parent / "full"}, vocabulary).train
    assert [document.labels for document in train] == [("u2",), ("u1",)]


def test_texts_that_are_empty_or_have_no_subject_file_are_left_out_and_counted(write, vocabulary):
    write("full/a.txt", "text")
    write("full/a.tsv", "")
    write("full/b.txt", " \n")
    write("full/b.tsv", f"<{FROG}>\tfrogs\n")
    write("full/c.txt", "no subjects known")
    with pytest.warns(UserWarning, match="left out") as told:
        splits = read_annif({"test": vocabulary.parent / "full"}, vocabulary)
    assert list(splits.test) == [Document("a", "text")]
    messages = [str(warning.message) for warning in told]
    assert any("1 of 3 texts have no .tsv or .key file and were left out" in message for message in messages)
    assert any("1 documents with an empty text were left out, the first at" in message for message in messages)
    assert len(messages) == 2


def test_a_subject_that_is_not_in_the_vocabulary_is_an_error_with_the_nearest(write, vocabulary):
    write("full/a.txt", "text")
    key = write("full/a.key", "frogs\npond\n")
    with pytest.raises(UnknownLabel, match=r"a.key:2: label 'pond' is not in the label set \(3 labels\); did you mean 'ponds'"):
        read_annif({"train": key.parent}, vocabulary)
    with pytest.warns(UserWarning, match="1 labels of documents are not in the label set and were dropped"):
        assert read_annif({"train": key.parent}, vocabulary, unknown_labels="drop").train[0].labels == (FROG,)
    added = read_annif({"train": key.parent}, vocabulary, unknown_labels="add")
    assert added.train[0].labels == (FROG, "pond")
    assert added.labels[3] == Label("pond", "pond")


def test_an_added_subject_takes_the_name_its_file_gives(write, vocabulary):
    write("full/a.txt", "text")
    write("full/a.tsv", "<http://example.org/toad>\ttoads\n")
    splits = read_annif({"train": vocabulary.parent / "full"}, vocabulary, unknown_labels="add")
    assert splits.labels[3] == Label("http://example.org/toad", "toads")


def test_a_subject_without_uri_and_label_is_an_error(write, vocabulary):
    write("full/a.txt", "text")
    write("full/a.tsv", "<>\t\n")
    with pytest.raises(BadFile, match=r"a.tsv:1: a subject without a URI and a label"):
        read_annif({"train": vocabulary.parent / "full"}, vocabulary, unknown_labels="add")


# Files of short texts


def test_a_tsv_file_has_a_document_a_line(write, vocabulary):
    train, dev = write("train.tsv", SHORT), write("dev.tsv.gz", gzip.compress(b"\n" + SHORT.encode()))
    splits = read_annif({"train": train, "dev": dev}, vocabulary)
    assert list(splits.train) == [
        Document("train-1", "A frog leaps", (FROG,)),
        Document("train-2", "Frogs in ponds", (FROG, POND)),
        Document("train-3", "Nothing of note"),
    ]
    assert [document.id for document in splits.dev] == ["dev-2", "dev-3", "dev-4"]
    assert splits.info == CorpusInfo(name=train.parent.name)


def test_a_csv_file_has_a_header_and_may_have_ids_and_other_columns(write, vocabulary):
    path = write(
        "train.csv",
        f'title,subject_uris,text,document_id\nx,<{FROG}> <{POND}>,"A frog, leaping\nand swimming",d1\nx,{POND},A pond,\n',
    )
    assert list(read_annif({"train": path}, vocabulary).train) == [
        Document("d1", "A frog, leaping\nand swimming", (FROG, POND)),
        Document("train-4", "A pond", (POND,)),
    ]


def test_a_long_text_in_a_csv_file_is_read_and_the_limit_of_others_is_left_alone(write, vocabulary):
    csv.field_size_limit(1 << 17)
    path = write("train.csv", f"text,subject_uris\n{'frog ' * 60_000},{FROG}\n")
    assert len(read_annif({"train": path}, vocabulary).train[0].text) == 300_000
    assert csv.field_size_limit() == 1 << 17


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.tsv", SHORT + "no tab here\n", r"train.tsv:4: no tab in it"),
        ("train.tsv", SHORT.encode() + b"caf\xe9\tx", r"train.tsv:4: not UTF-8"),
        ("train.csv", f"text,uris\nA frog,{FROG}\n", r"train.csv:1: the column 'subject_uris' is missing"),
        ("train.csv", f"text,subject_uris\nA frog, or two,{FROG}\n", r"train.csv:2: more fields than the header has"),
        ("train.csv", f'text,subject_uris\nA frog,{FROG}\n"never closed,{POND}\n', r"train.csv:3: not CSV"),
        (
            "train.csv",
            f"document_id,text,subject_uris\n1,a,{FROG}\n1,b,{FROG}\n",
            r"train.csv:3: the document id '1' stands above",
        ),
        ("train.doc", "", r"train.doc: neither a folder nor a file whose name ends in .tsv or .csv"),
        ("train.tsv.gz", b"not packed", r"train.tsv.gz: broken .gz file"),
    ],
)
def test_a_source_that_cannot_be_read_is_an_error(write, vocabulary, name, content, message):
    with pytest.raises(BadFile, match=message):
        read_annif({"train": write(name, content)}, vocabulary)


def test_an_unknown_uri_is_told_with_file_and_line(write, vocabulary):
    path = write("train.tsv", SHORT.replace("pond>", "pund>"))
    with pytest.raises(UnknownLabel, match=r"train.tsv:2: .*pund.*did you mean '.*pond'.*--unknown-labels"):
        read_annif({"train": path}, vocabulary)


def test_a_source_without_documents_is_an_error(write, vocabulary):
    with pytest.raises(BadCorpus, match=r"train.tsv: no documents"):
        read_annif({"train": write("train.tsv", "\n")}, vocabulary)


def test_sources_must_be_named_for_a_split(write, vocabulary):
    with pytest.raises(BadCorpus, match="there is no split 'validate'; the splits are train, dev and test"):
        read_annif({"validate": write("dev.tsv", SHORT)}, vocabulary)
    with pytest.raises(BadCorpus, match="no sources named"):
        read_annif({}, vocabulary)


def test_one_source_is_split_80_10_10_at_random_by_the_seed(write, vocabulary):
    path = write("short.tsv", "".join(f"text {number}\t<{FROG}>\n" for number in range(50)))
    one, again, other = (read_annif(path, vocabulary, seed=seed) for seed in (1, 1, 2))
    assert [len(split) for split in one] == [40, 5, 5]
    assert [list(split) for split in one] == [list(split) for split in again]
    assert list(one.test) != list(other.test)
    assert len({document.id for split in one for document in split}) == 50
    assert one.info.name == "short"


def test_what_was_read_can_be_written_as_a_corpus_folder(write, vocabulary, tmp_path):
    splits = read_annif({"train": write("train.tsv", SHORT)}, vocabulary)
    write_corpus(splits, tmp_path / "out")
    back = read_corpus(tmp_path / "out")
    assert list(back.train) == list(splits.train)
    assert back.labels == splits.labels
