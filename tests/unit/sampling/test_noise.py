"""One image is one seed: its noise depends on nothing else."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calotype.sampling.noise import NoiseStream, add_scaled_noise, starts_from_pure_noise

SHAPE = (4, 8, 8)
SEEDS = [7, 0, 2**64 - 1, 123_456_789_012, 8]
seeds = st.integers(min_value=0, max_value=2**64 - 1)


def draws(stream: NoiseStream, count: int = 3) -> torch.Tensor:
    """The initial draw and `count` further ones, as (draw, image, …)."""
    return torch.stack([stream.initial(), *(stream.next() for _ in range(count))])


def test_an_image_has_the_same_noise_in_any_batch() -> None:
    together = draws(NoiseStream(SEEDS, SHAPE))
    backwards = draws(NoiseStream(SEEDS[::-1], SHAPE)).flip(1)
    alone = torch.cat([draws(NoiseStream([seed], SHAPE)) for seed in SEEDS], dim=1)
    assert torch.equal(together, alone)
    assert torch.equal(together, backwards)


@settings(max_examples=30, deadline=None)
@given(st.lists(seeds, min_size=2, max_size=6), st.data())
def test_a_batch_may_be_split_anywhere(batch: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(min_value=1, max_value=len(batch) - 1))
    # 3 × 5 elements: torch fills fewer than 16 by another route, which must not matter either.
    whole = draws(NoiseStream(batch, (3, 5)))
    parts = [draws(NoiseStream(part, (3, 5))) for part in (batch[:cut], batch[cut:])]
    assert torch.equal(whole, torch.cat(parts, dim=1))


def test_it_is_the_noise_a_plain_torch_generator_gives() -> None:
    """The independent reference is torch.randn with a seeded CPU generator, as other programs call it."""
    expected = torch.randn((1, *SHAPE), generator=torch.Generator().manual_seed(42))
    assert torch.equal(NoiseStream([42], SHAPE).initial(), expected)


def test_draws_are_standard_normal_float32_and_differ() -> None:
    first, second = draws(NoiseStream([1, 2], (4, 64, 64)), count=1)
    assert first.dtype == torch.float32
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert abs(float(first.mean())) < 0.02
    assert abs(float(first.std()) - 1.0) < 0.02


def test_sampler_noise_is_the_same_whether_or_not_the_initial_noise_was_taken() -> None:
    used, unused = NoiseStream([5], SHAPE), NoiseStream([5], SHAPE)
    used.initial()
    assert torch.equal(used.next(), unused.next())


def test_initial_noise_is_taken_once_and_first() -> None:
    stream = NoiseStream([5], SHAPE)
    stream.next()
    with pytest.raises(ValueError, match="already drawn"):
        stream.initial()


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**63, 2**64 - 1])
def test_any_unsigned_64_bit_seed_works(seed: int) -> None:
    assert torch.isfinite(NoiseStream([seed], SHAPE).initial()).all()


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_other_seeds_are_refused_with_the_value_and_the_limit(seed: int) -> None:
    with pytest.raises(ValueError, match=rf"seed {seed} is outside 0\.\.{2**64 - 1}"):
        NoiseStream([seed], SHAPE)


def test_no_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one seed"):
        NoiseStream([], SHAPE)


def test_torch_reads_the_low_32_bits_of_a_seed() -> None:
    """A fact of torch that the class documents. If this fails, saved seeds no longer make their pictures."""
    assert torch.equal(NoiseStream([9], SHAPE).initial(), NoiseStream([9 + 2**32], SHAPE).initial())


def test_starting_points_have_the_variance_of_noised_latents() -> None:
    noise = NoiseStream([3], (4, 64, 64)).initial()
    clean = NoiseStream([4], (4, 64, 64)).initial()
    sigma = 2.0
    expected = math.sqrt(sigma**2 + 1.0)
    assert float(starts_from_pure_noise(noise, sigma).std()) == pytest.approx(expected, rel=0.02)
    assert float(add_scaled_noise(clean, noise, sigma).std()) == pytest.approx(expected, rel=0.02)
