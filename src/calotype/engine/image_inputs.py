"""Prepares the input images of a request: fits them to the requested size and hashes them for the record."""

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
"""An image, or the path of its file."""


@dataclass(frozen=True)
class Inputs:
    """The input image and the mask of one request; white areas of the mask are repainted."""

    image: Image.Image | None = None
    mask: Image.Image | None = None

    def size(self) -> tuple[int, int] | None:
        """Default width and height: those of the input image, rounded down to multiples of 8."""
        if self.image is None:
            return None
        width, height = (min(max(MIN_SIDE, side // 8 * 8), MAX_SIDE) for side in self.image.size)
        return width, height

    def fitted(self, width: int, height: int) -> Inputs:
        """Both scaled and center-cropped to the output size."""
        image, mask = self.image, self.mask
        if image is not None:
            image = ImageOps.fit(_eight_bit(image, "RGB"), (width, height), Image.Resampling.LANCZOS)
        if mask is not None:
            mask = ImageOps.fit(_eight_bit(mask, "L"), (width, height), Image.Resampling.BILINEAR)
        return Inputs(image, mask)


def load_image_inputs(
    values: Mapping[str, Any], image: Source | None, mask: Source | None
) -> tuple[GenerateRequest, Inputs]:
    """Parse the request and load its images, given here or named in the request's own record."""
    values, images = dict(values), dict[str, Image.Image]()
    for name, source in (("image", image), ("mask", mask)):
        if source is not None:
            images[name], description = describe(source)
            values[name] = description.model_dump(mode="json")
    request = GenerateRequest.parse(values)
    for name, recorded in (("image", request.image), ("mask", request.mask)):
        if recorded is not None and name not in images:
            images[name] = reopen(recorded, name)
    return request, Inputs(images.get("image"), images.get("mask"))


def describe(source: Source) -> tuple[Image.Image, ImageInput]:
    """Load an image and describe it for the record."""
    if isinstance(source, Image.Image):
        digest = hashlib.sha256(f"{source.mode} {source.size} ".encode() + source.tobytes()).hexdigest()
        return source, ImageInput(path=IN_MEMORY, sha256=digest)
    data = read_image_file(Path(source))
    # Cameras store their orientation in EXIF instead of rotating the image.
    image = ImageOps.exif_transpose(decode_image(data, str(source)))
    return image, ImageInput(path=str(source), sha256=hashlib.sha256(data).hexdigest())


def reopen(recorded: ImageInput, field: str) -> Image.Image:
    """Load the image that a record names; refused if the file has changed."""
    if recorded.path == IN_MEMORY:
        raise RequestError([Problem(field, "the record's image was never in a file; pass it again")])
    image, current = describe(recorded.path)
    if current.sha256 != recorded.sha256:
        rule = f"{recorded.path} has changed since the record was made; pass the original image"
        raise RequestError([Problem(field, rule, recorded.path)])
    return image


def _eight_bit(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I"):
        # Pillow clips 16-bit grays at 255 instead of scaling them.
        image = image.convert("I").point(lambda value: value * (1 / 257))
    return image.convert(mode)
