"""Tiny pretrained models as folders, made on the spot, always the same.

A BERT with WordPiece, a RoBERTa with byte-level BPE, and an ELMo.
"""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_lowercase, digits, punctuation
from typing import Any

import numpy as np

WORDS = (
    "a again an and at bird birds dark deep duck ducks fish fishes full grey heron herons hunt in is lake night of on owl owls "
    "sees stand swims the two well wood"
)
LONGEST = 64  # tokens that the models can read at once, special ones included
ELMO = {
    "lstm": {"dim": 7, "projection_dim": 3, "n_layers": 2, "cell_clip": 0.6, "proj_clip": 0.4, "use_skip_connections": True},
    "char_cnn": {
        "embedding": {"dim": 4},
        "filters": [[1, 2], [3, 5]],
        "activation": "relu",
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 9,
    },
    "unroll_steps": 20,
}
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def bert(folder: Path) -> Path:
    """A BERT of random weights; whole words are known in lower case, all others are spelt."""
    from transformers import BertConfig, BertModel

    size = _size(bert_tokenizer(folder))
    return _write_weights(folder, BertModel, BertConfig(vocab_size=size, max_position_embeddings=LONGEST, **SHAPE))


def roberta(folder: Path) -> Path:
    """A RoBERTa of random weights; whole words are known with a blank before them, all others are bytes or begins of words."""
    from transformers import RobertaConfig, RobertaModel

    size = _size(roberta_tokenizer(folder))
    places = LONGEST + 2  # counted from 2
    marks = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "type_vocab_size": 1}
    return _write_weights(folder, RobertaModel, RobertaConfig(vocab_size=size, max_position_embeddings=places, **SHAPE, **marks))


def elmo(folder: Path, options: dict[str, Any] = ELMO, weights: dict[str, np.ndarray] | None = None, start: str = "") -> Path:
    """An ELMo of random weights; clips are so low that they matter."""
    import h5py

    (folder / f"{start}options.json").write_text(json.dumps(options), encoding="utf-8")
    with h5py.File(folder / f"{start}weights.hdf5", "w") as file:
        for name, values in (elmo_weights(options) if weights is None else weights).items():
            file[name] = values
    return folder


def elmo_weights(options: dict[str, Any]) -> dict[str, np.ndarray]:
    """Random weights under their published names, in the shapes that the options make."""
    characters, units, width = options["char_cnn"], options["lstm"]["dim"], options["lstm"]["projection_dim"]
    letter, total = characters["embedding"]["dim"], sum(number for _, number in characters["filters"])
    shapes = {"char_embed": (261, letter), "CNN_proj/W_proj": (total, width), "CNN_proj/b_proj": (width,)}
    for place, (span, number) in enumerate(characters["filters"]):
        shapes |= {f"CNN/W_cnn_{place}": (1, span, letter, number), f"CNN/b_cnn_{place}": (number,)}
    for place in range(characters["n_highway"]):
        for name in ("carry", "transform"):
            shapes |= {f"CNN_high_{place}/W_{name}": (total, total), f"CNN_high_{place}/b_{name}": (total,)}
    for direction in range(2):
        for layer in range(options["lstm"]["n_layers"]):
            shapes |= {elmo_cell(direction, layer, "W_0"): (2 * width, 4 * units), elmo_cell(direction, layer, "B"): (4 * units,)}
            shapes |= {elmo_cell(direction, layer, "W_P_0"): (units, width)}
    random = np.random.default_rng(5)
    return {name: random.normal(scale=0.7, size=shape).astype(np.float32) for name, shape in shapes.items()}


def elmo_cell(direction: int, layer: int, name: str) -> str:
    """The published name of a weight of a recurrent layer."""
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{name}"


def bert_tokenizer(folder: Path) -> Path:
    """The tokenizer of `bert` alone."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [*ascii_lowercase, *digits]
    known = dict.fromkeys(
        [*marks, *punctuation, *letters, *(f"##{letter}" for letter in letters), *WORDS.split(), "##s", "##ing"]
    )
    numbers = {piece: number for number, piece in enumerate(known)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"]))
    tokenizer.add_special_tokens(marks)
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return _write_tokenizer(folder, tokenizer, "bert", "BertTokenizer", dict(zip(names, marks, strict=True)))


def roberta_tokenizer(folder: Path) -> Path:
    """The tokenizer of `roberta` alone."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    numbers = {piece: number for number, piece in enumerate([*marks[:4], *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    merges = {"ĠĠ": ("Ġ", "Ġ")}  # a word is put together letter by letter
    for word in WORDS.split():
        spelt = "Ġ" + word
        merges |= {spelt[: end + 1]: (spelt[:end], spelt[end]) for end in range(1, len(spelt))}
    numbers |= {piece: number for number, piece in enumerate(merges, len(numbers))}
    numbers["<mask>"] = len(numbers)
    tokenizer = Tokenizer(models.BPE(numbers, list(merges.values())))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer.add_special_tokens([*marks[:4], AddedToken("<mask>", lstrip=True)])
    names = ("bos_token", "pad_token", "eos_token", "unk_token", "mask_token", "cls_token", "sep_token")
    spelt_marks = dict(zip(names, [*marks, "<s>", "</s>"], strict=True))
    return _write_tokenizer(folder, tokenizer, "roberta", "RobertaTokenizer", spelt_marks)


def _write_tokenizer(folder: Path, tokenizer: Any, model: str, kind: str, marks: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": kind, "model_max_length": LONGEST, **marks}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": model}), encoding="utf-8")
    return folder


def _write_weights(folder: Path, model: Any, config: Any) -> Path:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model(config).save_pretrained(folder)
    return folder


def _size(folder: Path) -> int:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
