"""Word vectors: read from a file, or learned from the texts at hand.

Row 0 is padding, all zeros; row 1 stands for every unknown word; the words follow from row 2, in file order. A look-up lowers
the case first, so vectors of words that a file spells with capitals only are never used, as in the paper (SPEC 1.0.1, 5.6).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from zipfile import BadZipFile

import numpy as np

from labelwise.errors import BadFile, BadModel, BadSettings, did_you_mean
from labelwise.features.words import words as words_of
from labelwise.progress import Progress, silent
from labelwise.storage import open_bytes

if TYPE_CHECKING:
    from scipy.sparse import csr_array

CHUNK = 1 << 24  # bytes of a file that are read at once
ROWS = 1 << 14  # vectors of an array that are taken over at once
PAIRS = 1 << 23  # pairs of words that are counted at once
SPREAD = 0.4  # standard deviation of a component over the words, as in GloVe's vectors

_HEADER = re.compile(rb"(\d{1,15})[ \t]([1-9]\d{0,5})\s*")
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_POWERS = 10.0 ** np.arange(309)
_LETTER = re.compile("[a-z]")

Block = tuple[int, list[str], np.ndarray]  # line of the first word or 0 where there are no lines, words, (words, width)

UNKNOWN: dict[str, Callable[[dict[str, int], np.ndarray], Any]] = {
    "unknown_word": lambda words, rows: rows[words["unknown"] - 2] if "unknown" in words else _mean(rows),
    "zeros": lambda words, rows: 0,
    "mean": lambda words, rows: _mean(rows),
    "constant": lambda words, rows: np.ceil(rows.max() + 1),
}


class WordVectors:
    """Words and their vectors, (words + 2, width) float32, perhaps memory-mapped: what is written to them stays in memory."""

    def __init__(self, words: dict[str, int], vectors: np.ndarray) -> None:
        self.words = words
        self.vectors = vectors

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def width(self) -> int:
        """Components of a vector."""
        return int(self.vectors.shape[1])

    def numbers(self, words: Iterable[str]) -> np.ndarray:
        """(words,) int32 rows, found in lower case; 1 where a word is unknown."""
        return np.array([self.words.get(word.lower(), 1) for word in words], dtype=np.int32)

    def require_width(self, width: int) -> None:
        """Refuse vectors of another width than the settings say."""
        if width != self.width:
            raise BadSettings(
                f"word vectors of width {self.width}, but the settings say {width}; say {self.width}, or name other vectors "
                "with the setting words.vectors"
            )

    @classmethod
    def read(cls, path: Path | str, *, unknown: str = "unknown_word", limit: int = 0, progress: Progress = silent) -> Self:
        """The first `limit` words of a file: GloVe, word2vec (text or binary), or .npz with `words` and `vectors`; 0 for all."""
        path = Path(path)
        if unknown not in UNKNOWN:
            raise BadSettings(f"unknown: {unknown!r} is not one of {', '.join(UNKNOWN)}{did_you_mean(unknown, UNKNOWN)}")
        if not path.exists():
            raise BadFile(
                f"{path}: no such file; name a file of word vectors with the setting words.vectors, "
                'or say "corpus" there to learn vectors from the training texts'
            )
        words: dict[str, int] = {}
        vectors = np.zeros((0, 0), dtype=np.float32)
        with open_bytes(path) as file:
            for first, spelt, rows in progress(_blocks(path, file), "read word vectors"):
                _check(path, first, spelt, rows)
                fresh = []
                for place, word in enumerate(spelt):
                    if word not in words and not 0 < limit <= len(words):
                        words[word] = len(words) + 2
                        fresh.append(place)
                vectors.resize((len(words) + 2, rows.shape[1]), refcheck=False)  # in place: a second copy may not fit
                vectors[len(words) + 2 - len(fresh) :] = rows[fresh]
                if 0 < limit <= len(words):
                    break
        if not words:
            raise BadFile(f"{path}: empty; name a file of word vectors with the setting words.vectors")
        vectors[1] = UNKNOWN[unknown](words, vectors[2:])
        return cls(words, vectors)

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        *,
        width: int,
        seed: int,
        window: int = 5,
        least: int = 2,
        most: int = 50_000,
        progress: Progress = silent,
    ) -> Self:
        """Vectors of the `most` frequent words that occur `least` times, from the words that stand within a window of them.

        Levy, Goldberg & Dagan 2015: positive pointwise mutual information with contexts smoothed by the power 0.75, then
        truncated singular value decomposition, singular values to the power 0.5.
        """
        tokens, names = _read_tokens(texts, window, least, most, progress)
        vectors = np.zeros((len(names) + 2, width), dtype=np.float32)
        vectors[2:] = _factors(_information(_count_pairs(tokens, len(names), window)), width, seed)
        vectors[1] = _mean(vectors[2:])
        return cls({name: row for row, name in enumerate(names, 2)}, vectors)

    def completed(self, texts: Iterable[str], *, window: int = 5, least: int = 2, progress: Progress = silent) -> WordVectors:
        """The same, with vectors for words that have none but occur `least` times in the texts.

        Khodak et al. 2018: the mean vector of the words around a word, by the linear map that fits best for words that have one.
        """
        tokens, names = _read_tokens(texts, window, least, len(self) + 10**6, progress)
        rows = self.numbers(names)
        known = rows > 1
        pairs = _count_pairs(tokens, len(names), window)[:, np.flatnonzero(known)].astype(np.float32)
        often = np.maximum(pairs.sum(axis=1), 1)
        contexts = (pairs @ self.vectors[rows[known]]) / often[:, None]  # (words, width)
        trust = np.sqrt(np.log1p(often[known]))[:, None]
        place, *_ = np.linalg.lstsq(contexts[known] * trust, self.vectors[rows[known]] * trust, rcond=1e-5)
        fresh = [name for name, has in zip(names, known, strict=True) if not has]
        words = self.words | {name: row for row, name in enumerate(fresh, len(self))}
        return WordVectors(words, np.concatenate([self.vectors, (contexts[~known] @ place).astype(np.float32)]))

    def save(self, folder: Path) -> None:
        """Write words.txt and vectors.npy into a folder that is being made."""
        (folder / "words.txt").write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8", newline="\n")
        np.save(folder / "vectors.npy", self.vectors, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Map what `save` wrote."""
        spelt = (folder / "words.txt").read_bytes().decode().split("\n")[:-1]
        vectors = np.load(folder / "vectors.npy", mmap_mode="c", allow_pickle=False)
        if len(vectors) != len(spelt) + 2:
            raise BadModel(
                f"{folder}: vectors.npy has {len(vectors)} rows for the {len(spelt)} words of words.txt; copy it again"
            )
        return cls({word: row for row, word in enumerate(spelt, 2)}, vectors)


def label_words(text: str, limit: int) -> list[str]:
    """The first words of a label's name that hold a letter of a to z, in lower case (SPEC 1.6): numbers are left out."""
    return [word for word in words_of(text) if _LETTER.search(word)][:limit]


def _mean(rows: np.ndarray) -> Any:
    return rows.mean(axis=0, dtype=np.float64) if len(rows) else 0


def _check(path: Path, first: int, spelt: list[str], rows: np.ndarray) -> None:
    """Refuse what no table of vectors can hold."""
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        place = f"{path}:{first + bad[0]}" if first else f"{path}"
        raise BadFile(f"{place}: the vector of {spelt[bad[0]]!r} holds a value that is not finite; take the word out")
    for word in spelt:
        if "\n" in word:
            raise BadFile(f"{path}: the word {word!r} holds a line break: the file is damaged, or no file of word vectors")


def _blocks(path: Path, file: IO[bytes]) -> Iterator[Block]:
    """Words and vectors, some at a time, in whatever format the file is."""
    start = file.read(1 << 16)
    file.seek(0)
    if start.startswith(b"PK"):
        return _npz(path, file)
    head, _, rest = start.partition(b"\n")
    sizes = _header(head)
    if sizes and (".bin" in path.suffixes or min(rest, default=9) < 9):  # control characters: no text
        return _binary(path, file, *sizes)
    return _text(path, file)


def _header(line: bytes) -> tuple[int, int] | None:
    """The number of words and the width, where the first line of a file tells them."""
    found = _HEADER.fullmatch(line)
    return (int(found[1]), int(found[2])) if found else None


def _npz(path: Path, file: IO[bytes]) -> Iterator[Block]:
    try:
        with np.load(file, allow_pickle=False) as stored:
            words, vectors = stored["words"], stored["vectors"]
    except (BadZipFile, KeyError, ValueError) as error:
        raise BadFile(f"{path}: not an .npz file with the arrays words (text) and vectors: {error}") from None
    if words.dtype.kind != "U" or vectors.dtype.kind != "f" or vectors.ndim != 2 or words.shape != vectors.shape[:1]:
        raise BadFile(
            f"{path}: words is {words.shape} {words.dtype}, vectors {vectors.shape} {vectors.dtype}; "
            "there must be one word of text for each row of numbers"
        )
    for start in range(0, len(words), ROWS):
        with np.errstate(over="ignore"):  # what does not fit is infinite then, and refused as such
            rows = vectors[start : start + ROWS].astype(np.float32)
        yield 0, words[start : start + ROWS].tolist(), rows


def _binary(path: Path, file: IO[bytes], number: int, width: int) -> Iterator[Block]:
    """word2vec's own format: each word, a blank and its vector as 32-bit numbers, often with a line break after it."""
    file.readline()
    size, rest, done = 4 * width, b"", 0
    while done < number:
        chunk = file.read(CHUNK)
        content = rest + chunk
        spelt: list[str] = []
        vectors, place = [], 0
        while done + len(spelt) < number and 0 <= (end := content.find(b" ", place)) < len(content) - size:
            # A word cut short inside a letter is the work of word2vec itself; it matches nothing, and harms nothing.
            spelt.append(content[place:end].lstrip(b"\n").decode(errors="replace"))
            place = end + 1 + size
            vectors.append(content[end + 1 : place])
        if not chunk and not spelt:
            raise BadFile(f"{path}: ends after {done} of {number} words of width {width}; copy or download it again")
        rest, done = content[place:], done + len(spelt)
        yield 0, spelt, np.frombuffer(b"".join(vectors), dtype="<f4").reshape(-1, width)


def _text(path: Path, file: IO[bytes]) -> Iterator[Block]:
    """GloVe's and word2vec's text: a line for each word, blanks between word and numbers."""
    head = file.readline()
    sizes = _header(head)
    width = sizes[1] if sizes else len(head.split()) - 1
    if not head:
        return
    if width < 1:
        raise BadFile(f"{path}:1: no numbers after the word; is this a file of word vectors?")
    lines, first, done = ([], 2, 0) if sizes else ([head], 1, 0)
    while lines := [*lines, *file.readlines(CHUNK)]:
        following = first + len(lines)
        while lines and not lines[-1].strip():
            lines.pop()
        cut = [_cut(path, number, line.rstrip(), width) for number, line in enumerate(lines, first)]
        text = b"".join(numbers + b"\n" for _, numbers in cut)
        rows = np.empty((len(cut), width), dtype=np.float32)
        good = _compiled()(np.frombuffer(text, dtype=np.uint8), rows, _POWERS)
        if good < len(cut):
            fields = cut[good][1].decode(errors="replace").split()
            wrong = [f"{field!r} is not a number" for field in fields if not _NUMBER.fullmatch(field)]
            raise BadFile(f"{path}:{first + good}: {wrong[0] if wrong else _unequal(len(fields), width)}")
        yield first, [word for word, _ in cut], rows
        first, lines, done = following, [], done + len(cut)
    if sizes and done < sizes[0]:
        raise BadFile(f"{path}: ends after {done} of {sizes[0]} words; copy or download it again")


def _cut(path: Path, number: int, line: bytes, width: int) -> tuple[str, bytes]:
    """The word of a line, and its numbers with blanks between them."""
    word, _, numbers = line.partition(b" ")
    if numbers.count(b" ") != width - 1:  # tabs, several blanks, or a word with blanks in it, of which GloVe has some
        fields = line.rsplit(None, width)
        word, numbers = b"".join(fields[:1]), b" ".join(fields[1:])
        if len(fields) <= width or (b" " in word and _NUMBER.fullmatch(word.split()[-1].decode(errors="replace"))):
            raise BadFile(f"{path}:{number}: {_unequal(max(len(line.split()) - 1, 0), width)}")
    try:
        return word.decode(), numbers
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}:{number}: not UTF-8: {error}; save the file as UTF-8") from None


def _unequal(found: int, width: int) -> str:
    return f"{found} numbers; the first line says {width}"


@cache
def _compiled() -> Any:
    from numba import njit

    return njit(cache=True, nogil=True)(_parse)


def _parse(text: np.ndarray, rows: np.ndarray, powers: np.ndarray) -> int:
    """Fill rows from lines of decimal numbers, none of them with too many; how many rows went well before one did not."""
    place = 0
    for row in range(len(rows)):
        for column in range(rows.shape[1]):
            while text[place] == 32:
                place += 1
            minus = text[place] == 45
            place += minus
            digits, exponent, point, any_digit = 0, 0, False, False
            while 48 <= text[place] <= 57 or (text[place] == 46 and not point):
                if text[place] == 46:
                    point = True
                else:
                    any_digit = True
                    if digits < 10**17:  # more would not fit, and are worth nothing in 32 bits
                        digits = digits * 10 + text[place] - 48
                        exponent -= point
                    else:
                        exponent += not point
                place += 1
            if any_digit and (text[place] == 101 or text[place] == 69):
                down = text[place + 1] == 45
                place += 2 if down or text[place + 1] == 43 else 1
                power, any_digit = 0, False
                while 48 <= text[place] <= 57:
                    power, any_digit = min(power * 10 + text[place] - 48, 9999), True
                    place += 1
                exponent += -power if down else power
            if not any_digit or (text[place] != 32 and text[place] != 10):
                return row
            factor = powers[min(abs(exponent), 308)]
            value = digits / factor if exponent < 0 else digits * factor
            rows[row, column] = -value if minus else value
        place += 1
    return len(rows)


def _read_tokens(texts: Iterable[str], window: int, least: int, most: int, progress: Progress) -> tuple[np.ndarray, list[str]]:
    """The frequent words of all texts as numbers, with a gap of -1s after each text that no window bridges, and those words."""
    spelt: dict[str, int] = {"": 0}
    parts = [np.zeros(0, dtype=np.int32)]
    for text in progress(texts, "read words"):
        parts.append(np.array([spelt.setdefault(word, len(spelt)) for word in words_of(text)] + [0] * window, dtype=np.int32))
    tokens = np.concatenate(parts)
    counts = np.bincount(tokens, minlength=len(spelt))
    counts[0] = 0
    kept = np.argsort(-counts, kind="stable")[:most]
    kept = kept[counts[kept] >= max(least, 1)]
    number = np.full(len(spelt), -2, dtype=np.int32)
    number[0] = -1
    number[kept] = np.arange(len(kept))
    tokens = number[tokens]
    names = list(spelt)
    return tokens[tokens > -2], [names[old] for old in kept.tolist()]


def _count_pairs(tokens: np.ndarray, size: int, window: int) -> csr_array:
    """(words, words), how often one stands within the window of the other; tokens below 0 part texts."""
    from scipy.sparse import csr_array

    counts = csr_array((size, size), dtype=np.int32)
    step = PAIRS // window
    for start in range(0, len(tokens), step):
        one, other = [], []
        for distance in range(1, window + 1):
            right = tokens[start + distance : start + distance + step]
            left = tokens[start : start + len(right)]
            both = (left >= 0) & (right >= 0)
            one.append(left[both])
            other.append(right[both])
        rows, columns = np.concatenate(one), np.concatenate(other)
        counts = counts + csr_array((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=(size, size))
    return csr_array(counts + counts.T)


def _information(pairs: csr_array) -> csr_array:
    """Pointwise mutual information of words and smoothed contexts, where it is positive."""
    often, context = pairs.sum(axis=1), pairs.sum(axis=0) ** 0.75
    expected = np.repeat(often, np.diff(pairs.indptr)) * (context / max(context.sum(), 1))[pairs.indices]
    information = pairs.astype(np.float32)
    information.data = np.maximum(np.log(pairs.data / expected), 0).astype(np.float32)
    information.eliminate_zeros()
    return information


def _factors(matrix: csr_array, width: int, seed: int) -> np.ndarray:
    """(words, width), left singular vectors times the roots of their values; zeros where the rank is lower than the width."""
    from sklearn.utils.extmath import randomized_svd

    factors = np.zeros((matrix.shape[0], width), dtype=np.float32)
    if matrix.nnz:
        left, values, _ = randomized_svd(matrix, min(width, len(factors)), n_iter=3, random_state=seed)
        values[values < 1e-5 * values[0]] = 0  # what rounding left of zeros
        factors[:, : len(values)] = left * np.sqrt(values)
        spread = factors.std(axis=0)
        factors *= SPREAD / spread[spread > 0].mean() if spread.any() else 1
    return factors
