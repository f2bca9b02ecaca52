"""Source files that are not ours, every failure told with file and line.

`.gz` and `.xz` are unpacked by name and a byte-order mark is skipped, as everywhere in the library.
"""

from __future__ import annotations

from pathlib import Path

from labelwise.errors import BadFile
from labelwise.storage import open_bytes

PACKED = (".gz", ".xz")


def read_bytes(path: Path) -> bytes:
    """The content of a file."""
    with open_bytes(path) as file:
        return file.read().removeprefix(b"\xef\xbb\xbf")


def read_text(path: Path) -> str:
    """The content of a UTF-8 file, with plain line ends."""
    return decode(read_bytes(path), path)


def decode(data: bytes, place: Path | str) -> str:
    """Bytes as UTF-8 text with plain line ends; the message of a failure has the line."""
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadFile(f"{place}:{line}: not UTF-8: {error}; save the file as UTF-8") from None


def kind(path: Path) -> str:
    """The suffix that says what a file holds, in lower case: that before `.gz` or `.xz`, if it is packed."""
    return (Path(path.stem).suffix if path.suffix.lower() in PACKED else path.suffix).lower()


def stem(path: Path) -> str:
    """The name of a file without its suffixes."""
    return Path(path.stem).stem if path.suffix.lower() in PACKED else path.stem
