"""Batches of pictures and latents made larger or smaller by the names workflows use. Channels come second.

Knows nothing of nodes.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

CENTER = "center"
PARALLEL = 1 - 1e-5
"""The cosine from which two directions count as the same, and its negative as opposite."""


def resized(samples: Tensor, width: int, height: int, method: str, crop: str = "disabled") -> Tensor:
    """(batch, channels, height, width) in another size; with crop "center" nothing is stretched."""
    if crop == CENTER:
        samples = _cropped_to_shape_of(samples, width, height)
    if method == "bislerp":
        return bislerp(samples, width, height)
    if method == "lanczos":
        return _lanczos(samples, width, height)
    return interpolate(samples, size=(height, width), mode=method)


def _cropped_to_shape_of(samples: Tensor, width: int, height: int) -> Tensor:
    old_height, old_width = samples.shape[-2:]
    x, y = 0, 0
    if old_width * height > width * old_height:
        x = round((old_width - old_height * width / height) / 2)
    else:
        y = round((old_height - old_width * height / width) / 2)
    return samples[..., y : old_height - y, x : old_width - x]


def _lanczos(samples: Tensor, width: int, height: int) -> Tensor:
    """Through 8 bits, as Pillow does it."""
    rows = []
    for row in samples:
        pixels = (row.movedim(0, -1).cpu().numpy() * 255).clip(0, 255).astype(np.uint8)
        image = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
        small = np.asarray(image.resize((width, height), Image.Resampling.LANCZOS), np.float32) / 255
        rows.append(torch.from_numpy(small.reshape(height, width, -1)).movedim(-1, 0))
    return torch.stack(rows).to(samples.device, samples.dtype)


def bislerp(samples: Tensor, width: int, height: int) -> Tensor:
    """Between neighbours along the sphere instead of the straight line: noise keeps its length."""
    wide = _along_last(samples.float(), width)
    return _along_last(wide.transpose(-1, -2), height).transpose(-1, -2).to(samples.dtype)


def _along_last(samples: Tensor, length: int) -> Tensor:
    old = samples.shape[-1]
    places = ((torch.arange(length, device=samples.device) + 0.5) * (old / length) - 0.5).clamp(0, old - 1)
    left = places.floor().long()
    right = (left + 1).clamp(max=old - 1)
    return _slerp(samples[..., left], samples[..., right], places - left)


def _slerp(one: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Directions along the great circle, lengths along the line; the channels are what has a direction."""
    lengths = [x.norm(dim=1, keepdim=True) for x in (one, other)]
    # Nothing has no direction, and dividing by its length would give none either.
    a, b = (torch.where(length > 0, x / length, 0.0) for x, length in zip((one, other), lengths, strict=True))
    cosine = (a * b).sum(1, keepdim=True)
    angle = cosine.clamp(-1, 1).acos()
    turned = (((1 - share) * angle).sin() * a + (share * angle).sin() * b) / angle.sin()
    result = turned * torch.lerp(lengths[0], lengths[1], share)
    result = torch.where(cosine > PARALLEL, one, result)
    return torch.where(cosine < -PARALLEL, torch.lerp(one, other, share), result)
