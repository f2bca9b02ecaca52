"""How far weights go in a step of training: step sizes by part and by time, and gradients that are too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from labelwise.network.network import LabelNetwork

if TYPE_CHECKING:
    from labelwise.network.training import TrainingSettings


def step_sizes(network: LabelNetwork, settings: TrainingSettings) -> list[dict[str, Any]]:
    """The weights to train, in groups of one step size: deeper layers smaller ones, what stands on the token encoder its own."""
    levels = network.token_encoder.levels()
    depths = {weight: len(levels) - 1 - place for place, level in enumerate(levels) for weight in level.parameters()}
    encoder = {*network.token_encoder.parameters(), *network.label_encoder.gentle()}
    groups: dict[float, list[Tensor]] = {}
    for weight in network.parameters():
        if weight.requires_grad:
            rate = settings.layer_rate ** depths.get(weight, 0) if weight in encoder else settings.head_rate
            groups.setdefault(settings.learning_rate * rate, []).append(weight)
    return [{"params": weights, "lr": size, "most": size} for size, weights in groups.items()]


def clip_by_last(gradients: list[Tensor], norms: Tensor) -> Tensor:
    """Scale a gradient down to 5 times the largest of the last norms, and give these with its own in the place of the oldest.

    A norm that enters is 1 at most, and at most twice the largest, so that one wild step does not open the gate (SPEC 2.4).
    """
    norm, largest = torch.stack(torch._foreach_norm(gradients)).norm(), norms.max()
    torch._foreach_mul_(gradients, (5 * largest / (norm + 1e-6)).clamp(max=1))  # on the device: asking for a number would wait
    return torch.cat([norms[1:], norm.minimum(2 * largest).clamp(max=1)[None]])


def share_of_step(settings: TrainingSettings, done: int, total: int) -> float:
    """What part of the full step size to take after some of all steps."""
    rise = settings.warmup * total
    if done < rise:
        return (done + 1) / (rise + 1)
    return max(0.0, (total - done) / max(1.0, total - rise)) if settings.decay else 1.0
