"""Labels that are read and learned: a label's text goes through the documents' encoder, and training adds a residual to it.

A label that no training document has is scored by what it says. One with a thousand documents moves away from its text as far as
they ask. What is read and the states of documents have length 1, so that at first a score is the likeness of two texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelwise.network.label_encoders import LabelEncoder, LabelVectors
from labelwise.network.transfer import send

AT_ONCE = 2048  # texts that are read at once where nothing is trained
SCALE, SHIFT = 20.0, -8.0  # a likeness of 0.4 starts at even odds, unless documents say something else

Say = Callable[[Tensor, Tensor], Tensor]  # (texts, longest) numbers, (texts,) lengths on the host → (texts, width)


class Texts(NamedTuple):
    """What the labels of a label set say, and where training has added to it."""

    numbers: Tensor  # (labels, longest), filled up with 0
    residuals: Tensor  # (labels,), the row of each label's residual, -1 for one that training has not seen
    lengths: Tensor  # (labels,), on the host always

    def to(self, device: torch.device) -> Texts:
        """The same on another device."""
        return Texts(self.numbers.to(device), self.residuals.to(device), self.lengths)

    def at(self, places: Tensor) -> Texts:
        """Those of some labels; from places on a GPU, lengths have to wait for it."""
        there = send(places, self.numbers.device)
        return Texts(self.numbers[there], self.residuals[there], self.lengths[places.cpu()])


def unit(said: Tensor) -> Tensor:
    """The same of length 1."""
    return functional.normalize(said.float(), dim=-1)


class ReadLabels(LabelEncoder):
    """Query and output are maps of what a label's text says, the identity at first, plus a residual, nothing at first.

    Residuals learn faster than the encoder, and would leave it little to learn that new labels could gain by. So scores by text
    alone have a loss of their own, and a share in that of the whole.
    """

    unit = True

    def __init__(
        self,
        labels: int,
        width: int,
        said: int,
        say: Say,
        *,
        text_only: float = 0.0,
        fixed: bool = False,
    ) -> None:
        super().__init__()
        self.width = self.output_width = width
        self.say, self.text_only, self.fixed, self.texts, self.kept = say, text_only, fixed, None, None
        self.to_query, self.to_output = (nn.Linear(said, width, bias=False) for _ in range(2))
        for layer in (self.to_query, self.to_output):
            nn.init.eye_(layer.weight)
        self.sharpness, self.scale, self.shift = (nn.Parameter(torch.zeros(())) for _ in range(3))
        self.query, self.output = (nn.Parameter(torch.zeros(labels, width)) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(labels))
        self.begin(1.0, SCALE, SHIFT)

    texts: Texts | None
    kept: Tensor | None  # (labels, said), where what they say does not change
    usual: float  # first logit of any label

    def describe(self, texts: Texts) -> None:
        """Say which labels there are; may be called again with others."""
        self.texts, self.kept = texts, None

    @torch.no_grad()
    def begin(self, sharpness: float, scale: float, shift: float, usual: float = 0.0) -> None:
        """How sharply labels look at words, and the line from likeness to logit; usual is that of any label."""
        self.sharpness.fill_(math.log(sharpness))
        self.scale.fill_(math.log(scale))
        self.shift.fill_(shift)
        self.usual = shift + scale * usual

    def start_at(self, counts: np.ndarray, documents: int) -> None:
        """Let the biases of seen labels start where documents like any other have the odds of the label's share of them."""
        odds = (counts + 0.5) / (documents - counts + 0.5)
        with torch.no_grad():
            self.bias.copy_(torch.from_numpy(np.where(counts > 0, np.log(odds) - self.usual, 0)))

    def gentle(self) -> Iterable[Tensor]:
        """The maps start from something good, as the encoder does."""
        return self.to_query.weight, self.to_output.weight

    def forward(self, candidates: Tensor | None = None) -> LabelVectors:
        """Vectors of length about 1, scaled, and one bias for all plus each label's own."""
        texts = self.texts_of(candidates)
        return self.vectors(texts, self.read(texts, candidates))

    def texts_of(self, candidates: Tensor | None) -> Texts:
        """What some labels say, or all."""
        if self.texts is None:
            raise RuntimeError("describe(texts) comes before the first use")
        return self.texts if candidates is None else self.texts.at(candidates)

    def vectors(self, texts: Texts, said: Tensor, *, learned: bool = True) -> LabelVectors:
        """Those of labels whose texts were read as `said`, of any length; or what they would be for new labels."""
        said = unit(said)
        query, output, bias = self.to_query(said), self.to_output(said), self.shift.repeat(len(said))
        if learned:
            known, rows = texts.residuals >= 0, texts.residuals.clamp(min=0)
            query, output = (read + known[:, None] * own[rows] for read, own in ((query, self.query), (output, self.output)))
            bias = bias + known * self.bias[rows]
        return LabelVectors(self.sharpness.exp() * query, self.scale.exp() * output, bias)

    def sources(self, label: int, summary: Tensor) -> dict[str, float]:
        """What a label's logit is the sum of, for what it read of a document."""
        assert self.texts is not None
        own = self.texts.at(torch.tensor([label]))
        with torch.no_grad():
            read = float(self.scale.exp() * (self.to_output(unit(self._read(own)))[0] @ summary))
            row, known = int(own.residuals[0].clamp(min=0)), bool(own.residuals[0] >= 0)
            learned = float(self.scale.exp() * (self.output[row] @ summary) + self.bias[row]) if known else 0.0
        return {"its text": read, "what training added": learned, "what all labels share": float(self.shift.detach())}

    def read(self, texts: Texts, candidates: Tensor | None) -> Tensor:
        """(labels, said), what the candidates' texts say, read only once where the encoder does not learn."""
        if not self.fixed:
            return self._read(texts)
        if self.kept is None:
            assert self.texts is not None
            with torch.no_grad():
                self.kept = self._read(self.texts)
        return self.kept if candidates is None else self.kept[send(candidates, self.kept.device)]

    def _read(self, texts: Texts) -> Tensor:
        """(labels, said), of any length."""
        if torch.is_grad_enabled():
            said = self.say(texts.numbers, texts.lengths)
        else:
            parts = zip(torch.split(texts.numbers, AT_ONCE), torch.split(texts.lengths, AT_ONCE), strict=True)
            said = torch.cat([self.say(*part) for part in parts])
        return said
