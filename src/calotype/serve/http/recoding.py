"""Pictures in the form other clients give or want them. Knows nothing of requests."""

from __future__ import annotations

import io
from collections.abc import Callable

from PIL import Image, ImageFilter, ImageOps

from calotype.core.errors import Problem, RequestError
from calotype.engine.pictures import encode_picture, record_in


def recoded(format_name: str, quality: int) -> Callable[[Image.Image], bytes]:
    """Into a file of another format, with the record that is in the picture."""

    def change(image: Image.Image) -> bytes:
        record = record_in(image)
        if record is not None:
            return encode_picture(image.convert("RGB"), format_name, record, quality=quality)
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, format_name.upper(), quality=quality)
        return buffer.getvalue()

    return change


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height of a picture that was let in before."""
    with Image.open(io.BytesIO(data)) as image:
        return image.size


def mask_of_transparency(image: Image.Image) -> bytes:
    """OpenAI's mask, which is transparent where the picture is painted anew, as ours: white there."""
    if not image.has_transparency_data:
        rule = "has no transparency; what is to be painted anew must be transparent in it"
        raise RequestError([Problem("mask", rule)])
    return _png(ImageOps.invert(image.convert("RGBA").getchannel("A")))


def blurred_mask(blur: tuple[float, float], *, inverted: bool) -> Callable[[Image.Image], bytes]:
    """A1111's mask: perhaps turned round, with soft edges; `blur` are their radii across and down."""

    def change(image: Image.Image) -> bytes:
        mask = image.convert("L")
        mask = ImageOps.invert(mask) if inverted else mask
        return _png(mask.filter(ImageFilter.GaussianBlur(blur)) if any(blur) else mask)

    return change


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
