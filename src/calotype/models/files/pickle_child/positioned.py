"""A file object that keeps its own position, for the readers of the standard library that want one.

The descriptor's position is shared with the parent and with any other conversion of the same opened file.
"""

import io
import os
from typing import Any


class PositionedFile(io.RawIOBase):
    """Reads a descriptor by position only; closing it leaves the descriptor open."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._fd = fd
        self._size_bytes = size_bytes
        self._position = 0

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._fd, len(buffer), self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        if start + offset < 0:
            raise OSError("cannot seek to before the beginning")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position
