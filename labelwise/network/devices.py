"""Where a network runs: which device, in what precision, and what to do when its memory does not suffice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import numpy as np
import torch

from labelwise.errors import BadSettings, LabelwiseError


def choose_device(name: str) -> torch.device:
    """auto takes CUDA, then MPS, then the CPU; a device that is not there is an error."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    name = next(kind for kind in there if there[kind]) if name == "auto" else name
    if not there.get(name.partition(":")[0], False):
        known = ", ".join(kind for kind in there if there[kind])
        raise BadSettings(f"device {name!r} is not to be had here (there is: {known}); use device=auto")
    found = torch.device(name)
    return found if found.type == "cpu" or found.index is not None else torch.device(name, 0)


def precision(asked: str, device: torch.device, *, predicting: bool = False) -> AbstractContextManager[None]:
    """Where matrix products are made in the precision that is asked for; `predicting` is said of transformers only."""
    rounded = settled_precision(asked, device, predicting=predicting) == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16) if rounded else nullcontext()


def settled_precision(asked: str, device: torch.device, *, predicting: bool = False) -> str:
    """The same by its name, auto settled."""
    if asked != "auto":
        return asked
    faster = device.type == "cuda" or (predicting and device.type == "cpu" and _cpu_is_faster_in_bfloat16())
    return "bfloat16" if faster else "float32"


@cache
def _cpu_is_faster_in_bfloat16() -> bool:
    """Whether the CPU multiplies in bfloat16 by itself; torch does not say so in public yet."""
    asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(ask() for ask in asked if ask is not None)


@contextmanager
def memory_advice(device: torch.device, lengths: np.ndarray) -> Iterator[None]:
    """Say what to lower when memory does not suffice."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise LabelwiseError(
            f"out of memory on {device} with {len(lengths)} documents of up to {lengths.max()} tokens: lower training.batch, "
            f"words.max_length (of a transformer encoder.segment or segments), or raise training.accumulate "
            f"({str(error).splitlines()[0]})"
        ) from None
