"""Recipes: a method with its settings, the corpus they are for, where they come from and what they should give.

A recipe is a TOML file; the packaged ones are named by their path, `eurlex57k/bigru-lwan`. Reproduction is a file, not a memory.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from labelwise.corpus import GROUPS
from labelwise.errors import BadSettings, UnknownName, did_you_mean
from labelwise.metrics import RANKING, parse
from labelwise.registry import find, make_method, method_class, methods
from labelwise.settings import Range, make, override

if TYPE_CHECKING:
    from labelwise.methods.base import Method


@dataclass(frozen=True)
class Recipe:
    """What a recipe file says."""

    method: str
    corpus: str = ""
    """The corpus it is for, by the name in corpus.toml."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 1
    settings: dict[str, Any] = field(default_factory=dict)
    """The method's own settings; what is left out keeps its default."""
    source: dict[str, Any] = field(default_factory=dict)
    """Paper, table and row, or what else the expectation comes from."""
    expected: dict[str, dict[str, float]] = field(default_factory=dict)
    """Per label group the measures on the test split, from 0 to 1."""
    tolerance: Annotated[float, Range(0.0, 1.0)] = 0.01
    """How far a result may lie from the expectation."""

    @property
    def origin(self) -> str:
        """Row and tables that print the expectation, or whatever else is known of where it comes from."""
        tables = self.source.get("tables")
        if not isinstance(tables, list):
            return ", ".join(str(value) for key, value in self.source.items() if key != "paper")
        named = f"table{'s' * (len(tables) > 1)} {' and '.join(', '.join(map(str, tables)).rsplit(', ', 1))}"
        reading = f"read as {self.source['reading']}" if "reading" in self.source else ""
        return ", ".join(filter(None, [str(self.source.get("row", "")), named, reading]))


def read_recipe(path: Path | str, *, shallow: bool = False) -> Recipe:
    """A recipe file, checked: keys, values, and, unless `shallow`, that the method takes these settings."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path}: not TOML: {error}") from None
    if "method" not in values:
        raise BadSettings(f"{path}: the key 'method' is missing{did_you_mean('method', values)}")
    recipe = make(Recipe, values, where=f"{path}: ")
    for group, scores in recipe.expected.items():
        if group not in GROUPS:
            raise BadSettings(f"{path}: expected.{group}: there is no such label group{did_you_mean(group, GROUPS)}")
        for measure, value in scores.items():
            _check_expectation(measure, value, f"{path}: expected.{group}.{measure}: ")
    try:
        method = find(recipe.method, methods(), "method")
    except UnknownName as error:
        raise BadSettings(f"{path}: method: {error}") from None
    if not shallow:  # to load a network takes seconds, and torch
        make(method.load().Settings, recipe.settings, where=f"{path}: settings.")
    return recipe


def packaged() -> Iterator[tuple[str, Path]]:
    """Name and path of every recipe that comes with the library."""
    folder = Path(str(resources.files("labelwise") / "recipes"))
    yield from sorted((path.relative_to(folder).with_suffix("").as_posix(), path) for path in folder.rglob("*.toml"))


def find_recipe(name: str) -> Recipe:
    """A recipe by file, by packaged name, or the defaults of a method by the method's name."""
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise UnknownName(f"{name}: no such recipe file")
        return read_recipe(name)
    recipes = dict(packaged())
    if name in recipes:
        return read_recipe(recipes[name])
    if name in methods():
        return Recipe(name)
    known = [*methods(), *recipes]
    raise UnknownName(
        f"there is no method or recipe {name!r}{did_you_mean(name, known)} (see `labelwise methods` and `labelwise recipes`)"
    )


def adapted(recipe: Recipe, assignments: Iterable[str] = (), asked: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe with `key=value` assignments laid over it, and those of the settings asked for that its method has."""
    known = _settings_kind(recipe).__dataclass_fields__
    usable = {key: value for key, value in (asked or {}).items() if value is not None and key in known}
    return replace(recipe, settings={**override(recipe.settings, assignments), **usable})


def make_recipe_method(recipe: Recipe, overrides: dict[str, Any]) -> Method:
    """The unfitted method of a recipe; its seed goes to methods that have one."""
    seeded = {"seed": recipe.seed} if "seed" in _settings_kind(recipe).__dataclass_fields__ else {}
    return make_method(recipe.method, {**seeded, **recipe.settings, **overrides})


def _settings_kind(recipe: Recipe) -> Any:
    """The dataclass of the settings that the recipe's method takes."""
    return method_class(recipe.method).Settings


def _check_expectation(measure: str, value: float, where: str) -> None:
    try:
        stem, k = parse(measure)
    except UnknownName as error:
        raise BadSettings(f"{where}{error}") from None
    if measure != (name := f"{stem}@{k or 5}" if stem in RANKING else stem):
        raise BadSettings(f"{where}write it as {name!r}")
    if not 0 <= value <= 1:
        raise BadSettings(f"{where}{value} will not do: scores lie between 0 and 1")
