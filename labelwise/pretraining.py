"""A transformer with a vocabulary of its own: byte-pair encoding, then a masked language model over packed sequences.

Documents lie one after the other and are cut into full sequences, yet a token looks at its own document only and positions
start anew with each: a document has the states that it would have alone. As in network/training.py, a checkpoint holds all
that the next step depends on. The result is an ordinary transformers folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from labelwise.errors import BadCorpus, BadModel, BadSettings, LabelwiseError
from labelwise.features.subwords import Subwords, quiet
from labelwise.network.checkpoint import read_checkpoint, write_checkpoint
from labelwise.network.training import CHECKED, State, choose_device
from labelwise.progress import Progress, silent
from labelwise.settings import Range
from labelwise.storage import check_place, new_folder

MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
HEADS = {"bert": "cls", "roberta": "lm_head", "xlm-roberta": "lm_head"}  # where a model keeps its prediction of hidden words
NO_TARGET = -100  # what cross_entropy passes over
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
    compile: bool = False
    """Let torch compile the encoder; pays on long runs."""
    checkpoint_minutes: Annotated[float, Range(0.0, 1e6)] = 10.0
    """A checkpoint is written this often within an epoch, and after each epoch."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 1
    """Same seed, same bits on a CPU."""


class Model(NamedTuple):
    """What is trained: a network that predicts hidden words, its vocabulary, and a pooler that is carried along untrained."""

    tokenizer: PreTrainedTokenizerFast
    subwords: Subwords
    network: PreTrainedModel
    pooler: dict[str, Tensor]


class Marks(NamedTuple):
    """The tokens of a vocabulary that stand for no text, and those that do."""

    start: int
    end: int
    pad: int
    mask: int
    special: Tensor
    ordinary: Tensor

    @classmethod
    def of(cls, model: Model, device: torch.device) -> Marks:
        """The marks of a model's vocabulary."""
        words, special = model.subwords, np.array(model.tokenizer.all_special_ids)
        numbers = (special, np.setdiff1d(np.arange(words.size), special))
        on_device = [torch.from_numpy(ids).to(device) for ids in numbers]
        return cls(words.first, words.last, words.padding, model.tokenizer.mask_token_id, *on_device)


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
        raise BadCorpus("no training texts, so there is nothing to learn from")
    reference, device = None if compare is None else Subwords.read(str(compare)), choose_device(settings.device)
    torch.manual_seed(settings.seed)
    model = _new(train, settings, progress) if start is None else _read(start)
    pieces = [_cut(model.subwords, texts, progress) for texts in (train, dev)]
    before = None if reference is None else reference.fragmentation(train)
    trainer = Pretrainer(model, settings, *pieces, start=start, device=device, work=work, progress=progress)
    told = {
        "documents": len(train),
        "vocabulary": model.subwords.size,
        "fragmentation": {"before": before, "after": model.subwords.fragmentation(train)},
        **trainer.run(),
        "from": None if start is None else str(start),
        "settings": asdict(settings),
    }
    with new_folder(out, "encoder", force=force) as draft:
        _write(model, draft)
        (draft / "pretraining.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return told


def learn_vocabulary(texts: Iterable[str], size: int, *, lower: bool = True) -> Tokenizer:
    """A byte-level byte-pair vocabulary: no text is unknown to it, and frequent words are whole."""
    cutter = Tokenizer(models.BPE())
    cutter.normalizer = normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase()] if lower else [])])
    cutter.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    cutter.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        # The space before a hidden word belongs to it, as it does to any other.
        special_tokens=[AddedToken(name, special=True, lstrip=name == "[MASK]") for name in MARKS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    cutter.train_from_iterator(texts, trainer)
    marks = [(name, cutter.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    framed = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=marks)
    cutter.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), framed])
    return cutter


def pack(documents: Sequence[np.ndarray], marks: Marks, length: int) -> Tensor:
    """Documents one after the other, each between its marks, padded to a whole number of sequences."""
    start, end = np.array([marks.start], dtype=np.int32), np.array([marks.end], dtype=np.int32)
    parts = [part for document in documents if len(document) for part in (start, document, end)]
    flat = np.concatenate([*parts, np.zeros(0, dtype=np.int32)])  # never nothing at all
    return torch.from_numpy(np.pad(flat, (0, -len(flat) % length), constant_values=marks.pad))


def places(rows: Tensor, marks: Marks) -> tuple[Tensor, Tensor]:
    """(batch, length) positions within the document, and (batch, 1, length, length) whether two tokens are of one document."""
    first = (rows == marks.start) | (rows == marks.pad)  # padding is a document each: a token must look at something
    numbers = torch.arange(rows.shape[1], device=rows.device)
    positions = numbers - torch.where(first, numbers, 0).cummax(1).values
    document = first.cumsum(1)
    return positions, document[:, None, :, None] == document[:, None, None, :]


def hide(rows: Tensor, marks: Marks, share: float, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """What is shown instead of (batch, length) tokens, and (batch, hidden) places to predict with the tokens that stood there.

    Every row has as many places, so nothing waits for the device; where a row has fewer tokens of text there is no target.
    """
    chance = torch.rand(rows.shape, generator=generator, device=rows.device)
    text = ~torch.isin(rows, marks.special)
    chosen = chance.masked_fill(~text, -1).topk(math.ceil(share * rows.shape[1]), dim=1).indices
    wanted = torch.arange(chosen.shape[1], device=rows.device) < (share * text.sum(1, keepdim=True)).ceil()
    truth = rows.gather(1, chosen)
    fate = torch.rand(truth.shape, generator=generator, device=rows.device)
    drawn = torch.randint(len(marks.ordinary), truth.shape, generator=generator, device=rows.device)
    shown = torch.where(fate < 0.8, marks.mask, torch.where(fate < 0.9, marks.ordinary[drawn], truth))
    return rows.scatter(1, chosen, torch.where(wanted, shown, truth)), chosen, torch.where(wanted, truth, NO_TARGET)


class Pretrainer:
    """Trains one model; `run` returns when it is done, and says what was done."""

    def __init__(
        self,
        model: Model,
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
        config, self.marks = self.network.config, Marks.of(model, device)
        self.network.to(device)  # type: ignore[arg-type]
        self.head = getattr(self.network, HEADS[config.model_type])
        self.first = 0 if config.model_type == "bert" else config.pad_token_id + 1  # RoBERTa never uses positions before that
        self.length = min(settings.length, config.max_position_embeddings - self.first)
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
        if settings.compile:
            self.network.base_model.compile()

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
        asked = self.settings.precision
        half = asked == "bfloat16" or (asked == "auto" and self.device.type == "cuda")
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            states = self._states(shown, rows)
            # The product with the vocabulary is the largest of all, so only hidden places have it.
            scores = self.head(states.gather(1, hidden[:, :, None].expand(-1, -1, states.shape[2])))
        total = cross_entropy(scores.float().flatten(0, 1), truth.flatten(), ignore_index=NO_TARGET, reduction="sum")
        return total / (truth != NO_TARGET).sum().clamp(min=1)  # a sequence may hold nothing but marks

    def _states(self, shown: Tensor, rows: Tensor) -> Tensor:
        """(batch, length, width), the encoder's states of what is shown, each document by itself."""
        positions, together = places(rows, self.marks)
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


def _new(texts: Sequence[str], settings: PretrainSettings, progress: Progress) -> Model:
    """A vocabulary learned from the texts, and a network with random weights."""
    shown = progress(texts, "learn vocabulary", len(texts))
    cutter = learn_vocabulary(shown, settings.vocabulary, lower=settings.lower)
    names = {f"{mark[1:-1].lower()}_token": mark for mark in MARKS}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=cutter, model_max_length=settings.length, **names)  # type: ignore[no-untyped-call]
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=4 * settings.width,
        max_position_embeddings=settings.length,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
        pad_token_id=tokenizer.pad_token_id,
    )
    network, encoder = AutoModelForMaskedLM.from_config(config), AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    return Model(tokenizer, Subwords(cutter, ("[CLS]", "[SEP]", "[PAD]"), settings.length), network, _pooler(encoder))


def _read(folder: Path) -> Model:
    """The model of a transformers folder on this machine; what predicts hidden words is new where the folder has none."""
    if not (folder / "config.json").is_file():
        raise BadModel(f"{folder}: no config.json in it; --from takes a transformers folder on this machine")
    if not any(folder.glob("model*.safetensors")):
        found = "only pickled weights" if any(folder.glob("*.bin")) else "no model.safetensors"
        raise BadModel(
            f"{folder}: {found} in it; if you trust where they are from, transformers' "
            "AutoModelForMaskedLM.from_pretrained(FOLDER).save_pretrained(FOLDER) writes model.safetensors"
        )
    subwords, local = Subwords.read(str(folder)), {"local_files_only": True, "use_safetensors": True}
    try:
        with quiet():
            config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
            if config.model_type not in HEADS:
                raise BadModel(f"{folder}: a model of type {config.model_type!r}; --from goes on from {', '.join(HEADS)}")
            tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            encoder = AutoModel.from_pretrained(folder, **local)
            network, report = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True, **local)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise BadModel(f"{folder}: cannot be read ({str(error).partition(chr(10))[0]}); copy or download it again") from None
    if missing := [name for name in report["missing_keys"] if name.startswith(network.base_model_prefix)]:
        raise BadModel(f"{folder}: {len(missing)} weights are missing, such as {min(missing)}; copy or download it again")
    if tokenizer.mask_token_id is None or subwords.size > config.vocab_size:
        raise BadModel(f"{folder}: its tokenizer has no mask, or more tokens than the model; take both from one place")
    return Model(tokenizer, subwords, network.float(), _pooler(encoder.float()))


def _pooler(encoder: PreTrainedModel) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in encoder.state_dict().items() if name.startswith("pooler.")}


def _write(model: Model, folder: Path) -> None:
    """Write a transformers folder in which neither the bare encoder nor the model with its head finds a weight missing."""
    network = model.network
    weights = {f"{network.base_model_prefix}.{name}": tensor for name, tensor in model.pooler.items()}
    weights |= dict(network.named_parameters())  # each once: what predicts words shares their vectors
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    (folder / "model.safetensors").write_bytes(save(plain, {"format": "pt"}))
    network.config.architectures = [type(network).__name__]
    network.config.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def _digest(tokens: Tensor) -> str:
    return hashlib.sha256(tokens.cpu().numpy().tobytes()).hexdigest()[:16]
