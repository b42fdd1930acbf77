"""Numbers about pictures, beside independent ones."""

import numpy as np
import pytest
import torch
from torch.nn.functional import avg_pool2d

from calotype.bench.quality.augmentations import USUAL, Amount, augment
from calotype.bench.quality.image_metrics import nearest, sharpness, spread, ssim

# From scikit-image 0.26: structural_similarity(one, other, channel_axis=-1, gaussian_weights=True, sigma=1.5,
# use_sample_covariance=False, data_range=255) on the pairs below, drawn one after the other.
REFERENCE = {2: 0.9739660837052764, 20: 0.2890568803242445, 80: 0.031106652547740934}


def test_likeness_is_that_of_scikit_image() -> None:
    draws = np.random.default_rng(0)
    y, x = np.mgrid[0:48, 0:48]
    plain = np.stack([(x * 5) % 256, (y * 4) % 256, ((x + y) * 3) % 256], -1).astype(np.float64)
    for noise, expected in REFERENCE.items():
        noisy = (plain + draws.normal(0, noise, plain.shape)).clip(0, 255).round()
        one, other = (torch.from_numpy(a.astype(np.uint8)).permute(2, 0, 1)[None] for a in (plain, noisy))
        assert ssim(one, other).item() == pytest.approx(expected, abs=1e-6)
    assert ssim(one, one).item() == pytest.approx(1)


def test_a_steeper_edge_is_sharper() -> None:
    step, ramp = torch.zeros(3, 64, 64), torch.zeros(3, 64, 64)
    step[:, :, 32:] = 255
    ramp[:] = torch.linspace(0, 255, 64)
    soft = avg_pool2d(step, 3, stride=1, padding=1, count_include_pad=False)
    pictures = torch.stack([torch.full_like(step, 255), ramp, step, soft]).to(torch.uint8)
    flat, even, edge, blurred = sharpness(pictures).tolist()
    assert flat == 0
    assert edge == pytest.approx(255**2 / 63, rel=1e-3)
    # It rises by as much as the edge does, over the whole picture.
    assert even < edge
    assert blurred < edge


def test_the_nearest_of_many_is_found_with_its_distance() -> None:
    draws = torch.Generator().manual_seed(0)
    many = torch.randint(0, 256, (9000, 3, 8, 8), generator=draws, dtype=torch.uint8)
    asked = many[[3, 8500]].clone()
    asked[1, 0, 0, 0] = 255 - asked[1, 0, 0, 0]
    distance, which = nearest(asked, many)
    assert which.tolist() == [3, 8500]
    changed = abs(int(asked[1, 0, 0, 0]) - int(many[8500, 0, 0, 0]))
    assert distance.tolist() == pytest.approx([0, changed / (3 * 8 * 8) ** 0.5])


def test_a_spread_is_numpys() -> None:
    values = torch.arange(101).float() ** 2
    found = spread(values)
    expected = np.percentile(values.numpy().astype(np.float64), [5, 50, 95])
    assert [found.p5, found.median, found.p95] == pytest.approx(expected.tolist())
    assert found.mean == pytest.approx(values.mean().item())


def test_faults_are_small_and_the_same_for_the_same_draws() -> None:
    picture = torch.full((4, 3, 64, 64), -0.5)
    picture[:, :, 16:48, 16:48] = 0.5
    first, again = (augment(picture, USUAL, torch.Generator().manual_seed(2)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, picture)
    assert first.min() >= -1
    assert first.max() <= 1
    # The middle and the corners stay what they were, give or take: nothing is moved far or repainted.
    assert (first[:, :, 28:36, 28:36].mean() - 0.5).abs() < 0.1
    assert (first[:, :, :6, :6].mean() + 0.5).abs() < 0.1
    none = Amount(0, 0, 0, 0, 0, 0, 0, 0)
    torch.testing.assert_close(augment(picture, none, torch.Generator()), picture)
