"""Operations on decoded images, by name: a decoding process receives a name and values, no code."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from PIL import Image, ImageFilter, ImageOps

from calotype.core.errors import Problem, RequestError
from calotype.imaging.image_io import MAX_SIDES, TooManyPixelsError, encode_image, find_record


@dataclass(frozen=True)
class Operation:
    """One of `OPERATIONS`, with its arguments, which must be JSON, and a second file if it needs one."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    attachment: bytes | None = None


CHECK = Operation("check")
"""Decode the image only."""
ALPHA = Operation("alpha")
"""Its transparency as a gray image."""
MASK_OF_TRANSPARENCY = Operation("mask_of_transparency")
"""Convert OpenAI's mask, which is transparent where the image changes."""


def recoded(format_name: str, quality: int) -> Operation:
    """Convert to another format, with the metadata record of the image."""
    return Operation("recode", {"format_name": format_name, "quality": quality})


def blurred_mask(blur: tuple[float, float], *, inverted: bool) -> Operation:
    """A1111's mask: inverted on request, with soft edges; `blur` are the radii across and down."""
    return Operation("blurred_mask", {"blur": list(blur), "inverted": inverted})


def with_alpha(mask: bytes) -> Operation:
    """Set a gray image as transparency."""
    return Operation("with_alpha", attachment=mask)


def preview(format_name: str, quality: int, *, keeps_alpha: bool) -> Operation:
    """Convert to WebP or JPEG, scaled down only to the format's limit."""
    values = {"format_name": format_name, "quality": quality, "keeps_alpha": keeps_alpha}
    return Operation("preview", values)


def channel(name: str) -> Operation:
    """`rgb`: without transparency; `a`: the transparency alone."""
    return Operation("channel", {"name": name})


def applied(image: Image.Image, operation: Operation) -> bytes:
    """Apply an operation to an image; the resulting file, empty if there is none."""
    more = {} if operation.attachment is None else {"attachment": operation.attachment}
    return OPERATIONS[operation.name](image, **operation.arguments, **more)


def check_attachment(operation: Operation, field: str, most_pixels: int) -> None:
    """Raise TooManyPixelsError if the second file has more pixels than allowed."""
    if operation.attachment is not None:
        with Image.open(io.BytesIO(operation.attachment)) as image:
            if image.width * image.height > most_pixels:
                raise TooManyPixelsError(field, f"the given {field}", image.size, most_pixels)


def _check(_: Image.Image) -> bytes:
    return b""


def _recode(image: Image.Image, format_name: str, quality: int) -> bytes:
    record = find_record(image)
    if record is not None:
        return encode_image(image.convert("RGB"), format_name, record, quality=quality)
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, format_name.upper(), quality=quality)
    return buffer.getvalue()


def _mask_of_transparency(image: Image.Image) -> bytes:
    """OpenAI's mask is transparent where the image is repainted; ours is white there."""
    if not image.has_transparency_data:
        rule = "has no transparency; the area to repaint must be transparent"
        raise RequestError([Problem("mask", rule)])
    return _png(ImageOps.invert(image.convert("RGBA").getchannel("A")))


def _blurred_mask(image: Image.Image, blur: tuple[float, float], *, inverted: bool) -> bytes:
    mask = image.convert("L")
    mask = ImageOps.invert(mask) if inverted else mask
    return _png(mask.filter(ImageFilter.GaussianBlur(tuple(blur))) if any(blur) else mask)


def _alpha(image: Image.Image) -> bytes:
    return _png(image.convert("RGBA").getchannel("A"))


def _with_alpha(image: Image.Image, attachment: bytes) -> bytes:
    # Written by `_alpha`, so it can be decoded.
    with Image.open(io.BytesIO(attachment)) as alpha:
        masked = image.convert("RGBA")
        masked.putalpha(alpha.resize(masked.size))
        return _png(masked)


def _preview(image: Image.Image, format_name: str, quality: int, *, keeps_alpha: bool) -> bytes:
    most = MAX_SIDES[format_name]
    buffer = io.BytesIO()
    smaller = image.convert("RGBA" if keeps_alpha and image.has_transparency_data else "RGB")
    # Scale down only what the format cannot hold.
    smaller.thumbnail((most, most))
    smaller.save(buffer, format_name.upper(), quality=quality)
    return buffer.getvalue()


def _channel(image: Image.Image, name: str) -> bytes:
    if name == "rgb":
        return _png(image.convert("RGB"))
    only = Image.new("RGBA", image.size)
    only.putalpha(image.convert("RGBA").getchannel("A"))
    return _png(only)


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


OPERATIONS: Mapping[str, Callable[..., bytes]] = {
    "check": _check,
    "recode": _recode,
    "mask_of_transparency": _mask_of_transparency,
    "blurred_mask": _blurred_mask,
    "alpha": _alpha,
    "with_alpha": _with_alpha,
    "preview": _preview,
    "channel": _channel,
}
