"""Reads the size of an image file."""

from __future__ import annotations

import io

from PIL import Image


def size_of(data: bytes) -> tuple[int, int]:
    """Return width and height of an image that was validated before."""
    with Image.open(io.BytesIO(data)) as image:
        return image.size
