"""Large tables of which a step needs a few rows: gradients of those rows only, and Adam that moves them only.

A row goes where Adam would take it in the steps that touch it; in all others it rests, and so do its moments. So a step costs
what its rows cost, whatever the size of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Rows(torch.autograd.Function):
    """Rows of a table by their numbers, ascending and each once; the table's gradient is sparse."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, numbers: Tensor) -> Tensor:
        """(numbers, …) rows."""
        ctx.save_for_backward(numbers)
        ctx.shape = table.shape
        return table[numbers]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor, None]:
        """A gradient of these rows alone."""
        (numbers,) = ctx.saved_tensors
        gradient = torch.sparse_coo_tensor(numbers[None], arriving, ctx.shape, is_coalesced=True, check_invariants=False)
        return gradient, None


class RowAdam(torch.optim.Adam):
    """Adam; of a weight whose gradient is sparse only the rows in it are moved, each by a count of steps of its own."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move all weights that have a gradient."""
        sparse = []
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None and weight.grad.is_sparse:
                    self._move(weight, group)
                    sparse.append((weight, weight.grad))
                    weight.grad = None  # out of the sight of Adam
        super().step(closure)
        for weight, gradient in sparse:
            weight.grad = gradient

    def _move(self, weight: Tensor, group: dict[str, Any]) -> None:
        assert weight.grad is not None
        state, gradient, (first, second) = self.state[weight], weight.grad.coalesce(), group["betas"]
        if not state:
            state["step"] = weight.new_zeros(len(weight), dtype=torch.float32)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        rows, slopes = gradient.indices()[0], gradient.values()
        steps = state["step"][rows] + 1
        mean = state["exp_avg"][rows].lerp_(slopes, 1 - first)
        square = state["exp_avg_sq"][rows].mul_(second).addcmul_(slopes, slopes, value=1 - second)
        for name, values in (("step", steps), ("exp_avg", mean), ("exp_avg_sq", square)):
            state[name].index_copy_(0, rows, values)
        steps = steps.view(-1, *[1] * (weight.dim() - 1))
        roots = square.div_(1 - second**steps).sqrt_().add_(group["eps"])
        weight.index_copy_(0, rows, weight[rows] - mean.div_(1 - first**steps).div_(roots).mul_(group["lr"]))


def clippable(weights: list[Tensor]) -> list[Tensor]:
    """The gradients of weights as tensors to be changed in place; of sparse ones the rows that are there."""
    found = []
    for weight in weights:
        if weight.grad is not None:
            if weight.grad.is_sparse:
                weight.grad = weight.grad.coalesce()
            found.append(weight.grad.values() if weight.grad.is_sparse else weight.grad)
    return found
