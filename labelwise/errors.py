"""The mistakes a user can make, one type each.

Every message names the thing, the place and the way out. The command line prints it without a traceback and exits 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class LabelwiseError(Exception):
    """Something the user can put right."""


class BadFile(LabelwiseError):
    """A file that cannot be read as what it should be; the message starts with file:line."""


class BadCorpus(LabelwiseError):
    """Documents or splits that do not make a corpus."""


class BadHierarchy(LabelwiseError):
    """Parents that do not exist, or a label that is its own ancestor."""


class UnknownLabel(LabelwiseError):
    """A label id that is not in the label set."""


class UnknownName(LabelwiseError):
    """A method, metric, data set or recipe that does not exist."""


class BadSettings(LabelwiseError):
    """A setting that is misspelt or out of range."""


class BadScores(LabelwiseError):
    """Scores that cannot be ranked: wrong shape, NaN, foreign documents."""


class BadModel(LabelwiseError):
    """A model folder that is damaged or written by a later version."""


class OutputExists(LabelwiseError):
    """The output is already there."""


class MissingExtra(LabelwiseError):
    """An optional dependency is not installed."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' (did you mean …?)' with the closest known name, or nothing."""
    names = list(known)
    if len(names) > 20_000:  # difflib would take seconds
        names = [other for other in names if other[:1] == name[:1] and abs(len(other) - len(name)) < 3][:20_000]
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
