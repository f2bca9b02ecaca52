"""`attention.attend` in bfloat16 on a GPU: two Triton kernels, and cuBLAS for the rest of the backward pass.

The first kernel goes through a document's words with a running softmax. The second computes scores and worth of some labels again
and writes their gradients, which cuBLAS multiplies by keys, values and labels: vectors 768 wide and their gradients would not fit
on a multiprocessor. Words come packed, one document after the other, so padding costs nothing here either.
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

FORWARD = {"LABELS": 128, "WORDS": 256, "STEP": 64, "num_warps": 8, "num_stages": 4}
BACKWARD = {"LABELS": 256, "WORDS": 128, "STEP": 64, "num_warps": 8, "num_stages": 3}
NEIGHBOURS = 4  # documents that go through the labels together
SCRATCH = 2**27  # bytes for the gradients of scores and worth
LOG2E = tl.constexpr(1.4426950408889634)


class AttendCuda(torch.autograd.Function):
    """`attend` with its inputs rounded to `dtype`."""

    @staticmethod
    def forward(
        ctx: Any, keys: Tensor, values: Tensor, query: Tensor, output: Tensor, lengths: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """Keep the packed words, the logits and the softmax's sums, and nothing per word and label."""
        places, bounds = real_words(lengths, keys.shape[1])
        places, ends = places.to(keys.device), torch.tensor(bounds, dtype=torch.int32, device=keys.device)
        words = pack(keys, places).to(dtype).contiguous()
        others = words if values is keys else pack(values, places).to(dtype).contiguous()
        inputs = (words, others, query.to(dtype).contiguous(), output.to(dtype).contiguous())
        logits = torch.zeros(len(keys), len(query), device=keys.device)
        norms = torch.empty_like(logits)
        if logits.numel() and len(words):
            grid = (len(keys) * triton.cdiv(len(query), FORWARD["LABELS"]),)
            sizes = (*logits.shape, keys.shape[2], values.shape[2], NEIGHBOURS)
            _forward[grid](*_described(inputs, **FORWARD), ends, logits, norms, *sizes, **FORWARD)
        ctx.save_for_backward(*inputs, places, ends, logits, norms)
        ctx.padded, ctx.dtypes, ctx.shared = keys.shape[:2], (query.dtype, output.dtype), values is keys
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients in float32 of the words, and in their own dtype of query and output."""
        *inputs, places, ends, logits, norms = ctx.saved_tensors
        gradients = [
            torch.zeros_like(x, dtype=dtype) if need else None
            for x, dtype, need in zip(inputs, (torch.float32, torch.float32, *ctx.dtypes), ctx.needs_input_grad, strict=False)
        ]
        if ctx.shared:  # both roles of the words add to one gradient, which is returned once
            gradients[1] = gradients[0]
        if logits.numel() and len(inputs[0]):
            _add_gradients(gradients, inputs, ends, logits, norms, arriving.contiguous(), ctx.padded[1])
        if ctx.shared:
            gradients[1] = None
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
) -> None:
    """Add to the gradients some labels at a time, so that those of scores and worth need little room."""
    words, labels = inputs[:2], inputs[2:]
    described = _described(inputs, **BACKWARD)
    chunk = _chunk(len(words[0]), len(labels[0]))
    scratch = words[0].new_empty(2, len(words[0]), chunk)  # gradients of scores and worth
    grid = (chunk // BACKWARD["LABELS"], triton.cdiv(longest, BACKWARD["WORDS"]), len(logits))
    for first in range(0, len(labels[0]), chunk):
        part = slice(first, min(first + chunk, len(labels[0])))
        sizes = (first, len(labels[0]), words[0].shape[1], words[1].shape[1])
        _backward[grid](*described, ends, logits, norms, arriving, *scratch, *sizes, **BACKWARD)
        for number in range(2):
            slopes = scratch[number, :, : part.stop - part.start]  # (words, labels)
            _add_product(gradients[number], slopes, labels[number][part])
            into = gradients[number + 2]
            _add_product(None if into is None else into[part], slopes.T, words[number])


def _add_product(into: Tensor | None, left: Tensor, right: Tensor) -> None:
    if into is None:
        return
    if into.dtype == left.dtype:
        into.addmm_(left, right)
    else:
        torch.addmm(into, left, right, out_dtype=into.dtype, out=into)


def _described(inputs: Sequence[Tensor], *, WORDS: int, LABELS: int, STEP: int, **_: int) -> list[Any]:
    """Inputs as the copy engine wants them; it reads zeros beyond their ends."""
    return [TensorDescriptor.from_tensor(x, [rows, STEP]) for x, rows in zip(inputs, (WORDS, WORDS, LABELS, LABELS), strict=True)]


def _chunk(words: int, labels: int) -> int:
    """How many labels' gradients fit the scratch space, in whole blocks and parts of about equal size."""
    block = BACKWARD["LABELS"]
    parts = triton.cdiv(labels, max(block, SCRATCH // (4 * words)))
    return triton.cdiv(triton.cdiv(labels, parts), block) * block


@triton.jit
def _product(left, right, row, column, width: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """A block of rows times a block of columns, both given as rows of vectors."""
    rows: tl.constexpr = left.block_shape[0]
    columns: tl.constexpr = right.block_shape[0]
    total = tl.zeros((rows, columns), tl.float32)
    for place in range(0, width, STEP):
        total = tl.dot(left.load([row, place]), right.load([column, place]).T, total, input_precision="ieee")
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
    LABELS: tl.constexpr,
    WORDS: tl.constexpr,
    STEP: tl.constexpr,
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
        scores = _product(query, keys, label, word, key_width, STEP) * LOG2E  # (labels, words)
        scores = tl.where(word + tl.arange(0, WORDS)[None, :] < end, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(weights, 1)
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
    by_score,
    by_worth,
    first,
    labels,
    key_width: tl.constexpr,
    width: tl.constexpr,
    LABELS: tl.constexpr,
    WORDS: tl.constexpr,
    STEP: tl.constexpr,
):
    document = tl.program_id(2)
    word, end = tl.load(ends + document) + tl.program_id(1) * WORDS, tl.load(ends + document + 1)
    if word >= end:
        return
    label = first + tl.program_id(0) * LABELS
    column = tl.arange(0, LABELS)
    known, place = label + column < labels, document * labels + label + column
    scores = _product(keys, query, word, label, key_width, STEP) * LOG2E  # (words, labels)
    norm = tl.load(norms + place, mask=known, other=0.0)
    slope = tl.load(arriving + place, mask=known, other=0.0)
    weights = (tl.exp2(scores - norm[None, :]) * slope[None, :]).to(keys.dtype)
    row = word + tl.arange(0, WORDS)
    here = row[:, None] * (tl.num_programs(0) * LABELS) + tl.program_id(0) * LABELS + column[None, :]
    tl.store(by_worth + here, weights, mask=row[:, None] < end)
    worth = _product(values, output, word, label, width, STEP)
    logit = tl.load(logits + place, mask=known, other=0.0)
    tl.store(by_score + here, (weights * (worth - logit[None, :])).to(keys.dtype), mask=row[:, None] < end)
