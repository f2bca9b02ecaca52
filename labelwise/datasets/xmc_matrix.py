"""The sparse text format of the extreme-classification repository, to matrices and back.

First line `documents features labels`, then a line per document, `label,label feature:value feature:value`, numbered from 0;
a document without labels starts with a space. Numbers are found and read by whole-array operations, a chunk at a time; only
a chunk with something wrong in it is gone through line by line, to say where. The order within a line is free; a feature
that comes twice is summed, a label that comes twice is one label, a value of 0 is left out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

import numpy as np
from scipy.sparse import csr_array

from labelwise.errors import BadCorpus, BadFile
from labelwise.storage import new_file, open_bytes

CHUNK = 1 << 20  # bytes read at once: the arrays over them stay near the processor
ROWS = 1 << 12  # documents written at once

SPACE, COMMA, COLON, NEWLINE = 1, 2, 3, 4
_KINDS = np.zeros(256, dtype=np.uint8)  # 0: a character of a number
_KINDS[[ord(" "), ord(","), ord(":"), ord("\n")]] = SPACE, COMMA, COLON, NEWLINE
_SPACED = bytes.maketrans(b",:\n", b"   ")
_POWERS = np.array([10.0**power for power in range(17)])
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def read_xmc_matrix(path: Path) -> tuple[csr_array, csr_array]:
    """The features (documents, features), float32, and the gold labels (documents, labels), bool, of one file."""
    (documents, features, labels), lines = _read(Path(path), ("documents", "features", "labels"))
    gold = csr_array((np.ones(len(lines.labels), dtype=bool), lines.labels, lines.label_ends), shape=(documents, labels))
    gold.sum_duplicates()
    return _feature_matrix(lines, (documents, features)), gold


def read_sparse_matrix(path: Path) -> csr_array:
    """The matrix of a file of pairs alone: first line `rows columns`, then lines of `column:value`."""
    shape, lines = _read(Path(path), ("rows", "columns"))
    return _feature_matrix(lines, (shape[0], shape[1]))


def write_xmc_matrix(path: Path, features: csr_array, gold: csr_array) -> None:
    """Write features and gold labels, values with 6 decimals (none when all are whole numbers); `.gz` and `.xz` compress."""
    if features.shape[0] != gold.shape[0]:
        raise BadCorpus(f"{path}: features of {features.shape[0]} documents do not fit gold labels of {gold.shape[0]}")
    if not np.isfinite(features.data).all():
        raise BadCorpus(f"{path}: a feature value is not a finite number")
    pair = " %d:%d" if (features.data == np.rint(features.data)).all() else " %d:%.6f"
    with new_file(Path(path), force=True) as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {gold.shape[1]}\n")
        for start in range(0, features.shape[0], ROWS):
            file.writelines(_written(features[start : start + ROWS], gold[start : start + ROWS], pair))


def _written(features: csr_array, gold: csr_array, pair: str) -> Iterator[str]:
    pairs: list[float] = [0] * (2 * features.nnz)
    pairs[::2], pairs[1::2] = features.indices.tolist(), features.data.tolist()
    labels = [str(label) for label in gold.indices.tolist()]
    ends, label_ends = features.indptr.tolist(), gold.indptr.tolist()
    for row in range(features.shape[0]):
        values = pairs[2 * ends[row] : 2 * ends[row + 1]]
        text = (pair * (len(values) // 2)) % tuple(values)  # one formatting call a document
        yield ",".join(labels[label_ends[row] : label_ends[row + 1]]) + (text or " ") + "\n"


class _Lines(NamedTuple):
    """What lines hold: columns one after the other, and for each line where its own end."""

    labels: np.ndarray
    label_ends: np.ndarray
    features: np.ndarray
    values: np.ndarray
    feature_ends: np.ndarray


_NO_LINES = _Lines(*(np.empty(0, dtype) for dtype in (np.int32, np.int64, np.int32, np.float32, np.int64)))


def _feature_matrix(lines: _Lines, shape: tuple[int, int]) -> csr_array:
    matrix = csr_array((lines.values, lines.features, lines.feature_ends), shape=shape)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _read(path: Path, header: Sequence[str]) -> tuple[list[int], _Lines]:
    """The sizes that the header names, and what the lines below it hold."""
    parts, number = [_NO_LINES], 2
    with open_bytes(path) as file:
        sizes = _sizes(file.readline(), header, path)
        features, labels = sizes[1], sizes[2] if len(sizes) > 2 else 0
        for chunk in _chunks(file):
            parts.append(_parse(chunk, features, labels) or _complain(chunk, features, labels, path, number))
            number += len(parts[-1].feature_ends)
    return sizes, _joined(parts, sizes[0], path)


def _sizes(line: bytes, header: Sequence[str], path: Path) -> list[int]:
    fields = line.removeprefix(b"\xef\xbb\xbf").split()
    if len(fields) != len(header) or not all(field.isdigit() for field in fields):
        shown = line[:60].decode("utf-8", "replace").strip()
        raise BadFile(f"{path}:1: the header is {shown!r}; it must be {len(header)} whole numbers: {', '.join(header)}")
    return [int(field) for field in fields]


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    """The rest of a file in pieces of whole lines."""
    while piece := file.read(CHUNK):
        piece += file.readline()
        piece = piece.replace(b"\r\n", b"\n")
        yield piece if piece.endswith(b"\n") else piece + b"\n"


class _Numbers:
    """Where the numbers of a chunk stand, and between which signs."""

    def __init__(self, chunk: bytes) -> None:
        self.chunk = chunk
        self.characters = np.frombuffer(chunk, dtype=np.uint8)
        self.kinds = _KINDS[self.characters]
        inside = self.kinds == 0
        edges = np.flatnonzero(np.diff(inside, prepend=False))
        self.starts, self.ends = edges[::2], edges[1::2]  # the chunk ends with a newline, so every number ends in it
        self.before = self.kinds[self.starts - 1]  # before the first character stands, by wrapping, the last: a newline
        self.after = self.kinds[self.ends]
        self.is_feature, self.is_value = self.after == COLON, self.before == COLON
        self.is_label = ~(self.is_feature | self.is_value)
        # Unsigned: what stands below "0" wraps to above 9.
        self.signs = np.flatnonzero(inside & (self.characters - ord("0") > 9))  # points, minus signs, letters
        self.signed = np.searchsorted(self.starts, self.signs, side="right") - 1  # the number each of them stands in

    def well_formed(self) -> bool:
        """Whether labels and pairs stand where they may, one sign apart, and only values hold more than digits."""
        close = np.append(self.starts[1:] == self.ends[:-1] + 1, False)[: len(self.starts)]
        paired, listed = close & self.is_feature, close & (self.after == COMMA)
        return bool(
            np.count_nonzero(paired) == np.count_nonzero(self.kinds == COLON)
            and np.count_nonzero(listed) == np.count_nonzero(self.kinds == COMMA)
            and not (self.is_feature & self.is_value).any()
            and self.is_label[listed].all()
            and self.is_label[np.roll(listed, 1)].all()
            and (self.before[self.is_label] != SPACE).all()
            and self.is_value[self.signed].all()
            and (self.characters[self.signs] > ord(" ")).all()  # numpy's reader would pass over a tab
        )

    def read(self) -> np.ndarray | None:
        """(numbers,), float64; nothing when one cannot be read."""
        plain = (self.characters[self.signs] == ord(".")).all() and (np.diff(self.signed) > 0).all()
        lengths = self.ends - self.starts
        short = lengths.max(initial=0) <= 16 and (lengths[self.signed] > 1).all()
        return self._read_plain(lengths) if plain and short else self._read_any()

    def _read_plain(self, lengths: np.ndarray) -> np.ndarray:
        """Digits with at most one point, digit by digit over all numbers at once: up to 15 digits, so nothing is rounded."""
        digits = self.characters - ord("0")
        numbers = np.zeros(len(self.starts))
        for place in range(lengths.max(initial=0)):
            longer = np.flatnonzero(lengths > place)
            digit = digits[self.starts[longer] + place]
            numbers[longer] = np.where(digit > 9, numbers[longer], numbers[longer] * 10 + digit)
        numbers[self.signed] /= _POWERS[self.ends[self.signed] - 1 - self.signs]
        return numbers

    def _read_any(self) -> np.ndarray | None:
        """Numbers with minus signs, exponents or many digits: numpy's own reader, a third as fast."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)  # how numpy before 2.4 tells of what is no number
                numbers = np.fromstring(self.chunk.translate(_SPACED), sep=" ")
        except (ValueError, DeprecationWarning):
            return None
        return numbers if len(numbers) == len(self.starts) else None


def _parse(chunk: bytes, features: int, labels: int) -> _Lines | None:
    """What a chunk holds, or nothing when something is wrong with it."""
    found = _Numbers(chunk)
    numbers = found.read() if found.well_formed() else None
    if numbers is None or (numbers[found.is_feature] >= features).any() or (numbers[found.is_label] >= labels).any():
        return None
    with np.errstate(over="ignore"):
        values = numbers[found.is_value].astype(np.float32)
    if not np.isfinite(values).all():
        return None
    newlines = np.flatnonzero(found.kinds == NEWLINE)
    return _Lines(
        labels=numbers[found.is_label].astype(np.int32),
        label_ends=np.searchsorted(found.starts[found.is_label], newlines),
        features=numbers[found.is_feature].astype(np.int32),
        values=values,
        feature_ends=np.searchsorted(found.starts[found.is_feature], newlines),
    )


def _joined(parts: Sequence[_Lines], documents: int, path: Path) -> _Lines:
    """Parts one after the other, as many lines as the header promises; blank lines below them are passed over."""
    labels, label_ends, features, values, feature_ends = (list(arrays) for arrays in zip(*parts, strict=True))
    rows, label_rows = _row_starts(feature_ends), _row_starts(label_ends)
    if len(rows) - 1 < documents:
        raise BadFile(f"{path}:1: the header promises {documents} documents, but {len(rows) - 1} lines follow it")
    if rows[documents] < rows[-1] or label_rows[documents] < label_rows[-1]:
        raise BadFile(f"{path}:{documents + 2}: more documents than the {documents} that the header promises")
    return _Lines(
        np.concatenate(labels),
        label_rows[: documents + 1],
        np.concatenate(features),
        np.concatenate(values),
        rows[: documents + 1],
    )


def _row_starts(ends: Sequence[np.ndarray]) -> np.ndarray:
    """(lines + 1,), where each line's columns start over all parts, from where they end within each."""
    lengths = np.concatenate([np.diff(part, prepend=0) for part in ends])
    return np.concatenate([[0], np.cumsum(lengths)])


def _complain(chunk: bytes, features: int, labels: int, path: Path, number: int) -> NoReturn:
    """Go through the lines of a chunk and name the first that is wrong."""
    for line in chunk.split(b"\n"):
        if fault := _fault(line, features, labels):
            raise BadFile(f"{path}:{number}: {fault}")
        number += 1
    raise BadFile(f"{path}:{number}: not lines of the form 'label,label feature:value feature:value'")


def _fault(line: bytes, features: int, labels: int) -> str | None:
    """What is wrong with a line, if anything is."""
    head, _, tail = (b"", b"", line) if b":" in line.split(b" ")[0] else line.partition(b" ")
    for label in head.split(b",") if head else ():
        if not label.isdigit():
            return f"{_shown(label)} is not a label, which is a whole number from 0"
        if float(label) >= labels:
            return f"the label {_shown(label)} is out of range; the header promises {labels} labels, numbered from 0"
    for pair in filter(None, tail.split(b" ")):
        feature, _, value = pair.partition(b":")
        if not feature.isdigit() or not value:
            return f"{_shown(pair)} is not a feature with its value, such as 7:0.5"
        if float(feature) >= features:
            return f"the feature {_shown(feature)} is out of range; the header promises {features} features, numbered from 0"
        if not _is_finite(value):
            return f"the value {_shown(value)} of feature {_shown(feature)} is not a finite number"
    return None


def _is_finite(value: bytes) -> bool:
    with np.errstate(over="ignore"):
        return _NUMBER.fullmatch(value) is not None and bool(np.isfinite(np.float32(float(value))))


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))
