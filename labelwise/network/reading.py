"""How labels read a document: which of its states they look at, and how the states are shown to them.

Padding is never looked at: all of these go by the lengths of the documents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelwise.network.attention import attend, attention_weights
from labelwise.network.label_encoders import dense
from labelwise.network.token_encoders import mask_of


class Attention(nn.Module, ABC):
    """A way for labels to read states."""

    mixes = True  # what a label reads is a weighted mean of states

    def keys(self, states: Tensor) -> Tensor:
        """(batch, length, key width), what queries are compared with."""
        return states

    @abstractmethod
    def dot(self, states: Tensor, query: Tensor, output: Tensor, lengths: Tensor) -> Tensor:
        """(batch, labels), output vector times what the label reads."""

    @abstractmethod
    def summaries(self, keys: Tensor, states: Tensor, query: Tensor, lengths: Tensor) -> Tensor:
        """(batch, labels, width), what each label reads."""

    @abstractmethod
    def weights(self, states: Tensor, query: Tensor, lengths: Tensor) -> Tensor:
        """(length,), how much one label looks at each token of one document."""


class LabelAttention(Attention):
    """Softmax over the document's tokens of query times state; no tanh, no bias, no scale (SPEC 1.1)."""

    def dot(self, states: Tensor, query: Tensor, output: Tensor, lengths: Tensor) -> Tensor:
        """(batch, labels), output vector times what the label reads."""
        return attend(self.keys(states), states, query, output, lengths)

    def summaries(self, keys: Tensor, states: Tensor, query: Tensor, lengths: Tensor) -> Tensor:
        """(batch, labels, width), what each label reads."""
        real = mask_of(lengths.clamp(min=1), keys)  # a document without words reads one zero state
        scores = torch.matmul(query, keys.transpose(1, 2)).float()  # (batch, labels, length)
        weights = scores.masked_fill(~real[:, None], -torch.inf).softmax(-1)
        return torch.matmul(weights.to(states.dtype), states)

    def weights(self, states: Tensor, query: Tensor, lengths: Tensor) -> Tensor:
        """(length,), how much one label looks at each token of one document."""
        return attention_weights(self.keys(states)[0], query, int(lengths[0]))[0]


class ProjectedAttention(LabelAttention):
    """Label attention on tanh(W h + b), so that states and label vectors need not be alike (SPEC 1.6)."""

    def __init__(self, width: int, key_width: int) -> None:
        super().__init__()
        self.project = dense(width, key_width)

    def keys(self, states: Tensor) -> Tensor:
        """(batch, length, key width), what queries are compared with."""
        return torch.tanh(self.project(states))


class AverageWithFirst(Attention):
    """What another attention reads, averaged with the document's first state (SPEC 1.4)."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def keys(self, states: Tensor) -> Tensor:
        """(batch, length, key width), those of the other."""
        return self.attention.keys(states)

    def dot(self, states: Tensor, query: Tensor, output: Tensor, lengths: Tensor) -> Tensor:
        """(batch, labels), output vector times the average."""
        return (self.attention.dot(states, query, output, lengths) + functional.linear(states[:, 0], output)) / 2

    def summaries(self, keys: Tensor, states: Tensor, query: Tensor, lengths: Tensor) -> Tensor:
        """(batch, labels, width), the averages."""
        return (self.attention.summaries(keys, states, query, lengths) + states[:, :1]) / 2

    def weights(self, states: Tensor, query: Tensor, lengths: Tensor) -> Tensor:
        """(length,), half of it for the first token."""
        weights = self.attention.weights(states, query, lengths) / 2
        weights[:1] += 0.5
        return weights


class FirstTokens(Attention):
    """Every label reads the largest of the first states of a document's segments, component by component (SPEC 1.5)."""

    mixes = False

    def __init__(self, segment: int) -> None:
        super().__init__()
        self.segment = segment

    def dot(self, states: Tensor, query: Tensor, output: Tensor, lengths: Tensor) -> Tensor:
        """(batch, labels), output vector times the largest."""
        return functional.linear(self._largest(states, lengths), output)

    def summaries(self, keys: Tensor, states: Tensor, query: Tensor, lengths: Tensor) -> Tensor:
        """(batch, labels, width), the same for each label."""
        return self._largest(states, lengths)[:, None].expand(-1, len(query), -1)

    def weights(self, states: Tensor, query: Tensor, lengths: Tensor) -> Tensor:
        """(length,), alike for the first tokens of all segments, which is as near as one number per token comes."""
        weights = states.new_zeros(states.shape[1])
        weights[: max(1, int(lengths[0])) : self.segment] = 1
        return weights / weights.sum()

    def _largest(self, states: Tensor, lengths: Tensor) -> Tensor:
        """(batch, width); a segment that a document has not is not looked at."""
        firsts = states[:, :: self.segment]
        real = mask_of(((lengths - 1) // self.segment + 1).clamp(min=1), firsts)
        return firsts.masked_fill(~real[..., None], -torch.inf).amax(1)


class FirstToken(Attention):
    """Every label reads the first state, and nothing else (SPEC 1.3)."""

    def dot(self, states: Tensor, query: Tensor, output: Tensor, lengths: Tensor) -> Tensor:
        """(batch, labels), output vector times the first state."""
        return functional.linear(states[:, 0], output)

    def summaries(self, keys: Tensor, states: Tensor, query: Tensor, lengths: Tensor) -> Tensor:
        """(batch, labels, width), the first state for each label."""
        return states[:, :1].expand(-1, len(query), -1)

    def weights(self, states: Tensor, query: Tensor, lengths: Tensor) -> Tensor:
        """(length,), 1 for the first token."""
        weights = states.new_zeros(states.shape[1])
        weights[:1] = 1
        return weights
