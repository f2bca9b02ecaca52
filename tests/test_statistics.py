import json

import numpy as np
import pytest
from toy import LABELS

from labelwise import statistics
from labelwise.corpus import Corpus, Document, Splits
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadFile
from labelwise.statistics import describe, plot


def test_the_figures_of_the_zoo(splits):
    figures = describe(splits)
    assert figures.documents == {"train": 6, "dev": 1, "test": 3}
    assert figures.words_mean == pytest.approx(np.mean([len(d.text.split()) for corpus in splits for d in corpus]))
    assert (figures.labels, figures.labels_used) == (8, 6)
    assert figures.labels_per_document == pytest.approx(18 / 10)
    assert figures.groups == {"frequent": 2, "few": 3, "zero": 1}
    assert figures.test_groups == {"frequent": 2, "few": 1, "zero": 1}
    assert figures.levels == [2, 3, 3]
    assert figures.several_parents == 1
    assert figures.density == pytest.approx(1.8 / 6)
    assert 0 < figures.gap < 1
    assert figures.fragmentation is None


def test_text_and_json_say_the_same(splits):
    figures = describe(splits)
    assert "train 6, dev 1, test 3" in figures.text()
    assert json.loads(figures.json())["groups"] == figures.groups
    assert "fragmentation" not in figures.json()


def test_a_corpus_without_labels_has_no_gap():
    corpus = Corpus([Document("1", "text")], LABELS)
    figures = describe(Splits(corpus, corpus[:0], corpus[:0]))
    assert figures.gap is None
    assert "gap" not in json.loads(figures.json())


def test_large_label_sets_are_sampled_and_the_text_says_so(monkeypatch):
    splits = make_world(documents=400, labels=60, words=8)
    whole = describe(splits)
    monkeypatch.setattr(statistics, "FULL_GAP", 10)
    monkeypatch.setattr(statistics, "SAMPLE", 200)
    sampled = describe(splits)
    assert sampled.gap_documents == 200
    assert "(sample of 200 documents)" in sampled.text()
    assert "sample" not in whole.text()
    assert sampled.gap == pytest.approx(whole.gap, abs=0.05)


def word_pieces(folder, words: list[str]) -> None:
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "##s", ".", ","]))


def test_the_fragmentation_ratio_counts_sub_words_over_words(splits, tmp_path):
    words = {w.strip(".,").lower() for corpus in splits for d in corpus for w in d.text.split()}
    word_pieces(tmp_path, sorted(word.removesuffix("s") for word in words))
    figures = describe(splits, tokenizer=tmp_path)
    assert 1 < figures.fragmentation < 2
    assert f"{figures.fragmentation:.3f}" in figures.text()

    from tokenizers import BertWordPieceTokenizer

    BertWordPieceTokenizer(str(tmp_path / "vocab.txt")).save(str(tmp_path / "tokenizer.json"))
    assert describe(splits, tokenizer=tmp_path / "tokenizer.json").fragmentation == figures.fragmentation


def test_a_file_that_is_no_tokenizer_is_named(splits, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BadFile, match=r"tokenizer\.json: not a tokenizer"):
        describe(splits, tokenizer=tmp_path)
    with pytest.raises(BadFile, match="no such file; --tokenizer takes"):
        describe(splits, tokenizer=tmp_path / "none")


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_plot_is_an_image(splits, tmp_path, suffix):
    plot(splits, tmp_path / f"plot.{suffix}")
    assert (tmp_path / f"plot.{suffix}").stat().st_size > 5000
    assert len(list(tmp_path.iterdir())) == 1
