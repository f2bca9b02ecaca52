"""A transformer with a vocabulary of its own: byte-pair encoding, then a masked language model over packed sequences.

As in network/training.py, a checkpoint holds all that the next step depends on. The result is an ordinary transformers folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labelwise.errors import BadCorpus, BadSettings, LabelwiseError
from labelwise.features.subwords import Subwords
from labelwise.network.checkpoint import read_checkpoint, write_checkpoint
from labelwise.network.devices import choose_device, precision
from labelwise.network.masked_model import MaskedModel, learn_vocabulary, new_model, read_model, write_model
from labelwise.network.masking import NO_TARGET, hide, pack, places
from labelwise.network.playback import attention_kernels
from labelwise.network.training import CHECKED, State
from labelwise.progress import Progress, silent
from labelwise.settings import Range
from labelwise.storage import check_place, new_folder

BATCH = 1000  # documents cut into sub-words at once
ADVICE = "lower learning_rate or set precision=float32; the last good checkpoint is kept for --resume"


@dataclass(frozen=True)
class PretrainSettings:
    """How a vocabulary and an encoder are trained; with a checkpoint to go on from, vocabulary and shape are the checkpoint's."""

    vocabulary: Annotated[int, Range(300, 1_000_000, log=True)] = 16_384
    """Most sub-words; fewer where no further pair stands twice in the corpus."""
    lower: bool = True
    """Take upper case for lower case."""
    layers: Annotated[int, Range(1, 96)] = 6
    """Of the encoder."""
    width: Annotated[int, Range(8, 8192, log=True)] = 384
    """Components of a state; inner layers have four times as many."""
    heads: Annotated[int, Range(1, 128)] = 6
    """Of attention; the width must be a multiple."""
    length: Annotated[int, Range(8, 8192, log=True)] = 512
    """Tokens of a sequence, and of the longest document that the encoder can read."""
    dropout: Annotated[float, Range(0.0, 0.9)] = 0.1
    """Share of states and attention left out in each step."""
    hidden: Annotated[float, Range(0.01, 0.9)] = 0.15
    """Share of the tokens to predict: 80 % of them shown as [MASK], 10 % as a random token, 10 % as they are."""
    batch: Annotated[int, Range(1, 65_536, log=True)] = 128
    """Sequences per step."""
    learning_rate: Annotated[float, Range(0.0, 1e-1)] = 0.0
    """Largest step size of AdamW; 0 for 5e-4, and for 1e-4 when going on from a checkpoint."""
    warmup: Annotated[float, Range(0.0, 0.9)] = 0.06
    """Share of training in which the step size rises; it then falls to 0 in a straight line."""
    weight_decay: Annotated[float, Range(0.0, 1.0)] = 0.01
    """Of matrices; biases and norms have none."""
    clip: Annotated[float, Range(0.0, 1e6)] = 1.0
    """Longest gradient; 0 for any."""
    epochs: Annotated[int, Range(1, 100_000)] = 40
    """Passes over the training documents."""
    steps: Annotated[int, Range(0, 1_000_000_000)] = 0
    """Steps in all, instead of epochs; 0 for epochs."""
    budget: Annotated[float, Range(0.0, 1e6)] = 0.0
    """Minutes for the steps, 0 for no limit; the step size then falls with time where that runs out sooner."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; auto is bfloat16 on CUDA. Weights, norms and loss are always float32."""
    checkpoint_minutes: Annotated[float, Range(0.0, 1e6)] = 10.0
    """A checkpoint is written this often within an epoch, and after each epoch."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 1
    """Same seed, same bits on a CPU."""


def pretrain(
    train: Sequence[str],
    dev: Sequence[str],
    out: Path,
    settings: PretrainSettings = PretrainSettings(),
    *,
    start: Path | None = None,
    compare: Path | None = None,
    work: Path | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Train a vocabulary and an encoder on texts, or go on from the checkpoint `start`; write a folder and say how it went."""
    check_place(out, "encoder", force=force)
    if start is None and settings.width % settings.heads:
        raise BadSettings(f"width={settings.width} is not a multiple of heads={settings.heads}; change one of them")
    if not any(text.strip() for text in train):
        raise BadCorpus("no training text has a word, so there is nothing to learn from; give a corpus with some")
    reference, device = None if compare is None else Subwords.read(str(compare)), choose_device(settings.device)
    torch.manual_seed(settings.seed)
    model = _new(train, settings, progress) if start is None else read_model(start)
    pieces = [_cut(model.subwords, texts, progress) for texts in (train, dev)]
    words = sum(len(text.split()) for text in train)
    before = None if reference is None else reference.fragmentation(train)
    trainer = Pretrainer(model, settings, *pieces, start=start, device=device, work=work, progress=progress)
    told = {
        "documents": len(train),
        "vocabulary": model.subwords.size,
        "fragmentation": {"before": before, "after": sum(map(len, pieces[0])) / max(1, words)},
        **trainer.run(),
        "from": None if start is None else str(start),
        "settings": asdict(settings),
    }
    with new_folder(out, "encoder", force=force) as draft:
        write_model(model, draft)
        (draft / "pretraining.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return told


class Pretrainer:
    """Trains one model; `run` returns when it is done, and says what was done."""

    def __init__(
        self,
        model: MaskedModel,
        settings: PretrainSettings,
        train: Sequence[np.ndarray],
        dev: Sequence[np.ndarray],
        *,
        start: Path | None = None,
        device: torch.device,
        work: Path | None = None,
        progress: Progress = silent,
    ) -> None:
        self.network, self.settings, self.device, self.progress = model.network, settings, device, progress
        self.marks, self.head, self.first = model.marks(device), model.head, model.first
        self.network.to(device)  # type: ignore[arg-type]
        self.length = min(settings.length, self.network.config.max_position_embeddings - self.first)
        self.documents, self.tokens = len(train), sum(map(len, train)) + 2 * len(train)
        self.train, self.dev = (pack(part, self.marks, self.length).to(device) for part in (train, dev))
        self.rows = len(self.train) // self.length
        self.per_epoch = math.ceil(self.rows / settings.batch)
        self.steps = settings.steps or settings.epochs * self.per_epoch
        self.rate = settings.learning_rate or (5e-4 if start is None else 1e-4)
        self.parameters = nn.ParameterList(self.network.parameters())  # each once, those that two layers share too
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [each for each in self.parameters if each.ndim > 1], "weight_decay": settings.weight_decay},
                {"params": [each for each in self.parameters if each.ndim == 1], "weight_decay": 0.0},
            ],
            betas=(0.9, 0.98),
            eps=1e-6,
            fused=device.type in ("cpu", "cuda"),
        )
        self.state, self.place = State(), None if work is None else work / "checkpoint.safetensors"
        changing = ("device", "budget", "checkpoint_minutes")
        self.fingerprint = {key: value for key, value in asdict(settings).items() if key not in changing} | {
            "from": None if start is None else str(start),
            "training documents": _digest(self.train),
            "development documents": _digest(self.dev),
        }

    def run(self) -> dict[str, Any]:
        """Train to the end."""
        state = self.state
        if self.place is not None and self.place.is_file():
            read_checkpoint(self.place, self.parameters, self.optimizer, state, self.fingerprint)
        self.begun = time.monotonic() - state.elapsed
        while not state.history or self._done() < 1:
            try:
                self._epoch()
                self._judge()
            except torch.OutOfMemoryError as error:
                raise LabelwiseError(
                    f"out of memory on {self.device} with {self.settings.batch} sequences of {self.length} tokens: lower batch "
                    f"or length ({str(error).splitlines()[0]})"
                ) from None
            self._save()
        last = state.history[-1]
        return {
            "parameters": sum(parameter.numel() for parameter in self.parameters),
            "steps": last["steps"],
            "tokens_seen": round(last["passes"] * self.tokens),
            "tokens_per_second": round(last["passes"] * self.tokens / state.elapsed, 1),
            "documents_per_second": round(last["passes"] * self.documents / state.elapsed, 1),
            "seconds": round(state.elapsed, 1),
            "loss": last["loss"],
            "dev_loss": last["dev_loss"],
            "history": state.history,
        }

    def _done(self, ahead: float = 0.0) -> float:
        """The share of training that is done, by steps or by time, whichever is more."""
        spent = (time.monotonic() - self.begun) / 60 / self.settings.budget if self.settings.budget else 0.0
        return max((self.state.epoch * self.per_epoch + self.state.step + ahead) / self.steps, spent)

    def _epoch(self) -> None:
        """One pass over the training documents, cut anew, from where the last checkpoint left it."""
        state, saved = self.state, time.monotonic()
        random = np.random.default_rng((self.settings.seed, state.epoch))
        rows = self.train.roll(int(random.integers(len(self.train)))).view(-1, self.length)
        order = torch.from_numpy(random.permutation(self.rows)).to(self.device)
        batches = [order[at : at + self.settings.batch] for at in range(0, self.rows, self.settings.batch)]
        self.network.train()
        losses: list[Tensor] = []
        for batch in self.progress(batches[state.step :], self._task(), len(batches) - state.step):
            losses.append(self._step(rows[batch].long()) * len(batch))
            state.step += 1
            due = (time.monotonic() - saved) / 60 >= self.settings.checkpoint_minutes
            last = state.step == len(batches) or self._done() >= 1
            if len(losses) == CHECKED or due or last:
                self._check(losses)
            if last:
                break
            if due:
                self._save()
                saved = time.monotonic()

    def _step(self, rows: Tensor) -> Tensor:
        """AdamW's next step; the mean loss of the batch, still on the device."""
        done, rise = self._done(0.5), self.settings.warmup
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * max(0.0, min(done / rise if rise else 1.0, (1 - done) / (1 - rise)))
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(rows)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.settings.clip:
            nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        self.optimizer.step()
        return loss.detach()

    def _loss(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Mean cross-entropy of the hidden tokens of (batch, length) rows."""
        shown, hidden, truth = hide(rows, self.marks, self.settings.hidden, generator)
        with precision(self.settings.precision, self.device):
            states = self._states(shown, rows)
            # The product with the vocabulary is the largest of all, so only hidden places have it.
            scores = self.head(states.gather(1, hidden[:, :, None].expand(-1, -1, states.shape[2])))
        total = cross_entropy(scores.float().flatten(0, 1), truth.flatten(), ignore_index=NO_TARGET, reduction="sum")
        return total / (truth != NO_TARGET).sum().clamp(min=1)  # a sequence may hold nothing but marks

    def _states(self, shown: Tensor, rows: Tensor) -> Tensor:
        """(batch, length, width), the encoder's states of what is shown, each document by itself."""
        positions, together = places(rows, self.marks)
        with attention_kernels(self.length, masked=True):
            found: Tensor = self.network.base_model(
                input_ids=shown, attention_mask=together, position_ids=positions + self.first
            ).last_hidden_state
        return found

    def _check(self, losses: list[Tensor]) -> None:
        """Add up losses, or stop at one that is not a number; the checkpoint on disk is older and good."""
        before = self.state.epoch * self.per_epoch + self.state.step - len(losses)
        for step, value in enumerate(torch.stack(losses).tolist(), start=before + 1):
            if not math.isfinite(value):
                raise LabelwiseError(f"the loss is {value} at step {step}: {ADVICE}")
            self.state.total += value
        losses.clear()

    def _judge(self) -> None:
        """Close an epoch: what it came to, and the loss on the development documents."""
        state, seen = self.state, min(self.state.step * self.settings.batch, self.rows)
        line = {
            "epoch": state.epoch + 1,
            "steps": state.epoch * self.per_epoch + state.step,
            "passes": state.epoch + seen / self.rows,
            "loss": state.total / seen,
            "dev_loss": self._dev_loss(),
        }
        state.history.append(line)
        state.epoch, state.step, state.total = state.epoch + 1, 0, 0.0

    @torch.no_grad()
    def _dev_loss(self) -> float | None:
        """The loss on the development documents, the same tokens hidden each time."""
        if not len(self.dev):
            return None
        self.network.train(False)
        generator, rows = torch.Generator(self.device).manual_seed(self.settings.seed), self.dev.view(-1, self.length)
        batches = [rows[at : at + self.settings.batch].long() for at in range(0, len(rows), self.settings.batch)]
        return sum(float(self._loss(batch, generator)) * len(batch) for batch in batches) / len(rows)

    def _task(self) -> str:
        last, shown = self.state.history[-1] if self.state.history else None, ""
        if last is not None:
            speed = last["passes"] * self.tokens / max(self.state.elapsed, 1e-9)
            shown = f" · loss {last['loss']:.3f} · {speed:,.0f} tokens/s"
            shown += f" · held out {last['dev_loss']:.3f}" if last["dev_loss"] is not None else ""
        return f"epoch {self.state.epoch + 1} of {math.ceil(self.steps / self.per_epoch)}{shown}"

    def _save(self) -> None:
        """Write a checkpoint, unless the last step has spoilt the weights: then the one on disk is the last good one."""
        self.state.elapsed = time.monotonic() - self.begun
        if not all(torch.isfinite(parameter).all() for parameter in self.parameters):
            raise LabelwiseError(f"weights that are not finite after epoch {self.state.epoch}: {ADVICE}")
        if self.place is not None:
            write_checkpoint(self.place, self.parameters, self.optimizer, None, self.state, self.fingerprint)


def _cut(subwords: Subwords, texts: Sequence[str], progress: Progress) -> list[np.ndarray]:
    """The tokens of each text."""
    batches = [texts[at : at + BATCH] for at in range(0, len(texts), BATCH)]
    return [part for batch in progress(batches, "cut sub-words", len(batches)) for part in subwords.numbers(batch, None)]


def _new(texts: Sequence[str], settings: PretrainSettings, progress: Progress) -> MaskedModel:
    """A vocabulary learned from the texts, and a network with random weights."""
    shown = progress(texts, "learn vocabulary", len(texts))
    return new_model(
        learn_vocabulary(shown, settings.vocabulary, lower=settings.lower),
        layers=settings.layers,
        width=settings.width,
        heads=settings.heads,
        length=settings.length,
        dropout=settings.dropout,
    )


def _digest(tokens: Tensor) -> str:
    return hashlib.sha256(tokens.cpu().numpy().tobytes()).hexdigest()[:16]
