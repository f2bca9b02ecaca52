"""Texts as the numbers that a network reads, and names as the numbers that label vectors are made from.

Words have vectors from a file or from the training texts; a transformer has sub-words, and its own first vectors for names.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file, save
from torch import nn

from labelwise.features.subwords import Subwords
from labelwise.features.vectors import WordVectors, label_words
from labelwise.features.words import token_spans, tokenize
from labelwise.network.composition import EncoderSettings, WordSettings
from labelwise.network.transformer import segment_length
from labelwise.progress import Progress


class Part(NamedTuple):
    """A place of the text, and the numbers that were read there."""

    start: int
    end: int
    numbers: list[int]  # places among the numbers of the text


class Reader(ABC):
    """How texts and names become numbers."""

    table: np.ndarray  # (numbers, width), what names are made from
    unknown: int  # what stands for a name without a word

    @abstractmethod
    def numbers(self, texts: Sequence[str]) -> list[np.ndarray]:
        """What a network reads of each text."""

    def corpus_numbers(self, texts: Sequence[str], progress: Progress) -> list[np.ndarray]:
        """The same for many texts that may come again."""
        return self.numbers(texts)

    @abstractmethod
    def name(self, name: str, limit: int) -> np.ndarray:
        """Rows of the table for the first words of a name."""

    @abstractmethod
    def parts(self, text: str) -> list[Part]:
        """The words of a text, in its order, with the numbers that they were read as."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write all of it into a model's folder."""


class WordReader(Reader):
    """Words by their vectors."""

    unknown = 1

    def __init__(self, vectors: WordVectors, settings: WordSettings, seed: int) -> None:
        self.vectors, self.settings, self.seed = vectors, settings, seed
        self.table = vectors.vectors

    def numbers(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Words that are not known have one number."""
        return [self._numbers(text) for text in texts]

    def corpus_numbers(self, texts: Sequence[str], progress: Progress) -> list[np.ndarray]:
        """The same, with a bar."""
        return self.numbers(progress(texts, "read words", len(texts)))  # type: ignore[arg-type]

    def name(self, name: str, limit: int) -> np.ndarray:
        """Words as in the texts."""
        return self.vectors.numbers(label_words(name, limit))

    def parts(self, text: str) -> list[Part]:
        """A number for each word."""
        spans = token_spans(text, newlines=self.settings.newlines)[: self.settings.max_length]
        found = [(spans[at], place) for place, at in enumerate(self._order(text, len(spans)))]
        return [Part(start, end, [place]) for (start, end), place in sorted(found)]

    def save(self, folder: Path) -> None:
        """Write the vectors."""
        self.vectors.save(folder)

    def _numbers(self, text: str) -> np.ndarray:
        numbers = self.vectors.numbers(tokenize(text, newlines=self.settings.newlines)[: self.settings.max_length])
        return numbers[self._order(text, len(numbers))]

    def _order(self, text: str, length: int) -> np.ndarray:
        """Which token of a text is read at each place: the text's own order, or a random one that is always the same."""
        if not self.settings.shuffle:
            return np.arange(length)
        key = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])
        return np.random.default_rng((self.seed, key)).permutation(length)


class SubwordReader(Reader):
    """Segments of sub-words, as a transformer wants them."""

    def __init__(self, subwords: Subwords, table: np.ndarray, transformer: nn.Module, settings: EncoderSettings) -> None:
        self.subwords, self.table, self.unknown = subwords, table, subwords.first
        self.segment = segment_length(transformer, subwords.padding, settings.segment)
        self.segments, self.limit = settings.segments, (self.segment - 2) * settings.segments

    @classmethod
    def load(cls, folder: Path, transformer: nn.Module, settings: EncoderSettings) -> SubwordReader:
        """Read what `save` wrote."""
        table = load_file(folder / "names.safetensors")["table"]
        return cls(Subwords.load(folder / "encoder"), table, transformer, settings)

    def numbers(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Sub-words with what begins and ends each segment."""
        return [self._segments(row) for row in self.subwords.numbers(texts, self.limit)]

    def corpus_numbers(self, texts: Sequence[str], progress: Progress) -> list[np.ndarray]:
        """The same, through the cache: a corpus is cut into sub-words once."""
        flat, starts = self.subwords.corpus_numbers(texts, self.limit, progress=progress)
        return [self._segments(flat[start:end]) for start, end in pairwise(starts.tolist())]

    def name(self, name: str, limit: int) -> np.ndarray:
        """Sub-words of the name."""
        return self.subwords.numbers([name], limit)[0]

    def parts(self, text: str) -> list[Part]:
        """The sub-words of each word; what begins and ends a segment is no part of the text."""
        found: dict[int, Part] = {}
        pairs = zip(self.subwords.spans(text, self.limit), self.subwords.words(text, self.limit), strict=True)
        for place, ((start, end), word) in enumerate(pairs):
            at = place + 1 + 2 * (place // (self.segment - 2))
            known = found.get(word)
            found[word] = Part(start, end, [at]) if known is None else Part(known.start, end, [*known.numbers, at])
        return list(found.values())

    def _segments(self, numbers: np.ndarray) -> np.ndarray:
        return self.subwords.segments(numbers, self.segment, self.segments)

    def save(self, folder: Path) -> None:
        """Write the tokenizer and the vectors that names are made from."""
        self.subwords.save(folder / "encoder")
        (folder / "names.safetensors").write_bytes(save({"table": np.ascontiguousarray(self.table)}))
