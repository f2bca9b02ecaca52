"""What a study runs: rows by name, each a method with settings, and the zones of the paper that they stand in.

A row takes the packaged recipe of its corpus where there is one, else the method's defaults. Another encoder than the paper's
gives a transformer's row its own name: `bert-base-lwan` with MiniLM is `minilm-lwan`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labelwise.errors import BadModel, BadSettings, LabelwiseError, MissingExtra, UnknownName, did_you_mean
from labelwise.features.subwords import is_folder
from labelwise.recipe import Recipe, adapted, find_recipe, packaged, read_recipe
from labelwise.registry import METHODS, method_class, methods
from labelwise.settings import explain, override

ZONES = {
    "networks over words": ("bigru-lwan", "cnn-lwan"),
    "zero-shot networks over words": (
        *("c-bigru-lwan", "dc-bigru-lwan", "dn-bigru-lwan", "dnc-bigru-lwan", "gc-bigru-lwan", "gnc-bigru-lwan"),
        *("c-cnn-lwan", "gc-cnn-lwan"),
    ),
    "label trees": ("parabel", "bonsai", "attention-xml"),
    "transfer learning": (
        *("bigru-lwan-elmo", "bert-base", "roberta-base", "bert-base-lwan", "clinical-bert", "sci-bert", "hier-sci-bert"),
    ),
}
OTHERS = "beyond the paper"
SHUFFLED = "bigru-lwan-shuffled"
ABLATIONS = {SHUFFLED: ("bigru-lwan", ("words.shuffle=true",))}  # row → method, and what is changed of it
PAPER = [*(name for names in ZONES.values() for name in names), *ABLATIONS]
PRESETS = {"paper": PAPER, "all": [*PAPER, *(name for name in METHODS if name not in PAPER)]}

ENCODERS = re.compile(r"bert-base|roberta-base|(sci|clinical)-bert|bert")  # what stands for the encoder in a method's name
WEIGHTS = ("encoder.checkpoint", "encoder.elmo")  # files that replace others, and are of no use to methods without them


@dataclass(frozen=True)
class Row:
    """A line of the tables: what was asked for, and how it is changed."""

    name: str
    asked: str  # a method or a recipe
    method: str
    assignments: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # settings that the method does not have
    absent: str = ""  # why it cannot run at all
    seedless: bool = False  # it comes out the same every time

    def recipe(self, corpus: str, seed: int, asked: dict[str, Any]) -> Recipe:
        """The row on a corpus, with a seed and what else is asked of methods that can."""
        recipe = find_recipe(self.asked)
        if self.asked == self.method:
            recipe = next(_packaged(self.method, corpus), recipe)
        return adapted(replace(recipe, seed=seed), self.assignments, asked)


def find_rows(names: Iterable[str], assignments: Sequence[str] = ()) -> list[Row]:
    """The rows of methods, recipes and presets by name, in the paper's order; settings go to those that have them."""
    override({}, assignments)  # a misspelt one is refused before any method is loaded
    asked = dict.fromkeys(one for name in names for one in PRESETS.get(name, [name]))
    if not asked:
        raise UnknownName("no methods are named; say all, paper, or names (see `labelwise methods`)")
    rows: dict[str, Row] = {}
    known: set[str] = set()
    for name in sorted(asked, key=lambda name: rank(name, name)):
        row, has = _row(name, assignments)
        known |= has
        other = rows.setdefault(row.name, row)
        # One encoder in two methods of the paper that differ in nothing but theirs is one row; other rows of one name are not.
        if other.asked != row.asked and (other.method == row.method or not {other.asked, row.asked} <= methods().keys()):
            raise LabelwiseError(f"{other.asked} and {row.asked} would both be called {row.name!r}; rename one of the recipes")
    for path in map(_path, assignments):
        if path == "seed":
            raise BadSettings("--set seed: a study has seeds of its own; say how many with --seeds")
        if path not in known and not all(row.absent for row in rows.values()):
            raise BadSettings(f"--set {path}: none of these methods has such a setting{did_you_mean(path, known)}")
    return list(rows.values())


def rank(row: str, method: str) -> int:
    """Where a row stands in the paper's order; what the paper does not have comes last."""
    name = row if row in ABLATIONS else method
    return PAPER.index(name) if name in PAPER else len(PAPER)


def zone(method: str) -> str:
    """The zone of the tables that a method stands in."""
    return next((title for title, members in ZONES.items() if method in members), OTHERS)


def absent_weights(settings: Any) -> str:
    """Which weights or word vectors that the settings name are not on this machine, and the way out; empty if none."""
    encoder, words = getattr(settings, "encoder", None), getattr(settings, "words", None)
    if encoder is None or words is None:
        return ""
    if encoder.kind == "transformer":
        try:
            there = is_folder(encoder.checkpoint) or _on_disk(encoder.checkpoint)
        except BadModel as error:
            return str(error)
        return "" if there else f"{encoder.checkpoint} is not on this machine; name a folder with --set encoder.checkpoint=FOLDER"
    if encoder.elmo and not Path(encoder.elmo).exists():
        return f"{encoder.elmo} is not on this machine; name a folder with --set encoder.elmo=FOLDER"
    if words.vectors != "corpus" and not Path(words.vectors).is_file():
        return f"{words.vectors} is not on this machine; name a file with --set words.vectors=FILE"
    return ""


def require_weights(assignments: Sequence[str]) -> None:
    """Refuse an encoder given in the place of the paper's that is not there: its name would stand in the tables for ever."""
    for path, _, place in (one.partition("=") for one in assignments):
        if path.strip() in WEIGHTS and not (Path(place.strip()).exists() or _on_disk(place.strip())):
            raise BadSettings(f"--set {path.strip()}: {place.strip()}: no such folder on this machine")


def _row(name: str, assignments: Sequence[str]) -> tuple[Row, set[str]]:
    """A row, and the settings that its method has."""
    source, changes = ABLATIONS.get(name, (name, ()))
    if source not in methods() and not _is_recipe(name):
        close = did_you_mean(name, [*methods(), *ABLATIONS, *PRESETS])
        raise UnknownName(f"there is no method or recipe {name!r}{close} (see `labelwise methods` and `labelwise recipes`)")
    recipe = find_recipe(source)
    row = Row(name if source in methods() else Path(name).stem, source, recipe.method)
    try:
        kind = method_class(recipe.method).Settings
    except MissingExtra as error:
        return replace(row, absent=str(error)), set()
    defaults = {path: default for path, _, default, _ in explain(kind)}
    has = {path for path in defaults if path not in WEIGHTS or defaults[path]}
    kept = tuple(one for one in assignments if _path(one) in has)
    left_out = tuple(path for path in map(_path, assignments) if path not in defaults and path not in WEIGHTS)
    row = replace(row, assignments=(*changes, *kept), left_out=left_out, seedless="seed" not in defaults)
    checkpoint = next((one.partition("=")[2].strip() for one in kept if _path(one) == "encoder.checkpoint"), "")
    return replace(row, name=_renamed(row.name, defaults.get("encoder.checkpoint", ""), checkpoint)), has


def _renamed(name: str, original: str, checkpoint: str) -> str:
    """The name of a row with another encoder; the paper's own encoder in a folder of its own name is no other."""
    encoder = Path(checkpoint).absolute().name
    if not checkpoint or encoder == Path(original).name:
        return name
    return ENCODERS.sub(lambda _: encoder, name, count=1) if ENCODERS.search(name) else f"{name}-{encoder}"


def _packaged(method: str, corpus: str) -> Iterator[Recipe]:
    """The recipe that comes with the library for a method on a corpus, if there is one."""
    for name, path in packaged():
        if name.partition("/")[2] == method and (recipe := read_recipe(path)).corpus == corpus:
            yield recipe


def _is_recipe(name: str) -> bool:
    return name.endswith(".toml") or name in dict(packaged())


def _on_disk(checkpoint: str) -> bool:
    """Whether the model hub's files of that name were downloaded before; a study downloads nothing."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        return isinstance(try_to_load_from_cache(checkpoint, "config.json"), str)
    except HFValidationError:
        return False


def _path(assignment: str) -> str:
    return assignment.partition("=")[0].strip()
