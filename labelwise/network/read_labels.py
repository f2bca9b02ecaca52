"""Labels that are read and learned: a label's text goes through the documents' encoder, and training adds a residual to it.

A label that no training document has is scored by what it says. One with a thousand documents moves away from its text as far as
they ask. What is read and the states of documents have length 1, so that at first a score is the likeness of two texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelwise.network.label_encoders import LabelEncoder, LabelVectors

AT_ONCE = 2048  # texts that are read at once where nothing is trained
SCALE, SHIFT = 20.0, -8.0  # a likeness of 0.4 starts at even odds

Say = Callable[[Tensor, Tensor], Tensor]  # (texts, longest) numbers, (texts,) lengths → (texts, width)


class Texts(NamedTuple):
    """What the labels of a label set say, and where training has added to it."""

    numbers: Tensor  # (labels, longest), filled up with 0
    lengths: Tensor  # (labels,), on the device too
    residuals: Tensor  # (labels,), the row of each label's residual, -1 for one that training has not seen

    def to(self, device: torch.device) -> Texts:
        """The same on another device."""
        return Texts(*(tensor.to(device) for tensor in self))

    def at(self, places: Tensor) -> Texts:
        """Those of some labels."""
        return Texts(*(tensor[places] for tensor in self))


class ReadLabels(LabelEncoder):
    """Query and output are maps of what a label's text says, the identity at first, plus a residual, nothing at first.

    Residuals that are dropped at random in training keep the scores by text alone honest. Reading takes time, so a step may read
    the first `reads` candidates only: the others are taken as they were read last.
    """

    unit = True

    def __init__(
        self,
        labels: int,
        width: int,
        said: int,
        say: Say,
        *,
        sharpness: float = 1.0,
        dropout: float = 0.0,
        reads: int = 0,
    ) -> None:
        super().__init__()
        self.width = self.output_width = width
        self.say, self.dropout, self.reads, self.texts = say, dropout, reads, None
        self.to_query, self.to_output = (nn.Linear(said, width, bias=False) for _ in range(2))
        for layer in (self.to_query, self.to_output):
            nn.init.eye_(layer.weight)
        self.sharpness, self.scale = (nn.Parameter(torch.tensor(math.log(first))) for first in (sharpness, SCALE))
        self.shift = nn.Parameter(torch.tensor(SHIFT))
        self.query, self.output = (nn.Parameter(torch.zeros(labels, width)) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(labels))
        self.register_buffer("said", torch.zeros(labels if reads else 0, said))  # by each label when it was read last

    said: Tensor
    texts: Texts | None

    def describe(self, texts: Texts) -> None:
        """Say which labels there are; may be called again with others."""
        self.texts = texts

    def gentle(self) -> Iterable[Tensor]:
        """The maps start from something good, as the encoder does."""
        return self.to_query.weight, self.to_output.weight

    def forward(self, candidates: Tensor | None = None) -> LabelVectors:
        """Vectors of length about 1, scaled, and one bias for all plus each label's own."""
        if self.texts is None:
            raise RuntimeError("describe(texts) comes before the first use")
        texts = self.texts if candidates is None else self.texts.at(candidates)
        said, known = self._read(texts), texts.residuals >= 0
        if self.training and self.dropout:
            known = known & (torch.rand(len(known), device=known.device) >= self.dropout)
        rows = texts.residuals.clamp(min=0)
        query, output = (known[:, None] * table[rows] for table in (self.query, self.output))
        return LabelVectors(
            self.sharpness.exp() * (self.to_query(said) + query),
            self.scale.exp() * (self.to_output(said) + output),
            self.shift + known * self.bias[rows],
        )

    @torch.no_grad()
    def refresh(self) -> None:
        """Read all labels of the training anew."""
        if self.reads:
            assert self.texts is not None
            self.said[self.texts.residuals] = self._read(self.texts)

    def _read(self, texts: Texts) -> Tensor:
        """(labels, said) of length 1."""
        if not torch.is_grad_enabled():
            parts = zip(torch.split(texts.numbers, AT_ONCE), torch.split(texts.lengths, AT_ONCE), strict=True)
            return functional.normalize(torch.cat([self.say(*part) for part in parts]).float(), dim=-1)
        first = self.reads or len(texts.lengths)
        read = functional.normalize(self.say(texts.numbers[:first], texts.lengths[:first]).float(), dim=-1)
        if len(read) == len(texts.lengths):
            return read
        others = self.said[texts.residuals[first:]]
        self.said[texts.residuals[:first]] = read.detach()
        return torch.cat([read, others])
