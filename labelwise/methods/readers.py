"""Texts as the numbers that a network reads, and names as the numbers that label vectors are made from.

Words have vectors from a file or from the training texts; a transformer has sub-words, and its own first vectors for names.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.numpy import load_file, save
from torch import nn

from labelwise.corpus import Document
from labelwise.errors import BadModel, BadSettings
from labelwise.features.cache import Blocks, arrays
from labelwise.features.subwords import Subwords
from labelwise.features.vectors import WordVectors, label_words
from labelwise.features.words import token_spans, tokenize
from labelwise.labels import Label, LabelSet
from labelwise.network.batches import filled
from labelwise.network.composition import NetworkSettings, WordSettings, over_segments
from labelwise.network.devices import precision, settled_precision
from labelwise.network.elmo import Elmo
from labelwise.network.token_encoders import Tokens
from labelwise.network.training import TOKENS, TrainingSettings, prediction_batches
from labelwise.progress import Progress, silent

CACHED = 1536  # tokens of a batch whose states stay in a CPU's cache from one layer of a transformer to the next
TEXTS = 1024  # documents that a transformer reads before their states are written
BLOCK = 1 << 17  # words that ELMo reads before their vectors are written: 0.7 GB of the published model's

SYNONYMS = 3  # of a label that are read

_BLANK_LINES = re.compile(r"\n\s*\n")


class Part(NamedTuple):
    """A place of the text, and the numbers that were read there."""

    start: int
    end: int
    numbers: list[int]  # places among the numbers of the text


class Reader(ABC):
    """How texts and names become numbers."""

    table: np.ndarray  # (numbers, width), what names are made from
    unknown: int  # what stands for a name without a word
    elmo: Elmo | None = None  # what knows words by their context

    @abstractmethod
    def numbers(self, documents: Sequence[Document]) -> list[np.ndarray]:
        """What a network reads of each document."""

    def corpus_numbers(self, documents: Sequence[Document], progress: Progress) -> list[np.ndarray]:
        """The same for many documents that may come again."""
        return self.numbers(documents)

    def context(self, documents: Sequence[Document], device: torch.device) -> list[np.ndarray] | None:
        """What ELMo, where there is one, makes of the words of each document."""
        return None

    def corpus_context(self, documents: Sequence[Document], device: torch.device, progress: Progress) -> np.ndarray | None:
        """The same for all words of many documents, one document after the other."""
        return None

    def remembering(
        self, documents: Sequence[Document], device: torch.device, progress: Progress
    ) -> AbstractContextManager[None]:
        """A while in which these documents are asked about several times."""
        return nullcontext()

    @abstractmethod
    def name(self, name: str, limit: int) -> np.ndarray:
        """Rows of the table for the first words of a name."""

    @abstractmethod
    def short(self, texts: Sequence[str], longest: int) -> list[np.ndarray]:
        """What a network reads of short texts, at least one number of each."""

    @abstractmethod
    def parts(self, document: Document) -> list[Part]:
        """The words of a document's text, in its order, with the numbers that they were read as."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write all of it into a model's folder."""


class WordReader(Reader):
    """Words by their vectors, and by what ELMo makes of them in their context."""

    unknown = 1

    def __init__(self, vectors: WordVectors, settings: WordSettings, seed: int, elmo: Elmo | None = None) -> None:
        self.vectors, self.settings, self.seed, self.elmo = vectors, settings, seed, elmo
        self.table = vectors.vectors

    @classmethod
    def load(cls, folder: Path, settings: WordSettings, seed: int, *, elmo: bool) -> WordReader:
        """Read what `save` wrote."""
        return cls(WordVectors.load(folder), settings, seed, Elmo.load(folder / "elmo.safetensors") if elmo else None)

    def numbers(self, documents: Sequence[Document]) -> list[np.ndarray]:
        """Words that are not known have one number."""
        return [self.vectors.numbers(self._words(document.text)) for document in documents]

    def corpus_numbers(self, documents: Sequence[Document], progress: Progress) -> list[np.ndarray]:
        """The same, with a bar."""
        return self.numbers(progress(documents, "read words", len(documents)))  # type: ignore[arg-type]

    def context(self, documents: Sequence[Document], device: torch.device) -> list[np.ndarray] | None:
        """(words, parts, projection) for each document, read as one sentence in original case."""
        if self.elmo is None:
            return None
        return self.elmo.to(device).vectors([self._words(document.text) for document in documents])

    def corpus_context(self, documents: Sequence[Document], device: torch.device, progress: Progress) -> np.ndarray | None:
        """The same, through the cache: ELMo is not trained, so it reads a corpus once."""
        if self.elmo is None:
            return None
        digest = hashlib.sha256()
        for document in documents:  # no word has a blank or a tab
            digest.update((" ".join(self._words(document.text)) + "\t").encode("utf-8", "surrogatepass"))
        key = [hashlib.sha256(self.elmo.content()).hexdigest(), digest.hexdigest()]
        return arrays("elmo", key, lambda: {"context": self._blocks(documents, device, progress)})["context"]

    def name(self, name: str, limit: int) -> np.ndarray:
        """Words as in the texts."""
        return self.vectors.numbers(label_words(name, limit))

    def short(self, texts: Sequence[str], longest: int) -> list[np.ndarray]:
        """Words as in names."""
        found = (self.vectors.numbers(label_words(text, longest)) for text in texts)
        return [numbers if len(numbers) else np.array([self.unknown], dtype=np.int32) for numbers in found]

    def parts(self, document: Document) -> list[Part]:
        """A number for each word."""
        text = document.text
        spans = token_spans(text, newlines=self.settings.newlines)[: self.settings.max_length]
        found = [(spans[at], place) for place, at in enumerate(self._order(text, len(spans)))]
        return [Part(start, end, [place]) for (start, end), place in sorted(found)]

    def save(self, folder: Path) -> None:
        """Write the vectors and ELMo."""
        self.vectors.save(folder)
        if self.elmo is not None:
            (folder / "elmo.safetensors").write_bytes(self.elmo.content())

    def _words(self, text: str) -> list[str]:
        words = tokenize(text, newlines=self.settings.newlines)[: self.settings.max_length]
        return [words[at] for at in self._order(text, len(words))]

    def _blocks(self, documents: Sequence[Document], device: torch.device, progress: Progress) -> Blocks:
        assert self.elmo is not None
        elmo, block = self.elmo.to(device), []
        for place, document in enumerate(progress(documents, "read words in context", len(documents)), start=1):
            block.append(self._words(document.text))
            if place == len(documents) or sum(map(len, block)) >= BLOCK:
                yield np.concatenate(elmo.vectors(block))
                block = []

    def _order(self, text: str, length: int) -> Sequence[int]:
        """Which token of a text is read at each place: the text's own order, or a random one that is always the same."""
        if not self.settings.shuffle:
            return range(length)
        key = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])
        return np.random.default_rng((self.seed, key)).permutation(length).tolist()


class SubwordReader(Reader):
    """Segments of sub-words, as a transformer wants them."""

    def __init__(self, subwords: Subwords, table: np.ndarray, transformer: nn.Module, settings: NetworkSettings) -> None:
        self.subwords, self.table, self.unknown = subwords, table, subwords.first
        encoder, given = over_segments(settings, transformer, subwords.padding), settings.encoder
        self.segment, self.segments, self.sections = encoder.segment, given.segments, encoder.sections
        self.limit = (self.segment - 2) * (1 if self.sections else self.segments)
        self.keeper = encoder if given.kept else None  # what makes states once and for all
        self.precision = settings.training.precision
        self.known: dict[bytes, np.ndarray] = {}  # states of documents that are remembered
        known = len(transformer.get_input_embeddings().weight)  # type: ignore[operator]
        if subwords.size > known:
            raise BadModel(
                f"{given.checkpoint}: its tokenizer has {subwords.size:,} sub-words, but the weights know {known:,}; give "
                "a folder whose files belong together"
            )
        if self.sections and subwords.first == subwords.last:
            raise BadSettings(
                f"{given.checkpoint}: one token both begins and ends texts, so that sections could not be told apart; set "
                "encoder.segmentation=consecutive"
            )

    @classmethod
    def load(cls, folder: Path, transformer: nn.Module, settings: NetworkSettings) -> SubwordReader:
        """Read what `save` wrote."""
        table = load_file(folder / "names.safetensors")["table"]
        return cls(Subwords.load(folder / "encoder"), table, transformer, settings)

    def numbers(self, documents: Sequence[Document]) -> list[np.ndarray]:
        """Sub-words with what begins and ends each segment."""
        pieces = [self._pieces(document) for document in documents]
        return self._rows(pieces, self.subwords.numbers(list(chain.from_iterable(pieces)), self.limit))

    def corpus_numbers(self, documents: Sequence[Document], progress: Progress) -> list[np.ndarray]:
        """The same, through the cache: a corpus is cut into sub-words once."""
        pieces = [self._pieces(document) for document in documents]
        flat, starts = self.subwords.corpus_numbers(list(chain.from_iterable(pieces)), self.limit, progress=progress)
        return self._rows(pieces, (flat[start:end] for start, end in pairwise(starts.tolist())))

    def context(self, documents: Sequence[Document], device: torch.device) -> list[np.ndarray] | None:
        """(tokens, 1, width) for each document, the states that are kept."""
        if self.keeper is None:
            return None
        rows = self.numbers(documents)
        found = [self.known.get(row.tobytes()) for row in rows]
        new = iter(self._states([row for row, states in zip(rows, found, strict=True) if states is None], device))
        return [next(new) if states is None else states for states in found]

    def corpus_context(self, documents: Sequence[Document], device: torch.device, progress: Progress) -> np.ndarray | None:
        """The same, through the cache: the transformer is not trained, so it reads a corpus once."""
        if self.keeper is None:
            return None
        numbers, digest = self.corpus_numbers(documents, silent), hashlib.sha256()
        for row in numbers:
            digest.update(row.tobytes() + b"-")
        key = [self.keeper.digest(), digest.hexdigest(), device.type, settled_precision(self.precision, device, predicting=True)]
        return arrays("states", key, lambda: {"context": self._blocks(numbers, device, progress)})["context"]

    @contextmanager
    def remembering(self, documents: Sequence[Document], device: torch.device, progress: Progress) -> Iterator[None]:
        """Take the states of these documents from the cache; training has left those of its own there."""
        states = self.corpus_context(documents, device, progress)
        if states is not None:
            numbers = self.corpus_numbers(documents, silent)
            starts = np.cumsum([0, *map(len, numbers)]).tolist()
            self.known = {row.tobytes(): states[start:end] for row, (start, end) in zip(numbers, pairwise(starts), strict=True)}
        try:
            yield
        finally:
            self.known = {}

    def name(self, name: str, limit: int) -> np.ndarray:
        """Sub-words of the name."""
        return self.subwords.numbers([name], limit)[0]

    def short(self, texts: Sequence[str], longest: int) -> list[np.ndarray]:
        """One segment of each."""
        return [self.subwords.segments(row, longest, 1) for row in self.subwords.numbers(texts, longest - 2)]

    def parts(self, document: Document) -> list[Part]:
        """The sub-words of each word; what begins and ends a segment is no part of the text, nor is a section not in it."""
        found: dict[tuple[int, int], Part] = {}
        begin, done, inside = 0, 0, self.segment - 2
        for number, piece in enumerate(self._pieces(document)):
            place = document.text.find(piece, begin)
            spans = self.subwords.spans(piece, self.limit)
            words = self.subwords.words(piece, spans)
            if place >= 0:
                begin = place + len(piece)
                for token, ((start, end), word) in enumerate(zip(spans, words, strict=True)):
                    at = done + token + 1 + 2 * (token // inside)
                    known = found.get((number, word), Part(place + start, 0, []))
                    found[number, word] = Part(known.start, place + end, [*known.numbers, at])
            done += len(spans) + 2 * -(-len(spans) // inside)
        return list(found.values())

    def _pieces(self, document: Document) -> list[str]:
        """What segments are cut from: all of a text, or the first of its sections, one for each."""
        if not self.sections:
            return [document.text]
        sections = document.sections or _BLANK_LINES.split(document.text)
        return [section for section in sections if section.strip()][: self.segments]

    def _rows(self, pieces: Iterable[Sequence[str]], numbers: Iterable[np.ndarray]) -> list[np.ndarray]:
        """The segments of each document, from the sub-words of all pieces; where a document has none, one empty segment."""
        rest, empty = iter(numbers), np.zeros(0, dtype=np.int32)
        found = ([row for row in islice(rest, len(own)) if len(row)] or [empty] for own in pieces)
        return [np.concatenate([self.subwords.segments(row, self.segment, self.segments) for row in rows]) for rows in found]

    def _blocks(self, rows: Sequence[np.ndarray], device: torch.device, progress: Progress) -> Blocks:
        cuts = [rows[at : at + TEXTS] for at in range(0, len(rows), TEXTS)]
        for block in progress(cuts, "read with the transformer", len(cuts)):
            yield np.concatenate(self._states(block, device))

    @torch.no_grad()
    def _states(self, rows: Sequence[np.ndarray], device: torch.device) -> list[np.ndarray]:
        """(tokens, 1, width) for each row, a few rows of similar length at a time."""
        assert self.keeper is not None
        keeper, lengths = self.keeper.to(device).eval(), np.array([len(row) for row in rows], dtype=np.int64)
        found: list[np.ndarray] = [np.zeros(0)] * len(rows)
        for part in prediction_batches(lengths, TrainingSettings(), CACHED if device.type == "cpu" else TOKENS):
            tokens = Tokens(filled([rows[place] for place in part], device).long(), torch.from_numpy(lengths[part]))
            with precision(self.precision, device, predicting=True):
                states = keeper(tokens).half().cpu().numpy()
            for place, own in zip(part, states, strict=True):
                found[place] = own[: len(rows[place]), None]
        return found

    def save(self, folder: Path) -> None:
        """Write the tokenizer and the vectors that names are made from."""
        self.subwords.save(folder / "encoder")
        (folder / "names.safetensors").write_bytes(save({"table": np.ascontiguousarray(self.table)}))


def label_text(label: Label, labels: LabelSet, what: Sequence[str]) -> str:
    """What is read of a label: of name, synonyms, parents' names and description those that are asked for, in that order."""
    parts = {
        "name": (label.name,),
        "synonyms": label.synonyms[:SYNONYMS],
        "parents": tuple(labels[labels.column(id)].name for id in label.parents),
        "description": (label.description,) if label.description else (),
    }
    return "; ".join(part for name in what for part in parts[name])
