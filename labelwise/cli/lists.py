"""What there is: methods, recipes, datasets, metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Annotated

import typer

from labelwise.cli.options import Json


def methods(
    name: Annotated[str | None, typer.Argument(help="One method, to see its settings.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """List the methods, or the settings of one."""
    from labelwise.registry import find
    from labelwise.registry import methods as known

    if name is None:
        _print({key: entry.summary for key, entry in sorted(known().items())}, as_json)
        return
    from labelwise.settings import explain, spelt

    rows = explain(find(name, known(), "method").load().Settings)
    if as_json:
        print(
            json.dumps(
                {key: {"type": kind, "default": default, "meaning": meaning} for key, kind, default, meaning in rows}, indent=2
            )
        )
    elif not rows:
        print(f"{name} has no settings")
    else:
        _print({f"{key} = {spelt(default)}": f"{meaning} ({kind})" for key, kind, default, meaning in rows}, False)


def recipes(
    part: Annotated[
        str, typer.Argument(metavar="NAME", help="Part of a name, such as mimic3; a whole name shows its file.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List the recipes that come with labelwise, or show one."""
    from labelwise.errors import UnknownName, did_you_mean
    from labelwise.recipe import packaged, read_recipe

    paths = dict(packaged())
    if part in paths and not as_json:
        print(paths[part].read_text(encoding="utf-8"), end="")
        return
    found = {name: read_recipe(paths[name], shallow=True) for name in ([part] if part in paths else paths) if part in name}
    if not found:
        known = {*paths, *(side for name in paths for side in name.split("/"))}
        raise UnknownName(f"no recipe has {part!r} in its name{did_you_mean(part, known)} (see `labelwise recipes`)")
    if as_json:
        print(json.dumps({name: asdict(recipe) for name, recipe in found.items()}, ensure_ascii=False, indent=2))
        return
    first, second = (max(map(len, column)) for column in (found, (recipe.method for recipe in found.values())))
    for heading, names in groupby(found, lambda name: (found[name].corpus, found[name].source.get("paper"))):
        print(", ".join(filter(None, heading)))
        for name in names:
            print(f"  {name:<{first}}  {found[name].method:<{second}}  {found[name].origin}")


def datasets(as_json: Json = False) -> None:
    """List the data sets that `labelwise data` reads."""
    from labelwise.registry import datasets as known

    _print({key: entry.summary for key, entry in sorted(known().items())}, as_json)


def metrics(as_json: Json = False) -> None:
    """List the measures of `labelwise evaluate`."""
    from labelwise.metrics import names

    _print(names(), as_json)


def _print(rows: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    width = max(map(len, rows), default=0)
    for name, text in rows.items():
        print(f"{name:<{width}}  {text}")
