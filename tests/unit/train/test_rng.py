"""A sample's randomness is its own, normal where it should be, and the published generator's."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from calotype.train.rng import SampleNoise, sample_noise
from calotype.train.rng import _uniform_pairs as uniform_pairs

CPU = torch.device("cpu")
SHAPE = (4, 16, 16)


def draws(positions: list[int], seed: int = 3, dropout: float = 0.1) -> SampleNoise:
    return sample_noise(seed, positions, SHAPE, num_timesteps=1000, caption_dropout=dropout, device=CPU)


def splitmix64(key: int, count: int) -> list[int]:
    """The generator in whole numbers of any length."""
    found, mask = [], 2**64 - 1
    for _ in range(count):
        key = (key + 0x9E3779B97F4A7C15) & mask
        value = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
        found.append(value ^ (value >> 31))
    return found


@pytest.mark.parametrize("key", [0, 1, 2**63 - 1, 2**63, 2**64 - 1, 0x123456789ABCDEF0])
def test_the_numbers_are_splitmix64s(key: int) -> None:
    signed = key - 2**64 if key >= 2**63 else key
    high, low = uniform_pairs(torch.tensor([signed]), 5)
    assert [(h << 32) | x for h, x in zip(high[0].tolist(), low[0].tolist(), strict=True)] == splitmix64(
        key, 5
    )


def test_company_changes_nothing() -> None:
    many, one = draws([5, -1, 10**9, 7]), draws([10**9])
    for name in ("noise", "posterior", "offset", "timesteps", "drop_caption"):
        assert torch.equal(getattr(many, name)[2], getattr(one, name)[0]), name


def test_seeds_and_places_have_draws_of_their_own() -> None:
    first = draws([1, 2])
    assert not torch.equal(first.noise[0], first.noise[1])
    assert not torch.equal(first.noise, draws([1, 2], seed=4).noise)


def test_noise_is_normal_and_unrelated() -> None:
    made = draws(list(range(200)))
    for numbers in (made.noise, made.posterior, made.offset):
        assert stats.kstest(numbers.flatten().numpy(), "norm").pvalue > 0.001
    flat = torch.stack([made.noise.flatten(), made.posterior.flatten(), made.noise.roll(1, 0).flatten()])
    related = torch.corrcoef(flat) - torch.eye(3)
    assert related.abs().max() < 5 / flat.shape[1] ** 0.5


def test_timesteps_and_dropping_are_uniform() -> None:
    made = draws(list(range(4000)), dropout=0.25)
    counts = torch.bincount(made.timesteps // 100, minlength=10)
    assert stats.chisquare(counts.numpy()).pvalue > 0.001
    assert int(made.timesteps.min()) >= 0
    assert int(made.timesteps.max()) < 1000
    assert stats.binomtest(int(made.drop_caption.sum()), 4000, 0.25).pvalue > 0.001
    assert not draws([1, 2, 3], dropout=0.0).drop_caption.any()
    assert draws([1, 2, 3], dropout=1.0).drop_caption.all()
