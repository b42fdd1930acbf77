"""How an autoencoder's picture is judged against the one it was given. Knows tensors, nothing of modules.

No term needs a trained network. All are means over the numbers of a picture, so they mean the same at any
size, and all take pictures from −1 to 1.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from calotype.spec.recipe_sections import VaeConfig

RANGE = 2.0
"""From black to white."""
SCALES = 3
"""Full, half and quarter size."""
CHARBONNIER = 1e-3
WINDOW, WINDOW_SIGMA = 11, 1.5
MIN_ERROR = 1e-10


def vae_loss(part: VaeConfig, restored: Tensor, original: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    """The loss of a batch: one number, the mean over its samples."""
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
    """Kullback-Leibler divergence from the unit normal, the mean over a latent's numbers."""
    return 0.5 * (mean.square() + logvar.exp() - 1 - logvar).mean()


def gradient_error(error: Tensor) -> Tensor:
    """Size of the differences between neighbours; those of an error are the errors of the differences."""
    total = error.new_zeros(())
    for scale in range(SCALES):
        at_scale = avg_pool2d(error, 2**scale) if scale else error
        total = total + at_scale.diff(dim=-1).abs().mean() + at_scale.diff(dim=-2).abs().mean()
    return total / SCALES


def similarity(one: Tensor, other: Tensor) -> Tensor:
    """Structural similarity (Wang et al. 2004), the mean over the sizes its window fits into."""
    found = []
    for scale in range(SCALES):
        if scale:
            one, other = avg_pool2d(one, 2), avg_pool2d(other, 2)
        if scale == 0 or min(one.shape[-2:]) >= WINDOW:
            found.append(_similarity_at(one, other))
    return torch.stack(found).mean()


def _similarity_at(one: Tensor, other: Tensor) -> Tensor:
    steady, steady_contrast = (0.01 * RANGE) ** 2, (0.03 * RANGE) ** 2
    mean_one, mean_other = _blurred(one), _blurred(other)
    variances = _blurred(one * one) - mean_one**2 + _blurred(other * other) - mean_other**2
    covariance = _blurred(one * other) - mean_one * mean_other
    lightness = (2 * mean_one * mean_other + steady) / (mean_one**2 + mean_other**2 + steady)
    return (lightness * (2 * covariance + steady_contrast) / (variances + steady_contrast)).mean()


def _blurred(pictures: Tensor) -> Tensor:
    """Under a Gaussian window, where all of it lies on the picture.

    As products with matrices: convolutions are at their slowest with three channels, each by itself.
    """
    height, width = pictures.shape[-2:]
    return _window(height, pictures.device) @ pictures @ _window(width, pictures.device).mT


def _window(side: int, device: torch.device) -> Tensor:
    """The window at each place it fits into along a side, a row for each."""
    ends = torch.arange(side, device=device)
    place = ends - ends[: side - WINDOW + 1, None]
    weights = torch.exp(-((place - WINDOW // 2) ** 2) / (2 * WINDOW_SIGMA**2))
    inside = torch.where((place >= 0) & (place < WINDOW), weights, 0.0)
    return inside / inside.sum(-1, keepdim=True)


def psnr(restored: Tensor, original: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in decibels of each picture, as it would be shown."""
    error = (restored.clamp(-1, 1) - original).square().flatten(1).mean(1)
    return 10 * torch.log10(RANGE**2 / error.clamp(min=MIN_ERROR))
