"""Many short texts in few rows of a transformer: several stand in a row, and none sees the others.

Label texts are a few tokens long, the longest among them many more. Each in a row of its own, most of the work would be padding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from labelwise.network.transfer import send

ROW, WIDE = 64, 128  # tokens: short enough that attention within a row costs little, and on a GPU as its kernels like
ROWS = 16  # their number is a multiple of it where they are recorded


class Packed(NamedTuple):
    """Where texts stand in rows; on the device."""

    numbers: Tensor  # (rows, row), padding between texts that fill no row
    places: Tensor  # (rows, row), a token's place in its text
    mask: Tensor  # (rows, 1, row, row), true where one token sees another
    parts: Tensor  # (rows, most texts of a row, row), each token's share in the mean of its text
    slots: Tensor  # (texts,), where each text's mean stands among (rows × most texts of a row)

    def means(self, states: Tensor) -> Tensor:
        """(texts, width), the mean of the states of each text; rows beyond these are left out."""
        found = torch.bmm(self.parts, states[: len(self.parts)].float())
        return found.flatten(0, 1)[self.slots]

    def rounded(self, padding: int) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers, mask and places with rows of padding, so that few numbers of rows occur."""
        more = -len(self.numbers) % ROWS
        wider = (
            (self.numbers, (0, 0, 0, more), padding),
            (self.mask, (0, 0, 0, 0, 0, 0, 0, more), True),
            (self.places, (0, 0, 0, more), 0),
        )
        numbers, mask, places = (pad(given, rows, value=value) for given, rows, value in wider)
        return numbers, mask, places


def pack(numbers: Tensor, lengths: Tensor, padding: int, least: int = 0) -> Packed:
    """Put texts (texts, longest), of lengths that are known on the host, into rows of `least` tokens, if no text is longer."""
    sizes, device = lengths.numpy(), numbers.device
    width = max(least or (WIDE if numbers.is_cuda else ROW), int(lengths.max()))
    order = np.argsort(-sizes, kind="stable")
    row, column, slot = _next_fit(sizes[order].tolist(), width)
    rows, most = int(row[-1]) + 1, int(slot.max()) + 1
    slots = np.empty_like(slot)
    slots[order] = row * most + slot
    texts = np.repeat(order, sizes[order])  # of each token, as are the next two
    inside = np.arange(len(texts)) - np.repeat(np.cumsum(sizes[order]) - sizes[order], sizes[order])
    places = np.repeat(row * width + column, sizes[order]) + inside
    parts = slots[texts] * width + places % width
    text, place, to, part, slot_of = (send(torch.from_numpy(found), device) for found in (texts, inside, places, parts, slots))
    own, flat, within = (torch.full((rows * width,), first, device=device) for first in (-1, padding, 0))
    own[to], flat[to], within[to] = text, numbers[text, place], place
    own, flat, within = (found.view(rows, width) for found in (own, flat, within))
    shares = torch.zeros(rows * most * width, device=device)
    shares[part] = 1 / send(lengths, device)[text].float()
    return Packed(flat, within, (own[:, :, None] == own[:, None])[:, None], shares.view(rows, most, width), slot_of)


def _next_fit(sizes: list[int], width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, first column and number within the row of each text; the longest come first, so rows are nearly full."""
    row = column = slot = 0
    found = []
    for size in sizes:
        if column + size > width:
            row, column, slot = row + 1, 0, 0
        found.append((row, column, slot))
        column, slot = column + size, slot + 1
    rows, columns, slots = np.array(found, dtype=np.int64).T
    return rows, columns, slots
