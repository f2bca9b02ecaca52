"""One network for all neural methods: a token encoder, a label encoder, an attention and a decoder (house plan, section 4).

A label has two vectors: a query, how it reads the document, and an output, how it judges what it read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelwise.network.decoders import Decoder
from labelwise.network.label_encoders import LabelEncoder, LabelVectors
from labelwise.network.read_labels import ReadLabels
from labelwise.network.reading import Attention, LabelAttention
from labelwise.network.token_encoders import Slopes, TokenEncoder, Tokens


class LabelNetwork(nn.Module):
    """Documents and labels in, a logit for each pair out."""

    def __init__(self, token_encoder: TokenEncoder, label_encoder: LabelEncoder, attention: Attention, decoder: Decoder) -> None:
        super().__init__()
        self.token_encoder, self.label_encoder = token_encoder, label_encoder
        self.attention, self.decoder = attention, decoder

    def forward(self, tokens: Tokens, candidates: Tensor | None = None, labels: LabelVectors | None = None) -> Tensor:
        """(batch, labels) logits; `candidates` are the columns wanted, `labels` saves encoding the same labels again."""
        states = self.states(tokens)  # (batch, length, width)
        vectors = self.label_encoder(candidates) if labels is None else labels
        return self.decoder(self.attention, states, vectors, tokens.lengths)

    def loss(self, tokens: Tokens, targets: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Mean binary cross-entropy over documents and labels; targets are those of the columns wanted.

        Where labels are read, a share of it may be that of scores by their texts alone.
        """
        labels = self.label_encoder
        if not isinstance(labels, ReadLabels):
            return self.decoder.loss(self.attention, self.states(tokens), labels(candidates), tokens.lengths, targets)
        texts = labels.texts_of(candidates)
        if labels.fixed:
            states, said = self.token_encoder(tokens), labels.read(texts, candidates)
        else:
            states, said = self.token_encoder.both(tokens, texts.numbers, texts.lengths)
        states = functional.normalize(states, dim=-1)
        loss = self.decoder.loss(self.attention, states, labels.vectors(texts, said), tokens.lengths, targets)
        if not labels.text_only:
            return loss
        alone = self.decoder.loss(self.attention, states, labels.vectors(texts, said, learned=False), tokens.lengths, targets)
        return loss.lerp(alone, labels.text_only)

    def contributions(self, tokens: Tokens, label: int, labels: LabelVectors) -> Contributions:
        """What each token of one document adds to a label's logit: its attention × what the label makes of its state.

        For a dot decoder the parts sum to the logit less the bias; after a tanh they follow the gradient. Where labels read the
        first state of a transformer only, the parts are slopes by the tokens' vectors × the vectors.
        """
        one = labels.at(slice(label, label + 1))
        if isinstance(self.token_encoder, Slopes) and not isinstance(self.attention, LabelAttention):
            return Contributions(
                *self.token_encoder.contributions(
                    tokens, lambda states: self.decoder(self.attention, self._read(states), one, tokens.lengths)[0, 0]
                )
            )
        with torch.no_grad():
            states = self.states(tokens)[:, : int(tokens.lengths[0])]
            weights = self.attention.weights(states, one.query, tokens.lengths)  # (length,)
        summary = (weights @ states[0]).requires_grad_()
        logit = self.decoder.judge(summary[None, None], one)[0, 0]
        (slope,) = torch.autograd.grad(logit, summary)
        return Contributions(float(logit.detach()), (weights * (states[0] @ slope)).tolist(), summary.detach())

    def states(self, tokens: Tokens) -> Tensor:
        """What labels read, of length 1 where their vectors are made for that."""
        return self._read(self.token_encoder(tokens))

    def _read(self, states: Tensor) -> Tensor:
        return functional.normalize(states, dim=-1) if self.label_encoder.unit else states

    def trainable(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


class Contributions(NamedTuple):
    """A logit, and the part of each token in it."""

    logit: float
    parts: list[float]
    summary: Tensor | None = None  # (width,), what the label read, where that is a mean of states
