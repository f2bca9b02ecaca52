"""The `labelwise` command: all commands put together, and the user's mistakes turned into messages."""

from __future__ import annotations

import signal
import sys
import warnings
from typing import Annotated, Any

import typer

from labelwise import __version__
from labelwise.cli import calibrate, compare, corpora, data, demo, lists, models, pretrain, reproduce, study, tune
from labelwise.errors import LabelwiseError

app = typer.Typer(
    name="labelwise",
    help="Assign the right handful of labels, out of thousands, to a document.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"labelwise {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Assign the right handful of labels, out of thousands, to a document."""


app.command()(demo.demo)
app.add_typer(data.app, name="data")
app.command()(corpora.world)
app.command()(corpora.stats)
app.command()(lists.methods)
app.command()(lists.recipes)
app.command()(lists.datasets)
app.command()(lists.metrics)
app.command()(models.train)
app.command()(pretrain.pretrain)
app.command()(calibrate.calibrate)
app.command()(models.evaluate)
app.command()(models.predict)
app.command()(models.explain)
app.command()(compare.compare)
app.command()(reproduce.reproduce)
app.command()(tune.tune)
app.command()(study.study)
app.command()(study.report)


class Interrupted(BaseException):
    """Ctrl-C or a request to stop; unlike KeyboardInterrupt it reaches us through the command-line library."""


def main() -> None:
    """Run the command line; exit 0 done, 1 a check failed, 2 the user's mistake, 130 interrupted."""
    warnings.showwarning = _warn
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except LabelwiseError as error:
        _fail(str(error), 2)
    except Interrupted:
        _fail(
            "interrupted; nothing was left half-written; studies, searches and reproductions go on by the same command, "
            "train and pretrain with --resume",
            130,
        )
    except OSError as error:
        from labelwise.storage import failure

        _fail(failure(error), 2)


def _fail(message: str, code: int) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


def _interrupt(*_: object) -> None:
    raise Interrupted


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)
