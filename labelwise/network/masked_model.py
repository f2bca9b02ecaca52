"""Models that predict hidden words, with their vocabulary: made new, or read from a transformers folder and written to one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from labelwise.errors import BadModel
from labelwise.features.subwords import Subwords, is_folder
from labelwise.network.masking import Marks
from labelwise.network.soundness import require_encoder, require_family, require_fit, require_safetensors
from labelwise.network.transformer import complaints

MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
HEADS = {"bert": "cls", "roberta": "lm_head", "xlm-roberta": "lm_head"}  # where a model keeps its prediction of hidden words

_UNBROKEN = re.compile(r"\S{1000}")


class MaskedModel(NamedTuple):
    """A network that predicts hidden words, its vocabulary, and a pooler that is carried along untrained."""

    tokenizer: PreTrainedTokenizerFast
    subwords: Subwords
    network: PreTrainedModel
    pooler: dict[str, Tensor]

    @property
    def head(self) -> nn.Module:
        """What makes scores of all tokens from a state."""
        head: nn.Module = getattr(self.network, HEADS[self.network.config.model_type])
        return head

    @property
    def first(self) -> int:
        """The first position that is used; RoBERTa leaves out those up to its padding's number."""
        config: Any = self.network.config
        return 0 if config.model_type == "bert" else config.pad_token_id + 1

    def marks(self, device: torch.device) -> Marks:
        """The marks of the vocabulary."""
        words, special = self.subwords, np.array(self.tokenizer.all_special_ids)
        numbers = (special, np.setdiff1d(np.arange(words.size), special))
        on_device = [torch.from_numpy(ids).to(device) for ids in numbers]
        return Marks(words.first, words.last, words.padding, self.tokenizer.mask_token_id, *on_device)


def learn_vocabulary(texts: Iterable[str], size: int, *, lower: bool = True) -> Tokenizer:
    """A byte-level byte-pair vocabulary: no text is unknown to it, and frequent words are whole."""
    cutter = Tokenizer(models.BPE())
    cutter.normalizer = normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase()] if lower else [])])
    cutter.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    cutter.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        # The space before a hidden word belongs to it, as it does to any other.
        special_tokens=[AddedToken(name, special=True, lstrip=name == "[MASK]") for name in MARKS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Pairs are counted again and again along a piece, so one of a million characters would take for ever.
    cutter.train_from_iterator((_UNBROKEN.sub(r"\g<0> ", text) for text in texts), trainer)
    marks = [(name, cutter.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    framed = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=marks)
    cutter.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), framed])
    return cutter


def new_model(cutter: Tokenizer, *, layers: int, width: int, heads: int, length: int, dropout: float) -> MaskedModel:
    """A BERT of random weights over a vocabulary."""
    names = {f"{mark[1:-1].lower()}_token": mark for mark in MARKS}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=cutter, model_max_length=length, **names)  # type: ignore[no-untyped-call]
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=length,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=tokenizer.pad_token_id,
    )
    network, encoder = AutoModelForMaskedLM.from_config(config), AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    return MaskedModel(tokenizer, Subwords(cutter, ("[CLS]", "[SEP]", "[PAD]"), length), network, _pooler(encoder))


def read_model(folder: Path) -> MaskedModel:
    """The model of a transformers folder on this machine; what predicts hidden words is new where the folder has none."""
    if not is_folder(str(folder)) or not (folder / "config.json").is_file():
        raise BadModel(f"{folder}: no config.json in it; --from takes a transformers folder on this machine")
    require_safetensors(folder)
    subwords, local = Subwords.read(str(folder)), {"local_files_only": True, "trust_remote_code": False}
    told = {"use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True}  # for refusing them by name
    with complaints(str(folder)):
        config: Any = AutoConfig.from_pretrained(folder, **local)
        if config.model_type not in HEADS:
            raise BadModel(f"{folder}: a model of type {config.model_type!r}; --from goes on from {', '.join(HEADS)}")
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, **local)
        encoder, found = AutoModel.from_pretrained(folder, **local, **told)
        network, headed = AutoModelForMaskedLM.from_pretrained(folder, **local, **told)
    require_family(str(folder), config)
    require_fit(str(folder), encoder, found)
    require_encoder(str(folder), encoder.float())  # rounded, it would be less sure
    require_fit(str(folder), network, headed | {"missing_keys": (), "unexpected_keys": ()})  # of heads, any may be there
    if tokenizer.mask_token_id is None or subwords.size > config.vocab_size:
        raise BadModel(f"{folder}: its tokenizer has no mask, or more tokens than the model; take both from one place")
    return MaskedModel(tokenizer, subwords, network.float(), _pooler(encoder))


def write_model(model: MaskedModel, folder: Path) -> None:
    """Write a transformers folder in which neither the bare encoder nor the model with its head finds a weight missing."""
    network = model.network
    weights = {f"{network.base_model_prefix}.{name}": tensor for name, tensor in model.pooler.items()}
    weights |= dict(network.named_parameters())  # each once: what predicts words shares their vectors
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    (folder / "model.safetensors").write_bytes(save(plain, {"format": "pt"}))
    network.config.architectures = [type(network).__name__]
    network.config.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def _pooler(encoder: PreTrainedModel) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in encoder.state_dict().items() if name.startswith("pooler.")}
