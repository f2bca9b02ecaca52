"""A transformer's kernels recorded on a GPU and played back: two launches a step in the place of a thousand.

Python needs longer to launch the kernels of a transformer than a large GPU needs to run them. A recording holds for one shape of
its inputs, so lengths are rounded up; shapes that come seldom are not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

STEP = 32  # lengths are multiples of it on a GPU: few shapes, and rows that its kernels like
USUAL = 3  # times that a shape is seen before it is recorded: recording takes as long as some steps
MOST = 64  # recordings

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
        weights = {name: weight.to(torch.bfloat16) for name, weight in self.model.named_parameters()}
        with torch.autocast(numbers.device.type, enabled=False), attention_kernels(numbers.shape[1], mask is not None):
            told = {"input_ids": numbers, "attention_mask": mask, **placed(places)}
            return functional_call(self.model, weights, kwargs=told).last_hidden_state


class Recordings:
    """Recorded forward and backward passes of a transformer in training, by shape.

    They share their memory: a pass must be over, its gradients used up, before the next begins. Rows without padding have a mask
    too: without one, some versions of the library make their own while a recording runs, and one that no fast kernel takes.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.seen = model, Counter[torch.Size]()
        self.recorded: dict[torch.Size, nn.Module] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, numbers: Tensor, mask: Tensor | None) -> Tensor:
        """What `Rounded` gives for them."""
        assert mask is not None
        shape = numbers.shape
        if shape not in self.recorded:
            self.seen[shape] += 1
            if self.seen[shape] < USUAL or len(self.recorded) == MOST:
                found: Tensor = Rounded(self.model)(numbers, mask)
                return found
            self.recorded[shape] = self._record(numbers, mask)
        played: Tensor = self.recorded[shape](numbers, mask)
        return played

    def _record(self, numbers: Tensor, mask: Tensor) -> nn.Module:
        """Recording draws random numbers; the next step's are the same as without it."""
        state = torch.cuda.get_rng_state()
        with torch.autocast("cuda", enabled=False):
            made: nn.Module = torch.cuda.make_graphed_callables(  # type: ignore[assignment]
                Rounded(self.model), (numbers.clone(), mask.clone()), allow_unused_input=True, pool=self.pool
            )
        torch.cuda.set_rng_state(state)
        return made
