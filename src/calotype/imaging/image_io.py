"""Picture files that carry their own record: PNG, WebP, JPEG. Reads them back, ours only.

Knows nothing of how a picture is made.
"""

from __future__ import annotations

import io
import json
import struct
import warnings
from pathlib import Path

from PIL import ExifTags, Image, PngImagePlugin, UnidentifiedImageError
from pydantic import ValidationError

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.core.files import PNG_STRATEGY
from calotype.core.paths import atomic_write
from calotype.spec.constants import IMAGE_FORMATS
from calotype.spec.records.image import PictureRecord

KEY = "calotype"
READABLE = ("PNG", "WEBP", "JPEG")
MAX_PIXELS = 2**27
MAX_FILE_BYTES = 2**30
MAX_SIDES = {"webp": 16_383, "jpeg": 65_500}
"""Of formats that have a limit, in pixels; that of JPEG is its library's."""
_JPEG_MARK = f"{KEY}\0".encode()
_JPEG_PIECE = 65_000
"""A JPEG segment has a 16-bit length."""


class TooManyPixelsError(RequestError):
    """An image of more pixels than are decoded; none of them was."""

    def __init__(self, field: str, name: str, size: tuple[int, int], most_pixels: int) -> None:
        self.width, self.height = size
        rule = f"{name} is {self.width}×{self.height}, the limit is {most_pixels} pixels; scale it down"
        super().__init__([Problem(field, rule)])


def save_image(image: Image.Image, path: Path, record: PictureRecord, *, quality: int = 95) -> None:
    """Write a picture with its record inside; whole or not at all. The suffix decides the format."""
    encoded = encode_image(image, format_of(path), record, quality=quality)
    with atomic_write(path) as file:
        file.write(encoded)


def format_of(path: Path) -> str:
    """The picture format a file name asks for."""
    suffix = path.suffix.lower().removeprefix(".")
    name = {"jpg": "jpeg"}.get(suffix, suffix)
    if name not in IMAGE_FORMATS:
        rule = f"{path.suffix!r} is not one of {', '.join(IMAGE_FORMATS)}"
        raise RequestError([Problem("format", rule, path.suffix)])
    return name


def can_encode(format_name: str, image: Image.Image) -> bool:
    """Whether a file of this format can have so many pixels a side."""
    return max(image.size) <= MAX_SIDES.get(format_name, max(image.size))


def encode_image(image: Image.Image, format_name: str, record: PictureRecord, *, quality: int = 95) -> bytes:
    """The bytes of a picture file with its record inside."""
    if not can_encode(format_name, image):
        rule = f"{format_name} holds {MAX_SIDES[format_name]} pixels a side, the picture is {image.width}×"
        raise RequestError([Problem("format", f"{rule}{image.height}; use png", format_name)])
    values = record.model_dump(mode="json")
    text = json.dumps(values, ensure_ascii=False, sort_keys=True)
    buffer = io.BytesIO()
    if format_name == "png":
        info = PngImagePlugin.PngInfo()
        info.add_itxt(KEY, text)
        image.save(buffer, "PNG", pnginfo=info, compress_type=PNG_STRATEGY)
    elif format_name == "webp":
        exif = Image.Exif()
        # EXIF text is ASCII; a description is the one field that every program shows.
        exif[ExifTags.Base.ImageDescription] = json.dumps({KEY: values}, sort_keys=True)
        image.save(buffer, "WEBP", quality=quality, exif=exif)
    else:
        image.save(buffer, "JPEG", quality=quality)
        return _with_comments(buffer.getvalue(), text.encode())
    return buffer.getvalue()


def _with_comments(jpeg: bytes, text: bytes) -> bytes:
    """A JPEG with text in as many comment segments as it takes: a long prompt does not fit into one."""
    pieces = [_JPEG_MARK + text[start : start + _JPEG_PIECE] for start in range(0, len(text), _JPEG_PIECE)]
    segments = [b"\xff\xfe" + struct.pack(">H", len(piece) + 2) + piece for piece in pieces]
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def read_record(path: Path) -> PictureRecord:
    """The record inside a picture made by Calotype."""
    with open_image(path) as image:
        record = find_record(image, str(path))
    if record is None:
        raise NotFoundError(
            f"{path} holds no Calotype record; was it made by another program, or edited since?"
        )
    return record


def find_record(image: Image.Image, name: str = "the picture") -> PictureRecord | None:
    """The record inside an open picture, if it has one."""
    text = _record_text(image)
    if not text:
        return None
    try:
        return PictureRecord.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        rule = f"the record in {name} cannot be read: {where}: {first['msg']}"
        raise RequestError([Problem("record", rule)]) from None


def _record_text(image: Image.Image) -> str | bytes | None:
    if image.format == "PNG":
        noted = image.info.get(KEY)
        return noted if isinstance(noted, str) else None
    if image.format == "JPEG":
        comments = [data for kind, data in getattr(image, "applist", ()) if kind == "COM"]
        return b"".join(data.removeprefix(_JPEG_MARK) for data in comments if data.startswith(_JPEG_MARK))
    description = image.getexif().get(ExifTags.Base.ImageDescription)
    try:
        values = json.loads(description) if isinstance(description, str) else None
    except ValueError:
        return None
    return json.dumps(values[KEY]) if isinstance(values, dict) and KEY in values else None


def open_image(path: Path) -> Image.Image:
    """A picture file given by a user, with all its pixels."""
    return decode_image(read_image_file(path), str(path))


def read_image_file(path: Path) -> bytes:
    """The bytes of a file that may be a picture; not of a pipe or a device, and not without end."""
    if not path.is_file():
        raise NotFoundError(f"no picture {path}")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        rule = f"{path} is {size} bytes, the limit is {MAX_FILE_BYTES}"
        raise RequestError([Problem("image", rule)])
    return path.read_bytes()


def decode_image(
    data: bytes, name: str, *, field: str = "image", most_pixels: int = MAX_PIXELS
) -> Image.Image:
    """A picture from bytes anyone may have made: a known format, of a size that cannot be a trap."""
    try:
        with warnings.catch_warnings():
            # Pillow warns at a size of its own; ours is below and refuses.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=READABLE)
        if image.width * image.height <= most_pixels:
            image.load()
            return image
    # Damaged files make Pillow's decoders raise nearly anything.
    except Exception as error:
        rule = f"{name} is not a PNG, WebP or JPEG that can be read: {_reason(error)}"
        raise RequestError([Problem(field, rule)]) from error
    raise TooManyPixelsError(field, name, image.size, most_pixels)


def _reason(error: Exception) -> str:
    # For an unknown format Pillow only repeats what it was given.
    return "its contents are of another kind" if isinstance(error, UnidentifiedImageError) else str(error)
