"""Pictures that come with a request, made ready: fitted to the size asked for, hashed for the record.

Knows nothing of latents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from calotype.core.errors import Problem, RequestError
from calotype.imaging.image_io import decode_image, read_image_file
from calotype.spec.generate_request import MAX_SIDE, MIN_SIDE, GenerateRequest, ImageInput

IN_MEMORY = "(in memory)"

Source = Image.Image | Path | str
"""A picture, or the file it is in."""


@dataclass(frozen=True)
class Inputs:
    """The start image and the mask of one request; white in the mask is painted anew."""

    image: Image.Image | None = None
    mask: Image.Image | None = None

    def size(self) -> tuple[int, int] | None:
        """Width and height to make when the request names none: the image's, in whole multiples of 8."""
        if self.image is None:
            return None
        width, height = (min(max(MIN_SIDE, side // 8 * 8), MAX_SIDE) for side in self.image.size)
        return width, height

    def fitted(self, width: int, height: int) -> Inputs:
        """Both scaled and cropped about the centre to the picture's size."""
        image, mask = self.image, self.mask
        if image is not None:
            image = ImageOps.fit(_eight_bit(image, "RGB"), (width, height), Image.Resampling.LANCZOS)
        if mask is not None:
            mask = ImageOps.fit(_eight_bit(mask, "L"), (width, height), Image.Resampling.BILINEAR)
        return Inputs(image, mask)


def load_image_inputs(
    values: Mapping[str, Any], image: Source | None, mask: Source | None
) -> tuple[GenerateRequest, Inputs]:
    """The request of plain values and its pictures, given here or named in the request's own record."""
    values, found = dict(values), dict[str, Image.Image]()
    for name, source in (("image", image), ("mask", mask)):
        if source is not None:
            found[name], described = describe(source)
            values[name] = described.model_dump(mode="json")
    request = GenerateRequest.parse(values)
    for name, noted in (("image", request.image), ("mask", request.mask)):
        if noted is not None and name not in found:
            found[name] = reopen(noted, name)
    return request, Inputs(found.get("image"), found.get("mask"))


def describe(source: Source) -> tuple[Image.Image, ImageInput]:
    """A picture and what the record says of it."""
    if isinstance(source, Image.Image):
        digest = hashlib.sha256(f"{source.mode} {source.size} ".encode() + source.tobytes()).hexdigest()
        return source, ImageInput(path=IN_MEMORY, sha256=digest)
    data = read_image_file(Path(source))
    # Cameras note how they were held instead of turning the picture.
    image = ImageOps.exif_transpose(decode_image(data, str(source)))
    return image, ImageInput(path=str(source), sha256=hashlib.sha256(data).hexdigest())


def reopen(noted: ImageInput, field: str) -> Image.Image:
    """The picture a record names; refused when it is another one by now."""
    if noted.path == IN_MEMORY:
        raise RequestError([Problem(field, "the record's picture was never in a file; give it again")])
    image, now = describe(noted.path)
    if now.sha256 != noted.sha256:
        rule = f"{noted.path} is not the picture it was when the record was made; give the right one"
        raise RequestError([Problem(field, rule, noted.path)])
    return image


def _eight_bit(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I"):
        # Pillow cuts 16-bit greys off at 255 instead of scaling them.
        image = image.convert("I").point(lambda value: value * (1 / 257))
    return image.convert(mode)
