"""Picture files that carry their own record: PNG, WebP, JPEG. Reads them back, ours only.

Knows nothing of how a picture is made.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

from PIL import ExifTags, Image, PngImagePlugin, UnidentifiedImageError
from pydantic import ValidationError

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.core.paths import written_whole
from calotype.spec.names import PICTURE_FORMATS
from calotype.spec.record import PictureRecord

KEY = "calotype"
MOST_PIXELS = 2**28
READABLE = ("PNG", "WEBP", "JPEG")


def save_picture(image: Image.Image, path: Path, record: PictureRecord, *, quality: int = 95) -> None:
    """Write a picture with its record inside; whole or not at all. The suffix decides the format."""
    with written_whole(path) as file:
        file.write(encode_picture(image, format_of(path), record, quality=quality))


def format_of(path: Path) -> str:
    """The picture format a file name asks for."""
    name = {"jpg": "jpeg"}.get(path.suffix.lower().removeprefix("."), path.suffix.lower().removeprefix("."))
    if name not in PICTURE_FORMATS:
        raise RequestError([Problem("format", f"{path.suffix!r} is not one of {', '.join(PICTURE_FORMATS)}", name)])
    return name


def encode_picture(image: Image.Image, format_name: str, record: PictureRecord, *, quality: int = 95) -> bytes:
    """The bytes of a picture file with its record inside."""
    text = json.dumps(record.model_dump(mode="json"), ensure_ascii=False, sort_keys=True)
    buffer = io.BytesIO()
    if format_name == "png":
        info = PngImagePlugin.PngInfo()
        info.add_itxt(KEY, text)
        image.save(buffer, "PNG", pnginfo=info)
    else:
        exif = Image.Exif()
        # EXIF text is bytes; a description is the one field that every program shows.
        exif[ExifTags.Base.ImageDescription] = json.dumps({KEY: json.loads(text)}, ensure_ascii=True)
        image.save(buffer, format_name.upper(), quality=quality, exif=exif)
    return buffer.getvalue()


def read_record(path: Path) -> PictureRecord:
    """The record inside a picture made by Calotype."""
    with open_picture(path) as image:
        if image.format == "PNG":
            image.load()  # text may follow the pixels
            text = image.info.get(KEY)
        else:
            noted = image.getexif().get(ExifTags.Base.ImageDescription, "")
            text = json.dumps(json.loads(noted)[KEY]) if KEY in noted else None
    if not text:
        raise NotFoundError(f"{path} holds no Calotype record; was it made by another program, or edited since?")
    try:
        return PictureRecord.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RequestError([Problem("record", f"the record in {path} cannot be read: {where}: {first['msg']}")]) from None


def open_picture(path: Path) -> Image.Image:
    """A picture given by a user: a known format, of a size that cannot be a trap."""
    if not path.is_file():
        raise NotFoundError(f"no picture {path}")
    try:
        image = Image.open(path, formats=READABLE)
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise RequestError([Problem("image", f"{path} is not a PNG, WebP or JPEG that can be read: {error}")]) from None
    if image.width * image.height > MOST_PIXELS:
        size = f"{image.width}×{image.height}"
        raise RequestError([Problem("image", f"{path} is {size}, the limit is {MOST_PIXELS} pixels; scale it down")])
    return image
