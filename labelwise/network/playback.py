"""A transformer's kernels recorded on a GPU and played back: two launches a step in the place of a thousand.

Python needs longer to launch the kernels of a transformer than a large GPU needs to run them. A recording holds for one shape of
its inputs, so lengths are rounded up; shapes that come seldom are not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

STEP = 32  # lengths are multiples of it on a GPU: few shapes, and rows that its kernels like
USUAL = 3  # times that a shape is seen before it is recorded: recording takes as long as some steps
MOST = 64  # recordings
ROOM = 0.25  # of a GPU's memory that recordings leave free: each keeps gradients of all weights for itself

# cuDNN's kernels are the fastest on Hopper, but from torch 2.11 on they may give gradients that are not numbers where there is a
# mask and lengths leave this rest (pytorch/pytorch#196678).
BAD, WHOLE = 64, 128
OTHERS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def good_length(longest: int, most: int) -> int:
    """The length to fill rows up to, at most `most`."""
    length = -(-longest // STEP) * STEP
    # Up to 64, attention is so small a part that half as many tokens again would cost more than other kernels do.
    return min(length + STEP if length % WHOLE == BAD and length > BAD else length, most)


@contextmanager
def attention_kernels(length: int, masked: bool) -> Iterator[None]:
    """Where attention over that many tokens is computed by kernels that can be relied on."""
    if masked and length % WHOLE == BAD:
        with sdpa_kernel(OTHERS):
            yield
    else:
        yield


def placed(places: Tensor | None) -> dict[str, Tensor]:
    """What a transformer is told of the places of its tokens: nothing, if they are one after the other."""
    return {} if places is None else {"position_ids": places}


class Rounded(nn.Module):
    """A transformer with its weights in bfloat16, all of it.

    Autocast keeps sums and norms in float32 and turns them back and forth between products. Here weights are rounded once for
    each step, and those that Adam changes stay as they are.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, numbers: Tensor, mask: Tensor | None = None, places: Tensor | None = None) -> Tensor:
        """(batch, length, width), the last states."""
        return self.states(self.weights(), numbers, mask, places)

    def weights(self) -> dict[str, Tensor]:
        """All of them, rounded."""
        return {name: weight.to(torch.bfloat16) for name, weight in self.model.named_parameters()}

    def states(self, weights: dict[str, Tensor], numbers: Tensor, mask: Tensor | None, places: Tensor | None = None) -> Tensor:
        """(batch, length, width), the last states with these weights."""
        with torch.autocast(numbers.device.type, enabled=False), attention_kernels(numbers.shape[1], mask is not None):
            told = {"input_ids": numbers, "attention_mask": mask, **placed(places)}
            found: Tensor = functional_call(self.model, weights, kwargs=told).last_hidden_state
            return found


class Together(Rounded):
    """The same for rows of documents and rows of label texts, one after the other with the same weights."""

    def forward(self, numbers: Tensor, mask: Tensor, texts: Tensor, sees: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """The last states of both."""
        weights = self.weights()
        return self.states(weights, numbers, mask), self.states(weights, texts, sees, places)


class Recordings:
    """Recorded forward and backward passes of a transformer in training, by shape.

    They share their memory: a pass must be over, its gradients used up, before the next begins. That is why documents and label
    texts, where these are read too, go through one recording together. Rows without padding have a mask too: without one, some
    versions of the library make their own while a recording runs, and one that no fast kernel takes.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.seen = model, Counter[tuple[torch.Size, ...]]()
        self.recorded: dict[tuple[torch.Size, ...], nn.Module] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, *rows: Any) -> Any:
        """What `Rounded` gives for numbers and their mask, or `Together` for those of texts as well."""
        shapes = tuple(given.shape for given in rows)
        played = self.recorded.get(shapes)
        if played is None:
            self.seen[shapes] += 1
            played = (Rounded if len(rows) == 2 else Together)(self.model)
            if self.seen[shapes] >= USUAL and len(self.recorded) < MOST and _room():
                played = self.recorded[shapes] = self._record(played, rows)
        return played(*rows)

    def _record(self, what: nn.Module, rows: tuple[Tensor, ...]) -> nn.Module:
        """Recording draws random numbers; the next step's are the same as without it."""
        state = torch.cuda.get_rng_state()
        with torch.autocast("cuda", enabled=False):
            made: nn.Module = torch.cuda.make_graphed_callables(  # type: ignore[assignment]
                what, tuple(given.clone() for given in rows), allow_unused_input=True, pool=self.pool
            )
        torch.cuda.set_rng_state(state)
        return made


def _room() -> bool:
    """Whether there is memory for another recording."""
    free, whole = torch.cuda.mem_get_info()
    return free >= ROOM * whole
