"""Token encoders: words to states. Padding is never seen: states beyond a document's end are zero, whoever shares its batch.

The layers, dropouts and first values are those of SPEC 1.0: channels are dropped as a whole, and so are words. AttentionXML
(SPEC 2.4) drops single values, and learns what its recurrent layers start from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from labelwise.network.transfer import send

if TYPE_CHECKING:
    from labelwise.network.elmo import ScalarMix

Dropout = Callable[[Tensor, float, bool], Tensor]  # states, the share to drop, whether this is training


class Tokens(NamedTuple):
    """A batch of documents as numbers of words, filled up with 0."""

    numbers: Tensor  # (batch, length)
    lengths: Tensor  # (batch,), always on the CPU: asking a GPU for them would make it wait
    context: Tensor | None = None  # (batch, length, parts, projection), what ELMo makes of the words

    @property
    def mask(self) -> Tensor:
        """(batch, length, 1), 1 at real tokens."""
        return mask_of(self.lengths, self.numbers)[..., None]


class TokenEncoder(nn.Module, ABC):
    """Tokens to (batch, length, width) states, zero beyond the end of a document."""

    width: int
    said: int  # components of what a short text says

    @abstractmethod
    def forward(self, tokens: Tokens) -> Tensor:
        """Encode a batch."""

    @abstractmethod
    def say(self, numbers: Tensor, lengths: Tensor) -> Tensor:
        """(texts, said), what short texts say, each as a whole; lengths are on the host."""

    def both(self, tokens: Tokens, numbers: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """States of a batch, and what short texts say."""
        return self(tokens), self.say(numbers, lengths)

    def levels(self) -> list[nn.Module]:
        """Parts by depth, lowest first, for step sizes of their own."""
        return [self]

    def record(self, on: bool) -> None:
        """Record on a GPU what gains by it, or forget that; nothing does here: recurrent layers are few and large kernels."""


@runtime_checkable
class Slopes(Protocol):
    """What a token encoder can do that sees a document whole, so that each of its states is made from all tokens."""

    def contributions(self, tokens: Tokens, judge: Callable[[Tensor], Tensor]) -> tuple[float, list[float]]:
        """A number that is made from the states of one document, and each token's part: the slope by its vector × the vector."""
        ...


def spatial_dropout(states: Tensor, rate: float, training: bool) -> Tensor:
    """Drop whole channels: one coin per document and channel, for all of its tokens."""
    if not training or rate == 0:
        return states
    return states * functional.dropout(torch.ones_like(states[:, :1]), rate)


DROPOUTS: dict[str, Dropout] = {"channels": spatial_dropout, "values": functional.dropout}


class WordInputs(nn.Module):
    """Word vectors, frozen unless they are to be trained, with channels and words dropped in training (SPEC 1.0.1, 1.0.2).

    With a mixture of ELMo's layers, a word in its context has that beside its vector (SPEC 1.2). The encoder above drops states
    in the same way.
    """

    vectors: Tensor

    def __init__(
        self,
        vectors: Tensor,
        dropout: float,
        word_dropout: float,
        *,
        train: bool = False,
        mix: ScalarMix | None = None,
        drop: Dropout = spatial_dropout,
    ) -> None:
        super().__init__()
        if train:
            self.vectors = nn.Parameter(vectors.clone())
        else:
            self.register_buffer("vectors", vectors, persistent=False)
        self.dropout, self.word_dropout, self.mix, self.drop = dropout, word_dropout, mix, drop
        self.width = vectors.shape[1] + (0 if mix is None else mix.width)

    def forward(self, tokens: Tokens) -> Tensor:
        """(batch, length, width) vectors of the words."""
        found = functional.embedding(tokens.numbers, self.vectors)
        if self.mix is not None:
            found = torch.cat([found, self.mix(tokens.context)], dim=-1)
        found = self.drop(found, self.dropout, self.training)
        if self.training and self.word_dropout > 0:
            found = found * functional.dropout(torch.ones_like(found[..., :1]), self.word_dropout)
        return found


class WordEncoder(TokenEncoder, ABC):
    """What stands on word vectors; a short text says the mean of those of its words."""

    def __init__(self, inputs: WordInputs) -> None:
        super().__init__()
        self.inputs, self.said = inputs, inputs.vectors.shape[1]

    def say(self, numbers: Tensor, lengths: Tensor) -> Tensor:
        """(texts, said), the mean of the vectors."""
        return mean_of(functional.embedding(numbers, self.inputs.vectors), lengths)


class RecurrentEncoder(WordEncoder):
    """Stacked bidirectional GRU or LSTM layers; each but the first adds its input to its output (SPEC 1.0.4)."""

    def __init__(
        self,
        inputs: WordInputs,
        units: int,
        *,
        layers: int = 1,
        dropout: float = 0.1,
        cell: Literal["gru", "lstm"] = "gru",
        start: Literal["zeros", "learned"] = "zeros",
        fused: bool = False,
    ) -> None:
        super().__init__(inputs)
        kind, kept = {"gru": (nn.GRU, 1), "lstm": (nn.LSTM, 2)}[cell]  # and how many states a cell keeps
        self.width, self.dropout, self.fused = 2 * units, dropout, fused and cell == "gru" and start == "zeros"
        sizes = [inputs.width, *[2 * units] * (layers - 1)]
        self.layers = nn.ModuleList(kind(size, units, batch_first=True, bidirectional=True) for size in sizes)
        for layer in self.layers:
            _keras_start(layer)
        learned = start == "learned"
        self.starts = nn.ParameterList(torch.zeros(kept, 2, 1, units) for _ in sizes) if learned else None

    def forward(self, tokens: Tokens) -> Tensor:
        """(batch, length, 2 × units) states."""
        states, mask = self.inputs(tokens), tokens.mask
        for number, layer in enumerate(self.layers):
            found = self._run(number, layer, states, tokens.lengths) * mask
            states = self.inputs.drop(found + states if number else found, self.dropout, self.training)
        return states

    def _run(self, number: int, layer: nn.Module, states: Tensor, lengths: Tensor) -> Tensor:
        """One layer over real words; what comes out beyond their end does not count."""
        if self.fused and states.is_cuda and torch.is_autocast_enabled("cuda"):
            from labelwise.network import gru_cuda

            if gru_cuda.fits(layer):
                with torch.cuda.device(states.device):
                    return gru_cuda.run(layer, states, send(lengths, states.device))
        lengths = lengths.clamp(min=1)  # a document without words runs over one zero vector
        packed = pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
        found = layer(packed, self._start(number, len(states)))[0]
        return pad_packed_sequence(found, batch_first=True, total_length=states.shape[1])[0]

    def _start(self, layer: int, batch: int) -> Tensor | tuple[Tensor, ...] | None:
        """What both directions of a layer start from, (2, batch, units) for each state that a cell keeps; None for zeros."""
        if self.starts is None:
            return None
        kept = self.starts[layer].repeat(1, 1, batch, 1).unbind()
        return kept if len(kept) > 1 else kept[0]


class ConvolutionEncoder(WordEncoder):
    """Convolutions over neighbouring words, with tanh (SPEC 1.0.5)."""

    def __init__(self, inputs: WordInputs, filters: int, *, layers: int = 1, dropout: float = 0.1, window: int = 3) -> None:
        super().__init__(inputs)
        self.width, self.dropout = filters, dropout
        sizes = [inputs.width, *[filters] * (layers - 1)]
        self.layers = nn.ModuleList(nn.Conv1d(size, filters, window, padding="same") for size in sizes)
        for layer in self.layers:
            nn.init.xavier_uniform_(layer.weight)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, tokens: Tokens) -> Tensor:
        """(batch, length, filters) states."""
        mask = tokens.mask
        states = self.inputs(tokens) * mask
        for layer in self.layers:
            found = torch.tanh(layer(states.transpose(1, 2))).transpose(1, 2)
            states = self.inputs.drop(found, self.dropout, self.training) * mask
        return states


def mask_of(lengths: Tensor, padded: Tensor) -> Tensor:
    """(batch, length), true where a padded batch is real, on its device."""
    places = torch.arange(padded.shape[1], device=padded.device)
    return places < send(lengths, padded.device)[:, None]


def mean_of(states: Tensor, lengths: Tensor) -> Tensor:
    """(texts, width), the mean of the states of each text; lengths are on the host."""
    real = mask_of(lengths, states)
    return (states.float() * real[..., None]).sum(1) / real.sum(1, keepdim=True).clamp(min=1)


def _keras_start(layer: nn.Module) -> None:
    """The first values that Keras gives a recurrent layer: Glorot for inputs, orthogonal for states, 0 for biases."""
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_ih"):
            nn.init.xavier_uniform_(parameter)
        elif name.startswith("weight_hh"):
            nn.init.orthogonal_(parameter)
        else:
            nn.init.zeros_(parameter)
            if isinstance(layer, nn.LSTM) and name.startswith("bias_ih"):
                with torch.no_grad():
                    parameter[layer.hidden_size : 2 * layer.hidden_size] = 1  # the forget gate starts open
