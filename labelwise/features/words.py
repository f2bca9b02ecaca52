"""An offline word tokenizer: a regular expression that cuts English text much as spaCy does (SPEC 5.5).

It is not spaCy: abbreviations other than dotted letters, and rare clitics, may be cut otherwise. Runs of line breaks are
tokens of their own, as in the paper; `newlines=False` drops them. Case is kept: look-ups lower it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

_WORDS = r"""
      \d+(?:[.,]\d+)*                                # 12  3.5  10,000
    | (?:[^\W\d_]\.){2,}                             # U.S.  e.g.
    | [^\W\d_]+?(?=n['’]t\b)                         # do|n't
    | n['’]t\b
    | ['’](?:s|re|ve|ll|d|m)\b                       # the clitics of English
    | [^\W_]+                                        # any other word, digits inside it too
"""
_SIGNS = r"""
    | \n+
    | [^\s]                                          # one sign at a time
"""
_WORD = re.compile(_WORDS, re.VERBOSE | re.IGNORECASE)
_TOKEN = re.compile(_WORDS + _SIGNS, re.VERBOSE | re.IGNORECASE)


def tokenize(text: str, *, newlines: bool = True) -> list[str]:
    """The tokens of a text: words, numbers, signs and, unless told otherwise, runs of line breaks."""
    tokens = _TOKEN.findall(text)
    return tokens if newlines else [token for token in tokens if token[0] != "\n"]


def words(text: str) -> list[str]:
    """The tokens that hold a letter or a digit, in lower case."""
    return _WORD.findall(text.lower())


def first_words(text: str) -> Iterator[str]:
    """The same one after the other, so that no more of a text is read than is wanted."""
    return (match[0] for match in _WORD.finditer(text.lower()))


def spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a text stand: as many, and in the same order, as `words` gives, where lower case keeps its length."""
    return [match.span() for match in _WORD.finditer(text)]


def token_spans(text: str, *, newlines: bool = True) -> list[tuple[int, int]]:
    """Where the tokens of a text stand: as many, and in the same order, as `tokenize` gives."""
    return [match.span() for match in _TOKEN.finditer(text) if newlines or match[0][0] != "\n"]


@lru_cache(maxsize=1 << 18)
def fold(word: str) -> str:
    """A lower-case word without the ending of its plural, roughly: 'duties' → 'duty', 'laws' → 'law'."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
