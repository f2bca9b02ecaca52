"""Checkpoints: one safetensors file with everything the next training step depends on, replaced in one step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from labelwise.errors import BadModel, BadSettings
from labelwise.storage import write_bytes

if TYPE_CHECKING:
    from labelwise.network.training import State


def write_checkpoint(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    best: Mapping[str, Tensor] | None,
    state: State,
    fingerprint: Mapping[str, Any],
    mean: Sequence[Tensor] = (),
) -> None:
    """Write where training stands; a kill leaves the old checkpoint or the new one."""
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in (best or {}).items()}
    tensors |= {f"mean.{number}": tensor for number, tensor in enumerate(mean)}
    for number, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{name}": value for name, value in moments.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    device = next(network.parameters()).device
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        tensors["random.mps"] = torch.mps.get_rng_state()
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    told = {"state": json.dumps(asdict(state)), "fingerprint": json.dumps(fingerprint, sort_keys=True)}
    write_bytes(path, save(plain, told), force=True)


def read_checkpoint(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: State,
    fingerprint: Mapping[str, Any],
    mean: list[Tensor] | None = None,
) -> dict[str, Tensor] | None:
    """Put everything back to where a checkpoint was written, and give the best weights so far."""
    try:
        with safe_open(path, "pt") as file:
            told = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise BadModel(f"{path}: damaged ({error}); train again without --resume") from None
    _require_same(path, json.loads(told["fingerprint"]), json.loads(json.dumps(fingerprint)))
    for name, value in json.loads(told["state"]).items():
        setattr(state, name, value)
    parts: dict[str, dict[str, Tensor]] = {"network": {}, "best": {}, "mean": {}, "adam": {}, "random": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = tensor
    network.load_state_dict(parts["network"])
    device = next(network.parameters()).device
    if mean is not None:
        mean[:] = [parts["mean"][str(place)].to(device) for place in range(len(parts["mean"]))]
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parts["adam"].items():
        number, _, kind = name.partition(".")
        moments.setdefault(int(number), {})[kind] = tensor
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(parts["random"]["cpu"])
    if device.type == "cuda" and "cuda" in parts["random"]:
        torch.cuda.set_rng_state(parts["random"]["cuda"], device)
    elif device.type == "mps" and "mps" in parts["random"]:
        torch.mps.set_rng_state(parts["random"]["mps"])
    return {name: tensor.to(device) for name, tensor in parts["best"].items()} or None


def _require_same(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings or data than the checkpoint's, and say which."""
    different = [
        f"{key}: {stored.get(key)!r} in the checkpoint, {wanted.get(key)!r} now"
        for key in sorted(stored.keys() | wanted.keys())
        if stored.get(key) != wanted.get(key)
    ]
    if different:
        raise BadSettings(
            f"{path}: training began otherwise, so it cannot be resumed ({'; '.join(different)}); go back to those settings, or "
            "train again without --resume"
        )
