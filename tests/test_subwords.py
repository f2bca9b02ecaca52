"""Sub-words against the transformers library itself, with made tokenizers."""

import atexit
import json
import subprocess
import sys
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from labelwise.errors import BadModel
from labelwise.features.subwords import Subwords, quiet
from labelwise.features.words import token_spans, tokenize

MAKERS = {"bert": tiny.bert_tokenizer, "roberta": tiny.roberta_tokenizer}
ODD = ["Owl", "heronry", "U.S.", "don't", "3.5", ",", "...", "é", "e\u0301", "\u0301", "日本", "🦉", "\x00", "\u200b", "ﬁ", "İ"]
PIECES = st.sampled_from([*tiny.WORDS.split(), *ODD, " ", "  ", "\n", "\t", "\u00a0"])
TEXTS = st.lists(PIECES | st.characters(codec="utf-8"), max_size=60).map("".join) | st.lists(PIECES, max_size=40).map(" ".join)
LIMITS = st.none() | st.integers(0, 12)

both = pytest.mark.parametrize("name", MAKERS)


@cache
def folder(name: str) -> Path:
    place = mkdtemp()
    atexit.register(rmtree, place)
    return MAKERS[name](Path(place))


@cache
def subwords(name: str) -> Subwords:
    return Subwords.read(str(folder(name)))


@cache
def oracle(name: str):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder(name))


@both
@given(texts=st.lists(TEXTS, max_size=4), limit=LIMITS)
def test_numbers_are_those_of_the_library_cut_afterwards(name, texts, limit):
    found = subwords(name).numbers(texts, limit)
    assert [numbers.dtype for numbers in found] == [np.int32] * len(texts)
    assert [numbers.tolist() for numbers in found] == [
        oracle(name)(text, add_special_tokens=False).input_ids[:limit] for text in texts
    ]


@both
def test_the_special_tokens_are_those_of_the_library(name):
    ours, theirs = subwords(name), oracle(name)
    assert (ours.first, ours.last, ours.padding) == (theirs.cls_token_id, theirs.sep_token_id, theirs.pad_token_id)
    assert (ours.size, ours.longest) == (len(theirs), tiny.LONGEST)
    whole = ours.segments(ours.numbers(["An owl sees."], None)[0], 100, 1)
    assert whole.tolist() == theirs("An owl sees.").input_ids


@both
def test_a_special_token_spelt_in_a_text_is_only_letters(name):
    ours = subwords(name)
    found = ours.numbers(["owl [SEP] <s> [CLS]</s><pad>[PAD] heron"], None)[0]
    assert not {ours.first, ours.last, ours.padding} & set(found.tolist())


@both
def test_only_the_begin_of_a_long_text_is_read(name, monkeypatch):
    read, encode = [], subwords(name)._tokenizer.encode_batch_fast

    class Counting:
        def encode_batch_fast(self, texts, **settings):
            read.extend(map(len, texts))
            return encode(texts, **settings)

    text = "the owl sees " * 80_000
    expected = subwords(name).numbers([text], None)[0][:100]
    with monkeypatch.context() as patch:
        patch.setattr(subwords(name), "_tokenizer", Counting())
        found = subwords(name).numbers([text, "owl"], 100)[0]
    assert found.tolist() == expected.tolist()
    assert sum(read) < 2000
    blank = subwords(name).numbers([" " * 10_000 + text], 100)[0]  # the first attempts find no words, or nothing but blanks
    assert blank.tolist() == oracle(name)(" " * 10_000 + text[:2000], add_special_tokens=False).input_ids[:100]


@both
def test_a_text_is_not_cut_inside_a_run_of_blanks(name):
    for words in range(1, 9):
        text = " fishes" * words + "     owl"
        whole = oracle(name)(text, add_special_tokens=False).input_ids
        assert subwords(name).numbers([text], words + 1)[0].tolist() == whole[: words + 1]


@pytest.mark.parametrize("mark", [None, "|"])
def test_a_tokenizer_that_does_not_part_words_reads_all_of_a_text(mark):
    from tokenizers import Tokenizer, models, pre_tokenizers

    numbers = {"[CLS]": 0, "[SEP]": 1, "[PAD]": 2, "herons": 3, "herons by the lake": 4}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[PAD]"))
    if mark:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(mark, "removed")
    assert Subwords(tokenizer, ["[CLS]", "[SEP]", "[PAD]"], None).numbers(["herons by the lake"], 1)[0].tolist() == [4]


def test_half_a_surrogate_pair_is_read_as_an_unknown_letter():
    found = subwords("roberta").numbers(["owl \ud800 owl", "owl \ufffd owl"], None)
    assert found[0].tolist() == found[1].tolist()
    assert subwords("roberta").spans("\udfff", None) == [(0, 1)] * 3


@both
@given(text=TEXTS, limit=LIMITS)
def test_spans_are_those_of_the_library_without_white_space(name, text, limit):
    encoding = oracle(name)(text, add_special_tokens=False, return_offsets_mapping=True)
    found = subwords(name).spans(text, limit)
    expected = [text[start:end].strip() for start, end in encoding.offset_mapping[:limit]]
    assert [text[start:end] for start, end in found] == expected
    assert all(0 <= start <= end <= len(text) for start, end in found)


def test_spans_leave_out_the_blank_that_byte_level_tokens_begin_with():
    assert subwords("roberta").spans("owl the owl", None)[-2:] == [(4, 7), (8, 11)]
    assert subwords("roberta").spans("a  owl\n", None) == [(0, 1), (2, 2), (3, 6), (7, 7)]


@both
@given(text=TEXTS, limit=LIMITS)
def test_a_token_is_of_the_word_it_begins_in(name, text, limit):
    ours = subwords(name)
    words, spans = token_spans(text, newlines=False), ours.spans(text, limit)
    found = ours.words(text, spans)
    assert len(found) == len(spans)
    assert all(one <= other for one, other in pairwise(found))
    for (start, end), place in zip(spans, found, strict=True):
        if start < end:
            assert words[place][0] <= start < words[place][1]
        elif words:
            assert place == max([number for number, (begin, _) in enumerate(words) if begin <= start], default=0)


def test_parts_of_a_word_sum_to_the_word():
    text = "Two herons don't hunt in the U.S."
    assert tokenize(text) == ["Two", "herons", "do", "n't", "hunt", "in", "the", "U.S."]
    ours = subwords("bert")
    assert np.bincount(ours.words(text, ours.spans(text, None))).tolist() == [1, 1, 2, 3, 1, 1, 1, 4]


@given(length=st.integers(0, 40), size=st.integers(3, 12), count=st.integers(1, 5))
def test_segments_hold_all_tokens_that_fit_between_first_and_last(length, size, count):
    ours, numbers = subwords("bert"), np.arange(100, 100 + length, dtype=np.uint16)
    expected, rest = [], numbers.tolist()
    for _ in range(count):
        expected += [ours.first, *rest[: size - 2], ours.last]
        rest = rest[size - 2 :]
        if not rest:
            break
    found = ours.segments(numbers, size, count)
    assert found.dtype == np.int32
    assert found.tolist() == expected


def test_fragmentation_is_counted_over_all_texts_together():
    assert subwords("bert").fragmentation(["owl", "heronry lake\n\n.", "owl, lake"]) == (1 + 5 + 3) / (1 + 3 + 2)
    assert subwords("bert").fragmentation([]) == 0


@both
def test_what_is_saved_is_loaded_by_us_and_by_the_library(name, tmp_path):
    from transformers import AutoTokenizer

    ours, text = subwords(name), "Two owls, don't hunt."
    ours.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    for again in (Subwords.load(tmp_path), Subwords.read(str(tmp_path))):
        for part in ("first", "last", "padding", "size", "longest", "digest"):
            assert getattr(again, part) == getattr(ours, part)
        assert again.numbers([text], None)[0].tolist() == ours.numbers([text], None)[0].tolist()
    assert AutoTokenizer.from_pretrained(tmp_path)(text).input_ids == oracle(name)(text).input_ids


def test_truncation_padding_and_an_unknown_longest_are_left_behind(tmp_path):
    from tokenizers import Tokenizer

    tiny.bert_tokenizer(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del config["model_max_length"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = Subwords.read(str(tmp_path))
    assert len(found.numbers(["owl owl owl owl owl owl"], None)[0]) == 6
    assert found.longest is None
    assert found.digest == subwords("bert").digest
    found.save(tmp_path)
    assert Subwords.load(tmp_path).longest is None


def test_a_digest_tells_tokenizers_apart_and_is_the_same_in_every_process():
    script = f"from labelwise.features.subwords import Subwords; print(Subwords.read({str(folder('bert'))!r}).digest)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == subwords("bert").digest != subwords("roberta").digest


@both
def test_a_corpus_is_cut_once_for_each_limit_and_text(name, tmp_path):
    ours, texts = subwords(name), ["the owl sees", "", "heronry " * 9] * 200
    for limit in (None, 5):
        flat, starts = ours.corpus_numbers(texts, limit, folder=tmp_path)
        assert (flat.dtype, starts.tolist()[0], len(starts)) == (np.uint16, 0, 601)
        expected = [numbers.tolist() for numbers in ours.numbers(texts, limit)]
        assert [flat[start:end].tolist() for start, end in pairwise(starts)] == expected
    assert len(list(tmp_path.iterdir())) == 2

    def refuse(items, task, total=None):
        raise AssertionError(f"{task} again")

    assert ours.corpus_numbers(texts, 5, folder=tmp_path, progress=refuse)[1].tolist() == starts.tolist()
    for others in (texts[1:], [*texts, ""], ["the owl", " sees", "", *texts[2:]]):
        with pytest.raises(AssertionError, match="cut sub-words again"):
            ours.corpus_numbers(others, 5, folder=tmp_path, progress=refuse)


def test_an_empty_corpus_has_no_numbers(tmp_path):
    flat, starts = subwords("bert").corpus_numbers([], None, folder=tmp_path)
    assert (len(flat), starts.tolist()) == (0, [0])


def test_large_vocabularies_take_four_bytes_a_number(tmp_path, monkeypatch):
    monkeypatch.setattr(subwords("bert"), "size", 1 << 17)
    assert subwords("bert").corpus_numbers(["owl"], None, folder=tmp_path)[0].dtype == np.uint32


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(BadModel, match="no tokenizer; a checkpoint's folder has tokenizer.json, or vocab.txt, or"):
        Subwords.read(str(tmp_path))


def test_a_broken_tokenizer_is_refused(tmp_path):
    tiny.bert_tokenizer(tmp_path)
    subwords("bert").save(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(BadModel, match=r"its tokenizer cannot be read \(.*; copy or download the folder again"):
        Subwords.read(str(tmp_path))
    with pytest.raises(BadModel, match=r"tokenizer.json: not a tokenizer \(.*; copy or train the folder again"):
        Subwords.load(tmp_path)


def test_a_slow_tokenizer_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("owl\n")
    (tmp_path / "config.json").write_text('{"model_type": "canine"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "CanineTokenizer"}')
    with pytest.raises(BadModel, match="written in Python only; take a checkpoint with a tokenizer.json"):
        Subwords.read(str(tmp_path))


def test_a_tokenizer_without_marks_is_refused(tmp_path):
    subwords("bert").save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(BadModel, match="take an encoder, such as BERT or RoBERTa"):
        Subwords.read(str(tmp_path))


def test_a_tokenizer_that_the_library_takes_for_another_kind_is_refused(tmp_path):
    tiny.roberta_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    Subwords.read(str(tmp_path))
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(BadModel, match=r"tokenizer\.json: holds a BPE vocabulary, but .* put tokenizer_config\.json back"):
        Subwords.read(str(tmp_path))


def test_marks_that_a_text_spells_are_unknown_pieces_where_the_vocabulary_holds_them(tmp_path):
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    known = [*((mark, 0.0) for mark in marks), ("▁", -2.0), *((letter, -3.0) for letter in "abps</>")]
    tokenizer = Tokenizer(models.Unigram(known, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(marks)
    found = Subwords(tokenizer, ("<s>", "</s>", "<pad>"), None)
    spelt, plain = found.numbers(["a <s> b</s><pad>", "ab"], None)
    assert not np.isin(spelt, [0, 1, 2]).any()
    assert (spelt == 3).sum() == 3
    assert plain.tolist() == [4, 5, 6]
    found.save(tmp_path)
    np.testing.assert_array_equal(Subwords.load(tmp_path).numbers(["a <s> b</s><pad>"], None)[0], spelt)


def test_code_in_a_folder_is_never_run(tmp_path):
    tiny.bert_tokenizer(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", "mine.Mine"]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom transformers import BertTokenizer as Mine\n")
    with suppress(BadModel):
        Subwords.read(str(tmp_path))
    Subwords.load(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_name_that_cannot_be_fetched_says_to_give_a_folder(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(BadModel, match="elsewhere and give its folder: --set encoder.checkpoint=FOLDER"):
        Subwords.read("zoo/no-such-checkpoint")


@pytest.mark.parametrize("name", ["./folder", "/no/folder", "~/folder", "no/such/folder", "../folder"])
def test_what_can_only_be_a_path_is_not_asked_of_the_hub(name):
    with pytest.raises(BadModel, match=f"^{name}: no such folder; (give one with config.json|~ is not known here)"):
        Subwords.read(name)


def test_a_file_is_refused_and_its_folder_named():
    for path in folder("bert").iterdir():
        with pytest.raises(BadModel, match=f"{path.name}: a file; give the folder that it is in, {path.parent}$"):
            Subwords.read(str(path))


def test_nothing_is_heard_of_the_hub_while_it_is_quiet_and_all_of_it_later():
    from huggingface_hub.utils import logging

    before = logging.get_verbosity()
    with quiet():
        assert not logging.get_logger("huggingface_hub.utils._http").isEnabledFor(logging.WARNING)
    assert logging.get_verbosity() == before


def test_importing_sub_words_is_light():
    script = "import sys, labelwise.features.subwords; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "tokenizers", "scipy"} & set(done.stdout.split())


@pytest.mark.parametrize("make", [tiny.bert, tiny.roberta])
def test_tiny_models_are_always_the_same_and_fit_their_tokenizers(make, tmp_path):
    import torch
    from transformers import AutoModel

    one, other = make(tmp_path / "one"), make(tmp_path / "other")
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    ours, model = Subwords.read(str(one)), AutoModel.from_pretrained(one)
    assert model.get_input_embeddings().num_embeddings == ours.size
    numbers = ours.segments(np.full(1000, ours.size - 1), ours.longest, 1)
    assert model(torch.tensor(numbers[None])).last_hidden_state.shape == (1, tiny.LONGEST, 16)


@pytest.mark.parametrize(
    ("told", "numbers"), [({}, [5, 6]), ({"do_lower_case": True}, [6, 6]), ({"do_lower_case": False}, [5, 6])]
)
def test_capitals_are_kept_where_the_vocabulary_has_them_unless_the_checkpoint_says_otherwise(tmp_path, told, numbers):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Owl", "owl"]))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    if told:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(told))
    assert Subwords.read(str(tmp_path)).numbers(["Owl owl"], None)[0].tolist() == numbers
