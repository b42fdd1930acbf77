"""Requests that must be refused, whichever interface they come by; what is wrong with each, in words."""

from __future__ import annotations

import struct
import zlib
from typing import Any

NAN = float("nan")

BAD_REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "width 100000": ({"width": 100_000}, "the nearest is 16384"),
    "width 513": ({"width": 513}, "the nearest is 512"),
    "width -1": ({"width": -1}, "the nearest is 16"),
    "width NaN": ({"width": NAN}, "nan"),
    'width "512"': ({"width": "512"}, "'512'"),
    "steps 10^9": ({"steps": 10**9}, "at most 1000"),
    "batch 10^6": ({"count": 10**6}, "at most 10000"),
    "seed -1": ({"seed": -1}, "at least 0"),
    "seed 2^64": ({"seed": 2**64}, "at most 18446744073709551615"),
    "seed 1.5": ({"seed": 1.5}, "1.5"),
    "cfg NaN": ({"cfg": NAN}, "not a finite number"),
    "10 MB prompt": ({"prompt": "x" * 10_000_000}, "the limit is 20000"),
    "NUL in the prompt": ({"prompt": "a\0b"}, "NUL character at position 1"),
    "half a character": ({"prompt": "a\ud800"}, "half a character at position 1"),
    "unknown sampler": ({"sampler": "eular"}, "did you mean 'euler'"),
    "unknown field": ({"stepz": 4}, "did you mean 'steps'"),
    "a file of the server": (
        {"image": {"path": "/etc/passwd", "sha256": "0" * 64}},
        "send the image itself",
    ),
}

BAD_NAMES = {
    "parent": "../x",
    "parent on Windows": "..\\x",
    "parent in percent": "%2e%2e/x",
    "NUL": "x\0y",
    "absolute": "/etc/passwd",
    "10 kB": "x" * 10_000,
    "half a character": "x\ud800",
}

DEEP_JSON = b"[" * 250_000 + b"]" * 250_000


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


HUGE_PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(bytes(100_000)))
    + _chunk(b"IEND", b"")
)

BAD_PICTURES: dict[str, tuple[bytes, str]] = {
    "PNG of 100k x 100k": (HUGE_PNG, "cannot|limit"),
    "SVG": (b'<svg xmlns="http://www.w3.org/2000/svg"><rect/></svg>', "is not a PNG, WebP or JPEG"),
    "PDF": (b"%PDF-1.7\n1 0 obj\n", "is not a PNG, WebP or JPEG"),
    "nothing": (b"", "is not a PNG, WebP or JPEG"),
    "half a PNG": (HUGE_PNG[:40], "is not a PNG, WebP or JPEG"),
}
