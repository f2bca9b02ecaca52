"""Masked language modelling: documents packed into full sequences, what a token may look at, and which tokens are hidden.

A token looks at its own document only and positions start anew with each, so a document has the states that it would have alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

NO_TARGET = -100  # what cross_entropy passes over


class Marks(NamedTuple):
    """The tokens of a vocabulary that stand for no text, and those that do."""

    start: int
    end: int
    pad: int
    mask: int
    special: Tensor
    ordinary: Tensor


def pack(documents: Sequence[np.ndarray], marks: Marks, length: int) -> Tensor:
    """Documents one after the other, each between its marks, padded to a whole number of sequences."""
    start, end = np.array([marks.start], dtype=np.int32), np.array([marks.end], dtype=np.int32)
    parts = [part for document in documents if len(document) for part in (start, document, end)]
    flat = np.concatenate([*parts, np.zeros(0, dtype=np.int32)])  # never nothing at all
    return torch.from_numpy(np.pad(flat, (0, -len(flat) % length), constant_values=marks.pad))


def places(rows: Tensor, marks: Marks) -> tuple[Tensor, Tensor]:
    """(batch, length) positions within the document, and (batch, 1, length, length) whether two tokens are of one document."""
    first = (rows == marks.start) | (rows == marks.pad)  # padding is a document each: a token must look at something
    numbers = torch.arange(rows.shape[1], device=rows.device)
    positions = numbers - torch.where(first, numbers, 0).cummax(1).values
    document = first.cumsum(1)
    return positions, document[:, None, :, None] == document[:, None, None, :]


def hide(rows: Tensor, marks: Marks, share: float, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """What is shown instead of (batch, length) tokens, and (batch, hidden) places to predict with the tokens that stood there.

    Every row has as many places, so nothing waits for the device; where a row has fewer tokens of text there is no target.
    """
    chance = torch.rand(rows.shape, generator=generator, device=rows.device)
    text = ~torch.isin(rows, marks.special)
    chosen = chance.masked_fill(~text, -1).topk(math.ceil(share * rows.shape[1]), dim=1).indices
    wanted = torch.arange(chosen.shape[1], device=rows.device) < (share * text.sum(1, keepdim=True)).ceil()
    truth = rows.gather(1, chosen)
    fate = torch.rand(truth.shape, generator=generator, device=rows.device)
    drawn = torch.randint(len(marks.ordinary), truth.shape, generator=generator, device=rows.device)
    shown = torch.where(fate < 0.8, marks.mask, torch.where(fate < 0.9, marks.ordinary[drawn], truth))
    return rows.scatter(1, chosen, torch.where(wanted, shown, truth)), chosen, torch.where(wanted, truth, NO_TARGET)
