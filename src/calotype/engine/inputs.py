"""Pictures that come with a request, made ready: fitted to the size asked for, hashed for the record.

Knows nothing of latents.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

from calotype.core.errors import Problem, RequestError
from calotype.engine.pictures import open_picture
from calotype.spec.request import ImageInput

IN_MEMORY = "(in memory)"


@dataclass(frozen=True)
class Inputs:
    """The start image and the mask of one request; white in the mask is painted anew."""

    image: Image.Image | None = None
    mask: Image.Image | None = None

    def size(self) -> tuple[int, int] | None:
        """Width and height to make when the request names none: the image's, in whole multiples of 8."""
        if self.image is None:
            return None
        return max(16, self.image.width // 8 * 8), max(16, self.image.height // 8 * 8)

    def fitted(self, width: int, height: int) -> Inputs:
        """Both scaled and cropped about the centre to the picture's size."""
        size = (width, height)
        image = None if self.image is None else ImageOps.fit(self.image.convert("RGB"), size, Image.Resampling.LANCZOS)
        mask = None if self.mask is None else ImageOps.fit(self.mask.convert("L"), size, Image.Resampling.BILINEAR)
        return Inputs(image, mask)


def describe(image: Image.Image | Path) -> tuple[Image.Image, ImageInput]:
    """A picture and what the record says of it."""
    if isinstance(image, Path):
        opened = open_picture(image)
        record = ImageInput(path=str(image), sha256=hashlib.sha256(image.read_bytes()).hexdigest())
        return opened, record
    digest = hashlib.sha256(f"{image.mode} {image.size} ".encode() + image.tobytes()).hexdigest()
    return image, ImageInput(path=IN_MEMORY, sha256=digest)


def reopen(record: ImageInput, field: str) -> Image.Image:
    """The picture a record names; refused when it is another one by now."""
    if record.path == IN_MEMORY:
        raise RequestError([Problem(field, "the record's picture was never in a file; give it again")])
    image, now = describe(Path(record.path))
    if now.sha256 != record.sha256:
        raise RequestError([Problem(field, f"{record.path} has changed since: sha256 {now.sha256}, was {record.sha256}")])
    return image
