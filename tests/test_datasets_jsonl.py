from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.corpus import CorpusInfo
from labelwise.datasets.jsonl import closing_links, read_jsonl
from labelwise.datasets.splitting import sample_rows, split_at_random
from labelwise.errors import BadCorpus, BadHierarchy, BadSettings, LabelwiseError, UnknownLabel
from labelwise.hierarchy import Hierarchy
from labelwise.jsonl import read_corpus, write_corpus
from labelwise.labels import Label, LabelSet

TREE = {"life": [], "plant": ["life"], "tree": ["plant"], "oak": ["tree"], "rock": []}


@pytest.fixture
def corpus(tmp_path: Path):
    """Writes a corpus folder: parents by label, and how many documents each split has, labelled oak and rock in turn."""

    def write(parents: dict[str, list[str]] = TREE, train: int = 20, dev: int = 10, test: int = 4) -> Path:
        folder = tmp_path / "garden"
        folder.mkdir()
        _write(folder / "labels.jsonl", [{"id": id, "name": id, "parents": above} for id, above in parents.items()])
        for split, count in {"train": train, "dev": dev, "test": test}.items():
            rows = [{"id": f"{split}-{n}", "text": f"text {n}", "labels": [("oak", "rock")[n % 2]]} for n in range(count)]
            if rows:
                _write(folder / f"{split}.jsonl", rows)
        return folder

    return write


def _write(path: Path, objects: list[dict]) -> None:
    path.write_text("".join(json.dumps(value) + "\n" for value in objects), encoding="utf-8")


def test_without_options_a_folder_reads_as_ever(corpus):
    folder = corpus()
    read, plain = read_jsonl(folder), read_corpus(folder)
    assert read.labels == plain.labels
    assert [list(split) for split in read] == [list(split) for split in plain]


def test_closed_makes_every_ancestor_of_a_gold_label_gold(corpus):
    splits = read_jsonl(corpus(), closed=True)
    assert splits.train[0].labels == ("life", "plant", "tree", "oak")
    assert splits.test[1].labels == ("rock",)


def test_a_limit_keeps_that_many_training_documents_and_the_same_share_of_the_others(corpus):
    splits = read_jsonl(corpus(), limit=5)
    assert [len(split) for split in splits] == [5, 2, 1]
    assert len(splits.labels) == len(TREE)


def test_a_limit_keeps_the_order_of_the_file_and_the_gold_labels(corpus):
    splits = read_jsonl(corpus(), limit=8)
    numbers = [int(document.id.split("-")[1]) for document in splits.train]
    assert numbers == sorted(numbers)
    assert splits.train.gold().indices.tolist() == [4 if number % 2 else 3 for number in numbers]


def test_a_limit_leaves_at_least_one_document_where_there_were_any(corpus):
    assert [len(split) for split in read_jsonl(corpus(test=0), limit=1)] == [1, 1, 0]


def test_a_limit_above_what_there_is_keeps_all(corpus):
    assert [len(split) for split in read_jsonl(corpus(), limit=1000)] == [20, 10, 4]


def test_a_limited_corpus_is_the_same_for_a_seed_and_another_for_another(corpus):
    folder = corpus()
    one, again, other = (read_jsonl(folder, limit=6, seed=seed) for seed in (1, 1, 2))
    assert list(one.train) == list(again.train)
    assert list(one.train) != list(other.train)


def test_a_limited_and_closed_corpus_can_be_written_and_read_back(corpus, tmp_path):
    splits = read_jsonl(corpus(), limit=5, closed=True)
    write_corpus(splits, tmp_path / "small")
    assert [list(split) for split in read_corpus(tmp_path / "small")] == [list(split) for split in splits]


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_below_one_is_an_error(corpus, limit):
    with pytest.raises(BadSettings, match=f"limit is {limit}; it must be 1 or more"):
        read_jsonl(corpus(), limit=limit)


def test_a_limit_without_training_documents_is_an_error(corpus):
    with pytest.raises(BadCorpus, match="no train documents"):
        read_jsonl(corpus(train=0), limit=3)


def test_a_cycle_is_an_error_that_names_it_and_the_way_out(corpus):
    folder = corpus(TREE | {"life": ["oak"]})
    with pytest.raises(BadHierarchy, match=r"labels.jsonl: .*life → oak → tree → plant → life.*--break-cycles"):
        read_jsonl(folder)


def test_breaking_cycles_drops_the_link_that_closes_each_and_says_which(corpus):
    folder = corpus(TREE | {"life": ["oak"], "rock": ["rock", "life"]})
    with pytest.warns(
        UserWarning, match="2 parents that close a cycle were taken out: 'life' above 'plant', 'rock' above"
    ) as told:
        splits = read_jsonl(folder, break_cycles=True)
    assert len(told) == 1
    assert {label.id: label.parents for label in splits.labels} == {
        "life": ("oak",),
        "plant": (),
        "tree": ("plant",),
        "oak": ("tree",),
        "rock": ("life",),
    }
    assert all(split.labels is splits.labels for split in splits)


def test_breaking_cycles_is_silent_where_there_are_none(corpus):
    folder = corpus()
    assert read_jsonl(folder, break_cycles=True).labels == read_jsonl(folder).labels


def test_unknown_labels_follow_the_rule_given(corpus):
    folder = corpus({"oak": []})
    with pytest.raises(UnknownLabel, match=r"train.jsonl:2: label 'rock'"):
        read_jsonl(folder)
    with pytest.warns(UserWarning, match="17 labels of documents"):
        assert read_jsonl(folder, unknown_labels="drop").train[1].labels == ()
    assert read_jsonl(folder, unknown_labels="add").labels.ids == ("oak", "rock")


def test_a_folder_without_labels_takes_them_from_the_documents_on_request(corpus):
    folder = corpus()
    (folder / "labels.jsonl").unlink()
    assert read_jsonl(folder, unknown_labels="add", break_cycles=True).labels.ids == ("oak", "rock")


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(BadCorpus, match="no such folder"):
        read_jsonl(tmp_path / "nowhere")


@st.composite
def hierarchies(draw: st.DrawFn) -> LabelSet:
    ids = [f"l{number}" for number in range(draw(st.integers(1, 8)))]
    parents = st.lists(st.sampled_from(ids), max_size=3, unique=True).map(tuple)
    return LabelSet(Label(id, id, draw(parents)) for id in ids)


@given(hierarchies())
def test_without_the_closing_links_nothing_is_its_own_ancestor(labels):
    closing = closing_links(labels)
    open_set = LabelSet(
        Label(label.id, label.name, tuple(parent for parent in label.parents if (label.id, parent) not in closing))
        for label in labels
    )
    assert not Hierarchy(open_set).cycles
    assert bool(closing) == bool(Hierarchy(labels).cycles)


@given(st.integers(0, 60), st.integers(0, 5))
def test_a_random_split_deals_out_every_item_once_in_the_old_order(count, seed):
    parts = split_at_random(range(count), (0.8, 0.1, 0.1), seed)
    assert sorted(item for part in parts for item in part) == list(range(count))
    assert all(part == sorted(part) for part in parts)
    assert count < 3 or all(parts)
    assert count < 20 or abs(len(parts[0]) - 0.8 * count) <= 1


def test_a_random_sample_is_the_same_with_every_numpy():
    assert sample_rows(10, 4, seed=1).tolist() == [2, 4, 6, 9]
    assert [len(part) for part in split_at_random(range(100), (0.8, 0.1, 0.1), 1)] == [80, 10, 10]


# The page that describes the format

PAGE = (Path(__file__).parents[1] / "docs" / "corpus-format.md").read_text(encoding="utf-8")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example of the page as a folder."""
    for name, content in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


def test_the_example_of_the_page_reads(example):
    splits = read_jsonl(example, closed=True)
    assert splits.info == CorpusInfo("garden", k=5, few=50)
    assert [len(split) for split in splits] == [2, 0, 2]
    assert splits.train[0].labels == ("plants", "trees", "oaks")
    assert len(splits.train[1].sections) == 2


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("train.jsonl", "{", "; each line must hold one JSON object"),
        ("train.jsonl", "[]", "; each line must hold one JSON object"),
        ("train.jsonl", '{"id": "7", "labels": []}', "the key 'text' is missing"),
        ("train.jsonl", '{"id": "7", "text": "x", "labels": "oaks"}', "'labels' is "),
        ("train.jsonl", '{"id": "7", "text": " ", "labels": []}', "document '7' has an empty text; give it one or take it out"),
        ("train.jsonl", '{"id": "2", "text": "x", "labels": []}', " has other content on line 2; ids must be unique"),
        ("train.jsonl", '{"id": "7", "text": "x", "labels": ["oak"]}', "label 'oak' is not in the label set (4 labels); did you"),
        ("labels.jsonl", '{"id": "oaks", "name": "x"}', "label id 'oaks' stands on line 3 already; ids must be unique"),
        (
            "labels.jsonl",
            '{"id": "x", "name": "x", "parents": ["tree"]}',
            "the parent 'tree', which is not in the file; did you mean",
        ),
        ("corpus.toml", "fews = 3", "unknown key 'fews'; did you mean 'few'? (known: name, k, few)"),
    ],
)
def test_messages_are_those_of_the_page(example, name, line, message):
    with open(example / name, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(LabelwiseError, match=rf"{name}.*{re.escape(message)}"):
        read_jsonl(example)
    assert message in PAGE
