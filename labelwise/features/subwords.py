"""Sub-words: the tokens that a transformer reads, by the tokenizer of its checkpoint.

Special tokens are ours to add, in `segments`. A document that spells one, such as "[SEP]" or "<s>", means just these letters.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from labelwise.errors import BadModel, MissingExtra
from labelwise.features.cache import arrays
from labelwise.features.words import token_spans
from labelwise.progress import Progress, silent
from labelwise.storage import read_json

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

BATCH = 256  # texts that are cut at once: until only its number is kept, a token takes some 100 bytes
CHARACTERS = 6  # of a text for each token that is wanted, at first; most tokens are shorter
MARKS = ("cls_token", "sep_token", "pad_token")
DOWNLOAD = "without network, download the checkpoint elsewhere and give its folder: --set encoder.checkpoint=FOLDER"
PATIENCE = 10.0  # seconds for an answer from the model hub
CASED = 0.01  # share of words with capitals from which on a vocabulary tells them apart
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")

_END = re.compile(r"(?<=\S) ")  # where no tokenizer's regular expression joins what is before with what is after
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair, which no tokenizer takes


class Subwords:
    """A tokenizer without truncation, padding or special tokens; the numbers of those that begin, end and pad a segment."""

    def __init__(self, tokenizer: Tokenizer, marks: Sequence[str], longest: int | None) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self._tokenizer, self._marks = tokenizer, marks
        known = tokenizer.get_vocab()
        self.first, self.last, self.padding = (known[mark] for mark in marks)
        self.size = max(known.values()) + 1
        self.longest = longest
        # The pieces of a Unigram vocabulary hold its marks too: where a text spells one, the unknown piece is read.
        unigram = type(tokenizer.model).__name__ == "Unigram"
        self._unknown = json.loads(tokenizer.to_str())["model"].get("unk_id") if unigram else None
        self._special = [number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special]
        splitter = tokenizer.pre_tokenizer
        # Without this, what follows a blank could change the tokens before it, and long texts must be read to their end.
        self._parts_at_blanks = splitter is not None and splitter.pre_tokenize_str("a b")[0][1] == (0, 1)

    @classmethod
    def read(cls, checkpoint: str) -> Self:
        """The tokenizer of a folder, or of a name on the Hugging Face hub."""
        folder = is_folder(checkpoint)
        if folder and not any(path for name in FILES for path in Path(checkpoint).glob(name)):
            raise BadModel(
                f"{checkpoint}: no tokenizer; a checkpoint's folder has tokenizer.json, or vocab.txt, or vocab.json and "
                "merges.txt, or a SentencePiece .model beside config.json"
            )
        try:
            from transformers import AutoTokenizer
        except ModuleNotFoundError as error:
            raise MissingExtra(f"sub-words need {error.name}: pip install 'labelwise[neural]'") from None
        try:
            with quiet():
                local = folder or not hub_answers(checkpoint)
                how: dict[str, Any] = {"trust_remote_code": False, "local_files_only": local}
                found = AutoTokenizer.from_pretrained(checkpoint, **how)
                if found.is_fast and _lowers_in_vain(found.backend_tokenizer) and not _says_case(checkpoint, local):
                    found = AutoTokenizer.from_pretrained(checkpoint, do_lower_case=False, **how)
        except Exception as error:  # the library raises all kinds
            raise BadModel(_unread(checkpoint, folder, error)) from None
        if not found.is_fast:
            raise BadModel(f"{checkpoint}: its tokenizer is written in Python only; take a checkpoint with a tokenizer.json")
        if (path := Path(checkpoint) / "tokenizer.json").is_file():
            _require_same_kind(path, found.backend_tokenizer)
        marks = (found.cls_token or found.bos_token, found.sep_token or found.eos_token, found.pad_token)
        if None in marks:
            raise BadModel(f"{checkpoint}: no token to begin, end or pad a text with; take an encoder, such as BERT or RoBERTa")
        longest = found.model_max_length  # 10³⁰ where nobody said
        return cls(found.backend_tokenizer, marks, longest if longest < 10**9 else None)

    @cached_property
    def digest(self) -> str:
        """A name for the tokenizer by what it does, the same in every process."""
        return hashlib.sha256(self._tokenizer.to_str().encode()).hexdigest()

    def numbers(self, texts: Sequence[str], limit: int | None) -> list[np.ndarray]:
        """The first `limit` tokens of each text, int32."""
        return [numbers for batch in _batches(texts) for numbers in self._numbers(batch, limit)]

    def corpus_numbers(
        self, texts: Sequence[str], limit: int | None, *, folder: Path | None = None, progress: Progress = silent
    ) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of all texts one after another, through the cache, and where each text starts: (tokens,), (texts + 1,)."""
        digest = hashlib.sha256()
        for text in texts:
            content = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d " % len(content) + content)

        def make() -> dict[str, np.ndarray]:
            kind = np.uint16 if self.size <= 1 << 16 else np.uint32
            flat, lengths = [np.zeros(0, dtype=kind)], [0]
            for batch in progress(_batches(texts), "cut sub-words", -(-len(texts) // BATCH)):
                found = self._numbers(batch, limit)
                flat.append(np.concatenate(found).astype(kind))
                lengths += map(len, found)
            return {"numbers": np.concatenate(flat), "starts": np.cumsum(lengths)}

        found = arrays("subwords", [self.digest, limit, digest.hexdigest()], make, folder)
        return found["numbers"], found["starts"]

    def spans(self, text: str, limit: int | None) -> list[tuple[int, int]]:
        """Where the tokens of a text stand, blanks around them left out."""
        offsets = self._encode([text], limit, self._tokenizer.encode_batch)[0].offsets[:limit]
        parts = [(start, text[start:end]) for start, end in offsets]
        return [(start + len(part) - len(part.lstrip()), start + len(part.rstrip() or part)) for start, part in parts]

    def words(self, text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
        """For each of these tokens the place of its word in `token_spans(text, newlines=False)`; blanks have that before them."""
        end = self._end(text, spans[-1][1]) if spans else 0
        starts = [start for start, _ in token_spans(text[:end], newlines=False)]
        found = np.searchsorted(starts, [start for start, _ in spans], side="right") - 1
        return found.clip(min=0).tolist()

    def segments(self, numbers: np.ndarray, size: int, count: int) -> np.ndarray:
        """Tokens with one that begins and one that ends each `size` of them, these included; at most `count` times."""
        inside = size - 2
        kept = numbers[: inside * count]
        parts = [kept[start : start + inside] for start in range(0, max(len(kept), 1), inside)]
        return np.concatenate([piece for part in parts for piece in ([self.first], part, [self.last])], dtype=np.int32)

    def fragmentation(self, texts: Sequence[str]) -> float:
        """Sub-words for each word, over all texts together (SPEC 7.3); blanks part words, as in `labelwise stats`."""
        words = sum(len(text.split()) for text in texts)
        pieces = sum(len(numbers) for batch in _batches(texts) for numbers in self._numbers(batch, None))
        return pieces / max(words, 1)

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and tokenizer_config.json, which the transformers library can read too, into a folder."""
        config: dict[str, Any] = dict(zip(MARKS, self._marks, strict=True))
        if self.longest is not None:
            config["model_max_length"] = self.longest
        self._tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        text = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}, indent=1, ensure_ascii=False)
        (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote."""
        from tokenizers import Tokenizer

        config = read_json(folder / "tokenizer_config.json")
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            return cls(tokenizer, [config[mark] for mark in MARKS], config.get("model_max_length"))
        except Exception as error:  # the library raises a bare one
            raise BadModel(f"{folder / 'tokenizer.json'}: not a tokenizer ({error}); copy or train the folder again") from None

    def _numbers(self, texts: Sequence[str], limit: int | None) -> list[np.ndarray]:
        found = self._encode(texts, limit, self._tokenizer.encode_batch_fast)
        rows = [np.array(encoding.ids[:limit], dtype=np.int32) for encoding in found]
        if self._unknown is not None:
            for row in rows:
                row[np.isin(row, self._special)] = self._unknown
        return rows

    def _encode(self, texts: Sequence[str], limit: int | None, encode: Callable[..., list[Encoding]]) -> list[Encoding]:
        """Texts as tokens, `limit` or more of each; of long texts only as much is read as that takes."""
        found: list[Any] = [None] * len(texts)
        ends, rest = [0] * len(texts), list(range(len(texts)))
        while rest:
            for place in rest:
                more = len(texts[place]) if limit is None else 2 * ends[place] or CHARACTERS * limit
                ends[place] = self._end(texts[place], more)
            begins = [_HALF.sub("\ufffd", texts[place][: ends[place]]) for place in rest]
            for place, encoding in zip(rest, encode(begins, add_special_tokens=False), strict=True):
                found[place] = encoding
            rest = [place for place in rest if ends[place] < len(texts[place]) and len(found[place]) < (limit or 0)]
        return found

    def _end(self, text: str, least: int) -> int:
        """The first place from `least` on where a text can be cut without changing the tokens before."""
        place = _END.search(text, least) if self._parts_at_blanks else None
        return place.start() if place else len(text)


def is_folder(checkpoint: str) -> bool:
    """Whether a checkpoint is a folder, else it is a name on the model hub; what can be neither is refused."""
    place = Path(checkpoint)
    if place.is_file():
        raise BadModel(f"{checkpoint}: a file; give the folder that it is in, {place.parent}")
    if not place.is_dir() and (checkpoint.startswith((".", "/", "~")) or checkpoint.count("/") > 1):
        way = "~ is not known here, write it out" if checkpoint[0] == "~" else "give one with config.json and model.safetensors"
        raise BadModel(f"{checkpoint}: no such folder; {way}")
    return place.is_dir()


def hub_answers(name: str) -> bool:
    """Whether the model hub can be asked for a checkpoint. If not, its files may still be here from before.

    The library finds out by asking for one file after the other, which takes it half a minute.
    """
    return _answered(name, int(time.monotonic() // 60))


@cache
def _answered(name: str, minute: int) -> bool:
    """The same, asked once a minute: model and tokenizer want to know it one after the other."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().model_info(name, timeout=PATIENCE)
    except HfHubHTTPError:
        return True  # with a no, which the library tells better when it asks itself
    except Exception:  # of any library below that one
        return False
    return True


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings, log lines or bars of the transformers library and of what asks the hub for it, errors apart."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging as talk

    level, hub_level, bars = talk.get_verbosity(), hub.get_verbosity(), talk.is_progress_bar_enabled()
    try:
        with warnings.catch_warnings(action="ignore"):
            talk.set_verbosity(logging.ERROR)
            hub.set_verbosity(logging.ERROR)
            talk.disable_progress_bar()  # type: ignore[no-untyped-call]
            yield
    finally:
        talk.set_verbosity(level)
        hub.set_verbosity(hub_level)
        if bars:
            talk.enable_progress_bar()  # type: ignore[no-untyped-call]


def _require_same_kind(path: Path, found: Tokenizer) -> None:
    """Refuse a tokenizer that was read as one of another kind, which finds few of its words."""
    from tokenizers import Tokenizer

    wanted, got = (type(one.model).__name__ for one in (Tokenizer.from_file(str(path)), found))
    if wanted != got:
        raise BadModel(
            f"{path}: holds a {wanted} vocabulary, but the library reads a {got} one, as config.json lets it expect; put "
            "tokenizer_config.json back beside it, with the right tokenizer_class"
        )


def _lowers_in_vain(tokenizer: Tokenizer) -> bool:
    """Whether texts are made lower-case, though many words of the vocabulary have capitals and would never be found then."""
    normalizer, known = tokenizer.normalizer, tokenizer.get_vocab()
    capitals = sum(word.isalpha() and word != word.lower() for word in known)
    return normalizer is not None and normalizer.normalize_str("A") == "a" and capitals > CASED * len(known)


def _says_case(checkpoint: str, local: bool) -> bool:
    """Whether a checkpoint says itself what becomes of capitals; some that have them, Clinical-BERT among them, do not."""
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    return "do_lower_case" in get_tokenizer_config(checkpoint, local_files_only=local)


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (list(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH))


def _unread(checkpoint: str, folder: bool, error: Exception) -> str:
    reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    if folder:
        return f"{checkpoint}: its tokenizer cannot be read ({reason}); copy or download the folder again"
    return (
        f"{checkpoint}: no such folder, and no tokenizer of that name could be fetched from the Hugging Face hub ({reason}); "
        f"{DOWNLOAD}"
    )
