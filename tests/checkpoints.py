"""Tiny checkpoints of many kinds, methods over them, and what the transformers library itself makes of texts with them."""

import atexit
import json
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
import pytest
import tiny
import torch
import transformers
from toy import zoo

from labelwise.corpus import Corpus, Document
from labelwise.features.subwords import quiet
from labelwise.network.token_encoders import Tokens
from labelwise.network.transformer import TransformerEncoder, read_transformer
from labelwise.registry import make_method
from labelwise.settings import override

WIDE = {"initializer_range": 0.5}  # weights so large that every token matters to every state
BERT_LIKE = {"max_position_embeddings": tiny.LONGEST, **tiny.SHAPE, **WIDE}
ROBERTA_LIKE = BERT_LIKE | {"max_position_embeddings": tiny.LONGEST + 2, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
DISTIL = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
DEBERTA = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
}
MODERN = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 8, "decoder_bias": True}
KINDS = {  # the library's names, with a head that the checkpoint was trained with
    "bert": ("Bert", "ForPreTraining", BERT_LIKE),
    "roberta": ("Roberta", "ForMaskedLM", ROBERTA_LIKE),
    "distilbert": ("DistilBert", "ForMaskedLM", {"max_position_embeddings": tiny.LONGEST, **WIDE, **DISTIL}),
    "electra": ("Electra", "ForPreTraining", BERT_LIKE | {"embedding_size": 8}),
    "deberta": ("DebertaV2", "ForMaskedLM", BERT_LIKE | DEBERTA),
    "modernbert": ("ModernBert", "ForMaskedLM", BERT_LIKE | MODERN),
    "mpnet": ("MPNet", "ForMaskedLM", ROBERTA_LIKE),
    "albert": ("Albert", "ForPreTraining", BERT_LIKE | {"embedding_size": 8}),
}
TEXTS = [
    "An owl hunts in the dark wood, and two grey herons stand in the lake.",
    "Owls",
    "",
    "The duck swims on the lake again and again " * 3,
    "Ünknown wörds; 日本 🦉 <s> [SEP] </s> [PAD]",
]
QUICK = ("training.epochs=1", "training.batch=2", "training.precision=float32", "labels.nodes.walks=1", "labels.nodes.width=8")


@cache
def folder(kind: str) -> Path:
    """A checkpoint with its head, as one finds them."""
    place = Path(mkdtemp())
    atexit.register(rmtree, place)
    tokenizer = tiny.roberta_tokenizer if kind in ("roberta", "mpnet") else tiny.bert_tokenizer
    tokenizer(place)
    known = json.loads((place / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    family, head, shape = KINDS[kind]
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        config = getattr(transformers, f"{family}Config")(vocab_size=max(known.values()) + 1, **shape)
        getattr(transformers, family + head)(config).save_pretrained(place)
    return place


@cache
def library(kind: str):
    """The library's own tokenizer and encoder."""
    with quiet():
        model = transformers.AutoModel.from_pretrained(folder(kind)).eval()
        return transformers.AutoTokenizer.from_pretrained(folder(kind)), model


def library_states(model, row) -> torch.Tensor:
    """(length, width), a row of numbers read alone."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([list(map(int, row))])).last_hidden_state[0]


def library_segments(kind: str, text: str, size: int, count: int) -> list[list[int]]:
    """Sub-words cut into segments, by the library."""
    tokenizer, _ = library(kind)
    words = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"][: (size - 2) * count]
    parts = [words[start : start + size - 2] for start in range(0, max(1, len(words)), size - 2)]
    return [[tokenizer.cls_token_id, *part, tokenizer.sep_token_id] for part in parts]


def method(name: str, kind: str = "bert", *more: str):
    given = [*QUICK, f"encoder.checkpoint={folder(kind)}", "encoder.segment=24", "training.learning_rate=0.001", *more]
    return make_method(name, override({}, given))


def scores(model, texts, labels) -> np.ndarray:
    corpus = Corpus([Document(f"d{place}", text, ()) for place, text in enumerate(texts)], labels)
    return model.predict(corpus).dense()


def head(model) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    vectors = model._fitted.network.label_encoder()
    return tuple(part.detach() for part in vectors)


def encoder(kind: str, segment: int = 8, **more) -> TransformerEncoder:
    model = read_transformer(str(folder(kind)))
    return TransformerEncoder(model, segment, library(kind)[0].pad_token_id, **more).eval()


def batch(rows: list[list[int]], filling: int = 0, more: int = 0) -> Tokens:
    """Rows side by side, whatever stands behind their ends."""
    numbers = torch.full((len(rows), max(map(len, rows)) + more), filling)
    for place, row in enumerate(rows):
        numbers[place, : len(row)] = torch.tensor(row)
    return Tokens(numbers, torch.tensor([len(row) for row in rows]))


def assert_explained(found, score, spans):
    assert found.score == pytest.approx(score, abs=1e-5)
    assert [span[:2] for span in found.spans] == [span[:2] for span in spans]
    assert [span.weight for span in found.spans] == pytest.approx([span[2] for span in spans], abs=2e-4)


@cache
def fitted(name: str, kind: str, segments: int, *more: str):
    train = zoo().train
    given = ("encoder.frozen=99", "encoder.segment=8", f"encoder.segments={segments}", *more)
    return method(name, kind, *given).fit(train), train.labels
