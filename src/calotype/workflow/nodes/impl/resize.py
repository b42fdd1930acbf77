"""Resizes batches of images and latents with the methods that workflows name. Channels come second."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

CENTER = "center"
PARALLEL = 1 - 1e-5
"""The cosine above which two directions count as equal; below its negative they count as opposite."""


def resized(samples: Tensor, width: int, height: int, method: str, crop: str = "disabled") -> Tensor:
    """Resize (batch, channels, height, width); crop "center" keeps the aspect ratio."""
    if crop == CENTER:
        samples = _crop_to_aspect(samples, width, height)
    if method == "bislerp":
        return bislerp(samples, width, height)
    if method == "lanczos":
        return _lanczos(samples, width, height)
    return interpolate(samples, size=(height, width), mode=method)


def _crop_to_aspect(samples: Tensor, width: int, height: int) -> Tensor:
    old_height, old_width = samples.shape[-2:]
    x, y = 0, 0
    if old_width * height > width * old_height:
        x = round((old_width - old_height * width / height) / 2)
    else:
        y = round((old_height - old_width * height / width) / 2)
    return samples[..., y : old_height - y, x : old_width - x]


def _lanczos(samples: Tensor, width: int, height: int) -> Tensor:
    """Resize with Pillow, which rounds to 8 bits."""
    rows = []
    for row in samples:
        pixels = (row.movedim(0, -1).cpu().numpy() * 255).clip(0, 255).astype(np.uint8)
        image = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
        small = np.asarray(image.resize((width, height), Image.Resampling.LANCZOS), np.float32) / 255
        rows.append(torch.from_numpy(small.reshape(height, width, -1)).movedim(-1, 0))
    return torch.stack(rows).to(samples.device, samples.dtype)


def bislerp(samples: Tensor, width: int, height: int) -> Tensor:
    """Interpolate between neighbors along the sphere instead of a straight line, so noise keeps its norm."""
    wide = _resize_last_axis(samples.float(), width)
    return _resize_last_axis(wide.transpose(-1, -2), height).transpose(-1, -2).to(samples.dtype)


def _resize_last_axis(samples: Tensor, length: int) -> Tensor:
    old = samples.shape[-1]
    positions = ((torch.arange(length, device=samples.device) + 0.5) * (old / length) - 0.5).clamp(0, old - 1)
    left = positions.floor().long()
    right = (left + 1).clamp(max=old - 1)
    return _slerp(samples[..., left], samples[..., right], positions - left)


def _slerp(one: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Interpolate directions along the great circle and norms linearly; vectors run along the channels."""
    lengths = [x.norm(dim=1, keepdim=True) for x in (one, other)]
    # A zero vector has no direction, and dividing by its norm would give NaN.
    a, b = (torch.where(length > 0, x / length, 0.0) for x, length in zip((one, other), lengths, strict=True))
    cosine = (a * b).sum(1, keepdim=True)
    angle = cosine.clamp(-1, 1).acos()
    turned = (((1 - share) * angle).sin() * a + (share * angle).sin() * b) / angle.sin()
    result = turned * torch.lerp(lengths[0], lengths[1], share)
    result = torch.where(cosine > PARALLEL, one, result)
    return torch.where(cosine < -PARALLEL, torch.lerp(one, other, share), result)
