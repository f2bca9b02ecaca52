"""What there is: methods, recipes, datasets, metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    from labelwise.settings import explain

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
        _print({f"{key} = {default}": f"{meaning} ({kind})" for key, kind, default, meaning in rows}, False)


def recipes(as_json: Json = False) -> None:
    """List the recipes that come with labelwise."""
    from labelwise.recipe import packaged, read_recipe

    found = {name: read_recipe(path) for name, path in packaged()}
    _print({name: f"{recipe.method} on {recipe.corpus}; {_source(recipe.source)}" for name, recipe in found.items()}, as_json)


def datasets(as_json: Json = False) -> None:
    """List the data sets that `labelwise data` reads."""
    from labelwise.registry import datasets as known

    _print({key: entry.summary for key, entry in sorted(known().items())}, as_json)


def metrics(as_json: Json = False) -> None:
    """List the measures of `labelwise evaluate`."""
    from labelwise.metrics import names

    _print(names(), as_json)


def _source(source: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in source.items())


def _print(rows: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    width = max(map(len, rows), default=0)
    for name, text in rows.items():
        print(f"{name:<{width}}  {text}")
