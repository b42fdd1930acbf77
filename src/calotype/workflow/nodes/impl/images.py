"""Implements the IMAGE nodes: loading, saving and editing. `tensor_image` defines the layouts."""

from __future__ import annotations

import torch
from torch import Tensor

from calotype.workflow.node_api import Context, Kind, Result
from calotype.workflow.nodes.impl.resize import CENTER, resized
from calotype.workflow.nodes.impl.tensor_image import channel_of, opened, pixels_of, to_pictures

GREY = 0.5
NO_ALPHA_SIDE = 64
"""Side of the empty mask of an image without transparency, as in ComfyUI."""


def load(context: Context, image: str) -> tuple[Tensor, Tensor]:
    """Load an image and its mask, which is 1 where the image is transparent."""
    frames = opened(context.read_input(image), image)
    masks = []
    for frame in frames:
        alpha = channel_of(frame, "A")
        masks.append(torch.zeros(1, NO_ALPHA_SIDE, NO_ALPHA_SIDE) if alpha is None else 1 - alpha)
    return torch.cat([pixels_of(frame) for frame in frames]), torch.cat(masks)


def load_mask(context: Context, image: str, channel: str) -> tuple[Tensor]:
    (frame, *_) = opened(context.read_input(image), image)
    values = channel_of(frame, channel[0].upper())
    if values is None:
        return (torch.zeros(1, NO_ALPHA_SIDE, NO_ALPHA_SIDE),)
    return (1 - values if channel == "alpha" else values,)


def save(context: Context, images: Tensor, filename_prefix: str = "ComfyUI") -> Result:
    return _saved(context, images, filename_prefix, "output")


def preview(context: Context, images: Tensor) -> Result:
    return _saved(context, images, "preview", "temp")


def _saved(context: Context, images: Tensor, prefix: str, kind: Kind) -> Result:
    return Result(ui={"images": [context.save(picture, prefix, kind) for picture in to_pictures(images)]})


def scaled(
    _context: Context, image: Tensor, upscale_method: str, width: int, height: int, crop: str
) -> tuple[Tensor]:
    if width == 0 and height == 0:
        return (image,)
    # A side of 0 keeps the aspect ratio.
    if width == 0:
        width = max(1, round(image.shape[2] * height / image.shape[1]))
    elif height == 0:
        height = max(1, round(image.shape[1] * width / image.shape[2]))
    return (_resized(image, width, height, upscale_method, crop),)


def scaled_by(_context: Context, image: Tensor, upscale_method: str, scale_by: float) -> tuple[Tensor]:
    height, width = (max(1, round(side * scale_by)) for side in image.shape[1:3])
    return (_resized(image, width, height, upscale_method),)


def inverted(_context: Context, image: Tensor) -> tuple[Tensor]:
    return (1 - image,)


def batched(_context: Context, image1: Tensor, image2: Tensor) -> tuple[Tensor]:
    return (torch.cat([image1, _fitted(image2, image1, "bilinear")]),)


def blended(
    _context: Context, image1: Tensor, image2: Tensor, blend_factor: float, blend_mode: str
) -> tuple[Tensor]:
    other = _fitted(image2, image1, "bicubic")
    mixed = BLENDS[blend_mode](image1, other)
    return (torch.lerp(image1, mixed, blend_factor).clamp(0, 1),)


def cropped(_context: Context, image: Tensor, width: int, height: int, x: int, y: int) -> tuple[Tensor]:
    x, y = min(x, image.shape[2] - 1), min(y, image.shape[1] - 1)
    return (image[:, y : y + height, x : x + width],)


def padded_for_outpaint(
    _context: Context, image: Tensor, left: int, top: int, right: int, bottom: int, feathering: int
) -> tuple[Tensor, Tensor]:
    """Add gray borders and a mask of the new area; feathering extends the mask into the image."""
    batch, height, width, channels = image.shape
    whole = torch.full((batch, height + top + bottom, width + left + right, channels), GREY)
    whole[:, top : top + height, left : left + width] = image
    mask = torch.ones(1, *whole.shape[1:3])
    inner = torch.zeros(height, width)
    if 0 < feathering * 2 < min(height, width):
        # The distance to the nearest padded side.
        down, across = torch.arange(height)[:, None], torch.arange(width)
        nearest = torch.full((height, width), float(max(height, width)))
        sides = ((top, down), (bottom, height - down), (left, across), (right, width - across))
        for added, distance in sides:
            if added:
                nearest = torch.minimum(nearest, distance.float())
        inner = ((feathering - nearest) / feathering).clamp(min=0) ** 2
    mask[:, top : top + height, left : left + width] = inner
    return whole, mask


def _resized(image: Tensor, width: int, height: int, method: str, crop: str = "disabled") -> Tensor:
    return resized(image.movedim(-1, 1), width, height, method, crop).movedim(1, -1)


def _fitted(image: Tensor, to: Tensor, method: str) -> Tensor:
    if image.shape[1:3] == to.shape[1:3]:
        return image
    return _resized(image, to.shape[2], to.shape[1], method, CENTER)


def _overlay(one: Tensor, other: Tensor) -> Tensor:
    return torch.where(one <= 0.5, 2 * one * other, 1 - 2 * (1 - one) * (1 - other))


def _soft_light(one: Tensor, other: Tensor) -> Tensor:
    """Soft light as the W3C's compositing and blending specification defines it."""
    lighter = torch.where(one <= 0.25, ((16 * one - 12) * one + 4) * one, one.clamp(min=0).sqrt())
    return torch.where(
        other <= 0.5,
        one - (1 - 2 * other) * one * (1 - one),
        one + (2 * other - 1) * (lighter - one),
    )


BLENDS = {
    "normal": lambda _one, other: other,
    "multiply": lambda one, other: one * other,
    "screen": lambda one, other: 1 - (1 - one) * (1 - other),
    "overlay": _overlay,
    "soft_light": _soft_light,
    "difference": lambda one, other: one - other,
}
