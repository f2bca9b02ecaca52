"""Transformers of the transformers library as token encoders, over one segment of a document or over many.

A document comes as segments one after the other, each with its own first and last token, all of the same length but the last
unless they are sections. They are encoded as rows of one batch and put back in line, so that labels read all of a long document,
and padding is left out. Folders are read from safetensors; nothing in a folder is ever run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from labelwise.errors import BadModel, BadSettings
from labelwise.features.subwords import DOWNLOAD, hub_answers, is_folder, quiet
from labelwise.network.packing import pack
from labelwise.network.playback import Recordings, Rounded, attention_kernels, good_length, placed
from labelwise.network.soundness import require_encoder, require_family, require_fit, require_safetensors
from labelwise.network.token_encoders import TokenEncoder, Tokens, mask_of, mean_of, spatial_dropout
from labelwise.network.transfer import send

# Families whose attention is over all tokens: they take a mask as it is, (batch, 1, 1, length). From (batch, length) the library
# makes one for any family, but looks at its values first, and so waits for the GPU in every step.
PLAIN = ("bert", "electra", "roberta", "xlm-roberta")
COUNTED = ("bert", "electra")  # families that count places from 0, so that they can be told
UNHEARD = ("_name_or_path", "transformers_version", "use_cache")  # of a config: no state is changed by these

Run = Callable[[Tensor, Tensor | None], Tensor]  # what to do with rows of numbers or vectors, and their mask


class TransformerEncoder(TokenEncoder):
    """The last states of a transformer, for every token of every segment (SPEC 1.3 to 1.5).

    With `firsts`, tokens of sections have the first state of theirs, so that the largest of all states is the largest of those.
    """

    def __init__(
        self,
        model: nn.Module,
        segment: int,
        padding: int,
        dropout: float = 0.1,
        *,
        frozen: int = 0,
        recompute: bool = False,
        sections: bool = False,
        firsts: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.segment, self.padding, self.dropout = model, segment, padding, dropout
        self.sections, self.firsts, self.recompute = sections, firsts, recompute
        config: Any = model.config
        self.width = self.said = int(config.hidden_size)
        self.recordings: Recordings | None = None
        self.plain = config.model_type in PLAIN and config._attn_implementation == "sdpa"
        self.packs = config.model_type in COUNTED and self.plain and not recompute
        for level in self.levels()[:frozen]:
            level.requires_grad_(False)
        if recompute and not model.supports_gradient_checkpointing:
            raise BadSettings(f"encoder.recompute=true, but the transformers library cannot recompute a {config.model_type}")
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
            config.use_cache = False  # else the library says that the two do not go together

    def forward(self, tokens: Tokens) -> Tensor:
        """(batch, length, width) states."""
        return self._in_segments(tokens, self._recorded(tokens.numbers) or self._launch)

    def both(self, tokens: Tokens, numbers: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """States of documents and what short texts say, in one recording where training is recorded."""
        recordings = self._recorded(tokens.numbers)
        if recordings is None or not self.packs:
            return super().both(tokens, numbers, lengths)
        packed, said = pack(numbers, lengths, self.padding), list[Tensor]()

        def play(told: Tensor, mask: Tensor | None) -> Tensor:
            found: Tensor
            found, texts = recordings(told, mask, *packed.rounded(self.padding))
            said.append(texts)
            return found

        states = self._in_segments(tokens, play)
        return states, packed.means(said[0])

    def say(self, numbers: Tensor, lengths: Tensor) -> Tensor:
        """(texts, width), the mean of the states of each short text; lengths are on the host."""
        if self.packs:
            packed = pack(numbers, lengths, self.padding)
            return packed.means(self._launch(packed.numbers, packed.mask, packed.places))
        real = mask_of(lengths, numbers)
        mask = real[:, None, None] if self.plain else real.long()
        return mean_of(self._launch(numbers.masked_fill(~real, self.padding), mask), lengths)

    def contributions(self, tokens: Tokens, judge: Callable[[Tensor], Tensor]) -> tuple[float, list[float]]:
        """A number that is made from the states of one document, and each token's part: the slope by its vector × the vector."""
        with torch.no_grad():
            vectors = self.model.get_input_embeddings()(tokens.numbers)  # type: ignore[operator]
        vectors.requires_grad_()
        found = judge(self._in_segments(tokens, self._launch, vectors))
        (slopes,) = torch.autograd.grad(found, vectors)
        return float(found.detach()), (slopes * vectors).sum(-1)[0].tolist()

    def levels(self) -> list[nn.Module]:
        """What stands before the first layer, then the layers, lowest first: for freezing and for step sizes by depth."""
        layers = max((part for part in self.model.modules() if isinstance(part, nn.ModuleList)), key=_size)
        inside = set(layers.modules())
        outside = [(name, part) for name, part in self.model.named_modules() if part not in inside]
        below = [part for name, part in outside if "embedding" in name or isinstance(part, nn.Embedding)]
        return [nn.ModuleList(below), *layers]

    def digest(self) -> str:
        """A name for all that the states of some tokens follow from."""
        config: Any = self.model.config
        shape = {name: value for name, value in config.to_dict().items() if name not in UNHEARD}
        told = json.dumps([shape, self.segment, self.padding, self.sections, self.firsts], sort_keys=True, default=str)
        digest = sha256(told.encode())
        for weight in self.model.state_dict().values():
            digest.update(weight.cpu().numpy().tobytes())
        return digest.hexdigest()

    def record(self, on: bool) -> None:
        """Record what training does on the GPU and play it back, or forget the recordings and free their memory."""
        self.recordings = Recordings(self.model) if on and self.plain and not self.recompute else None

    def _recorded(self, told: Tensor) -> Recordings | None:
        """What plays these, where they are not launched one by one."""
        return self.recordings if self.training and self._rounds(told) else None

    def _rounds(self, told: Tensor) -> bool:
        """Whether weights are rounded; what is computed again would find those that are not."""
        return torch.is_autocast_enabled("cuda") and told.is_cuda and not told.is_floating_point() and not self.recompute

    def _in_segments(self, tokens: Tokens, run: Run, vectors: Tensor | None = None) -> Tensor:
        """Each segment is a row of its own; rows without a token are left out."""
        if self.sections:
            return self._in_sections(tokens, run, vectors)
        batch, length = tokens.numbers.shape
        if length <= self.segment:
            return self._encode(tokens.numbers, tokens.lengths, run, vectors)
        missing = -length % self.segment
        numbers = pad(tokens.numbers, (0, missing)).view(-1, self.segment)
        lengths = (tokens.lengths[:, None] - torch.arange(0, length, self.segment)).clamp(0, self.segment).flatten()
        real = torch.nonzero(lengths)[:, 0]
        places = send(real, numbers.device)
        if vectors is not None:
            vectors = pad(vectors, (0, 0, 0, missing)).view(-1, self.segment, vectors.shape[-1])[places]
        found = self._encode(numbers[places], lengths[real], run, vectors)
        states = found.new_zeros(len(lengths), self.segment, self.width).index_copy(0, places, found)
        return states.view(batch, -1, self.width)[:, :length]

    def _in_sections(self, tokens: Tokens, run: Run, vectors: Tensor | None) -> Tensor:
        """The same for segments of any length: one begins wherever the number stands that documents begin with."""
        real = mask_of(tokens.lengths, tokens.numbers)
        flat = tokens.numbers[real]  # (tokens,), of all sections of all documents
        begins = torch.nonzero(flat == flat[0])[:, 0].cpu()
        lengths = torch.diff(begins, append=torch.tensor([len(flat)]))
        numbers = flat.new_zeros(len(lengths), int(lengths.max()))
        inside = mask_of(lengths, numbers)
        numbers[inside] = flat
        if vectors is not None:
            there, vectors = vectors[real], vectors.new_zeros(*numbers.shape, vectors.shape[-1])
            vectors[inside] = there
        found = self._encode(numbers, lengths, run, vectors)
        if self.firsts:
            found = found[:, :1].expand_as(found)
        states = found.new_zeros(*real.shape, self.width)
        states[real] = found[inside]
        return states

    def _encode(self, numbers: Tensor, lengths: Tensor, run: Run, vectors: Tensor | None) -> Tensor:
        """States of rows that fit the transformer; channels are dropped per segment, states of padding are zero."""
        longest = numbers.shape[1]
        if vectors is None and numbers.is_cuda:
            numbers = pad(numbers, (0, good_length(longest, self.segment) - longest))
        real = mask_of(lengths, numbers)
        told = numbers.masked_fill(~real, self.padding) if vectors is None else vectors
        full = bool((lengths == numbers.shape[1]).all())  # without a mask there are faster kernels
        mask = None if full and run == self._launch else real[:, None, None] if self.plain else real.long()
        states = spatial_dropout(run(told, mask), self.dropout, self.training)
        return (states if full else states * real[..., None])[:, :longest]

    def _launch(self, told: Tensor, mask: Tensor | None, places: Tensor | None = None) -> Tensor:
        """What the transformer makes of numbers or vectors; `places` of tokens if they are not one after the other."""
        if self._rounds(told):
            return Rounded(self.model)(told, mask, places)
        with attention_kernels(told.shape[1], mask is not None):
            what = {"inputs_embeds" if told.is_floating_point() else "input_ids": told}
            found: Tensor = self.model(**what, attention_mask=mask, **placed(places)).last_hidden_state
        return found


class KeptStates(TokenEncoder):
    """The states of a transformer that is not trained: they come with the tokens, and only short texts are read here."""

    def __init__(self, encoder: TransformerEncoder) -> None:
        super().__init__()
        self.encoder, self.width, self.said = encoder.requires_grad_(False), encoder.width, encoder.said

    def forward(self, tokens: Tokens) -> Tensor:
        """(batch, length, width) states, channels dropped in training."""
        assert tokens.context is not None
        return spatial_dropout(tokens.context[:, :, 0].float(), self.encoder.dropout, self.training)

    @torch.no_grad()
    def say(self, numbers: Tensor, lengths: Tensor) -> Tensor:
        """(texts, width), the mean of the states of each short text."""
        return self.encoder.eval().say(numbers, lengths)

    def contributions(self, tokens: Tokens, judge: Callable[[Tensor], Tensor]) -> tuple[float, list[float]]:
        """Those of the transformer, which reads the tokens once more: states that were kept have no slopes."""
        return self.encoder.eval().contributions(tokens, judge)


def read_transformer(checkpoint: str) -> nn.Module:
    """The encoder in a folder, or by its hub name, in float32; a head it may have been trained with is left out."""
    if not checkpoint:
        raise BadSettings("encoder.checkpoint is empty; name a transformer's folder, or its name on the model hub")
    folder = is_folder(checkpoint)
    if folder:
        require_safetensors(Path(checkpoint))
    with complaints(checkpoint):
        from transformers import AutoModel

        model, told = AutoModel.from_pretrained(
            checkpoint,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=folder or not hub_answers(checkpoint),
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # told below, by name
        )
    if model.config.is_encoder_decoder or model.main_input_name != "input_ids":
        raise BadModel(f"{checkpoint}: {model.config.model_type} is no encoder of texts; take one, such as BERT or RoBERTa")
    require_family(checkpoint, model.config)
    require_fit(checkpoint, model, told)
    model = _without_pooler(model)
    require_encoder(checkpoint, model)
    return model


def describe_transformer(model: nn.Module, folder: Path) -> None:
    """Write what a transformer is like, without its weights."""
    model.config.save_pretrained(folder)  # type: ignore[union-attr, operator]


def described_transformer(folder: Path) -> nn.Module:
    """The transformer that a folder describes, with random weights."""
    with complaints(str(folder)):
        from transformers import AutoConfig, AutoModel

        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        return _without_pooler(AutoModel.from_config(config, trust_remote_code=False))  # type: ignore[no-untyped-call]


def segment_length(model: nn.Module, wanted: int) -> int:
    """How many tokens to give a transformer at once: as many as wanted, or with 0 as it can take."""
    config: Any = model.config
    places = int(getattr(config, "max_position_embeddings", None) or 0)
    places = places if places > 0 else 1 << 20
    tables = [part for name, part in model.named_modules() if name.endswith("position_embeddings")]
    behind = [padding for part in tables if (padding := getattr(part, "padding_idx", None)) is not None]
    places -= max(behind, default=-1) + 1  # RoBERTa and its kin count places from behind the padding
    if wanted > places:
        raise BadSettings(
            f"encoder.segment={wanted}, but this {config.model_type} takes {places} tokens at once; 0 means as many"
        )
    if wanted in (1, 2):
        raise BadSettings(f"encoder.segment={wanted} leaves no room between the token that begins and the one that ends it")
    return wanted or places


def _without_pooler(model: nn.Module) -> nn.Module:
    """The same without a pooler: it is never used, so it would never be trained."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = nn.Identity()  # some families call theirs without asking whether there is one
    return model


@contextmanager
def complaints(checkpoint: str) -> Iterator[None]:
    """The library's errors in our words, and nothing else of what it says."""
    try:
        with quiet():
            yield
    except BadModel:
        raise
    except Exception as error:  # the library raises all kinds
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        way = (
            "the folder must hold config.json and model.safetensors of an encoder that the transformers library knows"
            if Path(checkpoint).is_dir()
            else f"there is no such folder, and the model hub gave none of that name; {DOWNLOAD}"
        )
        raise BadModel(f"{checkpoint}: cannot be read ({reason}); {way}") from None


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
