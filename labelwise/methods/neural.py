"""Networks as methods: one class for all rows of the paper, told apart by the parts their settings choose.

Flat networks learn two vectors per label; the zero-shot family reads label names and the hierarchy, so it scores labels that
training never saw. Texts are read as words with vectors, or as sub-words of a transformer (readers.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from scipy.sparse import csr_array

from labelwise.corpus import Corpus, Document
from labelwise.errors import BadCorpus, BadModel, BadSettings
from labelwise.features.cache import arrays
from labelwise.features.node2vec import MADE, NodeEncoder, NodeSettings
from labelwise.features.subwords import Subwords
from labelwise.features.vectors import WordVectors
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import Explanation, SavedModel, Span, fitted, model_folder, read_model, settings_from
from labelwise.methods.readers import CACHED, Reader, SubwordReader, WordReader, label_text
from labelwise.network.batches import Examples, filled
from labelwise.network.composition import LEARNED, NetworkSettings, Parts, build
from labelwise.network.devices import choose_device, memory_advice, precision
from labelwise.network.elmo import Elmo, ScalarMix
from labelwise.network.first_fit import begin
from labelwise.network.label_encoders import DescribedLabels, Facts, LabelVectors, LearnedLabels, label_facts
from labelwise.network.network import LabelNetwork
from labelwise.network.read_labels import ReadLabels, Texts
from labelwise.network.token_encoders import Tokens
from labelwise.network.training import TOKENS, Trainer, Watch, prediction_batches
from labelwise.network.transformer import (
    KeptStates,
    TransformerEncoder,
    describe_transformer,
    described_transformer,
    read_transformer,
)
from labelwise.progress import Progress, silent
from labelwise.scores import Scores
from labelwise.settings import flat

THREADS = torch.get_num_threads()  # torch's own choice


Build = Callable[[int], LabelNetwork]  # a network for so many labels
Said = TypeVar("Said")


class Fitted(NamedTuple):
    """All that training leaves behind."""

    labels: LabelSet
    reader: Reader
    nodes: NodeEncoder | None
    network: LabelNetwork


class Network:
    """A label-wise attention network; subclasses name the rows of the paper."""

    name: ClassVar[str]
    Settings: ClassVar[type] = NetworkSettings

    def __init__(self, settings: Any = None) -> None:
        self.settings: NetworkSettings = type(self).Settings() if settings is None else settings
        self.work: Path | None = None  # where checkpoints are kept while training goes on
        self.watch: Watch | None = None  # is told of every look at the development documents, and may raise to end training
        self.history: list[dict[str, Any]] = []
        self._fitted: Fitted | None = None
        self._encoded: tuple[LabelSet, LabelVectors, np.ndarray] | None = None

    def fit(self, train: Corpus, dev: Corpus | None = None, *, progress: Progress | None = None) -> Self:
        """Read the texts, learn node vectors, then train the network, epoch by epoch."""
        begun, show, given, device = time.monotonic(), progress or silent, self.settings, self._prepare()
        parts, labels, train = Parts(given), train.labels, train.spread(given.training.documents)
        if not train.gold().nnz:
            raise BadCorpus(f"no training document of {train.info.name!r} has a label, so there is nothing to learn")
        reader, transformer = self._reader(train, show)
        nodes = self._learn_nodes(labels, device, show) if "nodes" in parts.sources else None
        examples = _examples(train, reader, device, show)
        checked = None if dev is None or not len(dev) else _examples(dev.with_labels(labels), reader, device, show)
        if checked is not None and not checked.gold.nnz and given.training.monitor != "loss":
            raise BadCorpus(f"no development document has a label, so training.monitor={given.training.monitor} says nothing")
        torch.manual_seed(given.seed)
        model = Fitted(labels, reader, nodes, self._network(train, partial(_build, given, reader, nodes, transformer), show))
        self.history = self._train(
            model,
            examples,
            checked,
            seed=given.seed,
            device=device,
            budget=given.budget,
            begun=begun,
            work=self.work,
            fingerprint=self._fingerprint(labels, examples, checked),
            progress=show,
            watch=self.watch,
        )
        self._fitted, self._encoded = model, None
        return self

    def _network(self, train: Corpus, build: Build, progress: Progress) -> LabelNetwork:
        """The network with its first weights."""
        return build(len(train.labels))

    def _train(self, model: Fitted, train: Examples, dev: Examples | None, **how: Any) -> list[dict[str, Any]]:
        """Train the network; what it came to, round by round."""
        given, network, counts = self.settings, model.network, train.counts()
        if isinstance(network.label_encoder, DescribedLabels):
            hidden = (counts == 0) & (given.training.unseen == "excluded")
            network.label_encoder.describe(self._facts(model, model.labels, hidden, warn=True).to(how["device"]))
        elif isinstance(network.label_encoder, ReadLabels):
            encoder, sharpness = network.label_encoder, given.labels.sharpness
            encoder.describe(self._texts(model, model.labels).to(how["device"]))
            begin(network, encoder, train, given.training, seed=given.seed, sharpness=sharpness, device=how["device"])
        if isinstance(network.label_encoder, LearnedLabels | ReadLabels) and given.labels.start == "prior":
            network.label_encoder.start_at(counts, len(train))
        return Trainer(network, given.training, train, dev, **how).run()

    @torch.no_grad()
    def predict(self, corpus: Corpus) -> Scores:
        """Dense scores; labels that a flat network was not trained with score 0."""
        model, device = self._ready()
        vectors, columns = self._encode(corpus.labels, device)
        scores = np.zeros((len(corpus), len(corpus.labels)), dtype=np.float32)
        for rows, logits in self._in_batches(corpus, lambda tokens: model.network(tokens, labels=vectors)):
            scores[np.ix_(rows, columns)] = torch.sigmoid(logits.float()).cpu().numpy()
        return Scores(scores, corpus.labels)

    def remembering(self, corpus: Corpus, progress: Progress) -> AbstractContextManager[None]:
        """A while in which documents are not read again where that is slow."""
        model, device = self._ready()
        return model.reader.remembering(list(corpus), device, progress)

    def _in_batches(self, corpus: Corpus, score: Callable[[Tokens], Said]) -> Iterator[tuple[np.ndarray, Said]]:
        """Rows of documents, and what is said of them in the precision that is asked for."""
        (model, device), documents = self._ready(), list(corpus)
        numbers = model.reader.numbers(documents)
        lengths = np.array([len(row) for row in numbers], dtype=np.int64)
        transformer = isinstance(model.reader, SubwordReader)
        tokens = CACHED if transformer and device.type == "cpu" else TOKENS
        for rows in prediction_batches(lengths, self.settings.training, tokens):
            with (
                precision(self.settings.training.precision, device, predicting=transformer),
                memory_advice(device, lengths[rows]),
            ):
                context = model.reader.context([documents[row] for row in rows], device)
                said = score(_tokens([numbers[row] for row in rows], device, context))
            yield rows, said

    def explain(self, document: Document, label: Label) -> Explanation:
        """Each token's attention times what the label makes of it."""
        model, device = self._ready()
        labels = model.labels
        if label.id not in labels:  # described like any other, below those of its parents that are known
            labels = labels.extended([replace(label, parents=tuple(id for id in label.parents if id in labels))])
        with torch.no_grad():
            vectors, columns = self._encode(labels, device)
        place = np.flatnonzero(columns == labels.column(label.id))
        if not len(place):
            return Explanation(label, 0.0, ())
        tokens = _tokens(model.reader.numbers([document]), device, model.reader.context([document], device))
        found = model.network.contributions(tokens, int(place[0]), vectors)
        parts = model.reader.parts(document)
        spans = tuple(Span(part.start, part.end, sum(found.parts[at] for at in part.numbers)) for part in parts)
        encoder, sources = model.network.label_encoder, {}
        if isinstance(encoder, ReadLabels) and found.summary is not None:
            sources = encoder.sources(int(place[0]), found.summary)
        return Explanation(label, float(torch.sigmoid(torch.tensor(found.logit))), spans, tuple(sources.items()))

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write weights, what reads the texts, node encoder and history."""
        model = self._fitted
        with model_folder(folder, self, fitted(self, None if model is None else model.labels), force=force) as draft:
            assert model is not None
            self._write(model, draft)

    def _write(self, model: Fitted, draft: Path) -> None:
        state = {name: tensor.cpu().contiguous() for name, tensor in model.network.state_dict().items()}
        (draft / "network.safetensors").write_bytes(save(state))
        encoder = model.network.token_encoder
        encoder = encoder.encoder if isinstance(encoder, KeptStates) else encoder
        if isinstance(encoder, TransformerEncoder):
            describe_transformer(encoder.model, draft / "encoder")
        model.reader.save(draft)
        if model.nodes is not None:
            (draft / "nodes.safetensors").write_bytes(_node_bytes(model.nodes))
        lines = [{key: value for key, value in epoch.items() if key != "documents_per_second"} for epoch in self.history]
        (draft / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read weights, what reads the texts, node encoder and history."""
        saved = read_model(folder)
        model = cls(settings_from(cls.Settings, saved, folder))
        given, transformer = model.settings, None
        reader: Reader
        if given.encoder.kind == "transformer":
            transformer = described_transformer(folder / "encoder")
            reader = SubwordReader.load(folder, transformer, given)
        else:
            reader = WordReader.load(folder, given.words, given.seed, elmo=bool(given.encoder.elmo))
        nodes = _read_nodes(folder / "nodes.safetensors", given.labels.nodes) if "nodes" in Parts(given).sources else None
        network = model._saved_network(saved, partial(_build, given, reader, nodes, transformer))
        try:
            network.load_state_dict(load_file(folder / "network.safetensors"))
        except (RuntimeError, OSError, SafetensorError) as error:
            raise BadModel(f"{folder / 'network.safetensors'}: does not fit the settings in model.toml ({error})") from None
        model.history = [json.loads(line) for line in (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()]
        model._fitted = Fitted(saved.labels, reader, nodes, network)
        return model

    def _saved_network(self, saved: SavedModel, build: Build) -> LabelNetwork:
        """The network that was saved, before its weights are read."""
        return build(len(saved.labels))

    def _prepare(self) -> torch.device:
        """The device to use; threads and determinism are the process's, so they are set before every use."""
        torch.set_num_threads(self.settings.threads or THREADS)
        if self.settings.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(self.settings.deterministic)
        return choose_device(self.settings.device)

    def elsewhere(self) -> bool:
        """Whether it is trained on a GPU; where that is not there, `fit` says so."""
        try:
            return choose_device(self.settings.device).type != "cpu"
        except BadSettings:
            return False

    def _ready(self) -> tuple[Fitted, torch.device]:
        """The model, its network in place to be used."""
        fitted(self, None if self._fitted is None else self._fitted.labels)
        assert self._fitted is not None
        try:
            device = self._prepare()
        except BadSettings:  # trained on a device that this machine has not
            device = choose_device("auto")
        self._fitted.network.to(device).eval()
        return self._fitted, device

    def _reader(self, train: Corpus, progress: Progress) -> tuple[Reader, torch.nn.Module | None]:
        """What reads the texts, and the transformer that goes with it."""
        given = self.settings.encoder
        if given.kind != "transformer":
            elmo = Elmo.read(given.elmo) if given.elmo else None  # before the vectors, which take longer to make
            return WordReader(self._read_vectors(train, progress), self.settings.words, self.settings.seed, elmo), None
        transformer, subwords = read_transformer(given.checkpoint), Subwords.read(given.checkpoint)
        table = transformer.get_input_embeddings().weight.detach().numpy()  # type: ignore[operator]
        needed = "centroid" in Parts(self.settings).sources
        return SubwordReader(subwords, table.copy() if needed else table[:0], transformer, self.settings), transformer

    def _read_vectors(self, train: Corpus, progress: Progress) -> WordVectors:
        given = self.settings.words
        texts = chain((document.text for document in train), (label.name for label in train.labels))
        if given.vectors == LEARNED:
            return WordVectors.learn(texts, width=given.width or 200, seed=self.settings.seed, progress=progress)
        vectors = WordVectors.read(given.vectors, unknown=given.unknown, progress=progress)
        if given.width:
            vectors.require_width(given.width)
        return vectors.completed(texts, progress=progress) if given.complete else vectors

    def _learn_nodes(self, labels: LabelSet, device: torch.device, progress: Progress) -> NodeEncoder:
        """Node vectors, through the cache: other networks for the same labels find them there, and a resumed one too."""
        given, seed = self.settings.labels.nodes, self.settings.seed

        def learn() -> dict[str, np.ndarray]:
            tensors, words = NodeEncoder.fit(labels, given, seed=seed, device=str(device), progress=progress).tensors()
            return {name: tensor.numpy() for name, tensor in tensors.items()} | {"words": np.array(words, dtype=np.str_)}

        found = arrays("nodes", [MADE, device.type, _digest(labels, seed, asdict(given))], learn)
        tensors = {name: torch.from_numpy(np.array(values)) for name, values in found.items() if name != "words"}
        return NodeEncoder.from_tensors(tensors, found["words"].tolist(), given)

    def _facts(self, model: Fitted, labels: LabelSet, hidden: np.ndarray, *, warn: bool = False) -> Facts:
        """What is known of these labels; edges of hidden ones are left out."""
        sources = []
        for source in Parts(self.settings).sources:
            if source == "nodes":
                assert model.nodes is not None
                sources.append(model.nodes.encode(labels))
            else:
                sources.append(_centroids(labels, model.reader, self.settings.labels.max_words, warn))
        if Parts(self.settings).refine != "graph":
            return label_facts(sources, None, length=self.settings.labels.length)
        pairs = labels.parents().tocoo()
        kept = ~hidden[pairs.row] & ~hidden[pairs.col]
        parents = csr_array((pairs.data[kept], (pairs.row[kept], pairs.col[kept])), shape=pairs.shape)
        return label_facts(sources, parents, length=self.settings.labels.length)

    def _texts(self, model: Fitted, labels: LabelSet) -> Texts:
        """What these labels say, and which of them were there in training."""
        given, known = self.settings.labels, {id: row for row, id in enumerate(model.labels.ids)}
        found = model.reader.short([label_text(label, labels, given.text) for label in labels], given.text_length)
        lengths = torch.tensor([len(numbers) for numbers in found])
        residuals = torch.tensor([known.get(id, -1) for id in labels.ids])
        return Texts(filled(found, torch.device("cpu")).long(), residuals, lengths)

    def _encode(self, labels: LabelSet, device: torch.device) -> tuple[LabelVectors, np.ndarray]:
        """The vectors of the labels the network knows among these, and their columns; encoded once per label set."""
        if self._encoded is None or self._encoded[0] != labels or self._encoded[1].query.device != device:
            model = self._ready()[0]
            encoder = model.network.label_encoder
            if isinstance(encoder, DescribedLabels):
                encoder.describe(self._facts(model, labels, np.zeros(len(labels), dtype=bool)).to(device))
                self._encoded = labels, encoder(), np.arange(len(labels))
            elif isinstance(encoder, ReadLabels):
                encoder.describe(self._texts(model, labels).to(device))
                with precision(self.settings.training.precision, device, predicting=True):
                    self._encoded = labels, encoder(), np.arange(len(labels))
            else:
                assert isinstance(encoder, LearnedLabels)
                trained = {model.labels.ids[place] for place in torch.nonzero(encoder.trained)[:, 0].tolist()}
                columns = np.array([column for column, id in enumerate(labels.ids) if id in trained], dtype=np.int64)
                places = model.labels.index(labels.ids[column] for column in columns).astype(np.int64)
                self._encoded = labels, encoder(torch.from_numpy(places).to(device)), columns
        return self._encoded[1:]

    def _fingerprint(self, labels: LabelSet, train: Examples, dev: Examples | None) -> dict[str, Any]:
        """What must be the same for training to go on from a checkpoint: flat settings, and digests of labels and documents."""
        told = flat(asdict(self.settings))
        for name in ("threads", "device", "budget", "training.checkpoint_minutes"):
            del told[name]
        return told | {
            "labels": _digest(labels),
            "training documents": train.digest(),
            "development documents": None if dev is None else dev.digest(),
        }


def _build(
    settings: NetworkSettings, reader: Reader, nodes: NodeEncoder | None, transformer: torch.nn.Module | None, labels: int
) -> LabelNetwork:
    padding = reader.subwords.padding if isinstance(reader, SubwordReader) else 0
    given = None if transformer is None else (transformer, padding)
    mix = None if reader.elmo is None else ScalarMix(reader.elmo.depth, reader.elmo.width)
    return build(settings, torch.from_numpy(reader.table), labels, 0 if nodes is None else nodes.width, given, mix)


def _examples(corpus: Corpus, reader: Reader, device: torch.device, progress: Progress) -> Examples:
    documents = list(corpus)
    numbers, context = reader.corpus_numbers(documents, progress), reader.corpus_context(documents, device, progress)
    return Examples(numbers, corpus.gold(), [document.id for document in documents], corpus.info.k, context)


def _digest(labels: LabelSet, *told: Any) -> str:
    """A short name for these labels, with all that is said of them, and what else is told."""
    plain = [[astuple(label) for label in labels], *told]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]


def _centroids(labels: LabelSet, reader: Reader, limit: int, warn: bool) -> np.ndarray:
    """(labels, width), the mean vector of the words of each name."""
    numbers = [reader.name(label.name, limit) for label in labels]
    # A name without a word is an unknown word: a vector of zeros would score 0.5 in every document.
    means = np.stack([reader.table[found if len(found) else [reader.unknown]].mean(axis=0) for found in numbers])
    empty = sum(not len(found) for found in numbers)
    alike = empty + sum(len(found) > 0 and bool((found == reader.unknown).all()) for found in numbers)
    if warn and alike:
        warnings.warn(
            f"{alike:,} of {len(labels):,} labels have no word with a vector in their names ({empty:,} have no word at all); "
            "they are scored, but look alike to the network",
            stacklevel=2,
        )
    return means


def _tokens(numbers: Sequence[np.ndarray], device: torch.device, context: Sequence[np.ndarray] | None = None) -> Tokens:
    beside = None if context is None else filled(context, device)
    return Tokens(filled(numbers, device).long(), torch.tensor([len(row) for row in numbers]), beside)


def _node_bytes(nodes: NodeEncoder) -> bytes:
    tensors, words = nodes.tensors()
    return save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, {"words": "\n".join(words)})


def _read_nodes(path: Path, settings: NodeSettings) -> NodeEncoder:
    try:
        with safe_open(path, "pt") as file:
            words = file.metadata()["words"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise BadModel(f"{path}: missing or damaged ({error}); copy or train the model again") from None
    return NodeEncoder.from_tensors(tensors, words.split("\n") if words else [], settings)
