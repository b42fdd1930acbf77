"""Pictures in the form other clients give or want them. Knows nothing of requests."""

from __future__ import annotations

import io

from PIL import Image


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height of a picture that was let in before."""
    with Image.open(io.BytesIO(data)) as image:
        return image.size
