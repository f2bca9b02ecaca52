"""Settings: frozen dataclasses whose default, meaning, check and search range stand together.

Values from outside (TOML, `--set key=value`) are checked here, at the edge: a misspelt key or a bad value is an error with
its path (`training.learnin_rate`) and the closest known name.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from annotated_types import Ge, GroupedMetadata, Le

from labelwise.errors import BadSettings, did_you_mean

S = TypeVar("S")


def cores(asked: int = 0) -> int:
    """Processor cores to use: as many as asked for, or all that this process may run on."""
    return asked or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@dataclass(frozen=True)
class Range(GroupedMetadata):
    """The values a setting may take, and between which a search looks: evenly, or by ratio with `log`.

    `tried` says that a setting is worth searching: between which values, or by which factor below and above its default.
    """

    low: float
    high: float
    log: bool = False
    tried: tuple[float, float] | float | None = None

    def __iter__(self) -> Iterator[object]:
        yield Ge(self.low)
        yield Le(self.high)


def make(kind: type[S], values: Mapping[str, Any], *, where: str = "") -> S:
    """Settings of a kind from plain values, checked; `where` stands before the path in messages."""
    from pydantic import ValidationError

    _check_keys(kind, values, (), where)
    known = {item.name: _default(item) for item in fields(kind)}  # type: ignore[arg-type]
    try:
        made: S = _checker(kind).validate_python(_completed(values, known))  # type: ignore[arg-type]
        return made
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise BadSettings(f"{where}{path}: {first['input']!r} will not do: {first['msg'].lower()}") from None


def override(values: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Plain values with `key=value` assignments laid over them; values are read as TOML, else as text."""
    result = deepcopy(dict(values))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise BadSettings(f"--set {assignment}: write it as key=value, for example --set seed=7")
        table = result
        *outer, last = path.strip().split(".")
        for key in outer:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise BadSettings(f"--set {assignment}: {key} is a value, not a group of settings")
        table[last] = _parse(text.strip())
    return result


def explain(kind: type, given: Any = None) -> list[tuple[str, str, Any, str]]:
    """(name, type, default, meaning) for each setting of a kind; nested ones with their path."""
    rows: list[tuple[str, str, Any, str]] = []
    meanings, hints = _meanings(kind), get_type_hints(kind, include_extras=True)
    for item in fields(kind):
        hint, default = hints[item.name], _default(item) if given is None else getattr(given, item.name)
        if is_dataclass(hint):
            rows += [(f"{item.name}.{name}", *rest) for name, *rest in explain(hint, default)]  # type: ignore[arg-type]
        else:
            rows.append((item.name, _spell(hint), default, meanings.get(item.name, "")))
    return rows


def spelt(value: Any) -> str:
    """A value as `--set` takes it."""
    if isinstance(value, tuple):
        return ",".join(map(spelt, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache  # making one takes longer than a thousand checks
def _checker(kind: type) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _check_keys(kind: type, values: Mapping[str, Any], path: tuple[str, ...], where: str) -> None:
    hints = get_type_hints(kind)
    for key, value in values.items():
        full = ".".join((*path, key))
        if key not in hints:
            known = ", ".join(hints) or "it has none"
            raise BadSettings(f"{where}{full}: there is no such setting{did_you_mean(key, hints)} (known: {known})")
        if is_dataclass(hints[key]) and isinstance(value, Mapping):
            _check_keys(hints[key], value, (*path, key), where)


def _completed(values: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The values, groups among them completed by the defaults given here, which may not be those of the group's own class."""
    return {
        key: {**_members(known[key]), **_completed(value, _members(known[key]))}
        if isinstance(value, Mapping) and is_dataclass(known.get(key))
        else _listed(value)
        if isinstance(known.get(key), tuple)
        else value
        for key, value in values.items()
    }


def _listed(value: Any) -> Any:
    """A list as it is; `a,b`, `[a, b]` and a single value as one, since that is how a list is written on a command line."""
    if isinstance(value, str):
        bare = value.strip().removeprefix("[").removesuffix("]")
        return [part.strip().strip("\"'") for part in bare.split(",") if part.strip()]
    return value if isinstance(value, list | tuple) else [value]


def _members(settings: Any) -> dict[str, Any]:
    return {item.name: getattr(settings, item.name) for item in fields(settings)}


def _default(item: Field) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()


def _parse(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _spell(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        base, *marks = get_args(hint)
        ranges = [f"{_number(mark.low)}…{_number(mark.high)}" for mark in marks if isinstance(mark, Range)]
        return " ".join([_spell(base), *ranges])
    if get_origin(hint) is Literal:
        return "|".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"list of {_spell(get_args(hint)[0])}"
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _number(value: float) -> str:
    """Whole numbers in full: 4294967295 is a limit, 4.29497e+09 a riddle."""
    return f"{int(value)}" if float(value).is_integer() else f"{value:g}"


def _meanings(kind: type) -> dict[str, str]:
    """The texts that stand under the fields of a class."""
    meanings = {}
    for base in [base for base in kind.__mro__ if is_dataclass(base)][::-1]:
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                meanings[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return meanings


def flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested values by their paths, `training.batch`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{path}{key}.") if isinstance(value, Mapping) else {path + key: value}
    return found
