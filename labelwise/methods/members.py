"""Members of an ensemble: trained along with it by name, or read from folders, to which it keeps references."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from labelwise.errors import BadModel, UnknownName
from labelwise.jsonl import read_labels
from labelwise.labels import LabelSet
from labelwise.methods import base
from labelwise.methods.base import Method
from labelwise.methods.weighting import warn
from labelwise.recipe import adapted, find_recipe, make_recipe_method
from labelwise.registry import methods
from labelwise.settings import flat, spelt
from labelwise.storage import CHECKSUMS, digest_of


class Member(NamedTuple):
    """A model, and the folder it came from with the digest of its checksums; no folder for one that was trained here."""

    model: Method
    folder: Path | None = None
    digest: str = ""


def find_member(name: str, seed: int, asked: Mapping[str, Any]) -> Member:
    """A model from its folder, or a method that is still to be trained."""
    if name not in methods() and (Path(name) / "model.toml").is_file():
        return _read(Path(name).resolve())
    try:
        return Member(make_recipe_method(replace(adapted(find_recipe(name), asked=asked), seed=seed), {}))
    except UnknownName as error:
        raise UnknownName(f"ensemble: member {name!r} is not a model folder, and {error}") from None


def _read(folder: Path) -> Member:
    return Member(base.load(folder), folder, digest_of(folder))


def stored_member(home: Path, folder: str, sha256: str = "") -> Member:
    """A member of a saved ensemble, from inside its folder or from where it was."""
    place = Path(os.path.realpath(home / folder))
    if not sha256:
        return Member(base.load(place))
    if not (place / CHECKSUMS).is_file():
        raise BadModel(f"{home}: its member {place} is missing; put it back, or train the ensemble with self_contained=true")
    if digest_of(place) != sha256:
        raise BadModel(f"{home}: its member {place} is another model than it was; put that back, or train the ensemble again")
    return _read(place)


def reference(member: Path, home: Path) -> str:
    """The path of a member, relative where the two folders are likely to be moved together."""
    return Path(os.path.relpath(member, home)).as_posix() if member.is_relative_to(home.parent) else str(member)


def called(members: Sequence[Member]) -> list[str]:
    """What members are called: by their method, and where several are of one, by the settings that tell them apart."""
    found = []
    for member in members:
        name = member.model.name
        own, *others = (flat(asdict(one.model.settings)) for one in (member, *members) if one.model.name == name)
        told = [f"{key}={spelt(value)}" for key, value in own.items() if any(given[key] != value for given in others)]
        found.append(f"{name} ({', '.join(told)})" if told else name)
    return [name if found.count(name) == 1 else f"{name}, member {number}" for number, name in enumerate(found, start=1)]


def warn_of_unknown(folder: Path, labels: LabelSet) -> None:
    """Tell of labels that a member in a folder was not trained with."""
    known = read_labels(folder / "labels.jsonl")
    unknown = [id for id in labels.ids if id not in known]
    if unknown:
        first = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
        warn(f"member {folder} does not know {len(unknown):,} of {len(labels):,} labels and scores them 0: {first}")
