"""Label-wise attention and its dot product in one step: two numbers per word and label, and no vector per label.

A label's logit is the mean of output·values over a document's words, weighted by the softmax of query·keys. Tiles of words
and labels are worked on while they lie in cache, padding is never touched, and the backward pass computes the tiles again
instead of keeping them. `attend_loss` knows the loss, so it needs one pass only. attention_cuda takes over on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.checkpoint import checkpoint

TILE = 1024  # words and labels worked on at once: a score and a value for each pair, 8 MB, stay in cache
CHUNK = 2**26  # words times labels at once on a GPU without the kernels: 256 MB for each of a few tensors in float32

Upstream = Callable[[Tensor, slice, slice], Tensor]  # logits of some documents and labels → the gradient of the loss by them


def attend(keys: Tensor, values: Tensor, query: Tensor, output: Tensor, lengths: Tensor) -> Tensor:
    """Logits (batch, labels), float32 or better: the softmax of query·keys over a document's words weights output·values.

    keys (batch, length, key width), values (batch, length, width), query (labels, key width), output (labels, width),
    lengths (batch,). A document without words has logits 0.
    """
    if keys.device.type == "cpu":
        return _Attend.apply(keys, values, query, output, lengths)  # type: ignore[no-untyped-call]
    if not (keys.is_cuda and _for_kernels(keys, query, lengths)):
        with torch.autocast(keys.device.type, enabled=False):
            return _attend_in_chunks(keys, values, query, output, lengths)
    from labelwise.network.attention_cuda import AttendCuda

    with torch.cuda.device(keys.device):
        return AttendCuda.apply(*_aligned(keys, values, query, output), lengths, torch.bfloat16)  # type: ignore[no-untyped-call]


def attend_loss(
    keys: Tensor,
    values: Tensor,
    query: Tensor,
    output: Tensor,
    bias: Tensor,
    lengths: Tensor,
    targets: Tensor,
) -> Tensor:
    """Mean binary cross-entropy of `attend` plus bias (labels,) against targets (batch, labels)."""
    if torch.is_grad_enabled() and keys.device.type == "cpu":
        return _AttendLoss.apply(keys, values, query, output, bias, lengths, targets)  # type: ignore[no-untyped-call]
    if torch.is_grad_enabled() and keys.is_cuda and _for_kernels(keys, query, lengths):
        from labelwise.network.attention_cuda import LossCuda

        with torch.cuda.device(keys.device):
            inputs = _aligned(keys, values, query, output)
            return LossCuda.apply(*inputs, bias, lengths, targets, torch.bfloat16)  # type: ignore[no-untyped-call]
    logits = attend(keys, values, query, output, lengths) + bias
    return binary_cross_entropy_with_logits(logits, targets.to(logits))


def attention_weights(keys: Tensor, query: Tensor, length: int) -> Tensor:
    """How much each label looks at each word of one document: (labels, length), rows sum to 1."""
    return (query.float() @ keys[:length].float().T).softmax(-1)


def _for_kernels(keys: Tensor, query: Tensor, lengths: Tensor) -> bool:
    """Whether inputs on a GPU are for its kernels: bfloat16, there or by autocast, and something to launch them for."""
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else keys.dtype
    return dtype == torch.bfloat16 and _has_kernels(keys.device) and len(query) > 0 and bool(lengths.numpy().any())


@cache
def _has_kernels(device: torch.device) -> bool:
    """Whether the kernels of attention_cuda run here: their blocks fit the multiprocessors of Hopper and its successor."""
    major, _ = torch.cuda.get_device_capability(device)
    return major in (9, 10) and torch.__version__ >= "2.10" and find_spec("triton") is not None


def _aligned(keys: Tensor, values: Tensor, query: Tensor, output: Tensor) -> list[Tensor]:
    """The same with zero columns, so that rows start at multiples of 16 bytes in bfloat16; values that are keys stay so."""
    wide = [functional.pad(x, (0, -x.shape[-1] % 8)) if x.shape[-1] % 8 else x for x in (keys, values, query, output)]
    if values is keys:
        wide[1] = wide[0]
    return wide


def _attend_in_chunks(keys: Tensor, values: Tensor, query: Tensor, output: Tensor, lengths: Tensor) -> Tensor:
    """`attend` from products of the whole batch with some labels; the backward pass computes them again if there are several."""
    precise = torch.promote_types(keys.dtype, torch.float32)
    padding = torch.arange(keys.shape[1], device=keys.device) >= lengths.to(keys.device)[:, None]  # (batch, length)
    words = [x.to(precise).masked_fill(padding[..., None], 0) for x in ((keys,) if values is keys else (keys, values))]

    def chunk(keys: Tensor, values: Tensor, query: Tensor, output: Tensor) -> Tensor:
        scores, worth = ((x @ y.flatten(0, 1).T).view(len(x), *padding.shape) for x, y in ((query, keys), (output, values)))
        # Not -inf: the softmax of a document without words would be undefined, and so would its gradient.
        weights = scores.masked_fill(padding, torch.finfo(precise).min).softmax(-1)  # (labels, batch, length)
        return (weights * worth).sum(-1)

    step = max(1, CHUNK // max(1, padding.numel()))
    again = partial(checkpoint, chunk, use_reentrant=False, preserve_rng_state=False)
    run = again if len(query) > step else chunk
    parts = (torch.split(x.to(precise), step) for x in (query, output))
    return torch.cat([run(words[0], words[-1], *part) for part in zip(*parts, strict=True)]).T


def real_words(lengths: Tensor, longest: int) -> tuple[Tensor | None, Tensor]:
    """Places of the real words among batch × length, None if all are, and where documents start and end among the real words."""
    counts = np.minimum(lengths.numpy(), longest)  # numpy takes a tenth of torch's time for so few numbers
    ends = np.append(0, np.cumsum(counts)).astype(np.int32)
    if ends[-1] == len(counts) * longest:
        return None, torch.from_numpy(ends)
    real = np.arange(longest) < counts[:, None]  # (batch, length), False at padding
    return torch.from_numpy(np.flatnonzero(real).astype(np.int32)), torch.from_numpy(ends)


def pack(padded: Tensor, places: Tensor | None) -> Tensor:
    """(words, width), the vectors of real words, from (batch, length, width)."""
    flat = padded.flatten(0, 1)
    return flat if places is None else flat.index_select(0, places)


def unpack(packed: Tensor, places: Tensor | None, shape: Sequence[int]) -> Tensor:
    """(batch, length, width) with zeros at padding, from (words, width)."""
    if places is not None:
        packed = packed.new_zeros(prod(shape), packed.shape[1]).index_add_(0, places, packed)
    return packed.view(*shape, -1)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor, values: Tensor, query: Tensor, output: Tensor, lengths: Tensor) -> Tensor:
        ctx.save_for_backward(keys, values, query, output, lengths)
        logits, _ = _sweep((keys, values, query, output), lengths)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, lengths = ctx.saved_tensors
        _, gradients = _sweep(inputs, lengths, ctx.needs_input_grad[:4], lambda _, rows, columns: arriving[rows, columns])
        return *gradients, None


class _AttendLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        keys: Tensor,
        values: Tensor,
        query: Tensor,
        output: Tensor,
        bias: Tensor,
        lengths: Tensor,
        targets: Tensor,
    ) -> Tensor:
        inputs = keys, values, query, output
        loss, gradients = _loss_in_tiles(inputs, bias, lengths, targets, ctx.needs_input_grad[:4])
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors
        torch._foreach_mul_([gradient for gradient in gradients if gradient is not None], arriving)
        return *gradients, None, None


def _loss_in_tiles(
    inputs: Sequence[Tensor], bias: Tensor, lengths: Tensor, targets: Tensor, needed: Sequence[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    """The loss, and the gradients of those inputs that need one and of the bias."""
    share = 1 / max(1, targets.numel())
    loss, by_bias = bias.new_zeros((), dtype=torch.float64), torch.zeros_like(bias)

    def upstream(logits: Tensor, rows: slice, columns: slice) -> Tensor:
        logits = logits + bias[columns]
        target = targets[rows, columns].to(logits)
        loss.add_(binary_cross_entropy_with_logits(logits, target, reduction="sum"), alpha=share)
        arriving = (logits.sigmoid_() - target) * share
        by_bias[columns] += arriving.sum(0)
        return arriving

    _, gradients = _sweep(inputs, lengths, needed, upstream)
    return loss.to(bias.dtype), [*gradients, by_bias]


def _sweep(
    inputs: Sequence[Tensor],
    lengths: Tensor,
    needed: Sequence[bool] = (False,) * 4,
    upstream: Upstream | None = None,
) -> tuple[Tensor, list[Tensor | None]]:
    """The logits, and with `upstream` the gradients of those inputs that need one."""
    keys, values, query, output = inputs
    places, bounds = real_words(lengths, keys.shape[1])
    places, ends = None if places is None else places.to(keys.device), bounds.tolist()
    precise = torch.promote_types(keys.dtype, torch.float32)
    inputs = [x.to(precise) for x in (pack(keys, places), pack(values, places), query, output)]
    gradients = [torch.zeros_like(x) if need else None for x, need in zip(inputs, needed, strict=True)]
    logits = inputs[0].new_zeros(len(keys), len(query))
    packs = _packs(ends)
    scratch = logits.new_empty(3, max(ends[rows.stop] - ends[rows.start] for rows in packs) * min(TILE, len(query)))
    for rows, start in product(packs, range(0, len(query), TILE)):
        words, columns = slice(ends[rows.start], ends[rows.stop]), slice(start, min(start + TILE, len(query)))
        parts = (words, words, columns, columns)
        tile = [x[part] for x, part in zip(inputs, parts, strict=True)]
        spans = [slice(ends[row] - words.start, ends[row + 1] - words.start) for row in range(rows.start, rows.stop)]
        weights, worth = _weigh(tile, spans, scratch, logits[rows, columns])
        if upstream is not None:
            arriving = upstream(logits[rows, columns], rows, columns)
            into = [None if x is None else x[part] for x, part in zip(gradients, parts, strict=True)]
            _send_back(into, tile, spans, weights, worth, logits[rows, columns], arriving)
    for number in range(2):
        if (gradient := gradients[number]) is not None:
            gradients[number] = unpack(gradient, places, keys.shape[:2])
    return logits, gradients


def _weigh(tile: list[Tensor], spans: list[slice], scratch: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Fill in the logits (documents, labels); also the attention weight and the worth of each word, both (words, labels)."""
    keys, values, query, output = tile
    scores, worth, weights = scratch[:, : len(keys) * len(query)].view(3, len(keys), len(query))
    torch.mm(keys, query.T, out=scores)
    torch.mm(values, output.T, out=worth)
    for logit, span in zip(logits, spans, strict=True):
        torch.softmax(scores[span], 0, out=weights[span])
        torch.sum(torch.mul(weights[span], worth[span], out=scores[span]), 0, out=logit)
    return weights, worth


def _send_back(
    gradients: list[Tensor | None],
    tile: list[Tensor],
    spans: list[slice],
    weights: Tensor,
    worth: Tensor,
    logits: Tensor,
    arriving: Tensor,
) -> None:
    """Add a tile's share to the gradients, given that of its logits; weights and worth are used up."""
    for logit, slope, span in zip(logits, arriving, spans, strict=True):
        weights[span] *= slope
        worth[span] -= logit
    by_worth, by_score = weights, worth.mul_(weights)
    keys, values, query, output = tile
    products = ((by_score, query), (by_worth, output), (by_score.T, keys), (by_worth.T, values))
    for gradient, (left, right) in zip(gradients, products, strict=True):
        if gradient is not None:
            gradient.addmm_(left, right)


def _packs(ends: list[int]) -> list[slice]:
    """Neighbouring documents with at most a tile of words together, or one that is longer."""
    cuts = [0]
    for row in range(1, len(ends) - 1):
        if ends[row + 1] - ends[cuts[-1]] > TILE:
            cuts.append(row)
    return [slice(start, stop) for start, stop in pairwise([*cuts, len(ends) - 1])]
