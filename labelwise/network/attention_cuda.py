"""`attention.attend` in bfloat16 on a GPU: two Triton kernels, and cuBLAS for the rest of the backward pass.

The first kernel goes through a document's words with a running softmax; where it is told the targets, it gives the loss too. The
second computes scores and worth of some labels again and writes their gradients, which cuBLAS multiplies by keys, values and
labels: vectors 768 wide and their gradients would not fit on a multiprocessor. Words come packed, one document after the other,
so padding costs nothing here either. Values that are the keys are read once for both products, and one call of cuBLAS stands for
two in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

from labelwise.network.attention import pack, real_words, unpack
from labelwise.network.transfer import send

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
SCRATCH = 136 * 2**20  # bytes for the gradients of scores and worth
LOG2E = tl.constexpr(1.4426950408889634)


class Judged(NamedTuple):
    """What the loss is made from, where its gradients by the logits and its parts go, and what one logit counts."""

    bias: Tensor | None = None  # (labels,)
    targets: Tensor | None = None  # (documents, labels)
    slopes: Tensor | None = None  # (documents, labels)
    losses: Tensor | None = None  # (launched programs,)
    scale: float = 0.0


class AttendCuda(torch.autograd.Function):
    """`attend` with its inputs rounded to `dtype`, for at least one word and one label."""

    @staticmethod
    def forward(
        ctx: Any, keys: Tensor, values: Tensor, query: Tensor, output: Tensor, lengths: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """Logits; what is kept does not grow with words times labels."""
        return _read(ctx, (keys, values, query, output), lengths, dtype, Judged())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of words and labels."""
        return *_gradients(ctx, arriving.contiguous(), None), None, None


class LossCuda(torch.autograd.Function):
    """`attend_loss`, likewise: the loss comes out of the first kernel, and with it the gradients by the logits."""

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
        dtype: torch.dtype,
    ) -> Tensor:
        """The mean loss."""
        documents, labels = targets.shape
        ctx.slopes = torch.empty(documents, labels, device=keys.device)
        losses = torch.empty(documents * _parts(labels, LABELS), device=keys.device)
        judged = Judged(bias, targets.contiguous(), ctx.slopes, losses, 1 / (documents * labels))
        _read(ctx, (keys, values, query, output), lengths, dtype, judged)
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of words, labels and bias."""
        by_bias = ctx.slopes.sum(0).mul_(arriving) if ctx.needs_input_grad[4] else None
        return *_gradients(ctx, ctx.slopes, arriving), by_bias, None, None, None


def _read(ctx: Any, inputs: Sequence[Tensor], lengths: Tensor, dtype: torch.dtype, judged: Judged) -> Tensor:
    """Logits; keep the packed words, the labels in whole blocks and the softmax's sums, and nothing per word and label."""
    keys, values, query, output = inputs
    documents, longest, key_width = keys.shape
    count, shared = query.shape[0], values is keys
    places, ends = _sent(*real_words(lengths, longest), keys.device)
    words = [pack(x, places).to(dtype).contiguous() for x in ((keys,) if shared else (keys, values))]
    chunk = _chunk(words[0].shape[0], count)
    rows = _parts(count, chunk) * chunk
    labels = [_in_blocks(x, rows, dtype) for x in ([(query, output)] if shared else [(query,), (output,)])]
    logits, norms = (torch.empty(documents, count, device=keys.device) for _ in range(2))
    settings = FORWARD[shared]
    grid = (documents * _parts(count, LABELS),)
    sizes = (documents, count, rows, key_width, values.shape[2], NEIGHBOURS, shared, LABELS, STEP)
    described = _described(words, labels, settings["WORDS"])
    _forward[grid](*described, ends, logits, norms, *judged, longest, *sizes, **settings)
    ctx.described = described if settings["WORDS"] == BACKWARD[shared]["WORDS"] else None
    ctx.chunk, ctx.padded = chunk, (documents, longest)
    ctx.round_words, ctx.round_labels = keys.dtype == values.dtype == dtype, query.dtype == output.dtype == dtype
    ctx.save_for_backward(places, ends, logits, norms, *words, *labels)
    return logits


def _gradients(ctx: Any, slopes: Tensor, factor: Tensor | None) -> tuple[Tensor | None, ...]:
    """Of keys, values, query and output, by those of the logits, all times a factor; values that are keys have theirs there.

    In the dtype of the kernels where that is the input's and nothing is added up, otherwise in float32.
    """
    places, ends, logits, norms, *inputs = ctx.saved_tensors
    sides = len(inputs) // 2
    words, labels = inputs[:sides], inputs[sides:]
    needs = ctx.needs_input_grad
    words_need, labels_need = (needs[:2], needs[2:4]) if sides == 2 else ((needs[0],), (needs[2] or needs[3],))
    by_words = _empty(words, words_need, ctx.round_words and ctx.chunk == labels[0].shape[1])
    by_labels = _empty(labels, labels_need, ctx.round_labels)
    described = ctx.described or _described(words, labels, BACKWARD[sides == 1]["WORDS"])
    ctx.described = None  # it would keep words and labels in memory, as what is saved is not
    kept = (ends, logits, norms, slopes, factor)
    _fill_gradients(by_words, by_labels, words, labels, described, kept, ctx.chunk, ctx.padded[1])
    padded = [None if x is None else unpack(x, places, ctx.padded) for x in by_words]
    query, output = by_labels[0], by_labels[-1]
    count = logits.shape[1]
    return (
        padded[0],
        padded[1] if sides == 2 else None,
        None if query is None else query[0, :count],
        None if output is None else output[-1, :count],
    )


def _fill_gradients(
    by_words: list[Tensor | None],
    by_labels: list[Tensor | None],
    words: list[Tensor],
    labels: list[Tensor],
    described: list[Any],
    kept: tuple[Tensor | None, Tensor, Tensor, Tensor, Tensor | None],
    chunk: int,
    longest: int,
) -> None:
    """Write the gradients some labels at a time, so that those of scores and worth need little room."""
    sides, (documents, count) = len(words), kept[1].shape
    settings = BACKWARD[sides == 1]
    scratch = words[0].new_empty(len(words[0]), 2, chunk)
    slopes = scratch.chunk(sides, 1)  # (words, 1 or 2, labels), by score and by worth
    launch = _backward[chunk // LABELS, _parts(longest, settings["WORDS"]), documents]
    sizes = (count, labels[0].shape[1], words[0].shape[1], words[-1].shape[1], sides == 1, LABELS, STEP)
    for first in range(0, labels[0].shape[1], chunk):
        part = slice(first, first + chunk)
        launch(*described, *kept, scratch, first, longest, *sizes, **settings)
        for by_word, by_label, word, label, slope in zip(by_words, by_labels, words, labels, slopes, strict=True):
            if by_word is not None:
                factors = slope.flatten(1), label[:, part].flatten(0, 1)
                if first:
                    _multiply(torch.addmm, by_word, *factors, out=by_word)
                else:
                    _multiply(torch.mm, *factors, out=by_word)
            if by_label is not None:
                _multiply(torch.bmm, slope.permute(1, 2, 0), word.expand(len(label), -1, -1), out=by_label[:, part])


def _multiply(how: Callable[..., Tensor], *factors: Tensor, out: Tensor) -> None:
    wider = {} if out.dtype == factors[-1].dtype else {"out_dtype": out.dtype}
    how(*factors, out=out, **wider)


def _empty(inputs: list[Tensor], needed: Sequence[bool], rounded: bool) -> list[Tensor | None]:
    """Room for the gradients of those that need one."""
    dtype = inputs[0].dtype if rounded else torch.float32
    return [torch.empty_like(x, dtype=dtype) if need else None for x, need in zip(inputs, needed, strict=True)]


def _sent(places: Tensor | None, ends: Tensor, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
    """Both on the GPU, in one transfer that does not wait for what the GPU still has to do; nothing if all words are real."""
    if places is None:
        return None, None
    sent = send(torch.cat([ends, places]), device)
    return sent[len(ends) :], sent[: len(ends)]


def _in_blocks(labels: Sequence[Tensor], rows: int, dtype: torch.dtype) -> Tensor:
    """(1 or 2, rows, width) with zeros at the end: cuBLAS is slow where a size is no multiple of 8."""
    count, width = labels[0].shape
    gap = labels[0].new_zeros(rows - count, width, dtype=dtype)
    return torch.cat([part for label in labels for part in (label.to(dtype), gap)]).view(-1, rows, width)


def _described(words: list[Tensor], labels: list[Tensor], block: int) -> list[Any]:
    """Keys, values, query and output as the copy engine wants them; what is shared is in keys and query, None otherwise."""
    found = [
        [TensorDescriptor.from_tensor(x.flatten(0, -2), [rows, STEP]) for x in tensors]
        for tensors, rows in ((words, block), (labels, LABELS))
    ]
    return [x for pair in found for x in (pair if len(pair) == 2 else (*pair, None))]


def _chunk(words: int, labels: int) -> int:
    """How many labels' gradients fit the scratch space, in whole blocks and parts of about equal size."""
    parts = _parts(labels, max(LABELS, SCRATCH // (4 * words)))
    return _parts(_parts(labels, parts), LABELS) * LABELS


def _parts(whole: int, part: int) -> int:
    """How many parts there are, the last one perhaps smaller; Triton's own takes longer than a launch."""
    return -(-whole // part)


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
def _bounds(ends, document, longest):  # type: ignore[no-untyped-def]
    """Where a document's words start and end; without a list of ends, all are as long as the longest."""
    start = document * longest
    end = start + longest
    if ends is not None:
        start, end = tl.load(ends + document), tl.load(ends + document + 1)
    return start, end


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    keys,
    values,
    query,
    output,
    ends,
    logits,
    norms,
    bias,
    targets,
    slopes,
    losses,
    scale,
    longest,
    documents,
    labels,
    rows,
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
    start, end = _bounds(ends, document, longest)
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
                worth = tl.dot(query.load([rows + label, place]), read, worth)
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
    total = tl.maximum(total, 1.0)  # the best word alone gives 1: changes only a document without words, whose logits are 0
    logit /= total
    label += tl.arange(0, LABELS)
    known, place = label < labels, document * labels + label
    tl.store(logits + place, logit, mask=known)
    tl.store(norms + place, highest + tl.log2(total), mask=known)
    if targets is not None:
        logit += tl.load(bias + label, mask=known, other=0.0)
        target = tl.load(targets + place, mask=known, other=0.0).to(tl.float32)
        small = tl.exp(-tl.abs(logit))
        # log(1 + small), whose digits would be lost next to the 1
        rest = tl.where(small < 1e-3, small - small * small / 2, tl.log(1 + small))
        loss = tl.where(known, tl.maximum(logit, 0.0) - logit * target + rest, 0.0)
        chance = tl.where(logit >= 0, 1.0, small) / (1 + small)
        tl.store(slopes + place, (chance - target) * scale, mask=known)
        tl.store(losses + tl.program_id(0), tl.sum(loss, 0) * scale)


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
    factor,
    slopes,
    first,
    longest,
    labels,
    rows,
    key_width: tl.constexpr,
    width: tl.constexpr,
    SHARED: tl.constexpr,
    LABELS: tl.constexpr,
    STEP: tl.constexpr,
    WORDS: tl.constexpr,
):
    document = tl.program_id(2)
    word, end = _bounds(ends, document, longest)
    word += tl.program_id(1) * WORDS
    if word >= end:
        return
    label, chunk = first + tl.program_id(0) * LABELS, tl.num_programs(0) * LABELS
    if SHARED:
        scores = tl.zeros((WORDS, LABELS), tl.float32)
        worth = tl.zeros((WORDS, LABELS), tl.float32)
        for place in range(0, width, STEP):
            read = keys.load([word, place])
            scores = tl.dot(read, query.load([label, place]).T, scores)
            worth = tl.dot(read, query.load([rows + label, place]).T, worth)
    else:
        scores = _product(keys, query, word, label, key_width, STEP)  # (words, labels)
    row, column = word + tl.arange(0, WORDS)[:, None], tl.program_id(0) * LABELS + tl.arange(0, LABELS)
    known, place = first + column < labels, document * labels + first + column
    norm = tl.load(norms + place, mask=known, other=0.0)
    slope = tl.load(arriving + place, mask=known, other=0.0)
    if factor is not None:
        slope *= tl.load(factor)
    weights = tl.exp2(scores * LOG2E - norm[None, :]) * slope[None, :]
    here = row * (2 * chunk) + column[None, :]
    tl.store(slopes + chunk + here, weights.to(keys.dtype), mask=row < end)
    if not SHARED:
        weights = weights.to(keys.dtype)
        worth = _product(values, output, word, label, width, STEP)
    logit = tl.load(logits + place, mask=known, other=0.0)
    tl.store(slopes + here, (weights * (worth - logit[None, :])).to(keys.dtype), mask=row < end)
