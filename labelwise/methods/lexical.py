"""Label names and synonyms found in the text: no training labels needed, so it scores any label that has a name.

Fitting reads the training texts only, to learn how rare each word is; a name counts by the share of its words that the text
holds, rare words for more, and in full when they stand side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from labelwise.corpus import Corpus, Document
from labelwise.features.words import fold, spans, words
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import Explanation, Span, ZeroShot, fitted, model_folder, read_model, settings_from
from labelwise.progress import Progress, silent
from labelwise.scores import Scores
from labelwise.settings import Range


@dataclass(frozen=True)
class LexicalSettings:
    """How names are looked for."""

    synonyms: bool = True
    """Look for synonyms as well as names."""
    plurals: bool = True
    """Take a word and its plural for one."""
    coverage: Annotated[float, Range(0.0, 1.0, tried=(0.2, 0.8))] = 0.5
    """Leave out labels of which less than this share is found."""
    apart: Annotated[float, Range(0.0, 1.0, tried=(0.2, 1.0))] = 0.6
    """Worth of a name whose words stand apart, against one found side by side."""


class _Names(NamedTuple):
    """The names of a label set, ready to be looked for."""

    vocabulary: dict[str, int]
    phrases: dict[int, list[tuple[tuple[int, ...], int]]]  # first word → (all words, name)
    weights: csr_array  # (words, names), share of each word in the name, by rarity
    owner: np.ndarray  # (names,), the label's column
    strength: np.ndarray  # (names,), near 1 for long names of rare words


class Lexical(ZeroShot):
    """Score = how much of a label's name the text holds, and how telling those words are."""

    name: ClassVar[str] = "lexical"
    Settings: ClassVar[type] = LexicalSettings

    def __init__(self, settings: LexicalSettings = LexicalSettings()) -> None:
        self.settings = settings
        self._labels: LabelSet | None = None
        self._frequency: dict[str, int] = {}
        self._documents = 0
        self._compiled: tuple[LabelSet, _Names] | None = None

    def fit(self, train: Corpus, dev: Corpus | None = None, *, progress: Progress | None = None) -> Self:
        """Count in how many training texts each word stands."""
        frequency: Counter[str] = Counter()
        for document in (progress or silent)(train, "count words", len(train)):
            frequency.update(set(self._words(document.text)))
        self._labels, self._frequency, self._documents = train.labels, dict(sorted(frequency.items())), len(train)
        self._compiled = None
        return self

    def predict(self, corpus: Corpus) -> Scores:
        """Sparse scores of the labels whose names are found."""
        names = self._names(corpus.labels)
        counts: list[dict[int, int]] = []
        together: list[int] = []  # document × names + name
        for row, document in enumerate(corpus):
            tokens = [names.vocabulary.get(word, -1) for word in self._words(document.text)]
            counts.append(Counter(token for token in tokens if token >= 0))
            together += [row * len(names.owner) + name for name in _side_by_side(tokens, names.phrases)]
        matrix = _count_matrix(counts, len(names.vocabulary))
        return Scores(self._combine(matrix, together, names, len(corpus.labels)), corpus.labels)

    def explain(self, document: Document, label: Label) -> Explanation:
        """The words of the document that stand in the label's name, by rarity."""
        alone = LabelSet([Label(label.id, label.name, (), label.synonyms)])
        scores = Lexical.predict(self._for(alone), Corpus([document], alone))
        wanted = {word for name in self._spellings(label) for word in self._words(name)}
        found = [
            Span(start, end, float(self._rarity(self._fold(document.text[start:end].lower()))))
            for start, end in spans(document.text)
            if self._fold(document.text[start:end].lower()) in wanted
        ]
        return Explanation(label, float(scores.dense()[0, 0]), tuple(found))

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write the word counts."""
        with model_folder(folder, self, fitted(self, self._labels), force=force) as draft:
            (draft / "words.txt").write_text("\n".join(self._frequency), encoding="utf-8", newline="\n")
            counts = np.fromiter(self._frequency.values(), dtype=np.int32, count=len(self._frequency))
            np.savez(draft / "lexical.npz", frequency=counts, documents=np.int64(self._documents))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the word counts."""
        saved = read_model(folder)
        model = cls(settings_from(LexicalSettings, saved, folder))
        vocabulary = (folder / "words.txt").read_text(encoding="utf-8").split("\n")
        arrays = saved.arrays("lexical")
        model._labels, model._documents = saved.labels, int(arrays["documents"])
        model._frequency = dict(zip(vocabulary, arrays["frequency"].tolist(), strict=False))
        return model

    def _combine(self, counts: csr_array, together: list[int], names: _Names, labels: int) -> csr_array:
        """(documents, labels) the score of each label's best name."""
        counts.data = counts.data / (counts.data + 0.5)  # a second mention adds less than the first
        cover = (counts @ names.weights).tocoo()  # (documents, names), up to 2/3 by one mention of each word
        kept = cover.data * 1.5 >= self.settings.coverage
        rows, found, share = cover.row[kept].astype(np.int64), cover.col[kept], cover.data[kept]
        side = np.isin(rows * len(names.owner) + found, np.array(together, dtype=np.int64))
        score = share**2 * names.strength[found] * np.where(side, 1.0, self.settings.apart)
        columns = names.owner[found]
        order = np.lexsort((score, rows * labels + columns))
        pairs = (rows * labels + columns)[order]
        best = order[np.append(pairs[1:] != pairs[:-1], True)[: len(order)]]
        scores = csr_array((score[best].astype(np.float32), (rows[best], columns[best])), shape=(counts.shape[0], labels))
        scores.sort_indices()
        return scores

    def _names(self, labels: LabelSet) -> _Names:
        fitted(self, self._labels)
        if self._compiled is None or self._compiled[0] is not labels:
            self._compiled = labels, self._compile(labels)
        return self._compiled[1]

    def _for(self, labels: LabelSet) -> Lexical:
        """The same model with names of other labels, so that explaining one label does not lose the compiled others."""
        model = Lexical(self.settings)
        model._labels, model._frequency, model._documents = labels, self._frequency, self._documents
        return model

    def _compile(self, labels: LabelSet) -> _Names:
        vocabulary: dict[str, int] = {}
        phrases: dict[int, list[tuple[tuple[int, ...], int]]] = {}
        rows: list[int] = []
        columns: list[int] = []
        data: list[float] = []
        owner: list[int] = []  # of each name
        strength: list[float] = []
        for column, label in enumerate(labels):
            for spelling in self._spellings(label):
                tokens = self._words(spelling)
                if not tokens:
                    continue
                numbers = tuple(vocabulary.setdefault(token, len(vocabulary)) for token in tokens)
                phrases.setdefault(numbers[0], []).append((numbers, len(owner)))
                rarity = {number: self._rarity(token) for number, token in zip(numbers, tokens, strict=True)}
                total = sum(rarity.values())
                rows += rarity
                columns += [len(owner)] * len(rarity)
                data += [value / total for value in rarity.values()]
                owner.append(column)
                strength.append(total / (total + 3.0))
        weights = csr_array((data, (rows, columns)), shape=(len(vocabulary), len(owner)))
        return _Names(vocabulary, phrases, weights, np.array(owner, dtype=np.int64), np.array(strength))

    def _spellings(self, label: Label) -> Sequence[str]:
        return (label.name, *label.synonyms) if self.settings.synonyms else (label.name,)

    def _rarity(self, word: str) -> float:
        return float(np.log((self._documents + 1) / (self._frequency.get(word, 0) + 0.5)))

    def _words(self, text: str) -> list[str]:
        return [fold(word) for word in words(text)] if self.settings.plurals else words(text)

    def _fold(self, word: str) -> str:
        return fold(word) if self.settings.plurals else word


def _side_by_side(tokens: list[int], phrases: dict[int, list[tuple[tuple[int, ...], int]]]) -> set[int]:
    """The names whose words stand in the text one after the other."""
    found = set()
    for place, token in enumerate(tokens):
        for phrase, name in phrases.get(token, ()):
            if name not in found and tuple(tokens[place : place + len(phrase)]) == phrase:
                found.add(name)
    return found


def _count_matrix(counts: list[dict[int, int]], width: int) -> csr_array:
    indptr = np.cumsum([0, *(len(row) for row in counts)], dtype=np.int64)
    indices = np.fromiter((word for row in counts for word in row), dtype=np.int32, count=indptr[-1])
    data = np.fromiter((count for row in counts for count in row.values()), dtype=np.float64, count=indptr[-1])
    return csr_array((data, indices, indptr), shape=(len(counts), width))
