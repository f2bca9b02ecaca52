"""A bidirectional GRU on a GPU in one kernel for all words: cuDNN launches some for each word, and small layers wait for that.

The states of a few documents stay on one multiprocessor from the first word to the last, with the recurrent weights; in bfloat16
layers of up to 128 units fit, in float32 half as many. What the inputs add is one product for all words before, and gradients of
weights are one after. Documents end where they end, so nothing is packed.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

WIDEST = 128  # units per direction
ROWS = 16  # documents of a block: the least that tensor cores multiply


def fits(layer: nn.Module) -> bool:
    """Whether a layer can run here."""
    return isinstance(layer, nn.GRU) and layer.hidden_size <= WIDEST and layer.bidirectional and layer.num_layers == 1


def run(layer: nn.Module, inputs: Tensor, lengths: Tensor) -> Tensor:
    """(batch, length, 2 × units) states, zero beyond the end of a document; lengths are on the GPU."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    parts = [[getattr(layer, f"{name}_l0{way}") for way in ("", "_reverse")] for name in names]
    from_inputs, weight, bias_in, bias = (torch.stack(pair) for pair in parts)  # (2, 3 × units, …)
    kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else weight.dtype
    with torch.autocast("cuda", enabled=False):  # what the inputs add is summed up over all words: rounded, it would tell
        gates = functional.linear(inputs.float(), from_inputs.flatten(0, 1), bias_in.flatten())
    return Gru.apply(gates, weight.to(kind), bias.to(kind), lengths)  # type: ignore[no-untyped-call]


class Gru(torch.autograd.Function):
    """(batch, length, 2 × units) states from what the inputs add to the gates, (batch, length, 2 × 3 × units)."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, bias: Tensor, lengths: Tensor) -> Tensor:
        """Both directions at once; nothing is kept but what comes in and goes out."""
        batch, length, _ = gates.shape
        states = weight.new_zeros(batch, length, 2, weight.shape[2])
        _forward[_grid(batch)](gates, weight, bias, lengths, states, batch, length, **_sizes(weight))
        ctx.save_for_backward(gates, weight, bias, lengths, states)
        return states.flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Gates are computed again from the states; weights have their gradients from those of the gates."""
        gates, weight, bias, lengths, states = ctx.saved_tensors
        (batch, length, _), units = gates.shape, weight.shape[2]
        by_gates, by_hidden = torch.zeros_like(gates), torch.zeros_like(states)
        given = (gates, weight, bias, lengths, states, arriving.contiguous(), by_gates, by_hidden)
        _backward[_grid(batch)](*given, batch, length, **_sizes(weight))
        edge = states.new_zeros(batch, 1, units)
        before = torch.cat([edge, states[:, :-1, 0]], 1), torch.cat([states[:, 1:, 1], edge], 1)  # the state each word came upon
        slopes = by_gates.view(batch, length, 2, 3 * units).to(weight.dtype, copy=True)
        slopes[..., 2 * units :] = by_hidden
        flat = slopes.flatten(0, 1).transpose(0, 1)  # (2, words, 3 × units)
        by_weight = torch.bmm(flat.mT, torch.stack([each.flatten(0, 1) for each in before]))
        return by_gates, by_weight, flat.sum(1), None


def _grid(batch: int) -> tuple[int, int]:
    return -(-batch // ROWS), 2


def _sizes(weight: Tensor) -> dict[str, int]:
    units = weight.shape[2]
    shape = {"units": units, "ROWS": ROWS, "WIDTH": max(16, triton.next_power_of_2(units))}
    return {**shape, "num_warps": 4 if units <= 64 else 8, "num_stages": 2}  # with three, 128 units need too much memory


@triton.jit
def _weights(weight, bias, gate, units: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """(states, gate) weights of one gate, and its (1, gate) biases."""
    numbers = tl.arange(0, WIDTH)
    inside = (numbers[:, None] < units) & (numbers[None, :] < units)
    found = tl.load(weight + (gate * units + numbers[None, :]) * units + numbers[:, None], mask=inside, other=0.0)
    return found, tl.load(bias + gate * units + numbers, mask=numbers < units, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _open(gates, real, short, to_reset, reset_bias, to_update, update_bias, to_new, new_bias, units: tl.constexpr):  # type: ignore[no-untyped-def]
    """What reset, update and new state are for a word, and what the state before adds to the last of them."""
    reset = tl.load(gates, mask=real, other=0.0).to(tl.float32) + reset_bias
    update = tl.load(gates + units, mask=real, other=0.0).to(tl.float32) + update_bias
    new = tl.load(gates + 2 * units, mask=real, other=0.0).to(tl.float32)
    reset = tl.sigmoid(tl.dot(short, to_reset, reset, input_precision="ieee"))
    update = tl.sigmoid(tl.dot(short, to_update, update, input_precision="ieee"))
    hidden = tl.dot(short, to_new, input_precision="ieee") + new_bias
    return reset, update, 2 * tl.sigmoid(2 * (new + reset * hidden)) - 1, hidden  # the third is a tanh


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    gates, weight, bias, lengths, states, batch, length, units: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    rows, columns, way = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.program_id(1)
    known = (rows < batch)[:, None] & (columns < units)[None, :]
    ends = tl.load(lengths + rows, mask=rows < batch, other=0).to(tl.int32)
    weight, bias = weight + way * 3 * units * units, bias + way * 3 * units
    to_reset, reset_bias = _weights(weight, bias, 0, units, WIDTH)
    to_update, update_bias = _weights(weight, bias, 1, units, WIDTH)
    to_new, new_bias = _weights(weight, bias, 2, units, WIDTH)
    state = tl.zeros((ROWS, WIDTH), tl.float32)
    longest = tl.max(ends, 0)
    for step in range(longest):
        time = tl.where(way == 1, longest - 1 - step, step)
        real = known & (time < ends)[:, None]
        word = (rows[:, None] * length + time) * 2 + way
        here, short = gates + word * 3 * units + columns[None, :], state.to(to_reset.dtype)
        _, update, new, _ = _open(here, real, short, to_reset, reset_bias, to_update, update_bias, to_new, new_bias, units)
        state = tl.where(real, (1 - update) * new + update * state, state)
        tl.store(states + word * units + columns[None, :], state, mask=real)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    gates,
    weight,
    bias,
    lengths,
    states,
    arriving,
    by_gates,
    by_hidden,
    batch,
    length,
    units: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    rows, columns, way = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.program_id(1)
    known = (rows < batch)[:, None] & (columns < units)[None, :]
    ends = tl.load(lengths + rows, mask=rows < batch, other=0).to(tl.int32)
    weight, bias = weight + way * 3 * units * units, bias + way * 3 * units
    to_reset, reset_bias = _weights(weight, bias, 0, units, WIDTH)
    to_update, update_bias = _weights(weight, bias, 1, units, WIDTH)
    to_new, new_bias = _weights(weight, bias, 2, units, WIDTH)
    slope = tl.zeros((ROWS, WIDTH), tl.float32)  # by the state before the word
    longest = tl.max(ends, 0)
    for step in range(longest):
        time = tl.where(way == 1, step, longest - 1 - step)
        before = tl.where(way == 1, time + 1, time - 1)
        real = known & (time < ends)[:, None]
        earlier = (rows[:, None] * length + before) * 2 + way
        there = real & (before >= 0) & (before < ends)[:, None]
        short = tl.load(states + earlier * units + columns[None, :], mask=there, other=0.0)
        word = (rows[:, None] * length + time) * 2 + way
        here = gates + word * 3 * units + columns[None, :]
        reset, update, new, hidden = _open(
            here, real, short, to_reset, reset_bias, to_update, update_bias, to_new, new_bias, units
        )
        total = slope + tl.load(arriving + word * units + columns[None, :], mask=real, other=0.0).to(tl.float32)
        by_new = total * (1 - update) * (1 - new * new)
        by_update = (total * (short.to(tl.float32) - new) * update * (1 - update)).to(short.dtype)
        by_reset = (by_new * hidden * reset * (1 - reset)).to(short.dtype)
        through = (by_new * reset).to(short.dtype)
        out = by_gates + word * 3 * units + columns[None, :]
        tl.store(out, by_reset, mask=real)
        tl.store(out + units, by_update, mask=real)
        tl.store(out + 2 * units, by_new.to(short.dtype), mask=real)
        tl.store(by_hidden + word * units + columns[None, :], through, mask=real)
        back = tl.dot(by_reset, tl.trans(to_reset), total * update, input_precision="ieee")
        back = tl.dot(by_update, tl.trans(to_update), back, input_precision="ieee")
        back = tl.dot(through, tl.trans(to_new), back, input_precision="ieee")
        slope = tl.where(real, back, slope)
