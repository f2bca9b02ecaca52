"""Small tensors on their way to a GPU."""

from __future__ import annotations

import torch
from torch import Tensor


def send(values: Tensor, device: torch.device) -> Tensor:
    """The same on another device, without waiting for what it still has to do.

    From pinned memory, which is kept until a GPU has read it: other memory may be reused before, and the GPU would read that.
    """
    if device.type != "cuda" or values.is_cuda:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
