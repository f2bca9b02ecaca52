"""`attention.attend` in bfloat16 on a GPU: two Triton kernels, and cuBLAS for the rest of the backward pass.

The first kernel goes through a document's words with a running softmax. The second computes scores and worth of some labels again
and writes their gradients, which cuBLAS multiplies by keys, values and labels: vectors 768 wide and their gradients would not fit
on a multiprocessor. Words come packed, one document after the other, so padding costs nothing here either. Values that are the
keys are read once for both products, and one product of twice the size stands for two in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

from labelwise.network.attention import pack, real_words, unpack

LABELS, STEP = 128, 64  # labels of a block, and the part of the width that is multiplied at a time
FORWARD = {  # by whether values are keys
    True: {"WORDS": 128, "num_warps": 8, "num_stages": 3},
    False: {"WORDS": 256, "num_warps": 8, "num_stages": 4},
}
BACKWARD = {
    True: {"WORDS": 128, "num_warps": 8, "num_stages": 3},
    False: {"WORDS": 128, "num_warps": 4, "num_stages": 3},
}
NEIGHBOURS = 4  # documents that go through the labels together
SCRATCH = 144 * 2**20  # bytes for the gradients of scores and worth
LOG2E = tl.constexpr(1.4426950408889634)


class AttendCuda(torch.autograd.Function):
    """`attend` with its inputs rounded to `dtype`."""

    @staticmethod
    def forward(
        ctx: Any, keys: Tensor, values: Tensor, query: Tensor, output: Tensor, lengths: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """Keep the packed words, the logits and the softmax's sums, and nothing per word and label."""
        places, bounds = real_words(lengths, keys.shape[1])
        places, ends = (_sent(x, keys.device) for x in (places, torch.tensor(bounds, dtype=torch.int32)))
        words = pack(keys, places).to(dtype).contiguous()
        others = words if values is keys else pack(values, places).to(dtype).contiguous()
        inputs = (words, others, query.to(dtype).contiguous(), output.to(dtype).contiguous())
        logits = torch.zeros(len(keys), len(query), device=keys.device)
        norms = torch.empty_like(logits)
        ctx.padded, ctx.dtypes, ctx.shared = keys.shape[:2], (query.dtype, output.dtype), values is keys
        if logits.numel() and len(words):
            grid = (len(keys) * triton.cdiv(len(query), LABELS),)
            settings = FORWARD[ctx.shared]
            sizes = (*logits.shape, keys.shape[2], values.shape[2], NEIGHBOURS, ctx.shared, LABELS, STEP)
            _forward[grid](*_described(inputs, settings["WORDS"]), ends, logits, norms, *sizes, **settings)
        ctx.save_for_backward(*inputs, places, ends, logits, norms)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients in float32 of the words, and in their own dtype of query and output."""
        *inputs, places, ends, logits, norms = ctx.saved_tensors
        keys_need, values_need, *labels_need = ctx.needs_input_grad[:4]
        needed = (keys_need, values_need and not ctx.shared, *labels_need)  # values that are keys: one gradient, returned once
        gradients = [
            torch.zeros_like(x, dtype=dtype) if need else None
            for x, dtype, need in zip(inputs, (torch.float32, torch.float32, *ctx.dtypes), needed, strict=True)
        ]
        if logits.numel() and len(inputs[0]):
            _add_gradients(gradients, inputs, ends, logits, norms, arriving.contiguous(), ctx.padded[1], ctx.shared)
        for number in range(2):
            if (gradient := gradients[number]) is not None:
                gradients[number] = unpack(gradient, places, ctx.padded)
        return (*gradients, None, None)


def _add_gradients(
    gradients: list[Tensor | None],
    inputs: Sequence[Tensor],
    ends: Tensor,
    logits: Tensor,
    norms: Tensor,
    arriving: Tensor,
    longest: int,
    shared: bool,
) -> None:
    """Fill the gradients some labels at a time, so that those of scores and worth need little room."""
    settings, count = BACKWARD[shared], logits.shape[1]
    sides = 1 if shared else 2
    words, labels = inputs[:sides], inputs[2:]
    chunk = _chunk(len(words[0]), count)
    scratch = words[0].new_empty(len(words[0]), 2 * chunk)
    slopes = scratch.chunk(sides, 1)  # (words, labels), by score and by worth, side by side when they share a product
    # Labels are copied to have whole blocks, with zeros at the end: cuBLAS is slow where a size is no multiple of 8.
    rows = [x.new_zeros(2 * chunk // sides, x.shape[1]) for x in words]
    described = _described(inputs, settings["WORDS"])
    grid = (chunk // LABELS, triton.cdiv(longest, settings["WORDS"]), len(logits))
    for first in range(0, count, chunk):
        sizes = (first, count, inputs[0].shape[1], inputs[1].shape[1], shared, LABELS, STEP)
        _backward[grid](*described, ends, logits, norms, arriving, scratch, *sizes, **settings)
        part = slice(first, min(first + chunk, count))
        for row, label in zip(_halves(rows), labels, strict=True):
            row[: part.stop - first] = label[part]
        for gradient, slope, row in zip(gradients[:sides], slopes, rows, strict=True):
            if gradient is not None:
                _add_product(gradient, slope, row)
        if gradients[2] is not None or gradients[3] is not None:
            found = [slope.T @ word for slope, word in zip(slopes, words, strict=True)]
            for gradient, new in zip(gradients[2:], _halves(found), strict=True):
                if gradient is not None:
                    gradient[part] = new[: part.stop - first]


def _halves(rows: list[Tensor]) -> Sequence[Tensor]:
    """Those of query and those of output, which lie in one tensor when values are keys."""
    return rows if len(rows) == 2 else rows[0].chunk(2)


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    if into.dtype == left.dtype:
        into.addmm_(left, right)
    else:
        torch.addmm(into, left, right, out_dtype=into.dtype, out=into)


def _sent(x: Tensor, device: torch.device) -> Tensor:
    """On the GPU, without waiting for what it still has to do."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x


def _described(inputs: Sequence[Tensor], words: int) -> list[Any]:
    """Inputs as the copy engine wants them; it reads zeros beyond their ends."""
    return [TensorDescriptor.from_tensor(x, [rows, STEP]) for x, rows in zip(inputs, (words, words, LABELS, LABELS), strict=True)]


def _chunk(words: int, labels: int) -> int:
    """How many labels' gradients fit the scratch space, in whole blocks and parts of about equal size."""
    parts = triton.cdiv(labels, max(LABELS, SCRATCH // (4 * words)))
    return triton.cdiv(triton.cdiv(labels, parts), LABELS) * LABELS


@triton.jit
def _product(left, right, row, column, width: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """A block of rows times a block of columns, both given as rows of vectors."""
    rows: tl.constexpr = left.block_shape[0]
    columns: tl.constexpr = right.block_shape[0]
    total = tl.zeros((rows, columns), tl.float32)
    for place in range(0, width, STEP):
        total = tl.dot(left.load([row, place]), right.load([column, place]).T, total)
    return total


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    keys,
    values,
    query,
    output,
    ends,
    logits,
    norms,
    documents,
    labels,
    key_width: tl.constexpr,
    width: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    SHARED: tl.constexpr,
    LABELS: tl.constexpr,
    STEP: tl.constexpr,
    WORDS: tl.constexpr,
):
    # Some documents go through all labels together: their words stay in the second-level cache, and labels are read less often.
    blocks = tl.cdiv(labels, LABELS)
    first = tl.program_id(0) // (NEIGHBOURS * blocks) * NEIGHBOURS
    place = tl.program_id(0) % (NEIGHBOURS * blocks)
    together = tl.minimum(documents - first, NEIGHBOURS)
    document, label = first + place % together, place // together * LABELS
    start, end = tl.load(ends + document), tl.load(ends + document + 1)
    if start == end:  # its logits are 0 already
        return
    highest = tl.full((LABELS,), float("-inf"), tl.float32)
    total = tl.zeros((LABELS,), tl.float32)
    logit = tl.zeros((LABELS,), tl.float32)
    for word in range(start, end, WORDS):
        if SHARED:
            scores = tl.zeros((LABELS, WORDS), tl.float32)
            worth = tl.zeros((LABELS, WORDS), tl.float32)
            for place in range(0, width, STEP):
                read = keys.load([word, place]).T
                scores = tl.dot(query.load([label, place]), read, scores)
                worth = tl.dot(output.load([label, place]), read, worth)
        else:
            scores = _product(query, keys, label, word, key_width, STEP)  # (labels, words)
        scores = tl.where(word + tl.arange(0, WORDS)[None, :] < end, scores * LOG2E, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(weights, 1)
        if not SHARED:
            weights = weights.to(keys.dtype)  # half the registers while the worth is summed up
            worth = _product(output, values, label, word, width, STEP)
        logit = logit * shrink + tl.sum(weights * worth, 1)
        highest = higher
    label += tl.arange(0, LABELS)
    place = document * labels + label
    tl.store(logits + place, logit / total, mask=label < labels)
    tl.store(norms + place, highest + tl.log2(total), mask=label < labels)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    keys,
    values,
    query,
    output,
    ends,
    logits,
    norms,
    arriving,
    slopes,
    first,
    labels,
    key_width: tl.constexpr,
    width: tl.constexpr,
    SHARED: tl.constexpr,
    LABELS: tl.constexpr,
    STEP: tl.constexpr,
    WORDS: tl.constexpr,
):
    document = tl.program_id(2)
    word, end = tl.load(ends + document) + tl.program_id(1) * WORDS, tl.load(ends + document + 1)
    if word >= end:
        return
    label, chunk = first + tl.program_id(0) * LABELS, tl.num_programs(0) * LABELS
    if SHARED:
        scores = tl.zeros((WORDS, LABELS), tl.float32)
        worth = tl.zeros((WORDS, LABELS), tl.float32)
        for place in range(0, width, STEP):
            read = keys.load([word, place])
            scores = tl.dot(read, query.load([label, place]).T, scores)
            worth = tl.dot(read, output.load([label, place]).T, worth)
    else:
        scores = _product(keys, query, word, label, key_width, STEP)  # (words, labels)
    row, column = word + tl.arange(0, WORDS)[:, None], tl.program_id(0) * LABELS + tl.arange(0, LABELS)
    known, place = first + column < labels, document * labels + first + column
    norm = tl.load(norms + place, mask=known, other=0.0)
    slope = tl.load(arriving + place, mask=known, other=0.0)
    weights = tl.exp2(scores * LOG2E - norm[None, :]) * slope[None, :]
    here = row * (2 * chunk) + column[None, :]
    tl.store(slopes + chunk + here, weights.to(keys.dtype), mask=row < end)
    if not SHARED:
        weights = weights.to(keys.dtype)
        worth = _product(values, output, word, label, width, STEP)
    logit = tl.load(logits + place, mask=known, other=0.0)
    tl.store(slopes + here, (weights * (worth - logit[None, :])).to(keys.dtype), mask=row < end)
