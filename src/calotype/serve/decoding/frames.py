"""The wire format between the server and a decoding process: JSON and any number of byte strings.

No pickle: an image that exploits a decoding process must gain nothing in the server.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import IO, Any

_LENGTH = struct.Struct(">Q")
_PIECE = 2**20
_SIZES = "sizes"


class BrokenPipeToProcessError(Exception):
    """The peer has ended, or sent an invalid frame."""


def write_frame(stream: IO[bytes], values: dict[str, Any], attachments: Sequence[bytes] = ()) -> None:
    """Write a complete frame."""
    head = json.dumps({**values, _SIZES: [len(data) for data in attachments]}).encode()
    _write(stream, _LENGTH.pack(len(head)) + head)
    for data in attachments:
        _write(stream, data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """The next frame; raises BrokenPipeToProcessError at the end of the stream."""
    (length,) = _LENGTH.unpack(_read(stream, _LENGTH.size))
    try:
        values: dict[str, Any] = json.loads(_read(stream, length))
        sizes = [int(size) for size in values.pop(_SIZES)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BrokenPipeToProcessError(f"an invalid frame arrived: {error}") from error
    return values, [_read(stream, size) for size in sizes]


def _write(stream: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    for start in range(0, len(view), _PIECE):
        stream.write(view[start : start + _PIECE])


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise BrokenPipeToProcessError(f"{len(data)} of {size} bytes arrived")
    return data
