"""The terms of an autoencoder's loss, against numpy and scipy, and what each is there for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from calotype.spec.recipe_sections import VaeConfig
from calotype.train.tasks.vae_loss import divergence, gradient_error, psnr, similarity, vae_loss

WITHOUT_KL: dict[str, Any] = {"kl_weight": 0.0}


def pictures(seed: int, side: int = 64) -> Tensor:
    return torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def loss(restored: Tensor, original: Tensor, **settings: Any) -> float:
    latent = torch.zeros(2, 4, 16, 16)
    return float(vae_loss(VaeConfig(**settings), restored, original, latent, latent))


@pytest.mark.parametrize(
    ("kind", "size"),
    [("l1", np.abs), ("mse", np.square), ("charbonnier", lambda e: np.sqrt(e**2 + 1e-6))],
)
def test_the_error_of_a_number(kind: str, size: Any) -> None:
    one, other = pictures(0), pictures(1)
    wanted = size((one - other).double().numpy()).mean()
    assert loss(one, other, reconstruction=kind, **WITHOUT_KL) == pytest.approx(wanted, rel=1e-5)


def test_the_divergence_is_torchs_and_counts_for_each_number_of_the_picture() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, logvar = (torch.randn(2, 4, 16, 16, generator=generator) for _ in range(2))
    each = kl_divergence(Normal(mean, (logvar / 2).exp()), Normal(0.0, 1.0))
    assert float(divergence(mean, logvar)) == pytest.approx(float(each.mean()), rel=1e-5)
    one = pictures(0)
    weighted = float(vae_loss(VaeConfig(kl_weight=0.5), one, one, mean, logvar))
    assert weighted == pytest.approx(0.5 * float(each.sum()) / one.numel(), rel=1e-5)


def test_gradients_are_compared_at_three_sizes() -> None:
    error = (pictures(0) - pictures(1)).double().numpy()
    wanted = 0.0
    for scale in (1, 2, 4):
        side = error.shape[-1] // scale
        small = error.reshape(2, 3, side, scale, side, scale).mean((3, 5))
        wanted += np.abs(np.diff(small, axis=-1)).mean() + np.abs(np.diff(small, axis=-2)).mean()
    assert float(gradient_error(torch.from_numpy(error))) == pytest.approx(wanted / 3)


def test_similarity_is_that_of_wang_and_others() -> None:
    one, other = (pictures(seed).double() for seed in (0, 1))
    other = 0.6 * one + 0.4 * other

    def blurred(values: Any) -> Any:
        # The window of 11 ends 5 from its middle; where it hangs over the picture's edge does not count.
        return gaussian_filter(values, (0, 0, 1.5, 1.5), truncate=5 / 1.5)[..., 5:-5, 5:-5]

    found = []
    for scale in (1, 2, 4):
        side = 64 // scale
        x, y = (p.numpy().reshape(2, 3, side, scale, side, scale).mean((3, 5)) for p in (one, other))
        mx, my = blurred(x), blurred(y)
        vx, vy, cxy = blurred(x * x) - mx**2, blurred(y * y) - my**2, blurred(x * y) - mx * my
        c1, c2 = 0.02**2, 0.06**2
        found.append(((2 * mx * my + c1) * (2 * cxy + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))).mean())
    assert float(similarity(one.float(), other.float())) == pytest.approx(np.mean(found), rel=1e-4)
    assert float(similarity(one.float(), one.float())) == pytest.approx(1)
    # A window of 11 has no room in a quarter of 32.
    assert float(similarity(pictures(0, 32), pictures(0, 32))) == pytest.approx(1)


def test_frequencies_are_numpys() -> None:
    one, other = pictures(0), pictures(1)
    plain = loss(one, other, **WITHOUT_KL)
    spectrum = np.fft.rfft2((one - other).double().numpy(), norm="ortho")
    both = loss(one, other, **WITHOUT_KL, frequency_weight=0.5)
    assert both == pytest.approx(plain + 0.5 * np.abs(spectrum).mean(), rel=1e-5)


@pytest.mark.parametrize("name", ["gradient_weight", "ssim_weight", "frequency_weight"])
def test_each_term_prefers_a_sharp_edge_to_a_blurred_one_of_the_same_error(name: str) -> None:
    sharp = torch.full((2, 3, 64, 64), -1.0)
    sharp[..., 32:] = 1.0
    blurred = torch.from_numpy(gaussian_filter(sharp.numpy(), (0, 0, 0, 3)))
    # As far off as the blurred picture in the plain term, but by a constant.
    offset = sharp + (blurred - sharp).abs().mean()
    chosen: dict[str, Any] = {**WITHOUT_KL, name: 1.0}
    assert loss(blurred, sharp, **WITHOUT_KL) == pytest.approx(loss(offset, sharp, **WITHOUT_KL), rel=1e-4)
    assert loss(blurred, sharp, **chosen) > 1.1 * loss(offset, sharp, **chosen)


def test_psnr_is_of_what_would_be_shown() -> None:
    original = torch.zeros(2, 3, 8, 8)
    restored = original.clone()
    restored[0] += 0.02  # a hundredth of the range
    assert psnr(restored, original).tolist() == pytest.approx([40, 106.02], abs=0.01)
    assert float(psnr(original + 5, original + 1)[0]) == pytest.approx(106.02, abs=0.01)
