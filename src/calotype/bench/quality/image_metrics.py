"""Computes image metrics: edge energy, PSNR, SSIM, distance to the nearest of many images.

Images are (number, 3, height, width) in uint8.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor
from torch.nn.functional import interpolate

from calotype.spec.records.quality import Comparison, Spread
from calotype.train.tasks.vae_loss import psnr as psnr_of_floats

COMPARED_SIDE = 32
"""Image size for the comparison with the whole training set."""
NEAR_COPY = 4.0
"""Mean distance in steps of 1/255 below which an image counts as a copy."""
_GRAY = (0.299, 0.587, 0.114)
_WINDOW_SIGMA, _WINDOW_REACH = 1.5, 3.5
_AT_A_TIME = 8192


def sharpness(pixels: Tensor) -> Tensor:
    """Return the edge energy of each image: the mean squared brightness difference of neighboring pixels.

    Squared, because blur does not change the sum of the absolute differences.
    """
    gray = torch.einsum("nchw,c->nhw", pixels.float(), torch.tensor(_GRAY))
    return sum((gray.diff(dim=side).square().mean(dim=(1, 2)) for side in (1, 2)), torch.zeros(len(gray)))


def psnr(one: Tensor, other: Tensor) -> Tensor:
    """Return the peak signal-to-noise ratio of each pair in decibels."""
    return psnr_of_floats(one.float() / 127.5 - 1, other.float() / 127.5 - 1)


def ssim(one: Tensor, other: Tensor) -> Tensor:
    """Return the structural similarity (Wang et al. 2004) of each pair, averaged over colors and windows."""
    return torch.tensor([_ssim(a.numpy(), b.numpy()) for a, b in zip(one, other, strict=True)])


def _ssim(one: np.ndarray, other: np.ndarray) -> float:
    x, y = one.astype(np.float64), other.astype(np.float64)

    def blurred(values: np.ndarray) -> np.ndarray:
        return gaussian_filter(values, (0, _WINDOW_SIGMA, _WINDOW_SIGMA), truncate=_WINDOW_REACH)

    steady, steady_contrast = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    mean_x, mean_y = blurred(x), blurred(y)
    variances = blurred(x * x) - mean_x**2 + blurred(y * y) - mean_y**2
    covariance = blurred(x * y) - mean_x * mean_y
    lightness = (2 * mean_x * mean_y + steady) / (mean_x**2 + mean_y**2 + steady)
    likeness = lightness * (2 * covariance + steady_contrast) / (variances + steady_contrast)
    edge = int(_WINDOW_REACH * _WINDOW_SIGMA + 0.5)
    return float(likeness[:, edge:-edge, edge:-edge].mean())


def small(pixels: Tensor) -> Tensor:
    """Downscale images to the size for the comparison with many."""
    side = (COMPARED_SIDE, COMPARED_SIDE)
    return interpolate(pixels.float(), side, mode="area").round().to(torch.uint8)


def nearest(pictures: Tensor, many: Tensor) -> tuple[Tensor, Tensor]:
    """Return the RMS distance of each small image to the nearest of `many`, and its index."""
    queries = _flat(pictures)
    best, which = torch.full((len(queries),), torch.inf), torch.zeros(len(queries), dtype=torch.long)
    for start in range(0, len(many), _AT_A_TIME):
        found, place = torch.cdist(queries, _flat(many[start : start + _AT_A_TIME])).min(dim=1)
        nearer = found < best
        best, which = torch.where(nearer, found, best), torch.where(nearer, place + start, which)
    # The matrix products are precise enough to find the nearest, but not for its distance.
    exact = (queries - _flat(many[which])).square().mean(dim=1).sqrt()
    return exact, which


def spread(values: Tensor) -> Spread:
    """Return mean and percentiles."""
    p5, median, p95 = (
        float(value) for value in values.double().quantile(torch.tensor([0.05, 0.5, 0.95]).double())
    )
    return Spread(mean=float(values.double().mean()), p5=p5, median=median, p95=p95)


def comparison(preset: str, psnr_db: Tensor, likeness: Tensor) -> Comparison:
    """Summarize the PSNR and SSIM of image pairs of two presets."""
    return Comparison(
        preset=preset,
        pictures=len(psnr_db),
        psnr_db=spread(psnr_db),
        worst_psnr_db=float(psnr_db.min()),
        ssim=spread(likeness),
        worst_ssim=float(likeness.min()),
    )


def _flat(pixels: Tensor) -> Tensor:
    return pixels.flatten(1).float() - 127.5
