"""What a search may try: for each setting a list of values, or the ends of a range.

A setting says on its own line whether it is worth searching: `tried` of its Range (settings.py). `--space` names others,
narrows a range or lists values: `KEY`, `KEY=LOW..HIGH`, `KEY=A,B,C`, or `paper` for the paper's own grid.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import product
from operator import attrgetter
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from labelwise.errors import BadSettings, did_you_mean
from labelwise.settings import Range, make, override

Value = bool | int | float | str

# SPEC 6.1; convolutions have the grid of recurrent layers.
PAPER = {
    "recurrent": (
        "encoder.layers=1,2",
        "encoder.units=100,200,300,400",
        "encoder.dropout=0.1,0.2,0.3",
        "encoder.word_dropout=0,0.01,0.02",
        "training.batch=8,16",
    ),
    "transformer": ("encoder.dropout=0.1,0.2,0.3", "training.batch=8,16", "training.learning_rate=2e-5,3e-5,5e-5"),
}
POINTS = 5  # of a range in a grid
LARGEST = 100_000  # points of a grid


@dataclass(frozen=True)
class Between:
    """Any number from low to high, drawn evenly or by ratio."""

    low: float
    high: float
    log: bool
    whole: bool

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}"

    def points(self) -> list[Value]:
        """A few numbers that stand for all."""
        spread = np.geomspace if self.log else np.linspace
        return list(dict.fromkeys(self.tidy(value) for value in spread(self.low, self.high, POINTS).tolist()))

    def tidy(self, value: Any) -> Value:
        """A number that people can read: four digits make no worse model than sixteen."""
        if self.whole:
            return round(value)
        return min(max(float(f"{value:.4g}"), self.low), self.high)


@dataclass(frozen=True)
class OneOf:
    """One of some values."""

    values: tuple[Value, ...]

    def __str__(self) -> str:
        return ",".join(value if isinstance(value, str) else json.dumps(value) for value in self.values)

    def points(self) -> list[Value]:
        """The values."""
        return list(self.values)

    def tidy(self, value: Any) -> Value:
        """The value itself."""
        return value


Space = dict[str, Between | OneOf]


@dataclass(frozen=True)
class _Setting:
    """What a setting may be, and what it is."""

    kind: Any
    range: Range | None
    value: Any

    def declared(self) -> Between | OneOf | None:
        """All that the setting may be, if that is said on its line."""
        if self.range is not None:
            return Between(self.range.low, self.range.high, self.range.log, self.kind is int)
        if self.kind is bool:
            return OneOf((False, True))
        return OneOf(get_args(self.kind)) if get_origin(self.kind) is Literal else None

    def tried(self) -> Between | None:
        """What is worth trying, if the setting is."""
        if self.range is None or self.range.tried is None:
            return None
        given, whole = self.range.tried, self.kind is int
        low, high = given if isinstance(given, tuple) else (self.value / given, self.value * given)
        low, high = max(low, self.range.low), min(high, self.range.high)
        return Between(math.ceil(low) if whole else low, math.floor(high) if whole else high, self.range.log, whole)


def make_space(
    kind: type, values: Mapping[str, Any], entries: Sequence[str], pinned: Iterable[str] = (), *, where: str = ""
) -> Space:
    """The space that entries of --space describe, or the default one; settings that are pinned to a value are not searched."""
    settings: Any = make(kind, values, where=where)
    known, pinned = _settings(settings), set(pinned)
    left_alone = pinned | set(getattr(settings, "settled", ()))
    if not entries:
        worth = {key: setting.tried() for key, setting in known.items() if key not in left_alone}
        space: Space = {key: tried for key, tried in worth.items() if tried is not None}
        if not space:
            raise BadSettings(
                f"{where}no setting is left that is marked as worth searching; name some with --space (known: {_names(known)})"
            )
        return space
    space = {}
    for entry in entries:
        preset = entry == "paper"
        for part in _paper(settings) if preset else (entry,):
            key, tried = _parsed(part, known)
            if preset and key in left_alone:
                continue
            if key in pinned:
                raise BadSettings(f"--space {entry}: {key} is set to one value by --set; leave out one of them")
            space[key] = _checked(kind, values, key, tried, entry)
    return {key: space[key] for key in known if key in space}  # the same trials, in whatever order it was told


def grid(space: Space, seed: int) -> list[dict[str, Value]]:
    """Every combination, in an order that depends on the seed alone: a search that ends early has looked everywhere a bit."""
    points = {key: tried.points() for key, tried in space.items()}
    size = math.prod(map(len, points.values()))
    if size > LARGEST:
        counts = ", ".join(f"{key} {len(some)}" for key, some in points.items())
        raise BadSettings(
            f"a grid of {size:,} points ({counts}) is too large; name fewer settings or values, or use tpe or random"
        )
    every = [dict(zip(points, values, strict=True)) for values in product(*points.values())]
    return [every[place] for place in np.random.default_rng(seed).permutation(size)]


def _settings(settings: Any, path: str = "") -> dict[str, _Setting]:
    """Every setting by its full name."""
    found: dict[str, _Setting] = {}
    hints = get_type_hints(type(settings), include_extras=True)
    for item in fields(settings):
        value = getattr(settings, item.name)
        if is_dataclass(value):
            found |= _settings(value, f"{path}{item.name}.")
        else:
            hint = hints[item.name]
            base, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            found[path + item.name] = _Setting(base, next((mark for mark in marks if isinstance(mark, Range)), None), value)
    return found


def _paper(settings: Any) -> tuple[str, ...]:
    encoder = getattr(settings, "encoder", None)
    if encoder is None:
        raise BadSettings("--space paper: the paper has a grid for networks only; leave --space out, or name settings")
    return PAPER["transformer" if encoder.kind == "transformer" else "recurrent"]


def _parsed(entry: str, known: Mapping[str, _Setting]) -> tuple[str, Between | OneOf]:
    """KEY, KEY=LOW..HIGH or KEY=A,B,C; values are not checked yet."""
    key, equals, text = (part.strip() for part in entry.partition("="))
    if key not in known:
        near = did_you_mean(key, [*known, "paper"]) or f" (known: {_names(known)})"
        raise BadSettings(f"--space {entry}: {key}: there is no such setting{near}")
    setting, low, dots, high = known[key], *text.partition("..")
    if dots and setting.kind in (int, float):  # two dots in a text may be a path
        ends = _value(low), _value(high)
        if any(type(end) not in (int, float) for end in ends) or ends[0] >= ends[1]:
            raise BadSettings(f"--space {entry}: a range goes from a number to a higher one, as {key}=LOW..HIGH")
        return key, Between(*ends, log=setting.range is not None and setting.range.log, whole=setting.kind is int)
    if equals:
        return key, OneOf(tuple(dict.fromkeys(_value(part) for part in text.split(","))))
    declared = setting.declared()
    if declared is None:
        raise BadSettings(f"--space {entry}: {key} has no range; say what to try, as {key}=A,B,C")
    return key, declared


def _checked(kind: type, values: Mapping[str, Any], key: str, tried: Between | OneOf, entry: str) -> Between | OneOf:
    """The same, each value such as the setting would hold it; one that it cannot hold is an error."""
    ends = tried.values if isinstance(tried, OneOf) else (tried.low, tried.high)
    made: list[Any] = [make(kind, override(values, [f"{key}={json.dumps(end)}"]), where=f"--space {entry}: ") for end in ends]
    held = tuple(attrgetter(key)(settings) for settings in made)
    return OneOf(held) if isinstance(tried, OneOf) else replace(tried, low=held[0], high=held[1])


def _value(text: str) -> Any:
    return override({}, [f"value={text}"])["value"]


def _names(known: Iterable[str]) -> str:
    return ", ".join(known) or "none"
