"""The training loop: batches by length, Adam, early stopping on the development documents, checkpoints.

A round of steps ends with a look at the development documents; it is an epoch, or a part of one where `judge_steps` says so.
Everything that the next step depends on (parameters, Adam's moments, random state, place in the epoch) is in the checkpoint,
and the order of batches follows from seed and epoch alone; so a run that was killed and resumed ends in the same model as one
that was not, bit for bit on a CPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from labelwise.corpus import evenly
from labelwise.errors import LabelwiseError
from labelwise.metrics import ndcg, r_precision
from labelwise.network.batches import Examples, bucketed
from labelwise.network.checkpoint import read_checkpoint, write_checkpoint
from labelwise.network.devices import memory_advice, precision
from labelwise.network.label_encoders import LearnedLabels
from labelwise.network.network import LabelNetwork
from labelwise.network.rows import RowAdam, clippable
from labelwise.network.steps import clip_by_last, share_of_step, step_sizes
from labelwise.network.transfer import send
from labelwise.progress import Progress
from labelwise.settings import Range

TOKENS = 1 << 16  # of a batch in prediction
CHECKED = 64  # steps between looks at the loss: each look waits for the GPU
SPARED = 10.0  # times what a checkpoint takes to write, before an epoch's end has another one written
Watch = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained (SPEC 1.13)."""

    batch: Annotated[int, Range(1, 4096, log=True, tried=2)] = 16
    """Documents per step."""
    accumulate: Annotated[int, Range(1, 1024)] = 1
    """Parts a step is cut into, to need less memory."""
    learning_rate: Annotated[float, Range(1e-6, 1e-1, log=True, tried=5)] = 1e-3
    """Step size of Adam, constant unless there is a warm-up or decay."""
    warmup: Annotated[float, Range(0.0, 1.0)] = 0.0
    """Share of all steps over which the step size rises from 0."""
    decay: bool = False
    """Let the step size fall to 0, in a line from the end of the warm-up to the last step of the last epoch."""
    head_rate: Annotated[float, Range(1e-3, 1e4, log=True)] = 1.0
    """Step size of all but the token encoder, as a multiple."""
    layer_rate: Annotated[float, Range(0.01, 1.0)] = 1.0
    """Step size of each layer of a transformer, as a multiple of that of the layer above it."""
    eps: Annotated[float, Range(1e-12, 1e-2, log=True)] = 1e-7
    """Adam's guard against division by nothing."""
    clip_value: Annotated[float, Range(0.0, 1e6)] = 5.0
    """Each component of the gradient is cut to this size; 0 for never."""
    clip_queue: bool = False
    """Scale the gradient down to 5 times the longest of the last five, none of which counts for more than 1 (AttentionXML)."""
    epochs: Annotated[int, Range(1, 10_000)] = 50
    """Most passes over the training documents; all of them without development documents."""
    patience: Annotated[int, Range(1, 10_000)] = 5
    """Stop after so many looks at the development documents without a better result, and go back to the best."""
    judge_steps: Annotated[int, Range(0, 1_000_000)] = 0
    """Look at the development documents after so many steps, and after each epoch; 0 for after each epoch only."""
    documents: Annotated[int, Range(0, 1_000_000_000)] = 0
    """Training documents that are read, evenly spread; 0 for all. Labels of the others only are labels without any."""
    judged: Annotated[int, Range(0, 1_000_000_000)] = 0
    """Development documents that a look takes, evenly spread; 0 for all."""
    average: Annotated[float, Range(0.0, 0.9999)] = 0.0
    """Keep a running mean of the weights instead of the last ones: the share of the old mean after a step; 0 for no mean."""
    average_from: Annotated[int, Range(0, 10_000)] = 0
    """After so many epochs, keep the plain mean of the weights at each look at the development documents; 0 for never."""
    monitor: Literal["loss", "rp", "ndcg"] = "loss"
    """What is better on the development documents: lower loss, or higher RP or nDCG at the corpus's k."""
    unseen: Literal["negatives", "masked", "excluded"] = "negatives"
    """Labels without a training document: trained to say no, left out of the loss, or out of the graph of labels too."""
    sampled: Annotated[int, Range(0, 1_000_000)] = 0
    """Labels that a step scores: those of its documents, filled up with others drawn at random; 0 for all labels."""
    buckets: bool = True
    """Put documents of similar length into a batch, so that short ones do not pay for long ones."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; auto is bfloat16 on CUDA, and where a transformer predicts on a CPU that is made for it."""
    record: bool = True
    """Record a transformer's kernels on a GPU and play them back, which is faster; not where steps are cut into parts."""
    checkpoint_minutes: Annotated[float, Range(0.0, 1e6)] = 10.0
    """A checkpoint is written this often within an epoch, and after each epoch that is long beside the writing of one."""


class Round(NamedTuple):
    """What one round came to; a line of history.jsonl but for the speed, which no two runs share."""

    epoch: int
    step: int  # of the epoch
    loss: float
    documents_per_second: float
    dev: dict[str, float]
    best: bool


@dataclass
class State:
    """Where training stands, besides the tensors."""

    epoch: int = 0  # epochs that are complete
    step: int = 0  # batches of the running epoch that are done
    documents: int = 0  # of the running round
    total: float = 0.0  # loss of the running round, summed over documents
    seconds: float = 0.0  # of the running round
    before: float = 0.0  # seconds that reading took before the first round
    elapsed: float = 0.0  # seconds of the rounds that are complete, their tests included
    waited: int = 0  # rounds since the best one
    best: float = math.inf
    averaged: int = 0  # rounds whose weights are in the plain mean
    norms: list[float] = field(default_factory=lambda: [0.0] * 4 + [math.inf])  # of the last five gradients
    history: list[dict[str, Any]] = field(default_factory=list)


class Scored(NamedTuple):
    """What a network says of some documents."""

    ranked: Tensor  # (batch, candidates), by which they are ranked
    wanted: Tensor  # (batch, candidates), 1 where right
    loss: Tensor  # summed up
    entries: int  # that are in the sum


class Trainer:
    """Trains one network; `run` returns when it is done and leaves the best weights in the network."""

    def __init__(
        self,
        network: LabelNetwork,
        settings: TrainingSettings,
        train: Examples,
        dev: Examples | None,
        *,
        seed: int,
        device: torch.device,
        budget: float = 0.0,
        begun: float | None = None,
        work: Path | None = None,
        fingerprint: dict[str, Any] | None = None,
        progress: Progress,
        stage: str = "",
        watch: Watch | None = None,
    ) -> None:
        self.network, self.settings, self.seed, self.device = network.to(device), settings, seed, device
        self.train, self.dev, self.progress = train.to(device), dev.to(device) if dev is not None else None, progress
        groups = step_sizes(network, settings)
        self.optimizer = RowAdam(groups, eps=settings.eps, fused=device.type in ("cpu", "cuda"))
        self.weights: list[Tensor] = [weight for group in groups for weight in group["params"]]
        self.state, self.budget, self.begun = State(), budget or math.inf, time.monotonic() if begun is None else begun
        self.looked_at = None if dev is None else _some(dev, settings)
        self.best: dict[str, Tensor] | None = None
        self.mean = _copies(self.weights) if settings.average else []
        self.steps = math.ceil(len(train) / settings.batch)  # of an epoch
        self.place = None if work is None else work / "-".join([*stage.split(), "checkpoint.safetensors"])
        self.fingerprint, self.stage, self.watch = fingerprint or {}, stage, watch
        seen = torch.from_numpy(train.counts() > 0).to(device)
        self.candidates = None if settings.unseen == "negatives" else torch.nonzero(seen)[:, 0]  # labels in the loss
        self.in_loss = np.flatnonzero(train.counts() + (settings.unseen == "negatives"))  # the same, on the host
        learned = isinstance(network.label_encoder, LearnedLabels)  # one that is not trained has nothing to say
        self.scored = self.candidates if learned or settings.unseen == "excluded" else None  # labels that dev is scored with
        used = train.counts() + (0 if dev is None else dev.counts()) > 0  # labels that nobody uses are scored, never ranked
        self.ranked = torch.from_numpy(np.flatnonzero(used)).to(device) if self.scored is None else None
        if isinstance(network.label_encoder, LearnedLabels) and self.candidates is not None:
            network.label_encoder.trained.copy_(seen)

    def run(self) -> list[dict[str, Any]]:
        """Train to the end and give the history."""
        torch.manual_seed(self.seed)
        self.state.before = time.monotonic() - self.begun
        if self.place is not None and self.place.is_file():
            self.best = read_checkpoint(self.place, self.network, self.optimizer, self.state, self.fingerprint, self.mean)
        self.norms, self.saved, self.writing = torch.tensor(self.state.norms, device=self.device), time.monotonic(), 0.0
        if self.settings.record and self.settings.accumulate == 1 and self.device.type == "cuda":
            self.network.token_encoder.record(True)
        while not self._done():
            self._round()
            self._judge()
            spared = time.monotonic() - self.saved >= SPARED * self.writing
            if (self.state.step == 0 and spared) or self._due() or self._done():
                self._save()
        self.network.token_encoder.record(False)
        if self.best is not None:
            self.network.load_state_dict(self.best)
        elif self.mean:
            _copy(self.weights, self.mean)
        self.network.eval()
        return self.state.history

    def _done(self) -> bool:
        """Whether epochs, patience or, after one epoch, time are used up; a round is taken to last as long as the others."""
        state, given = self.state, self.settings
        next_end = state.before + state.elapsed * (1 + 1 / max(1, len(state.history)))
        impatient = self.dev is not None and state.waited >= given.patience
        late = state.epoch > 0 and next_end > 60 * self.budget
        return state.epoch >= given.epochs or impatient or late

    def _due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return (time.monotonic() - self.saved) / 60 >= self.settings.checkpoint_minutes

    def _round(self) -> None:
        """Steps up to the next look at the development documents, from where the last checkpoint left them."""
        state, begun, size = self.state, time.monotonic(), self.settings.judge_steps or self.steps
        self.network.train()
        batches = bucketed(self.train.lengths, self.settings.batch, (self.seed, state.epoch), buckets=self.settings.buckets)
        end = min(self.steps, (state.step // size + 1) * size)
        losses: list[Tensor] = []
        for batch in self.progress(batches[state.step : end], self._task(), end - state.step):
            losses.append(self._step(batch) * len(batch))
            state.step, state.documents = state.step + 1, state.documents + len(batch)
            due = state.step < end and self._due()  # at the end it comes after the look: else that would be left out
            if len(losses) == CHECKED or due or state.step == end:
                self._check(losses, batches)
            if due:
                state.seconds += time.monotonic() - begun
                begun = time.monotonic()
                self._save()
        state.seconds += time.monotonic() - begun

    def _step(self, batch: np.ndarray) -> Tensor:
        """Adam's next step; the mean loss of the batch, still on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        for part in np.array_split(batch, min(self.settings.accumulate, len(batch))):
            with memory_advice(self.device, self.train.lengths[part]):
                loss = self._loss(self.train, part) * (len(part) / len(batch))
                with torch.autograd.set_multithreading_enabled(False):  # one device: handing over to a thread takes time
                    loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        gradients = clippable(self.weights)
        if self.settings.clip_value:
            torch._foreach_clamp_min_(gradients, -self.settings.clip_value)
            torch._foreach_clamp_max_(gradients, self.settings.clip_value)
        if self.settings.clip_queue:
            self.norms = clip_by_last(gradients, self.norms)
        done = self.state.epoch * self.steps + self.state.step
        for group in self.optimizer.param_groups:
            group["lr"] = group["most"] * share_of_step(self.settings, done, self.settings.epochs * self.steps)
        self.optimizer.step()
        if self.settings.average and not self.state.averaged:
            # Faster in the first steps: the mean should not remember where the weights started.
            self._average(1 - min(self.settings.average, (1 + done) / (10 + done)))
        return total

    @torch.no_grad()
    def _average(self, share: float) -> None:
        """Give the weights a share in their running mean."""
        self.mean = self.mean or _copies(self.weights)
        torch._foreach_lerp_(self.mean, self.weights, share)

    @contextmanager
    def _at_mean(self) -> Iterator[None]:
        """The running mean in the place of the weights, where there is one."""
        kept = _copies(self.weights) if self.mean else []
        _copy(self.weights, self.mean)
        yield
        _copy(self.weights, kept)

    def _loss(self, examples: Examples, rows: np.ndarray) -> Tensor:
        """Mean binary cross-entropy over documents and labels (SPEC 1.0.6)."""
        tokens, targets = examples.batch(rows)
        candidates = self._drawn(rows) if self.settings.sampled else self.candidates
        with precision(self.settings.precision, self.device):
            there = None if candidates is None else send(candidates, self.device)
            return self.network.loss(tokens, _columns(targets, there), candidates=candidates)

    def _drawn(self, rows: np.ndarray) -> Tensor:
        """The labels of these documents, and others, on the host; which ones follows from seed, epoch, step and documents."""
        state, wanted = self.state, np.unique(self.train.gold[rows].indices)
        others = np.setdiff1d(self.in_loss, wanted, assume_unique=True)
        random = np.random.default_rng((self.seed, state.epoch, state.step, int(rows[0])))
        count = min(len(others), max(0, self.settings.sampled - len(wanted)))
        return torch.from_numpy(np.concatenate([wanted, random.choice(others, count, replace=False)]))

    def _check(self, losses: list[Tensor], batches: Sequence[np.ndarray]) -> None:
        """Add up losses, or stop at one that is not a number; the checkpoint on disk is older and good."""
        values = torch.stack(losses).tolist()
        for place, value in enumerate(values, start=self.state.step - len(values)):
            if not math.isfinite(value):
                ids = ", ".join(repr(self.train.ids[row]) for row in batches[place][:3])
                raise LabelwiseError(
                    f"the loss is {value} in epoch {self.state.epoch + 1}, batch {place + 1} (documents {ids}, …): lower "
                    "training.learning_rate or set training.precision=float32; the last good checkpoint is kept for --resume"
                )
            self.state.total += value
        losses.clear()

    def _judge(self) -> None:
        """Close a round: look at the development documents, remember the best weights."""
        state, begun, epoch, step = self.state, time.monotonic(), self.state.epoch + 1, self.state.step
        if step == self.steps:
            state.epoch, state.step = epoch, 0
        if self.settings.average_from and state.epoch >= self.settings.average_from:
            state.averaged += 1
            self._average(1 / state.averaged)
        with self._at_mean():
            dev = self._dev_scores() if self.dev is not None else {}
            badness = dev[self.settings.monitor] * (1 if self.settings.monitor == "loss" else -1) if dev else math.inf
            better = badness < state.best
            if better:
                self.best = {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}
        state.best, state.waited = (badness, 0) if better else (state.best, state.waited + 1)
        speed, loss = state.documents / max(state.seconds, 1e-9), state.total / state.documents
        state.history.append(Round(epoch, step, loss, round(speed, 1), dev, better)._asdict())
        state.elapsed += state.seconds + time.monotonic() - begun
        state.documents, state.total, state.seconds = 0, 0.0, 0.0
        if self.watch is not None and not self.stage:  # rounds of a stage do not compare with those of a whole training
            self.watch(state.history[-1])

    @torch.no_grad()
    def _dev_scores(self) -> dict[str, float]:
        """Loss, RP@k and nDCG@k on the development documents; ranks are among the labels in use, as in the evaluation."""
        assert self.dev is not None
        assert self.looked_at is not None
        self.network.eval()
        total, entries, hits, gold, k = 0.0, 0, [], [], self.dev.k
        score = self._scoring(self.dev)
        for batch in prediction_batches(self.dev.lengths[self.looked_at], self.settings):
            rows = self.looked_at[batch]
            with precision(self.settings.precision, self.device), memory_advice(self.device, self.dev.lengths[rows]):
                scored = score(rows)
            best = scored.ranked.topk(min(k, scored.ranked.shape[1]), dim=1).indices
            hits.append(scored.wanted.gather(1, best).cpu().numpy())
            gold.append(np.diff(self.dev.gold.indptr)[rows])
            total, entries = total + float(scored.loss), entries + scored.entries
        found, count = np.concatenate(hits), np.concatenate(gold)
        some = count > 0  # measures are undefined for documents without a gold label
        ranked = {"rp": r_precision, "ndcg": ndcg} if some.any() else {}
        return {"loss": total / max(1, entries)} | {
            name: float(measure(found[some], count[some], k).mean()) for name, measure in ranked.items()
        }

    def _scoring(self, examples: Examples) -> Callable[[np.ndarray], Scored]:
        """What scores some of the documents; labels are encoded once for all of them."""
        labels = self.network.label_encoder(self.scored)
        counted = self.candidates if self.scored is None else None  # columns of the loss among those that are scored

        def score(rows: np.ndarray) -> Scored:
            tokens, targets = examples.batch(rows)
            wanted, logits = _columns(targets, self.scored), self.network(tokens, labels=labels).float()
            ranked, among = _columns(logits, self.ranked), _columns(wanted, self.ranked)
            logits, wanted = _columns(logits, counted), _columns(wanted, counted)
            loss = binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
            return Scored(ranked, among, loss, wanted.numel())

        return score

    def _task(self) -> str:
        last = self.state.history[-1] if self.state.history else None
        shown = f" · loss {last['loss']:.5f} · {last['documents_per_second']:,.0f} documents/s" if last else ""
        shown += f" · dev {self.settings.monitor} {last['dev'][self.settings.monitor]:.5f}" if last and last["dev"] else ""
        stage = f"{self.stage}, " if self.stage else ""
        within = f", from step {self.state.step:,} of {self.steps:,}" if self.state.step else ""
        return f"{stage}epoch {self.state.epoch + 1} of at most {self.settings.epochs}{within}{shown}"

    def _save(self) -> None:
        """Write a checkpoint, unless the last step has spoilt the weights: then the one on disk is the last good one."""
        if not all(torch.isfinite(parameter).all() for parameter in self.network.parameters()):
            raise LabelwiseError(
                f"weights that are not finite after epoch {self.state.epoch}: lower training.learning_rate or set "
                "training.precision=float32; the last good checkpoint is kept for --resume"
            )
        self.state.norms, begun = self.norms.tolist(), time.monotonic()
        if self.place is not None:
            write_checkpoint(self.place, self.network, self.optimizer, self.best, self.state, self.fingerprint, self.mean)
        self.saved = time.monotonic()
        self.writing = self.saved - begun


def _some(dev: Examples, settings: TrainingSettings) -> np.ndarray:
    """The rows of development documents that a look takes, evenly spread; where labels are ranked, of those that have some."""
    rows = np.arange(len(dev))
    if not 0 < settings.judged < len(rows):
        return rows
    if settings.monitor != "loss":
        rows = np.flatnonzero(np.diff(dev.gold.indptr))
    return rows[evenly(min(settings.judged, len(rows)), len(rows))]


def _columns(values: Tensor, wanted: Tensor | None) -> Tensor:
    return values if wanted is None else values[:, wanted]


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _copy(into: list[Tensor], values: list[Tensor]) -> None:
    """Overwrite tensors, if there is something to overwrite them with."""
    if values:
        with torch.no_grad():
            torch._foreach_copy_(into, values)


def prediction_batches(lengths: np.ndarray, settings: TrainingSettings, tokens: int = TOKENS) -> list[np.ndarray]:
    """Rows in batches for prediction, longest first: larger than in training, but of a bounded number of tokens."""
    rows = np.argsort(-lengths, kind="stable")
    size, batches, start = max(1, 4 * settings.batch // settings.accumulate), [], 0
    while start < len(rows):
        count = max(1, min(size, tokens // max(1, int(lengths[rows[start]]))))
        batches.append(rows[start : start + count])
        start += count
    return batches
