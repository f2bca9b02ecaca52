"""Progress on long work: a function that passes items through and may show a bar.

Library code takes `progress` and stays silent by default; the command line hands in `bar`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Passes items through, counting them."""

    def __call__(self, items: Iterable[T], task: str, total: int | None = None) -> Iterator[T]:
        """The same items; `task` says what is being done to them."""
        ...


def silent(items: Iterable[T], task: str, total: int | None = None) -> Iterator[T]:
    """Show nothing."""
    return iter(items)


def bar(items: Iterable[T], task: str, total: int | None = None) -> Iterator[T]:
    """Show a bar on standard error, gone when done; nothing when that is not a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return iter(track(items, task, total=total, console=console, transient=True, disable=not console.is_terminal))


@contextmanager
def spinner(task: str) -> Iterator[None]:
    """Show that something of unknown length goes on, on standard error; nothing when that is not a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(task) if console.is_terminal else nullcontext():
        yield
