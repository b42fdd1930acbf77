"""Decode image files and transform them into tensors: orientation, color mode, crop, resize, flip."""

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
"""Enough of a file's start to read its size, unless it has an unusual amount of metadata."""
_READABLE = ("PNG", "WEBP", "JPEG")
_ROTATED = (5, 6, 7, 8)
"""EXIF orientations that swap height and width."""


class ImageError(ValueError):
    """Bytes that are not a usable image; the message is only the reason."""


def crop_and_resize(
    picture: bytes | Image.Image, target: Size, *, random_crop: bool, random_flip: bool, draw: int
) -> tuple[Tensor, tuple[int, ...]]:
    """Scale the image to cover `target` and crop it, as (3, height, width) bytes.

    The six numbers of the result are SDXL's size conditioning: original height and width, top and left of the
    crop in the scaled image, target height and width. `draw` decides all random choices.
    """
    image, original = _decode(picture, target)
    height, width = target
    scale = max(height / original[0], width / original[1])
    scaled = (max(height, round(original[0] * scale)), max(width, round(original[1] * scale)))
    margins = (scaled[0] - height, scaled[1] - width)
    top, left = (
        mixed(draw, axis) % (margin + 1) if random_crop else margin // 2
        for axis, margin in enumerate(margins)
    )
    flip = random_flip and is_mirrored(draw)
    # Flipping comes before cropping; cropping at the mirrored side first is equivalent and cheaper. A
    # centered crop is the same from both sides, so that an image decoded once can be flipped later.
    crop_left = margins[1] - left if flip and random_crop else left
    across, down = image.width / scaled[1], image.height / scaled[0]
    box = (
        crop_left * across,
        top * down,
        min((crop_left + width) * across, image.width),
        min((top + height) * down, image.height),
    )
    if image.size != (width, height) or box != (0.0, 0.0, float(width), float(height)):
        image = image.resize((width, height), Image.Resampling.BICUBIC, box=box)
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return _to_tensor(image), (*original, top, left, height, width)


def stack_images(images: Sequence[Tensor]) -> Tensor:
    """Stack images of one size into one tensor."""
    # numpy is used here and below: torch wakes its threads for each image, which takes far longer than the
    # copy on busy cores.
    return torch.from_numpy(np.stack([picture.numpy() for picture in images]))


def is_mirrored(draw: int) -> bool:
    """Whether this random number flips the image."""
    return bool(mixed(draw, 2) & 1)


def size_in(start: bytes) -> Size | None:
    """Height and width as displayed, from the first bytes of a file; None if they do not contain it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(start), formats=_READABLE)
            return _apply_orientation((image.height, image.width), image)
    # Damaged files make Pillow's readers raise nearly anything.
    except Exception:
        return None


def _decode(picture: bytes | Image.Image, target: Size) -> tuple[Image.Image, Size]:
    """The upright RGB image and its size; a JPEG much larger than needed is decoded at reduced scale."""
    try:
        with warnings.catch_warnings():
            # Pillow's warnings concern images that are refused here, or details without effect on training.
            warnings.simplefilter("ignore")
            image = _open_image(picture)
            stored = (image.height, image.width)
            if image.format == "JPEG":
                # Twice the target, because the decoder's own scaling is coarse.
                image.draft("RGB", (2 * max(target), 2 * max(target)))
            # The orientation may be stored after the pixels.
            image.load()
            original = _apply_orientation(stored, image)
            ImageOps.exif_transpose(image, in_place=True)
            return _to_rgb(image), original
    except ImageError:
        raise
    # Damaged files make Pillow's decoders raise nearly anything.
    except Exception as error:
        raise ImageError(_decode_error(error)) from error


def _open_image(picture: bytes | Image.Image) -> Image.Image:
    if isinstance(picture, bytes):
        if not picture:
            raise ImageError("the image is empty (0 bytes)")
        picture = Image.open(io.BytesIO(picture), formats=_READABLE)
    if picture.width * picture.height > MAX_PIXELS:
        raise ImageError(f"{picture.width}×{picture.height} is over the limit of {MAX_PIXELS} pixels")
    return picture


def _apply_orientation(stored: Size, image: Image.Image) -> Size:
    """The size after applying the orientation, as far as the metadata has been read."""
    # Pillow's method for PNG would first decode the whole image.
    orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    return (stored[1], stored[0]) if orientation in _ROTATED else stored


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB; transparent pixels become white, as on a page."""
    if image.mode.startswith("I"):
        # Pillow would clip sixteen bits to eight instead of scaling them.
        image = Image.fromarray((np.asarray(image) // 256).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        canvas = Image.new("RGBA", image.size, "white")
        canvas.alpha_composite(image.convert("RGBA"))
        image = canvas
    return image if image.mode == "RGB" else image.convert("RGB")


def _to_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)))


def _decode_error(error: Exception) -> str:
    # For an unknown format Pillow's message only repeats the argument.
    if isinstance(error, UnidentifiedImageError):
        return "the image is not a PNG, WebP or JPEG"
    if isinstance(error, Image.DecompressionBombError):
        return f"the image is over the limit of {MAX_PIXELS} pixels"
    return f"the image cannot be decoded: {error}"
