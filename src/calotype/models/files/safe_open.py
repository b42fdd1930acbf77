"""Opens a model file once; all later reads use the descriptor, never the path again.

Replacing the file on disk between check and load therefore has no effect, and writes to it during a read are
detected.
"""

import hashlib
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.core.progress import Progress, Silent
from calotype.models.files.sniff import HEAD_BYTES, FileKind, describe_start, detect_kind

_HASH_CHUNK_BYTES = 8 * 1024 * 1024

_SPECIAL_FILES = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO (named pipe)"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)


class OpenedFile:
    """A regular file and its descriptor. It reads by position, so threads can share it."""

    def __init__(self, path: Path, fd: int) -> None:
        """Take ownership of `fd`; `path` only names the file in messages."""
        self.path = path
        self.fd = fd
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            kind = next((name for test, name in _SPECIAL_FILES if test(status.st_mode)), "a special file")
            raise ModelFileError(path, f"is {kind}; a model must be a regular file")
        self.size_bytes = status.st_size
        self._mtime_ns = status.st_mtime_ns

    @property
    def kind(self) -> FileKind:
        """The kind of the content, whatever the file's name; content that is no weight file is an error."""
        if self.size_bytes == 0:
            raise ModelFileError(self.path, "is empty (0 bytes)")
        head = self.read_at(0, min(HEAD_BYTES, self.size_bytes))
        kind = detect_kind(head, self.size_bytes)
        if kind is None:
            content = f"{describe_start(head)}, {self.size_bytes} bytes in all"
            raise ModelFileError(self.path, f"is neither safetensors nor a torch checkpoint: {content}")
        return kind

    def read_at(self, offset: int, num_bytes: int) -> bytes:
        """Read exactly `num_bytes` from `offset`."""
        buffer = bytearray(num_bytes)
        self.read_into(memoryview(buffer), offset)
        return bytes(buffer)

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill `buffer` from `offset`; a file that ends early is an error, not a shorter result."""
        filled = 0
        while filled < len(buffer):
            count = os.preadv(self.fd, [buffer[filled:]], offset + filled)
            if count == 0:
                required, end = offset + len(buffer), offset + filled
                raise ModelFileError(
                    self.path, f"ends at byte {end} while byte {required} is needed; it is truncated"
                )
            filled += count

    def check_unchanged(self) -> None:
        """Raise ModelFileError if the file was written to since it was opened."""
        status = os.fstat(self.fd)
        # ctime is not compared: it also changes when the name is removed, which leaves the content as is.
        if (status.st_size, status.st_mtime_ns) != (self.size_bytes, self._mtime_ns):
            change = f"{self.size_bytes} bytes before, {status.st_size} now"
            raise ModelFileError(self.path, f"was written to while it was being read ({change})")

    def sha256(self, progress: Progress | None = None) -> str:
        """The digest of the content in hexadecimal."""
        reporter = progress or Silent()
        reporter.start(f"checking {self.path.name}", self.size_bytes)
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(min(_HASH_CHUNK_BYTES, self.size_bytes)))
        for offset in range(0, self.size_bytes, _HASH_CHUNK_BYTES):
            chunk = buffer[: min(_HASH_CHUNK_BYTES, self.size_bytes - offset)]
            self.read_into(chunk, offset)
            digest.update(chunk)
            reporter.advance(len(chunk))
        self.check_unchanged()
        return digest.hexdigest()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_model_file(path: Path, *, inside: Path | None = None) -> OpenedFile:
    """Open a weight file for reading. With `inside`, reject a link that leaves that folder."""
    opened = open_regular(path, inside=inside)
    try:
        _ = opened.kind
    except BaseException:
        opened.close()
        raise
    return opened


def open_regular(path: Path, *, inside: Path | None = None) -> OpenedFile:
    """Open any regular file for reading; reject devices, pipes, sockets and folders."""
    try:
        # Without O_NONBLOCK, opening a FIFO would block until a writer opens it.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(path, f"cannot be opened as a regular file: {reason}") from None
    try:
        opened = OpenedFile(path, fd)
        if inside is not None:
            _check_inside(opened, inside)
    except BaseException:
        os.close(fd)
        raise
    return opened


def _check_inside(opened: OpenedFile, folder: Path) -> None:
    """Check the file that is open, not the one that the path may lead to by now."""
    real = opened.path.resolve()
    if not real.is_relative_to(folder.resolve()):
        raise ModelFileError(opened.path, f"is a link to {real}, which is outside {folder}")
    if not os.path.samestat(real.stat(), os.fstat(opened.fd)):
        raise ModelFileError(opened.path, "was replaced while it was being opened")
