"""Made worlds: corpora with a known truth, for the demo, the tests and controlled studies.

Labels form a poly-hierarchy and are named by topic words: a child adds a word of its own to its parent's, from a pool that
all branches share. So a label that training never saw can be recognised from its name. The three guidelines annotate as the
paper's data sets do, and their presets land near the paper's GAP: EURLEX57K 0.45, MIMIC-III 0.27, AMAZON13K 0.86.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from labelwise.corpus import Corpus, CorpusInfo, Document, Splits, gold_matrix
from labelwise.errors import BadSettings
from labelwise.labels import Label, LabelSet
from labelwise.progress import Progress, silent

Guideline = Literal["any-level", "leaves", "closed"]

SYLLABLES = [a + b for a in ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "st") for b in "aeiou"]
CHUNK = 3  # words of the longest phrase written at once


@dataclass(frozen=True)
class Habit:
    """How a guideline shapes hierarchy and annotation."""

    levels: tuple[float, ...]  # share of the labels on each level
    second: float  # share of the labels with a second parent
    zipf: float  # popularity falls with rank to this power
    flat: float  # added to the rank: the first ranks are flattened
    draws: float  # mean labels drawn per document, before repeats fall together and ancestors are added
    focus: float  # how often the next label is a relative of one already chosen
    info: CorpusInfo
    names: Literal["path", "own"] = "path"  # names tell of the labels above, or of the label alone


HABITS: dict[str, Habit] = {
    "any-level": Habit((0.08, 0.53, 0.31, 0.07, 0.01), 0.05, 1.0, 3, 5.8, 0.3, CorpusInfo("world-any-level", k=5, few=50)),
    "leaves": Habit((0.03, 0.09, 0.18, 0.2, 0.5), 0.0, 2.0, 10, 42, 0.7, CorpusInfo("world-leaves", k=15, few=5)),
    "closed": Habit((0.3, 0.5, 0.17, 0.03), 0.03, 1.0, 3, 2.6, 0.0, CorpusInfo("world-closed", k=5, few=100)),
}


def make_world(
    guideline: Guideline = "any-level",
    *,
    documents: int = 5000,
    labels: int = 500,
    seed: int = 1,
    words: int = 100,
    new: float = 0.05,
    habit: Habit | None = None,
    progress: Progress = silent,
) -> Splits:
    """A made corpus: `documents` split 80/10/10, `words` words each on average, a share of `new` labels absent from training.

    Another `habit` than the guideline's own allows worlds that differ in one thing only. Names are no part of the texts: worlds
    whose habits differ in `names` have the same documents.
    """
    if guideline not in HABITS:
        raise BadSettings(f"guideline: {guideline!r} is not one of {', '.join(HABITS)}")
    if documents < 10 or labels < 20 or words < 5 or not 0 <= new <= 0.5 or seed < 0:
        raise BadSettings(
            "a world needs at least 10 documents, 20 labels, 5 words a document, new from 0 to 0.5, and a seed of 0 or more"
        )
    habit = habit or HABITS[guideline]
    random = np.random.default_rng([seed, list(HABITS).index(guideline)])
    tree = _Tree(labels, habit, random, leaves_only=guideline == "leaves")
    pool = _Words(tree, random)
    label_set = pool.label_set(habit.names)
    bounds = np.array([round(documents * 0.8), round(documents * 0.9)])
    splits = np.digitize(np.arange(documents), bounds)  # 0 train, 1 dev, 2 test
    gold = _annotate(tree, habit, guideline, splits == 0, new, random)
    texts = iter(progress(pool.texts(*gold, words, random), "write documents", documents))
    indptr, columns = gold
    corpora = []
    for split, name in enumerate(("train", "dev", "test")):
        first, last = np.searchsorted(splits, [split, split + 1])
        rows = [
            Document(f"{name}-{row - first}", next(texts), tuple(label_set[c].id for c in columns[indptr[row] : indptr[row + 1]]))
            for row in range(first, last)
        ]
        part = columns[indptr[first] : indptr[last]]
        matrix = gold_matrix(indptr[first : last + 1] - indptr[first], part, labels)
        corpora.append(Corpus(rows, label_set, habit.info, gold=matrix))
    return Splits(*corpora)


class _Tree:
    """The hierarchy: labels level by level, each with a main parent on the level above, some with a second one."""

    def __init__(self, labels: int, habit: Habit, random: np.random.Generator, *, leaves_only: bool) -> None:
        ends = np.unique(np.maximum(np.round(np.cumsum(habit.levels) / sum(habit.levels) * labels).astype(int), 1))
        ends[-1] = labels
        self.size, self.starts = labels, np.append(0, ends[:-1])
        self.level = np.searchsorted(ends, np.arange(labels), side="right")  # 0 for the top
        above, below = self.starts[np.maximum(self.level - 1, 0)], self.starts[self.level]
        # The power makes some parents large and leaves others childless, as in real thesauri.
        spread = np.where(self.level > 0, below - above, 1)
        self.parent = np.where(self.level > 0, above + (random.random(labels) ** 1.5 * spread).astype(np.int64), -1)
        second = above + (random.random(labels) * spread).astype(np.int64)
        has_second = (self.level > 0) & (random.random(labels) < habit.second) & (second != self.parent)
        self.second = np.where(has_second, second, -1)
        order = np.argsort(self.parent, kind="stable")
        self._children = order[self.parent[order] >= 0]  # by main parent
        self._first = np.searchsorted(self.parent[self._children], np.arange(labels + 1))
        self._has_children = np.diff(self._first) > 0
        self.leaf = ~self._has_children & (np.bincount(second[has_second], minlength=labels) == 0)
        self.popularity = (random.permutation(labels) + habit.flat) ** -float(habit.zipf)
        self.popularity[~self.leaf] *= not leaves_only
        self._reach = np.append(0, np.cumsum(self._mass()[self._children]))

    def _mass(self) -> np.ndarray:
        """The popularity of each label and all below it."""
        mass = self.popularity.copy()
        for level in range(len(self.starts) - 1, 0, -1):
            on_level = np.flatnonzero(self.level == level)
            np.add.at(mass, self.parent[on_level], mass[on_level])
        return mass

    def child(self, labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """A random child of each label, popular branches first, or the label itself where it has none."""
        low, high = self._reach[self._first[labels]], self._reach[self._first[labels + 1]]
        place = np.searchsorted(self._reach, low + random.random(len(labels)) * (high - low), side="right") - 1
        place = np.clip(place, self._first[labels], np.maximum(self._first[labels + 1] - 1, 0))
        return np.where(self._has_children[labels], self._children[np.minimum(place, len(self._children) - 1)], labels)

    def up(self, labels: np.ndarray) -> np.ndarray:
        """The main parent of each label, or the label itself at the top."""
        return np.where(self.level[labels] > 0, self.parent[labels], labels)

    def down(self, labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """A random main leaf below each label."""
        for _ in range(len(self.starts)):
            labels = self.child(labels, random)
        return labels


def _annotate(
    tree: _Tree, habit: Habit, guideline: str, train: np.ndarray, new: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Row starts and columns of the gold matrix."""
    documents = len(train)
    cumulative = np.cumsum(tree.popularity)
    unseen, stand_in = _new_labels(tree, new, random)
    counts = 1 + random.poisson(habit.draws - 1, documents)
    chosen = np.full((documents, counts.max()), -1, dtype=np.int64)
    for slot in range(chosen.shape[1]):
        rows = np.flatnonzero(counts > slot)
        labels = np.searchsorted(cumulative, random.random(len(rows)) * cumulative[-1], side="right")
        if slot:
            relative = random.random(len(rows)) < habit.focus
            known = chosen[rows, random.integers(0, slot, len(rows))]
            labels = np.where(relative, _relatives(tree, known, guideline == "leaves", random), labels)
        chosen[rows, slot] = np.where(train[rows] & unseen[labels], stand_in[labels], labels)
    rows, slots = np.nonzero(chosen >= 0)
    pairs = _unique(rows, chosen[rows, slots], tree.size)
    if guideline == "closed":
        pairs = _close(*pairs, tree)
    rows, columns = pairs
    return np.searchsorted(rows, np.arange(documents + 1)), columns


def _relatives(tree: _Tree, labels: np.ndarray, leaves_only: bool, random: np.random.Generator) -> np.ndarray:
    """Near each label: its parent, a child or a sibling; among leaves a near cousin."""
    step = random.random(len(labels))
    parent = tree.up(labels)
    if leaves_only:
        grandparent = tree.up(parent)
        above = np.where(step < 0.35, parent, np.where(step < 0.7, grandparent, tree.up(grandparent)))
        return tree.down(above, random)
    return np.where(step < 0.3, parent, np.where(step < 0.5, tree.child(labels, random), tree.child(parent, random)))


def _new_labels(tree: _Tree, share: float, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Which leaves training must not see, and a leaf for each label to take its place there."""
    leaves = np.flatnonzero(tree.leaf)
    unseen = np.zeros(tree.size, dtype=bool)
    unseen[random.choice(leaves, min(round(share * tree.size), len(leaves) // 2), replace=False)] = True
    seen_leaves = leaves[~unseen[leaves]]
    stand_in = random.choice(seen_leaves, tree.size)
    for _ in range(3):  # a near leaf where one is found
        near = tree.down(tree.up(np.arange(tree.size)), random)
        stand_in = np.where(tree.leaf[near] & ~unseen[near], near, stand_in)
    return unseen, stand_in


def _close(rows: np.ndarray, columns: np.ndarray, tree: _Tree) -> tuple[np.ndarray, np.ndarray]:
    """Add every ancestor of every gold label."""
    all_rows, all_columns = [rows], [columns]
    while len(rows):
        parents = np.concatenate([tree.parent[columns], tree.second[columns]])
        rows = np.concatenate([rows, rows])[parents >= 0]
        rows, columns = _unique(rows, parents[parents >= 0], tree.size)
        all_rows.append(rows)
        all_columns.append(columns)
    return _unique(np.concatenate(all_rows), np.concatenate(all_columns), tree.size)


def _unique(rows: np.ndarray, columns: np.ndarray, labels: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.unique(rows.astype(np.int64) * labels + columns)
    return pairs // labels, pairs % labels


class _Words:
    """The vocabulary: a word of its own for each label from a shared pool, words that keep it company, and filler."""

    def __init__(self, tree: _Tree, random: np.random.Generator) -> None:
        self.tree = tree
        tops = int((tree.level == 0).sum())
        topics, filler = max(40, round(4 * tree.size**0.65), tops), 1500
        # Siblings differ in their word; the pool is shared, so that every word has been seen under some other label.
        rank = np.arange(tree.size)
        self.own = (rank * 7919 + random.integers(topics)) % topics
        self.company = topics + random.integers(0, 2 * topics, (topics, 3))  # words that go with a topic word
        self.filler = 3 * topics + np.arange(filler)
        self.stop = 3 * topics + filler
        self.text = np.array([*_pseudo_words(self.stop, random), "."], dtype=object)
        top = rank.copy()
        for _ in range(len(tree.starts)):
            top = tree.up(top)
        parent = tree.up(rank)
        self.name = np.full((tree.size, CHUNK), -1, dtype=np.int64)  # own word, parent's word, word of the branch
        self.name[:, 0] = self.own
        self.name[tree.level > 0, 1] = self.own[parent[tree.level > 0]]
        self.name[tree.level > 1, 2] = self.own[top[tree.level > 1]]
        self.synonym = self.name.copy()
        self.synonym[:, 0] = self.company[self.own, 0]

    def label_set(self, names_tell: str) -> LabelSet:
        """The labels, named; every third has a synonym."""
        digits = len(str(self.tree.size))
        ids = [f"t{number:0{digits}}" for number in range(self.tree.size)]
        named, also = (self.name, self.synonym) if names_tell == "path" else self._own_names()
        names, synonyms = self._phrases(named), self._phrases(also)
        parents = [
            tuple(ids[p] for p in pair if p >= 0)
            for pair in zip(self.tree.parent.tolist(), self.tree.second.tolist(), strict=True)
        ]
        return LabelSet(
            Label(id, name, parent, (synonym,) if number % 3 == 0 else ())
            for number, (id, name, parent, synonym) in enumerate(zip(ids, names, parents, synonyms, strict=True))
        )

    def _own_names(self) -> tuple[np.ndarray, np.ndarray]:
        """Names and synonyms without a word of the labels above: the own word and a companion, or that companion alone."""
        # Labels that share a word are `topics` apart, and have one companion each as long as there are.
        turn = np.arange(self.tree.size) // len(self.company) % self.company.shape[1]
        companion = self.company[self.own, turn]
        return np.stack([self.own, companion], axis=1), companion[:, None]

    def texts(self, indptr: np.ndarray, columns: np.ndarray, words: int, random: np.random.Generator) -> Iterator[str]:
        """One text per document, some thousand documents at a time."""
        for first in range(0, len(indptr) - 1, 5000):
            rows = indptr[first : first + 5001]
            yield from self._write(rows - rows[0], columns[rows[0] : rows[-1]], words, random)

    def _write(self, indptr: np.ndarray, columns: np.ndarray, words: int, random: np.random.Generator) -> Iterator[str]:
        documents = len(indptr) - 1
        # Phrases are about one and a quarter words long.
        counts = np.maximum(4, random.lognormal(np.log(words / 1.25) - 0.125, 0.5, documents)).astype(np.int64)
        document = np.repeat(np.arange(documents), counts)
        total = len(document)
        labels = np.diff(indptr)
        label = columns[indptr[document] + (random.random(total) * labels[document]).astype(np.int64)]
        # Each gold label is spoken of at least once: the first phrases of a document take them in turn.
        start = np.cumsum(counts) - counts
        turn = np.arange(total) - start[document]
        label = np.where(turn < labels[document], columns[np.minimum(indptr[document] + turn, len(columns) - 1)], label)
        stray = random.random(total) < 0.06  # labels mentioned, but not what the document is about
        label = np.where(stray, random.integers(0, self.tree.size, total), label)
        phrases = np.full((total, CHUNK), -1, dtype=np.int64)
        kind = np.where((turn < labels[document]) | stray, 0.7 * random.random(total), random.random(total) + 0.35)
        ancestor = self.tree.up(label)
        phrases[:, 0] = self.filler[(len(self.filler) * random.random(total) ** 3).astype(np.int64)]
        phrases = np.where((kind < 0.9)[:, None], self._single(self.own[ancestor]), phrases)
        phrases = np.where(
            (kind < 0.8)[:, None], self._single(self.company[self.own[label], random.integers(0, 3, total)]), phrases
        )
        phrases = np.where((kind < 0.35)[:, None], self.synonym[label], phrases)
        phrases = np.where((kind < 0.2)[:, None], self.name[label], phrases)
        phrases[:, 2] = np.where((phrases[:, 2] < 0) & (random.random(total) < 0.1), self.stop, phrases[:, 2])
        # Shuffled within the document, so that the gold labels do not stand first.
        order = np.lexsort((random.random(total), document))
        flat = phrases[order].ravel()
        kept = flat >= 0
        ends = np.cumsum(np.add.reduceat(kept, start * CHUNK))
        spelt = self.text[flat[kept]].tolist()
        for begin, end in zip(np.append(0, ends[:-1]), ends, strict=True):
            yield " ".join(spelt[begin:end]).replace(" .", ".")

    def _phrases(self, table: np.ndarray) -> list[str]:
        spelt = np.append(self.text, "")[table]  # -1 is the empty last entry
        return [" ".join(filter(None, row)) for row in spelt.tolist()]

    @staticmethod
    def _single(words: np.ndarray) -> np.ndarray:
        phrases = np.full((len(words), CHUNK), -1, dtype=np.int64)
        phrases[:, 0] = words
        return phrases


def _pseudo_words(count: int, random: np.random.Generator) -> list[str]:
    """Different words of two or more syllables that are in no dictionary."""
    base, length = len(SYLLABLES), 2
    while base**length < 2 * count:
        length += 1
    numbers = random.choice(base**length, count, replace=False) if count < 1e6 else random.permutation(base**length)[:count]
    powers = base ** np.arange(length)
    digits = numbers[:, None] // powers % base
    return ["".join([SYLLABLES[d] for d in row]) for row in digits.tolist()]
