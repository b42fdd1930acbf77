"""Reconstruction losses of the autoencoder.

No term needs a trained network. All are means over the values of an image, so they are comparable at any
size, and all take images in the range −1 to 1.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from calotype.spec.recipe_sections import VaeConfig

RANGE = 2.0
"""The difference of black and white."""
SCALES = 3
"""The full, half and quarter size."""
CHARBONNIER = 1e-3
WINDOW, WINDOW_SIGMA = 11, 1.5
MIN_ERROR = 1e-10


def vae_loss(part: VaeConfig, restored: Tensor, original: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    """The loss of a batch: the mean over its samples."""
    error = restored - original
    loss = _size(error, part.reconstruction)
    terms = (
        (part.gradient_weight, lambda: gradient_error(error)),
        (part.ssim_weight, lambda: 1 - similarity(restored, original)),
        (part.frequency_weight, lambda: torch.fft.rfft2(error, norm="ortho").abs().mean()),
    )
    for weight, term in terms:
        if weight:
            loss = loss + weight * term()
    return loss + part.kl_weight * divergence(mean, logvar) * (mean[0].numel() / original[0].numel())


def _size(error: Tensor, kind: str) -> Tensor:
    if kind == "l1":
        return error.abs().mean()
    if kind == "mse":
        return error.square().mean()
    return (error.square() + CHARBONNIER**2).sqrt().mean()


def divergence(mean: Tensor, logvar: Tensor) -> Tensor:
    """Kullback-Leibler divergence from the standard normal, the mean over the values of a latent."""
    return 0.5 * (mean.square() + logvar.exp() - 1 - logvar).mean()


def gradient_error(error: Tensor) -> Tensor:
    """The mean error of the differences of neighboring pixels, which equals the differences of the error."""
    total = error.new_zeros(())
    for scale in range(SCALES):
        at_scale = avg_pool2d(error, 2**scale) if scale else error
        total = total + at_scale.diff(dim=-1).abs().mean() + at_scale.diff(dim=-2).abs().mean()
    return total / SCALES


def similarity(one: Tensor, other: Tensor) -> Tensor:
    """Structural similarity (Wang et al. 2004), the mean over the scales that its window fits into."""
    per_scale = []
    for scale in range(SCALES):
        if scale:
            one, other = avg_pool2d(one, 2), avg_pool2d(other, 2)
        if scale == 0 or min(one.shape[-2:]) >= WINDOW:
            per_scale.append(_similarity_at(one, other))
    return torch.stack(per_scale).mean()


def _similarity_at(one: Tensor, other: Tensor) -> Tensor:
    c1, c2 = (0.01 * RANGE) ** 2, (0.03 * RANGE) ** 2
    mean_one, mean_other = _gaussian_filter(one), _gaussian_filter(other)
    variances = _gaussian_filter(one * one) - mean_one**2 + _gaussian_filter(other * other) - mean_other**2
    covariance = _gaussian_filter(one * other) - mean_one * mean_other
    lightness = (2 * mean_one * mean_other + c1) / (mean_one**2 + mean_other**2 + c1)
    return (lightness * (2 * covariance + c2) / (variances + c2)).mean()


def _gaussian_filter(images: Tensor) -> Tensor:
    """Filter with a Gaussian window, where it lies fully inside the image.

    It uses matrix products: depthwise convolutions with three channels are at their slowest.
    """
    height, width = images.shape[-2:]
    return _window(height, images.device) @ images @ _window(width, images.device).mT


def _window(side: int, device: torch.device) -> Tensor:
    """The window at each position along a side, one row per position."""
    positions = torch.arange(side, device=device)
    offset = positions - positions[: side - WINDOW + 1, None]
    weights = torch.exp(-((offset - WINDOW // 2) ** 2) / (2 * WINDOW_SIGMA**2))
    inside = torch.where((offset >= 0) & (offset < WINDOW), weights, 0.0)
    return inside / inside.sum(-1, keepdim=True)


def psnr(restored: Tensor, original: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in decibels of each image, with values clamped as for display."""
    error = (restored.clamp(-1, 1) - original).square().flatten(1).mean(1)
    return 10 * torch.log10(RANGE**2 / error.clamp(min=MIN_ERROR))
