"""Outputs that appear whole or not at all.

A folder is written beside its place under a hidden name and renamed when it is complete, so a kill leaves the old one or
the new one. Every folder carries `checksums.json`; it is also how we know a folder for ours before `--force` replaces it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import gzip
import hashlib
import json
import lzma
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

from labelwise.errors import BadFile, BadModel, LabelwiseError, OutputExists

CHECKSUMS = "checksums.json"
LOCK = ".lock"  # of a folder that grows
Kind = Literal["corpus", "labels", "model", "report", "run", "demo", "matrices", "encoder"]


def check_place(path: Path, kind: Kind, *, force: bool) -> None:
    """Refuse an output that exists, unless `force` is given and it is ours and of the same kind; ask before long work."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not force:
        raise OutputExists(f"{path}: already exists; add --force to replace it, or name another folder")
    try:
        found = json.loads((path / CHECKSUMS).read_text(encoding="utf-8"))["kind"]
    except (OSError, ValueError, TypeError, KeyError):
        raise OutputExists(f"{path}: not written by labelwise, so --force will not delete it; name another folder") from None
    if found != kind:
        raise OutputExists(f"{path}: holds a {found}, which --force will not replace by a {kind}; name another folder")


def check_file(path: Path, *, force: bool) -> None:
    """Refuse a file that exists, unless `force` is given."""
    if path.is_dir():
        raise OutputExists(f"{path}: is a folder; name a file")
    if path.exists() and not force:
        raise OutputExists(f"{path}: already exists; add --force to replace it, or name another file")


@contextmanager
def new_folder(path: Path, kind: Kind, *, force: bool = False) -> Iterator[Path]:
    """Give a folder to write into; on success it takes the place of `path`, on any failure nothing is left."""
    path = Path(os.path.realpath(path))
    check_place(path, kind, force=force)
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
    draft.chmod(0o777 & ~_umask())
    try:
        with _locked(draft), _named(path):
            yield draft
            write_checksums(draft, kind)
            _sync(draft)
            if path.exists():
                _exchange(draft, path)  # the old folder is now the draft
                shutil.rmtree(draft)
            else:
                draft.rename(path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def unfinished_beside(path: Path) -> Path:
    """Where long work on an output keeps what it has done so far."""
    return path.absolute().parent / f".{path.name}.training"


def check_unfinished(path: Path, *, force: bool) -> None:
    """Refuse to begin again where an earlier training left work that could be gone on with, unless `force` is given."""
    place = unfinished_beside(path)
    if not force and place.is_dir() and any(place.iterdir()):
        raise OutputExists(f"{path}: its training was begun and not finished; --resume goes on with it, --force begins again")


@contextmanager
def alone(folder: Path, otherwise: str, patience: float = 0.0) -> Iterator[None]:
    """Hold a folder, unless another process does for longer than the seconds of patience; a hold ends with its process."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    until = time.monotonic() + patience
    try:
        while not _grasp(handle):
            if time.monotonic() >= until:
                raise LabelwiseError(otherwise)
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[IO[str]]:
    """Give a text file to write into; it takes the place of `path` when the block ends well. `.gz` and `.xz` compress."""
    with _new_path(path, force) as draft, _opener(Path(path))(draft, "wt", encoding="utf-8", newline="\n") as file:
        yield file


def write_bytes(path: Path, content: bytes, *, force: bool = False) -> None:
    """Write a file in one step."""
    with _new_path(path, force) as draft:
        draft.write_bytes(content)


def open_text(path: Path) -> IO[str]:
    """Open a text file for reading; `.gz` and `.xz` by name, byte-order mark skipped."""
    file: IO[str] = _opener(path)(path, "rt", encoding="utf-8-sig", newline="")
    return file


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """A file to read bytes from, `.gz` and `.xz` unpacked; one that is missing or broken is a BadFile."""
    try:
        with _opener(path)(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise BadFile(f"{path}: no such file") from None
    except IsADirectoryError:
        raise BadFile(f"{path}: a folder, not a file") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise BadFile(f"{path}: broken {Path(path).suffix} file: {error}; copy or download it again") from None
    except OSError as error:
        if error.errno is None:  # gzip's own complaint, not the system's
            raise BadFile(f"{path}: broken {Path(path).suffix} file: {error}; copy or download it again") from None
        raise


def find(folder: Path, name: str) -> Path | None:
    """The file `name` in `folder`, plain or compressed."""
    for suffix in ("", ".gz", ".xz"):
        if (path := folder / (name + suffix)).exists():
            return path
    return None


def write_checksums(folder: Path, kind: Kind) -> None:
    """Write what the folder is, and the SHA-256 of every file in it."""
    sums = {name: _sha256(folder / name) for name in _files(folder)}
    (folder / CHECKSUMS).write_text(json.dumps({"kind": kind, "sha256": sums}, indent=1) + "\n", encoding="utf-8")


def digest_of(folder: Path) -> str:
    """A name for all that an output folder holds."""
    return hashlib.sha256((Path(folder) / CHECKSUMS).read_bytes()).hexdigest()


def verify_checksums(folder: Path) -> None:
    """Raise when a file of the folder is missing or not as it was written."""
    stored = read_json(folder / CHECKSUMS)
    if not isinstance(stored, dict) or not isinstance(stored.get("sha256"), dict):
        raise BadModel(f"{folder / CHECKSUMS}: damaged; copy or train the folder again")
    for name, expected in stored["sha256"].items():
        if not (folder / name).is_file():
            raise BadModel(f"{folder / name}: missing; the folder is incomplete, copy or train it again")
        if _sha256(folder / name) != expected:
            raise BadModel(f"{folder / name}: changed since it was written (checksum differs); copy or train it again")


def read_json(path: Path) -> Any:
    """The JSON value of a file, or an error with file and line."""
    try:
        with open_text(path) as file:
            return json.load(file)
    except FileNotFoundError:
        raise BadModel(f"{path}: no such file; is this a folder written by labelwise?") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadModel(f"{path}:{getattr(error, 'lineno', 1)}: not JSON: {error}") from None


def to_toml(values: Mapping[str, Any]) -> str:
    """A mapping of plain values and nested mappings as TOML; None is left out, as TOML has no null."""
    lines: list[str] = []
    _toml_table(values, (), lines)
    return "\n".join(lines).strip() + "\n"


def _toml_table(values: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    if path:
        lines += ["", "[" + ".".join(_toml_key(key) for key in path) + "]"]
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    lines += [f"{_toml_key(k)} = {_toml_value(v)}" for k, v in values.items() if k not in tables and v is not None]
    for key, table in tables.items():
        _toml_table(table, (*path, key), lines)


def _toml_key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else _toml_text(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)  # inf and nan are spelt the same in TOML
    if isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, str):
        return _toml_text(value)
    raise TypeError(f"cannot write {value!r} as TOML")


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # a raw DEL is fine in JSON, not in TOML


def _opener(path: Path) -> Any:
    return {".gz": gzip.open, ".xz": lzma.open}.get(Path(path).suffix, open)


@contextmanager
def _new_path(path: Path, force: bool) -> Iterator[Path]:
    """A file to write beside `path`, which it replaces when the block ends well."""
    path = Path(os.path.realpath(path))
    check_file(path, force=force)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with _named(path):
            yield draft
            draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """A failed write names the output, not the hidden draft or nothing at all."""
    try:
        yield
    except OSError as error:
        if error.filename is None or ".partial-" in str(error.filename):
            error.filename = str(path)
        raise


@contextmanager
def _locked(draft: Path) -> Iterator[None]:
    """Hold a lock on the draft: it ends with the process, so that others can tell a draft from a leftover."""
    handle = os.open(draft, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _grasp(handle: int) -> bool:
    """Lock an open file, unless another process has."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep(path: Path) -> None:
    """Remove what killed runs left beside `path`."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.partial-*"):
        try:
            handle = os.open(draft, os.O_RDONLY)
        except OSError:
            continue
        with suppress(OSError):  # a lock that is held means that somebody is writing
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(draft, ignore_errors=True)
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _exchange(one: Path, other: Path) -> None:
    """Swap two folders in one step where the system can (Linux); elsewhere in three renames."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    at_cwd, swap = -100, 2
    if renameat2 and renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), swap) == 0:
        return
    aside = one.with_name(one.name + "-old")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


def _sync(folder: Path) -> None:
    """Make sure the bytes are on the disk before the name is: a rename can survive a power cut that its content does not."""
    for name in _files(folder):
        with open(folder / name, "rb") as file:
            os.fsync(file.fileno())


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def failure(error: OSError) -> str:
    """What to tell a user about a read or write that the system refused."""
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EFBIG: "the file grew past the allowed size",
        errno.EDQUOT: "the disk quota is used up",
        errno.EACCES: "no permission",
    }
    reason = reasons.get(error.errno or 0, error.strerror or str(error))
    full = error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
    return f"{error.filename or 'output'}: {reason}" + ("; nothing was left half-written" if full else "")
