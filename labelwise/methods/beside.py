"""Work in a thread beside the work at hand: where one of the two fails, the other ends at its next sign of progress.

Python waits at its end for threads that a pool has begun, so a thread that nobody stops would outlive an interrupt by minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Event, Thread
from types import TracebackType
from typing import Self

from labelwise.progress import Progress, T


class Stopped(Exception):
    """The other work has failed, and this one need not go on."""


class Beside:
    """`with Beside(work) as other:` begins the work; the block ends when both have ended.

    The work is given a progress that shows nothing. What it raises, the block raises: at the next sign of `other.heeded`, a
    progress, or at its end.
    """

    def __init__(self, work: Callable[[Progress], None]) -> None:
        self._stop, self._failed = Event(), list[BaseException]()
        self._thread = Thread(target=self._run, args=(work,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._stop.set()
        self._thread.join()
        if error is None and self._failed:
            raise self._failed[0]

    def wait(self) -> None:
        """Wait for the end of the work in the thread."""
        self._thread.join()

    def heeded(self, progress: Progress) -> Progress:
        """The same progress, which raises what the work in the thread has raised."""

        def show(items: Iterable[T], task: str, total: int | None = None) -> Iterator[T]:
            for item in progress(items, task, total):
                if self._failed:
                    raise self._failed[0]
                yield item

        return show

    def _run(self, work: Callable[[Progress], None]) -> None:
        try:
            work(self._quietly)
        except Stopped:
            pass
        except BaseException as error:  # for whoever waits
            self._failed.append(error)

    def _quietly(self, items: Iterable[T], task: str, total: int | None = None) -> Iterator[T]:
        for item in items:
            if self._stop.is_set():
                raise Stopped
            yield item
