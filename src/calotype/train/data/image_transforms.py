"""From the bytes of a picture to the tensor a model is trained on. Knows nothing of files or captions."""

import io
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from calotype.train.data.hashing import mixed

Size = tuple[int, int]
"""Height and width."""

MAX_PIXELS = 2**27
HEADER_BYTES = 2**18
"""Enough of a file's start to tell its size, unless it carries an unusual load of metadata."""
_READABLE = ("PNG", "WEBP", "JPEG")
_ROTATED = (5, 6, 7, 8)
"""EXIF orientations that swap height and width."""


class ImageError(ValueError):
    """Bytes that are no usable picture; the message is the reason alone."""


def crop_and_resize(
    picture: bytes | Image.Image, target: Size, *, random_crop: bool, random_flip: bool, draw: int
) -> tuple[Tensor, tuple[int, ...]]:
    """The picture scaled to cover `target` and cropped to it, as (3, height, width) bytes.

    The six numbers beside it say what was done, as SDXL is told: original height and width, top and left of
    the crop in the scaled picture, target height and width. `draw` decides whatever is left to chance.
    """
    image, original = _decoded(picture, target)
    height, width = target
    scale = max(height / original[0], width / original[1])
    scaled = (max(height, round(original[0] * scale)), max(width, round(original[1] * scale)))
    spare = (scaled[0] - height, scaled[1] - width)
    top, left = (
        mixed(draw, axis) % (room + 1) if random_crop else room // 2 for axis, room in enumerate(spare)
    )
    flip = random_flip and is_mirrored(draw)
    # The picture is flipped first and cropped then; cropping from the other side is the same for less work.
    # The middle is the middle from either side, so that a picture decoded once can be flipped later.
    taken = spare[1] - left if flip and random_crop else left
    across, down = image.width / scaled[1], image.height / scaled[0]
    box = (
        taken * across,
        top * down,
        min((taken + width) * across, image.width),
        min((top + height) * down, image.height),
    )
    if image.size != (width, height) or box != (0.0, 0.0, float(width), float(height)):
        image = image.resize((width, height), Image.Resampling.BICUBIC, box=box)
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return _as_tensor(image), (*original, top, left, height, width)


def stack_images(pictures: Sequence[Tensor]) -> Tensor:
    """Pictures of one size as one tensor."""
    # By numpy, here and below: torch wakes its threads for each picture, which on busy cores takes far longer
    # than the copying.
    return torch.from_numpy(np.stack([picture.numpy() for picture in pictures]))


def is_mirrored(draw: int) -> bool:
    """Whether chance wants the picture flipped this time."""
    return bool(mixed(draw, 2) & 1)


def size_in(start: bytes) -> Size | None:
    """Height and width as shown, from the first bytes of a file; None if they do not tell."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(start), formats=_READABLE)
            return _as_shown((image.height, image.width), image)
    # Damaged files make Pillow's readers raise nearly anything.
    except Exception:
        return None


def _decoded(picture: bytes | Image.Image, target: Size) -> tuple[Image.Image, Size]:
    """The picture upright in RGB, and its size; a JPEG much larger than needed is only decoded in part."""
    try:
        with warnings.catch_warnings():
            # What Pillow warns of is either refused here or does not matter to training.
            warnings.simplefilter("ignore")
            image = _opened(picture)
            stored = (image.height, image.width)
            if image.format == "JPEG":
                # Twice the target, because the decoder's own scaling is coarse.
                image.draft("RGB", (2 * max(target), 2 * max(target)))
            # How it is to be turned may stand behind the pixels.
            image.load()
            original = _as_shown(stored, image)
            ImageOps.exif_transpose(image, in_place=True)
            return _as_rgb(image), original
    except ImageError:
        raise
    # Damaged files make Pillow's decoders raise nearly anything.
    except Exception as error:
        raise ImageError(_reason(error)) from error


def _opened(picture: bytes | Image.Image) -> Image.Image:
    if isinstance(picture, bytes):
        if not picture:
            raise ImageError("the picture is empty (0 bytes)")
        picture = Image.open(io.BytesIO(picture), formats=_READABLE)
    if picture.width * picture.height > MAX_PIXELS:
        raise ImageError(f"{picture.width}×{picture.height} is over the limit of {MAX_PIXELS} pixels")
    return picture


def _as_shown(stored: Size, image: Image.Image) -> Size:
    """The size turned as the picture is to be, as far as has been read of it."""
    # Pillow's own way for PNG would decode all of it first.
    orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    return (stored[1], stored[0]) if orientation in _ROTATED else stored


def _as_rgb(image: Image.Image) -> Image.Image:
    """What is transparent becomes white, as it looks on a page."""
    if image.mode.startswith("I"):
        # Pillow would clip sixteen bits to eight instead of scaling them.
        image = Image.fromarray((np.asarray(image) // 256).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        page = Image.new("RGBA", image.size, "white")
        page.alpha_composite(image.convert("RGBA"))
        image = page
    return image if image.mode == "RGB" else image.convert("RGB")


def _as_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)))


def _reason(error: Exception) -> str:
    # For an unknown format Pillow only repeats what it was given.
    if isinstance(error, UnidentifiedImageError):
        return "the picture is no PNG, WebP or JPEG"
    if isinstance(error, Image.DecompressionBombError):
        return f"the picture is over the limit of {MAX_PIXELS} pixels"
    return f"the picture cannot be decoded: {error}"
