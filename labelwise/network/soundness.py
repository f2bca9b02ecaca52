"""What is refused of a checkpoint: weights in a pickle, those that do not fit or are not finite, and what is no encoder.

Nothing is refused for its family's name. Six tokens are read instead, by the checkpoint itself.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labelwise.errors import BadModel
from labelwise.features.subwords import quiet

ALIKE = {"xlm-roberta": "roberta", "camembert": "roberta"}  # families that compute the same; checkpoints mix their names


def require_safetensors(folder: Path) -> None:
    """Refuse a folder without weights, or with weights in a pickle only."""
    if any(folder.glob("*.safetensors")) or any(folder.glob("*.safetensors.index.json")):
        return
    pickled = next((path.name for pattern in ("*.bin", "*.pt", "*.ckpt") for path in sorted(folder.glob(pattern))), None)
    if pickled:
        raise BadModel(
            f"{folder / pickled}: weights in a pickle, which could run code, are not read; convert them where you trust them: "
            f"`AutoModel.from_pretrained({str(folder)!r}).save_pretrained(NEW_FOLDER)` writes model.safetensors, and "
            "the same with AutoTokenizer its tokenizer"
        )
    raise BadModel(f"{folder}: no model.safetensors in it; give a folder that `save_pretrained` wrote")


def require_family(checkpoint: str, config: Any) -> None:
    """Refuse weights of one family under the name of another: where their names agree, only results would tell."""
    import transformers

    for name in config.architectures or ():
        family = getattr(getattr(getattr(transformers, name, None), "config_class", None), "model_type", config.model_type)
        if ALIKE.get(family, family) != ALIKE.get(config.model_type, config.model_type):
            raise BadModel(
                f"{checkpoint}: config.json says model_type {config.model_type}, but architectures {name}, which is {family}; "
                "set model_type to what the weights are"
            )


def require_fit(checkpoint: str, model: Any, told: dict[str, Any]) -> None:
    """Refuse weights that are not those of this encoder, by name; what belongs to none of its parts is a head, and harmless."""
    parts = tuple(f"{name}." for name, _ in model.named_children())
    missing = [name for name in told["missing_keys"] if not name.startswith("pooler.")]
    unknown = [name for name in told["unexpected_keys"] if name.removeprefix(f"{model.base_model_prefix}.").startswith(parts)]
    unknown = [name for name in unknown if "position_ids" not in name]  # old versions of the library saved them
    resized = [f"{name}: {tuple(there)}, not {tuple(wanted)}" for name, there, wanted in told["mismatched_keys"]]
    if missing or unknown or resized:
        raise BadModel(
            f"{checkpoint}: the weights do not fit the {model.config.model_type} that config.json describes: "
            f"{_named('missing', missing)}{_named('not known', unknown)}{_named('of another size', resized)}"
            "give a folder whose files belong together"
        )
    if broken := [name for name, weight in model.named_parameters() if not weight.isfinite().all()]:
        raise BadModel(f"{checkpoint}: {_named('with weights that are not finite', broken)}copy or download it again")


@torch.no_grad()
def require_encoder(checkpoint: str, model: Any) -> None:
    """Refuse what reads from left to right only, or sees padding, as six tokens tell of any family."""
    config, short = model.config, 3
    padding = getattr(config, "pad_token_id", None) or 0
    words = torch.tensor([number for number in range(min(getattr(config, "vocab_size", 16), 16)) if number != padding])
    numbers = words[torch.arange(2 * short) % len(words)].repeat(2, 1)
    numbers[1, 1:short], numbers[1, short:] = numbers[0, short:-1], padding
    mask = torch.ones_like(numbers)
    mask[1, short:] = 0
    # Some families set themselves to short rows for good, so a copy is asked; weights are not copied.
    asked = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()}).eval()
    try:
        with quiet(), torch.random.fork_rng(devices=[]):
            states = asked(input_ids=numbers, attention_mask=mask).last_hidden_state
            alone = asked(input_ids=numbers[1:, :short]).last_hidden_state
        seen, leaked = _distance(states[0, 0], states[1, 0]), _distance(states[1, :short], alone[0])
    except Exception as error:  # families raise all kinds
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise BadModel(
            f"{checkpoint}: {config.model_type} cannot read a short text beside a longer one ({reason}); take an encoder such "
            "as BERT"
        ) from None
    if seen <= 1e-6 * float(states.abs().max()):
        raise BadModel(
            f"{checkpoint}: this {config.model_type} reads from left to right only, so its first state says nothing of a text; "
            "take an encoder such as BERT"
        )
    if leaked > 0.01 * seen:  # rounding comes to 0.0001, padding that is seen to more than 1
        raise BadModel(
            f"{checkpoint}: {config.model_type} does not respect the attention mask: scores would change with other documents "
            "of the batch; take an encoder such as BERT"
        )


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def _named(what: str, names: list[str]) -> str:
    return f"{len(names)} {what} ({', '.join(sorted(names)[:3])}{', …' if len(names) > 3 else ''}); " if names else ""
