"""Files are written by hand in each format; what is learned is compared with counting pair by pair and numpy's full SVD."""

import gzip
import lzma
import math
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labelwise.errors import BadFile, BadModel, BadSettings
from labelwise.features import vectors as module
from labelwise.features.vectors import WordVectors, label_words
from labelwise.features.words import words

NAMES = ["heron", "grey", "lake", "unknown", "naïve", "10,000"]
ROWS = np.array([[0.25, -1.5], [3, 1e-5], [-0.0625, 7.125], [2, 2.5], [-4e3, 0.5], [1, 0]], dtype=np.float32)


def glove(names: list[str] = NAMES, rows: np.ndarray = ROWS) -> bytes:
    return "".join(f"{name} {' '.join(map(str, row))}\n" for name, row in zip(names, rows, strict=True)).encode()


def word2vec(names: list[str] = NAMES, rows: np.ndarray = ROWS, *, end: bytes = b"\n") -> bytes:
    records = (name.encode() + b" " + struct.pack(f"<{len(row)}f", *row) + end for name, row in zip(names, rows, strict=True))
    return f"{len(names)} {rows.shape[1]}\n".encode() + b"".join(records)


def write_npz(path: Path) -> None:
    np.savez(path, words=np.array(NAMES), vectors=ROWS)


WRITERS = {
    "glove.txt": lambda path: path.write_bytes(glove()),
    "glove.txt.gz": lambda path: path.write_bytes(gzip.compress(glove())),
    "glove.txt.xz": lambda path: path.write_bytes(lzma.compress(glove())),
    "word2vec.txt": lambda path: path.write_bytes(b"6 2\n" + glove()),
    "word2vec.bin": lambda path: path.write_bytes(word2vec()),
    "word2vec-without-breaks.bin": lambda path: path.write_bytes(word2vec(end=b"")),
    "word2vec-by-its-content": lambda path: path.write_bytes(word2vec()),
    "word2vec.bin.gz": lambda path: path.write_bytes(gzip.compress(word2vec())),
    "plain.npz": write_npz,
    "packed.npz": lambda path: np.savez_compressed(path, words=np.array(NAMES), vectors=ROWS.astype(np.float64)),
}


@pytest.mark.parametrize("chunk", [1 << 24, 16])
@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_words_and_vectors(tmp_path, monkeypatch, name, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    monkeypatch.setattr(module, "ROWS", chunk // 8)
    WRITERS[name](tmp_path / name)
    read = WordVectors.read(tmp_path / name)
    assert read.words == {name: row for row, name in enumerate(NAMES, 2)}
    assert read.vectors.dtype == np.float32
    assert read.vectors[2:].tolist() == ROWS.tolist()
    assert read.vectors[0].tolist() == [0, 0]
    assert (len(read), read.width) == (8, 2)


@pytest.mark.parametrize("chunk", [1 << 24, 16])
@pytest.mark.parametrize("name", ["glove.txt", "word2vec.txt", "word2vec.bin", "plain.npz"])
def test_a_limit_keeps_the_first_words(tmp_path, monkeypatch, name, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    monkeypatch.setattr(module, "ROWS", chunk // 8)
    WRITERS[name](tmp_path / name)
    read = WordVectors.read(tmp_path / name, limit=3)
    assert list(read.words) == NAMES[:3]
    assert read.vectors[2:].tolist() == ROWS[:3].tolist()


def read_text(folder: Path, content: str | bytes, **options) -> WordVectors:
    path = folder / "some.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return WordVectors.read(path, **options)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from(["{!r}", "{:g}", "{:.6f}", "{:E}"])
        ),
        min_size=1,
        max_size=20,
    )
)
def test_numbers_are_read_as_python_reads_them(tmp_path, numbers):
    spelt = [form.format(number) for number, form in numbers]
    read = read_text(tmp_path, "word " + " ".join(spelt) + "\n").vectors[2]
    expected = np.array([float(number) for number in spelt], dtype=np.float32)
    assert np.abs(read - expected).max() <= np.spacing(np.abs(expected).max())
    short = [place for place, number in enumerate(spelt) if len(number) < 14 and 1e-15 < abs(expected[place]) < 1e15]
    assert read[short].tolist() == expected[short].tolist(), "not even rounded otherwise"


@pytest.mark.parametrize(
    "spelt", ["123456789012345678901234567890", "0." + "0" * 30 + "12345", "1e-50", "1e-999999999999", "5.", ".5", "-0"]
)
def test_numbers_of_odd_length_are_read_too(tmp_path, spelt):
    assert read_text(tmp_path, f"word {spelt} 1\n").vectors[2, 0] == pytest.approx(np.float32(spelt), rel=1e-6, abs=0)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (". . . 1 2", ". . ."),
        ("at name@domain.com 1 2", "at name@domain.com"),
        ("non\u00a0breaking 1 2", "non\u00a0breaking"),
        ("next\u0085line\u2028 1 2", "next\u0085line\u2028"),
        ("blanks 1 2   ", "blanks"),
        ("return 1 2\r", "return"),
        ("tabs\t1\t2", "tabs"),
        ("wide  1   2", "wide"),
        ("0.5 1 2", "0.5"),
        ("\u00a0 1 2", "\u00a0"),
    ],
)
def test_odd_words_and_blanks_of_published_files_are_read(tmp_path, line, word):
    read = read_text(tmp_path, f"the 5 6\n{line}\nof 7 8\n\n  \n")
    assert read.words == {"the": 2, word: 3, "of": 4}
    assert read.vectors[2:].tolist() == [[5, 6], [1, 2], [7, 8]]


def test_the_first_of_equal_words_wins(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 8)
    read = read_text(tmp_path, "a 1 2\nb 3 4\na 5 6\nc 7 8\nb 9 9\n")
    assert read.words == {"a": 2, "b": 3, "c": 4}
    assert read.vectors[2:].tolist() == [[1, 2], [3, 4], [7, 8]]


def test_a_word_that_word2vec_cut_inside_a_letter_is_passed_over(tmp_path):
    path = tmp_path / "cut.bin"
    path.write_bytes(word2vec().replace("naïve".encode(), b"na\xc3"))
    read = WordVectors.read(path)
    assert read.numbers(["heron", "naïve", "10,000"]).tolist() == [2, 1, 7]
    assert read.vectors[2:].tolist() == ROWS.tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"some.txt: empty; .*words\.vectors"),
        (b"\n\n", r"some.txt:1: no numbers"),
        (b"alone\n", r"some.txt:1: no numbers after the word"),
        (b"a 1 2\nb 1\n", r"some.txt:2: 1 numbers; the first line says 2"),
        (b"a 1 2\nb 1 2 3\n", r"some.txt:2: 3 numbers; the first line says 2"),
        (b"a 1 2\n\nb 1 2\n", r"some.txt:2: 0 numbers; the first line says 2"),
        (b"3 2\na 1 2\nb 1 2\n", r"some.txt: ends after 2 of 3 words; copy or download it again"),
        (b"a 1 2\nb 1  \tx 2\n", r"some.txt:2: 3 numbers; the first line says 2"),
        (b"a 1 2 3\nb 1  3\n", r"some.txt:2: 2 numbers; the first line says 3"),
        (b"a 1 2\nb 1\t2 3\n", r"some.txt:2: 3 numbers; the first line says 2"),
        (b"a 1 2\nb 1 2\x0b3\n", r"some.txt:2: 3 numbers; the first line says 2"),
        (b"a 1 2\nb 1 x\n", r"some.txt:2: 'x' is not a number"),
        (b"a 1 2\nb 1 2\nc - 2\n", r"some.txt:3: '-' is not a number"),
        (b"a 1 2\nb 1 2e\n", r"some.txt:2: '2e' is not a number"),
        (b"a 1 2\nb 1 1.2.3\n", r"some.txt:2: '1.2.3' is not a number"),
        (b"a 1 2\nb nan 2\n", r"some.txt:2: 'nan' is not a number"),
        (b"a 1 2\nb 1 1e39\n", r"some.txt:2: the vector of 'b' holds a value that is not finite"),
        (b"a 1 2\n\xff\xfe 1 2\n", r"some.txt:2: not UTF-8: .*; save the file as UTF-8"),
        (word2vec()[:-3], r"some.txt: ends after 5 of 6 words of width 2; copy or download it again"),
        (word2vec(rows=np.full((6, 2), np.nan)), r"some.txt: the vector of 'heron' holds a value that is not finite"),
        (word2vec(["a\nb", *NAMES[1:]]), r"some.txt: the word 'a\\nb' holds a line break"),
        (b"PK broken", r"some.txt: not an .npz file with the arrays words \(text\) and vectors"),
    ],
)
@pytest.mark.parametrize("chunk", [1 << 24, 4])
def test_broken_files_are_errors_that_name_the_place(tmp_path, monkeypatch, content, message, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    with pytest.raises(BadFile, match=message):
        read_text(tmp_path, content)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"words": np.array(["a"])}, "vectors is not a file in the archive"),
        ({"words": np.array(["a", None]), "vectors": np.ones((2, 2))}, "Object arrays cannot be loaded"),
        ({"words": np.array(["a"]), "vectors": np.ones((2, 2))}, r"words is \(1,\) <U1, vectors \(2, 2\) float64"),
        ({"words": np.array([b"a"]), "vectors": np.ones((1, 2))}, r"words is \(1,\) \|S1"),
        ({"words": np.array(["a"]), "vectors": np.full((1, 2), 1e300)}, "the vector of 'a' holds a value that is not finite"),
    ],
)
def test_arrays_that_do_not_fit_together_are_errors(tmp_path, arrays, message):
    np.savez(tmp_path / "some.npz", **arrays)
    with pytest.raises(BadFile, match=rf"some.npz: .*{message}"):
        WordVectors.read(tmp_path / "some.npz")


def test_a_missing_file_is_an_error_that_names_the_way_out(tmp_path):
    with pytest.raises(BadFile, match=r'nowhere.txt: no such file; .*words\.vectors.*"corpus" there to learn vectors'):
        WordVectors.read(tmp_path / "nowhere.txt")


@pytest.mark.parametrize(
    ("rule", "names", "expected"),
    [
        ("unknown_word", ["a", "unknown", "c"], [3, 4]),
        ("unknown_word", ["a", "UNKNOWN", "c"], [3, 5]),
        ("mean", ["a", "unknown", "c"], [3, 5]),
        ("zeros", ["a", "unknown", "c"], [0, 0]),
        ("constant", ["a", "unknown", "c"], [11, 11]),
    ],
)
def test_the_rule_for_unknown_words_makes_row_1(tmp_path, rule, names, expected):
    read = read_text(tmp_path, glove(names, np.array([[1, 1.5], [3, 4], [5, 9.5]])), unknown=rule)
    assert read.vectors[1].tolist() == expected


def test_a_rule_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(BadSettings, match="unknown: 'zero' is not one of .*did you mean 'zeros'"):
        read_text(tmp_path, glove(), unknown="zero")


def test_look_ups_lower_the_case_and_unknown_words_share_row_1(tmp_path):
    read = read_text(tmp_path, "heron 1 2\nParis 3 4\nlake 5 6\n")
    numbers = read.numbers(["Heron", "LAKE", "swan", "Paris", ""])
    assert numbers.tolist() == [2, 4, 1, 1, 1]
    assert numbers.dtype == np.int32
    assert read.numbers([]).dtype == np.int32


def test_another_width_than_the_settings_say_is_an_error_that_names_both(tmp_path):
    read = read_text(tmp_path, glove())
    read.require_width(2)
    with pytest.raises(BadSettings, match="word vectors of width 2, but the settings say 200; say 2, or .*words.vectors"):
        read.require_width(200)


def test_what_is_saved_is_mapped_again(tmp_path):
    read = read_text(tmp_path, "\u0085 1 2\n\u2028odd\u00a0 3 4\n 5 6\n")
    read.save(tmp_path)
    loaded = WordVectors.load(tmp_path)
    assert loaded.words == read.words
    assert isinstance(loaded.vectors, np.memmap)
    assert loaded.vectors.tolist() == read.vectors.tolist()
    loaded.vectors[2:] += 1  # stays in memory
    assert WordVectors.load(tmp_path).vectors.tolist() == read.vectors.tolist()


def test_words_and_rows_that_do_not_match_are_an_error(tmp_path):
    read_text(tmp_path, glove()).save(tmp_path)
    (tmp_path / "words.txt").write_text("heron\n")
    with pytest.raises(BadModel, match="vectors.npy has 8 rows for the 1 words of words.txt"):
        WordVectors.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("Grey herons (1990), EC-treaty", 15, ["grey", "herons", "ec", "treaty"]),
        ("10 000 B12", 15, ["b12"]),
        ("Ελλάδα ñ España", 15, ["españa"]),
        ("one 2 three four", 2, ["one", "three"]),
        ("1990", 15, []),
        ("", 15, []),
    ],
)
def test_label_words_hold_a_letter_of_ascii(text, limit, expected):
    assert label_words(text, limit) == expected


def slow_vectors(texts: list[str], width: int, window: int, least: int, most: int) -> dict[str, np.ndarray]:
    """Pair by pair, then dense."""
    often = Counter(word for text in texts for word in words(text))
    kept = [word for word, count in often.most_common(most) if count >= least]
    pairs: Counter[tuple[str, str]] = Counter()
    for text in texts:
        here = [word for word in words(text) if word in kept]
        for place, word in enumerate(here):
            for other in here[max(place - window, 0) : place] + here[place + 1 : place + 1 + window]:
                pairs[word, other] += 1
    total = {word: sum(pairs[word, other] for other in kept) for word in kept}
    smooth = sum(count**0.75 for count in total.values())
    matrix = np.array(
        [
            [max(math.log(pairs[a, b] * smooth / (total[a] * total[b] ** 0.75)), 0) if pairs[a, b] else 0 for b in kept]
            for a in kept
        ]
    )
    left, values, _ = np.linalg.svd(matrix)
    return dict(zip(kept, (left * np.sqrt(values))[:, :width], strict=True))


TOPICS = [
    ["heron", "owl", "swan", "nest", "egg"],
    ["tax", "duty", "levy", "budget", "fund"],
    ["ship", "port", "cargo", "dock", "sea"],
]


def topic_texts(number: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice([*TOPICS[place % 3], "the", "of"], 12)) for place in range(number)]


@pytest.mark.parametrize(("window", "least", "most"), [(5, 2, 100), (1, 2, 100), (3, 4, 12)])
def test_learned_vectors_are_those_of_a_slow_count_and_a_full_decomposition(monkeypatch, window, least, most):
    monkeypatch.setattr(module, "PAIRS", 50)
    texts = [*topic_texts(30), "heron", "", "once", "twice twice", "ship port"]
    slow = slow_vectors(texts, 5, window, least, most)
    learned = WordVectors.learn(texts, width=5, seed=1, window=window, least=least, most=most)
    assert learned.words == {word: row for row, word in enumerate(slow, 2)}
    expected = np.array(list(slow.values()))
    expected = expected @ expected.T
    found = learned.vectors[2:] @ learned.vectors[2:].T
    assert found / np.trace(found) == pytest.approx(expected / np.trace(expected), abs=2e-3)


def test_learned_vectors_spread_as_those_of_glove_do():
    learned = WordVectors.learn(topic_texts(200), width=10, seed=1)
    assert learned.vectors[2:].std(axis=0).mean() == pytest.approx(0.4, rel=1e-3)
    assert learned.vectors[1] == pytest.approx(learned.vectors[2:].mean(axis=0), abs=1e-6)
    assert learned.vectors[0].tolist() == [0] * 10


def test_words_of_one_topic_are_learned_to_be_close():
    learned = WordVectors.learn(topic_texts(200), width=6, seed=1)
    rows = learned.vectors[learned.numbers(word for topic in TOPICS for word in topic)]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    close = (rows @ rows.T).reshape(3, 5, 3, 5).mean(axis=(1, 3))
    assert close.diagonal().min() > close[~np.eye(3, dtype=bool)].max() + 0.3


def test_the_same_seed_learns_the_same_bits_however_texts_are_counted(monkeypatch):
    once = WordVectors.learn(iter(topic_texts(100)), width=8, seed=3)
    monkeypatch.setattr(module, "PAIRS", 64)
    again = WordVectors.learn(topic_texts(100), width=8, seed=3)
    assert once.words == again.words
    assert once.vectors.tobytes() == again.vectors.tobytes()


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["one"],
        ["one one one one"],
        ["one two", "one two"],
        ["one two three one two three"],
        ["a b", "a b", "c d", "c d"],
    ],
)
def test_next_to_nothing_can_be_learned_from(texts):
    learned = WordVectors.learn(texts, width=50, seed=1)
    known = {word for word, count in Counter(" ".join(texts).split()).items() if count > 1}
    assert set(learned.words) == known
    assert learned.vectors.shape == (len(known) + 2, 50)
    assert np.isfinite(learned.vectors).all()
    assert np.abs(learned.vectors).max() < 10
    assert not learned.vectors[:, len(known) :].any()


def test_components_beyond_the_rank_are_zeros():
    learned = WordVectors.learn(["swan lake", "heron lake"] * 2, width=5, seed=1)  # swan and heron cannot be told apart
    assert learned.vectors.any(axis=0).tolist() == [True, True, False, False, False]
    assert learned.vectors[learned.words["swan"]] == pytest.approx(learned.vectors[learned.words["heron"]], abs=1e-6)


def test_missing_words_get_vectors_from_their_neighbours():
    random = np.random.default_rng(0)
    topics = [[f"w{topic}x{number}" for number in range(12)] for topic in range(4)]
    texts = [" ".join(random.choice(topics[number % 4], 30)) for number in range(200)]
    centres = random.normal(size=(4, 8)).astype(np.float32)
    words = [word for topic in topics for word in topic]
    rows = np.repeat(centres, 12, axis=0) + random.normal(size=(48, 8)).astype(np.float32) / 10
    missing = {"w0x0", "w2x5"}
    kept = [place for place, word in enumerate(words) if word not in missing]
    table = np.concatenate([np.zeros((2, 8), dtype=np.float32), rows[kept]])
    vectors = WordVectors({words[place]: row for row, place in enumerate(kept, 2)}, table)
    completed = vectors.completed([*texts, "once"])
    assert np.array_equal(completed.vectors[: len(vectors)], vectors.vectors)
    assert set(completed.words) - set(vectors.words) == missing
    for word in missing:
        assert completed.vectors[completed.words[word]] == pytest.approx(rows[words.index(word)], abs=0.6)
    assert completed.numbers(["once"])[0] == 1


def test_nothing_to_complete_changes_nothing():
    vectors = WordVectors({"owl": 2}, np.arange(6, dtype=np.float32).reshape(3, 2))
    assert np.array_equal(vectors.completed([]).vectors, vectors.vectors)
    assert np.array_equal(vectors.completed(["owl owl owl"]).vectors, vectors.vectors)
