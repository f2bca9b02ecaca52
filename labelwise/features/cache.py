"""Arrays that are made once, kept on disk, and mapped from there.

An entry is a folder of .npy files named after what it was made from, so it cannot grow stale, and any of them can be deleted at
any time. A damaged entry is made again: all of it is read and compared with its checksums before it is used.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from labelwise.errors import BadModel
from labelwise.storage import verify_checksums, write_checksums

Blocks = Iterable[np.ndarray]  # an array larger than memory, some of its rows at a time
WAY_OUT = "set LABELWISE_CACHE to a folder with room that you may write to"


def arrays(
    kind: str, key: Any, make: Callable[[], Mapping[str, np.ndarray | Blocks]], folder: Path | None = None
) -> dict[str, np.ndarray]:
    """What `make` makes, mapped from the cache and made if it is not there; `key`, any JSON, is what it is made from.

    Where the cache cannot be written, arrays are given as they were made, with a warning; blocks need the disk, and fail.
    """
    folder = folder or default_folder()
    path = folder / f"{kind}-{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()}"
    if path.is_dir():
        try:
            verify_checksums(path)
            return _mapped(path)
        except (BadModel, OSError, ValueError):
            shutil.rmtree(path, ignore_errors=True)
    made = make()
    found: dict[str, np.ndarray] = {}
    try:
        with _draft(folder) as draft:
            for name, values in made.items():
                _write(draft / f"{name}.npy", values)
            write_checksums(draft, "matrices")
            found = _mapped(draft)  # stays mapped whatever happens to the names of the files
            draft.rename(path)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:  # another process made the same meanwhile
            return found
        whole = {name: values for name, values in made.items() if isinstance(values, np.ndarray)}
        if not found and len(whole) < len(made):
            if error.filename is None or str(error.filename).startswith(str(folder)):  # not a file that the blocks come from
                error.filename = f"{folder} (the cache; {WAY_OUT})"
            raise
        warnings.warn(f"{folder}: the cache cannot be written ({error.strerror or error}); {WAY_OUT}", stacklevel=2)
        return found or whole
    return found


def default_folder() -> Path:
    """$LABELWISE_CACHE, or else labelwise in the user's cache folder."""
    given, shared = os.environ.get("LABELWISE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else (Path(shared) if shared else Path.home() / ".cache") / "labelwise"


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A folder in the cache to write into, gone after the block unless it was renamed.

    All who write share a lock, which ends with their process; who gets it alone may remove what killed processes left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".partial-{uuid.uuid4().hex}"
    lock = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # others are writing, or these files know no locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in folder.glob(".partial-*"):
                shutil.rmtree(left, ignore_errors=True)
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH)
        draft.mkdir()
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(lock)


def _mapped(folder: Path) -> dict[str, np.ndarray]:
    return {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in sorted(folder.glob("*.npy"))}


def _write(path: Path, values: np.ndarray | Blocks) -> None:
    if isinstance(values, np.ndarray):
        np.save(path, values, allow_pickle=False)
        return
    kind, shape = np.dtype(np.float64), (0,)
    with open(path, "wb") as file:
        for block in values:
            if not file.tell():
                kind, shape = block.dtype, (0, *block.shape[1:])
                _write_header(file, kind, shape)
            if block.shape[1:] != shape[1:]:
                raise ValueError(f"{path.stem}: a block of shape {block.shape} cannot follow rows of shape {shape[1:]}")
            file.write(np.ascontiguousarray(block, dtype=kind).tobytes())
            shape = (shape[0] + len(block), *shape[1:])
        file.seek(0)
        _write_header(file, kind, shape)  # as long as before: numpy leaves room in it for rows that are added


def _write_header(file: IO[bytes], kind: np.dtype, shape: tuple[int, ...]) -> None:
    npy.write_array_header_1_0(file, {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": shape})
