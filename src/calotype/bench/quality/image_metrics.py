"""Numbers about pictures: edges, likeness to another picture, distance to the nearest of many.

Pictures are (number, 3, height, width) in uint8. Knows nothing of who made them.
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
"""Pictures are compared with the whole training set at this size."""
NEAR_COPY = 4.0
"""Steps of 1/255, on average over a picture, under which one is called a copy."""
_GRAY = (0.299, 0.587, 0.114)
_WINDOW_SIGMA, _WINDOW_REACH = 1.5, 3.5
_AT_A_TIME = 8192


def sharpness(pixels: Tensor) -> Tensor:
    """Energy of each picture's edges: the mean square of how brightness differs between neighbours.

    Squares, because blur leaves the sum of the differences as it is.
    """
    gray = torch.einsum("nchw,c->nhw", pixels.float(), torch.tensor(_GRAY))
    return sum((gray.diff(dim=side).square().mean(dim=(1, 2)) for side in (1, 2)), torch.zeros(len(gray)))


def psnr(one: Tensor, other: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in decibels of each pair."""
    return psnr_of_floats(one.float() / 127.5 - 1, other.float() / 127.5 - 1)


def ssim(one: Tensor, other: Tensor) -> Tensor:
    """Structural similarity (Wang et al. 2004) of each pair, the mean over colours and all whole windows."""
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
    """At the size in which pictures are compared with many."""
    side = (COMPARED_SIDE, COMPARED_SIDE)
    return interpolate(pixels.float(), side, mode="area").round().to(torch.uint8)


def nearest(pictures: Tensor, many: Tensor) -> tuple[Tensor, Tensor]:
    """For each small picture the root mean square distance to the nearest of `many`, and which that is."""
    queries = _flat(pictures)
    best, which = torch.full((len(queries),), torch.inf), torch.zeros(len(queries), dtype=torch.long)
    for start in range(0, len(many), _AT_A_TIME):
        found, place = torch.cdist(queries, _flat(many[start : start + _AT_A_TIME])).min(dim=1)
        nearer = found < best
        best, which = torch.where(nearer, found, best), torch.where(nearer, place + start, which)
    # Products of large numbers were good enough to choose by, not to tell the distance by.
    exact = (queries - _flat(many[which])).square().mean(dim=1).sqrt()
    return exact, which


def spread(values: Tensor) -> Spread:
    """Mean and percentiles."""
    p5, median, p95 = (
        float(value) for value in values.double().quantile(torch.tensor([0.05, 0.5, 0.95]).double())
    )
    return Spread(mean=float(values.double().mean()), p5=p5, median=median, p95=p95)


def comparison(preset: str, psnr_db: Tensor, likeness: Tensor) -> Comparison:
    """A preset's pictures beside another's, from the PSNR and SSIM of each pair."""
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
