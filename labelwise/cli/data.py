"""labelwise data: one command per data set."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Read a data set into a corpus folder.")
