"""Arrays that may be larger than memory: written piece by piece to a temporary file, then mapped.

The file has no name and vanishes with the last array that looks at it, whatever ends the process. TMPDIR names its folder: on a
disk, the system takes pages back when memory runs short; in a memory file system (often /tmp) it cannot.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from typing import Any

import numpy as np


class Spool:
    """An array that grows on disk."""

    def __init__(self, kind: Any) -> None:
        self._kind = np.dtype(kind)
        # Unbuffered: nothing is left to write, and to fail, when the file is closed.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def append(self, values: np.ndarray) -> None:
        """Add values at the end."""
        rest = memoryview(values.astype(self._kind, copy=False).tobytes())
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            error.filename = f"{tempfile.gettempdir()} (temporary files; set TMPDIR to a folder with more room)"
            raise

    def mapped(self) -> np.ndarray:
        """What was added, as an array that can be changed in place."""
        size = self._file.tell()  # an empty file cannot be mapped
        return np.frombuffer(mmap.mmap(self._file.fileno(), size), self._kind) if size else np.zeros(0, self._kind)
