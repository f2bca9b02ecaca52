"""Source files that are not ours, every failure told with file and line.

`.gz` and `.xz` are unpacked by name and a byte-order mark is skipped, as everywhere in the library.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from labelwise.errors import BadFile
from labelwise.storage import open_bytes

PACKED = (".gz", ".xz")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file to read bytes from, unpacked; a file that is missing or broken is a BadFile."""
    try:
        with open_bytes(path) as file:
            yield file
    except FileNotFoundError:
        raise BadFile(f"{path}: no such file") from None
    except IsADirectoryError:
        raise BadFile(f"{path}: a folder, not a file") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise _broken(path, error) from None
    except OSError as error:
        if error.errno is None:  # gzip's own complaint, not the system's
            raise _broken(path, error) from None
        raise


def read_bytes(path: Path) -> bytes:
    """The content of a file."""
    with opened(path) as file:
        return file.read().removeprefix(b"\xef\xbb\xbf")


def read_text(path: Path) -> str:
    """The content of a UTF-8 file, with plain line ends."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadFile(f"{path}:{line}: not UTF-8: {error}; save the file as UTF-8") from None


def kind(path: Path) -> str:
    """The suffix that says what a file holds, in lower case: that before `.gz` or `.xz`, if it is packed."""
    return (Path(path.stem).suffix if path.suffix.lower() in PACKED else path.suffix).lower()


def stem(path: Path) -> str:
    """The name of a file without its suffixes."""
    return Path(path.stem).stem if path.suffix.lower() in PACKED else path.stem


def _broken(path: Path, error: Exception) -> BadFile:
    return BadFile(f"{path}: broken {path.suffix} file: {error}; copy or download it again")
