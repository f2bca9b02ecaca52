"""Data sets of the extreme-classification repository, to documents and back.

The repository gives features, not texts: a document's text is the names of its features, each as often as it counts. Words
that were counted and written by `export_xmc` come back as the same bag of words.
"""

from __future__ import annotations

import re
import warnings
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from labelwise.corpus import Corpus, CorpusInfo, Document, LazyDocuments, Splits
from labelwise.datasets.files import read_text
from labelwise.datasets.xmc_matrix import read_sparse_matrix, read_xmc_matrix, write_xmc_matrix
from labelwise.errors import BadCorpus, BadFile, did_you_mean
from labelwise.features.words import words
from labelwise.labels import Label, LabelSet
from labelwise.storage import find, new_folder

__all__ = ["export_xmc", "read_xmc", "read_xmc_matrix", "write_xmc_matrix"]

ALIASES = {"train": "train|trn", "dev": "dev|val|valid", "test": "test|tst"}
FEATURE_NAMES = ("features.txt", "Xf.txt")
LABEL_NAMES = ("labels.txt", "Yf.txt", "Y.txt")

Matrices = tuple[csr_array, csr_array]  # features (documents, features) and gold (documents, labels)


def read_xmc(source: Path | Mapping[str, Path]) -> Splits:
    """Read a folder of the extreme-classification repository, or a file for each split: bags of features with labels.

    The folder holds train.txt and test.txt (also trn.txt and tst.txt, alone or at the end of a longer name) or, with features
    and labels apart, trn_X_Xf.txt with trn_X_Y.txt and so on. Optional are dev.txt and names, one a line: features.txt or
    Xf.txt, and labels.txt, Yf.txt or Y.txt. Source: Bhatia et al., The Extreme Classification Repository; every data set
    there has its own licence.
    """
    files = _named_files(source) if isinstance(source, Mapping) else _folder_files(Path(source))
    read = {split: _read_split(paths) for split, paths in files.items()}
    first, *others = files
    widths = [matrix.shape[1] for matrix in read[first]]
    for split in others:
        if [matrix.shape[1] for matrix in read[split]] != widths:
            raise BadFile(f"{files[split][0]}:1: not as many features and labels as in {files[first][0]}")
    folder = files[first][0].parent
    names = np.array(_feature_names(folder, widths[0]), dtype=object)
    labels = _labels(folder, widths[1])
    info = CorpusInfo(name=folder.resolve().name)
    repeat = all(_are_counts(features) for features, _ in read.values())
    nothing = csr_array((0, widths[0]), dtype=np.float32), csr_array((0, widths[1]), dtype=bool)
    return Splits(*(_corpus(split, read.get(split, nothing), names, labels, info, repeat) for split in Splits._fields))


def export_xmc(splits: Splits, folder: Path, *, force: bool = False) -> None:
    """Write word counts over the words of training, and gold labels, in the repository's format.

    Beside train.txt, dev.txt and test.txt stand features.txt, a word a line, and labels.txt, an id and a name a line with a
    tab between them; both in column order.
    """
    splits.split("train")
    columns: dict[str, int] = {}
    with new_folder(Path(folder), "matrices", force=force) as draft:
        for split, corpus in splits._asdict().items():
            if len(corpus):
                write_xmc_matrix(draft / f"{split}.txt", _word_counts(corpus, columns, grow=split == "train"), corpus.gold())
        labels = [f"{_one_line(label.id)}\t{_one_line(label.name)}" for label in splits.labels]
        for name, lines in (("features.txt", columns), ("labels.txt", labels)):
            (draft / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _corpus(split: str, matrices: Matrices, names: np.ndarray, labels: LabelSet, info: CorpusInfo, repeat: bool) -> Corpus:
    features, gold = matrices
    rows = np.flatnonzero(np.diff(features.indptr))
    if len(rows) < features.shape[0]:
        warnings.warn(f"{features.shape[0] - len(rows)} {split} documents have no features and were left out", stacklevel=4)
        features, gold = features[rows], gold[rows]

    def document(place: int) -> Document:
        """Made when asked for, so that a million documents need no memory for texts."""
        own = slice(features.indptr[place], features.indptr[place + 1])
        words = names[features.indices[own]]
        if repeat:
            words = np.repeat(words, np.rint(features.data[own]).astype(np.int64))
        columns = gold.indices[gold.indptr[place] : gold.indptr[place + 1]]
        return Document(f"{split}-{rows[place]}", " ".join(words), tuple(labels[column].id for column in columns))

    return Corpus(LazyDocuments(range(len(rows)), document), labels, info, gold=gold)


def _are_counts(features: csr_array) -> bool:
    return bool((features.data == np.rint(features.data)).all() and (features.data > 0).all())


def _named_files(source: Mapping[str, Path]) -> dict[str, list[Path]]:
    for split in source:
        if split not in ALIASES:
            raise BadCorpus(f"there is no split {split!r}{did_you_mean(split, ALIASES)}; the splits are {', '.join(ALIASES)}")
    if not source:
        raise BadCorpus("no files named; name at least one, for a split")
    return {split: [Path(path)] for split, path in source.items()}


def _folder_files(folder: Path) -> dict[str, list[Path]]:
    """For each split that is there its file, or its files of features and of labels."""
    if not folder.is_dir():
        raise BadCorpus(f"{folder}: no such folder; name the folder that holds train.txt and test.txt")
    files: dict[str, list[Path]] = {}
    for split, names in ALIASES.items():
        pair = [_matching(folder, rf"({names})_X_{columns}") for columns in ("Xf", "Y")]
        if all(pair):
            files[split] = [path for path in pair if path]
        elif path := _matching(folder, rf"(.*_)?({names})"):
            files[split] = [path]
    if "train" not in files:
        raise BadCorpus(f"{folder}: no train.txt or trn.txt in it, nor trn_X_Xf.txt with trn_X_Y.txt")
    return files


def _matching(folder: Path, pattern: str) -> Path | None:
    found = [path for path in folder.iterdir() if re.fullmatch(pattern + r"\.txt(\.gz|\.xz)?", path.name)]
    if len(found) > 1:
        names = " and ".join(sorted(path.name for path in found))
        raise BadCorpus(f"{folder}: {names} may both be meant; leave one of them in the folder")
    return found[0] if found else None


def _read_split(paths: Sequence[Path]) -> Matrices:
    if len(paths) == 1:
        return read_xmc_matrix(paths[0])
    features, gold = (read_sparse_matrix(path) for path in paths)
    if features.shape[0] != gold.shape[0]:
        raise BadFile(f"{paths[1]}:1: labels of {gold.shape[0]} documents, but {paths[0].name} has {features.shape[0]}")
    return features, gold.astype(bool)


def _feature_names(folder: Path, count: int) -> list[str]:
    names = _names(folder, FEATURE_NAMES, count, "features") or [""] * count
    return [name.strip() or f"f{column}" for column, name in enumerate(names)]


def _labels(folder: Path, count: int) -> LabelSet:
    """Labels from lines of an id, a tab and a name, or of a name alone; the column number serves for what is missing."""
    lines = _names(folder, LABEL_NAMES, count, "labels") or [""] * count
    labels: dict[str, Label] = {}
    for column, line in enumerate(lines):
        id, name = line.split("\t", 1) if "\t" in line else ("", line)
        label = Label(id.strip() or str(column), name.strip() or id.strip() or str(column))
        if label.id in labels:
            raise BadFile(f"{folder}: label id {label.id!r} occurs twice, again on line {column + 1}; ids must be unique")
        labels[label.id] = label
    return LabelSet(labels.values())


def _names(folder: Path, candidates: Sequence[str], count: int, what: str) -> list[str] | None:
    path = next((path for name in candidates if (path := find(folder, name))), None)
    if path is None:
        return None
    lines = read_text(path).removesuffix("\n").split("\n")
    if len(lines) != count:
        raise BadFile(f"{path}: {len(lines)} lines, but the matrices have {count} {what}; it must name each on a line")
    return lines


def _word_counts(corpus: Corpus, columns: dict[str, int], *, grow: bool) -> csr_array:
    """(documents, words), how often each word occurs; with `grow`, new words get the next columns."""
    indptr, indices, values = array("q", [0]), array("i"), array("f")
    for document in corpus:
        for word, count in Counter(words(document.text)).items():
            column = columns.setdefault(word, len(columns)) if grow else columns.get(word)
            if column is not None:
                indices.append(column)
                values.append(count)
        indptr.append(len(indices))
    matrix = csr_array((np.asarray(values), np.asarray(indices), np.asarray(indptr)), shape=(len(corpus), len(columns)))
    matrix.sort_indices()
    return matrix


def _one_line(text: str) -> str:
    """A text without the tabs and line ends that would break a table."""
    return " ".join(text.split())
