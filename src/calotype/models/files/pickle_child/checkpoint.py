"""What both pickle formats come down to: an object tree of stand-ins, and where each storage's bytes are."""

import os
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from calotype.models.files.pickle_child.refused import RefusedError

CHUNK_BYTES = 4 * 1024 * 1024


class Extent(NamedTuple):
    """A run of bytes in the input file; `crc32` where the format keeps one."""

    start: int
    num_bytes: int
    crc32: int | None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose pickle has been read and whose tensors have not."""

    root: object
    storages: dict[str, Extent]
    dropped_names: set[str]


def read_exactly(fd: int, start: int, num_bytes: int) -> bytes:
    """Bytes by position; the end of the file is an error."""
    parts = []
    while num_bytes > 0:
        part = os.pread(fd, num_bytes, start)
        if not part:
            raise RefusedError(
                f"ends at byte {start} while {num_bytes} bytes more are needed; it was cut short"
            )
        parts.append(part)
        start += len(part)
        num_bytes -= len(part)
    return b"".join(parts)


def check_crc32(fd: int, what: str, extent: Extent) -> None:
    """Refuse bytes that are not those their checksum was made from."""
    if extent.crc32 is None:
        return
    checksum = 0
    for offset in range(0, extent.num_bytes, CHUNK_BYTES):
        length = min(CHUNK_BYTES, extent.num_bytes - offset)
        checksum = zlib.crc32(read_exactly(fd, extent.start + offset, length), checksum)
    if checksum != extent.crc32:
        raise RefusedError(
            f"{what} is damaged: its CRC is {checksum:08x}, the archive says {extent.crc32:08x}"
        )
