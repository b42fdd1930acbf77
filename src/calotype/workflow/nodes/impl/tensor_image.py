"""Converts between IMAGE and MASK tensors and Pillow images.

An IMAGE is (batch, height, width, channels) and a MASK (batch, height, width), both from 0 to 1.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
import torch
from PIL import Image, ImageOps, ImageSequence
from torch import Tensor

from calotype.core.errors import Problem, RequestError
from calotype.engine.vae import NotAnImageError
from calotype.imaging.image_io import decode_image

PREVIEW_QUALITY = 90
MAX_OF_FRAMES = 64 * 1024 * 1024
"""Limit of the pixels of all frames of a file: a small file can hold very many similar frames."""


def opened(data: bytes, name: str) -> list[Image.Image]:
    """All frames of an image file with EXIF orientation applied; only those of the first one's size."""
    image = decode_image(data, name)
    number = getattr(image, "n_frames", 1)
    if number > 1 and number * image.width * image.height > MAX_OF_FRAMES:
        size = f"{number} frames of {image.width}×{image.height}"
        rule = f"{name[:80]!r} has {size}, the limit is {MAX_OF_FRAMES} pixels in all; send fewer or smaller"
        raise RequestError([Problem("image", rule)])
    frames = [ImageOps.exif_transpose(frame.copy()) for frame in ImageSequence.Iterator(image)]
    return [_eight_bit(frame) for frame in frames if frame.size == frames[0].size]


def _eight_bit(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # Pillow clips 16-bit grays at 255 instead of scaling them.
        return image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    return image


def pixels_of(image: Image.Image) -> Tensor:
    """The image as a tensor (1, height, width, 3)."""
    return torch.from_numpy(np.asarray(image.convert("RGB"), np.float32) / 255)[None]


def channel_of(image: Image.Image, channel: str) -> Tensor | None:
    """One of the bands R, G, B and A as (1, height, width); None for alpha if the image has none."""
    if channel == "A" and not image.has_transparency_data:
        return None
    band = image.convert("RGBA").getchannel(channel)
    return torch.from_numpy(np.asarray(band, np.float32) / 255)[None]


def to_pictures(images: Tensor) -> list[Image.Image]:
    """The 8-bit images of an IMAGE; values are rounded down, as in ComfyUI."""
    if not bool(torch.isfinite(images).all()):
        raise NotAnImageError(
            "the image is NaN or infinity: values overflowed the precision. Use bf16 or fp32 "
            "(--precision), a VAE made for fp16, or a lower cfg"
        )
    values = (images.float() * 255).clamp(0, 255).to(torch.uint8).cpu().numpy()
    return [Image.fromarray(row.squeeze(-1) if row.shape[-1] == 1 else row) for row in values]


def as_jpeg(image: Image.Image) -> bytes:
    """Encode a preview as JPEG."""
    buffer = BytesIO()
    image.save(buffer, "JPEG", quality=PREVIEW_QUALITY)
    return buffer.getvalue()
