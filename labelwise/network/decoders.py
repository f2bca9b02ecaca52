"""Decoders: what a label makes of the document it has read.

A dot product needs no summary of the document per label (`attend` fuses it with the attention). The others do, so they go label
chunk by label chunk and make the summaries again in the backward pass: memory does not grow with the labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from labelwise.network.attention import attend_loss
from labelwise.network.label_encoders import LabelVectors, LearnedLabels, dense
from labelwise.network.reading import Attention, LabelAttention

Pick = Callable[[slice], LabelVectors]  # some labels, or some candidates of each document
Judge = Callable[[Tensor, LabelVectors], Tensor]  # (batch, labels, width) summaries, and their labels → (batch, labels) logits

CHUNK = {"cpu": 1 << 22, "cuda": 1 << 27, "mps": 1 << 25}  # numbers of one chunk's widest tensor


class Decoder(nn.Module, ABC):
    """Label-wise reading of states to logits."""

    widest: int  # of the vectors per document and label that judging makes

    def forward(self, attention: Attention, states: Tensor, labels: LabelVectors, lengths: Tensor) -> Tensor:
        """(batch, labels) logits."""
        return self._in_chunks(self.judge, attention, states, states, len(labels.query), labels.at, lengths)

    def among(self, attention: Attention, states: Tensor, labels: LearnedLabels, candidates: Tensor, lengths: Tensor) -> Tensor:
        """(batch, candidates) logits of each document's own candidates, which are numbers of labels."""
        needed, places = torch.unique(candidates, return_inverse=True)
        vectors = labels.rows(needed)

        def pick(columns: slice) -> LabelVectors:
            return vectors.spread(places[:, columns])

        return self._in_chunks(self.judge, attention, states, states, candidates.shape[1], pick, lengths)

    def _in_chunks(
        self, judge: Judge, attention: Attention, states: Tensor, values: Tensor, count: int, pick: Pick, lengths: Tensor
    ) -> Tensor:
        """Logits from summaries of the values, some labels at a time."""
        keys = attention.keys(states)
        step = max(1, CHUNK[states.device.type] // (len(states) * max(self.widest, *states.shape[1:])))

        def chunk(columns: slice) -> Tensor:
            labels = pick(columns)
            return judge(attention.summaries(keys, values, labels.query, lengths), labels)

        run = chunk
        if torch.is_grad_enabled() and step < count:
            run = partial(checkpoint, chunk, use_reentrant=False, preserve_rng_state=False)
        pieces = [run(slice(start, start + step)) for start in range(0, count, step)]
        return torch.cat([states.new_zeros(len(states), 0), *pieces], dim=1)

    @abstractmethod
    def judge(self, summaries: Tensor, labels: LabelVectors) -> Tensor:
        """(batch, labels) logits from (batch, labels, width) summaries."""

    def loss(self, attention: Attention, states: Tensor, labels: LabelVectors, lengths: Tensor, targets: Tensor) -> Tensor:
        """Mean binary cross-entropy, in float32."""
        logits = self(attention, states, labels, lengths).float()
        return functional.binary_cross_entropy_with_logits(logits, targets)


class DotDecoder(Decoder):
    """Output vector times summary, plus a bias where the label has one (SPEC 1.1, 1.7)."""

    widest = 0

    def forward(self, attention: Attention, states: Tensor, labels: LabelVectors, lengths: Tensor) -> Tensor:
        """(batch, labels) logits; no summary is made."""
        return _biased(attention.dot(states, labels.query, labels.output, lengths), labels)

    def loss(self, attention: Attention, states: Tensor, labels: LabelVectors, lengths: Tensor, targets: Tensor) -> Tensor:
        """Mean binary cross-entropy; label attention knows a way in one sweep."""
        if not isinstance(attention, LabelAttention):
            return super().loss(attention, states, labels, lengths, targets)
        bias = labels.query.new_zeros(len(labels.query)) if labels.bias is None else labels.bias
        return attend_loss(attention.keys(states), states, labels.query, labels.output, bias, lengths, targets)

    def judge(self, summaries: Tensor, labels: LabelVectors) -> Tensor:
        """(batch, labels) logits from (batch, labels, width) summaries."""
        return _biased((summaries * labels.output).sum(-1), labels)


class TanhDecoder(Decoder):
    """Output vector times tanh of the projected summary (SPEC 1.8)."""

    def __init__(self, width: int, output_width: int) -> None:
        super().__init__()
        self.project, self.widest = dense(width, output_width), output_width

    def forward(self, attention: Attention, states: Tensor, labels: LabelVectors, lengths: Tensor) -> Tensor:
        """(batch, labels) logits; a mean of projected states is the mean's projection, and there are fewer states than labels."""
        if not attention.mixes:
            return super().forward(attention, states, labels, lengths)
        projected = functional.linear(states, self.project.weight)
        return self._in_chunks(self._judge, attention, states, projected, len(labels.query), labels.at, lengths)

    def judge(self, summaries: Tensor, labels: LabelVectors) -> Tensor:
        """(batch, labels) logits from (batch, labels, width) summaries."""
        return self._judge(functional.linear(summaries, self.project.weight), labels)

    def _judge(self, projected: Tensor, labels: LabelVectors) -> Tensor:
        projected = torch.tanh(projected + self.project.bias.to(projected.dtype))
        # Added up in float32: in bfloat16 logits of many labels would be equal.
        return _biased((projected * labels.output.to(projected.dtype)).sum(-1, dtype=torch.float32), labels)


class SharedDecoder(Decoder):
    """One network for all labels; nothing but the query tells them apart (SPEC 2.4)."""

    def __init__(self, width: int, hidden: Sequence[int]) -> None:
        super().__init__()
        sizes = [width, *hidden]
        self.layers = nn.ModuleList(dense(before, after) for before, after in pairwise(sizes))
        self.last, self.widest = dense(sizes[-1], 1), max(sizes)

    def judge(self, summaries: Tensor, labels: LabelVectors) -> Tensor:
        """(batch, labels) logits from (batch, labels, width) summaries."""
        for layer in self.layers:
            summaries = torch.relu(layer(summaries))
        with torch.autocast(summaries.device.type, enabled=False):  # in bfloat16 logits of many labels would be equal
            return self.last(summaries.to(self.last.weight.dtype))[..., 0]


def _biased(logits: Tensor, labels: LabelVectors) -> Tensor:
    return logits if labels.bias is None else logits + labels.bias
