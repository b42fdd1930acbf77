"""What the network is asked, beside diffusers' answers to the same questions."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import DDPMScheduler
from diffusers.training_utils import compute_snr

from calotype.engine.capabilities import schedule_of
from calotype.sampling import training_schedule
from calotype.spec.recipe_sections import ObjectiveConfig
from calotype.train.loss import Objective
from calotype.train.rng import sample_noise
from tests.engines import small_engine

CPU = torch.device("cpu")
PREDICTIONS = ("epsilon", "v_prediction")


@pytest.fixture(scope="module")
def model() -> Any:
    return small_engine("emoji").model


@pytest.fixture(scope="module")
def theirs(model: Any) -> DDPMScheduler:
    config = model.architecture.scheduler
    names = ("beta_start", "beta_end", "beta_schedule", "num_train_timesteps")
    return DDPMScheduler(**{name: config[name] for name in names if name in config})


def objective(model: Any, prediction: str = "epsilon", **part: Any) -> Objective:
    return Objective(ObjectiveConfig(**part), prediction, schedule_of(model), CPU)


@pytest.fixture(scope="module")
def numbers() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    clean, noise = torch.randn(2, 6, 4, 8, 8, generator=generator)
    return clean, noise, torch.tensor([0, 1, 250, 500, 998, 999])


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_noise_and_targets_are_diffusers(
    model: Any, theirs: DDPMScheduler, numbers: tuple[torch.Tensor, ...], prediction: str
) -> None:
    clean, noise, steps = numbers
    question = objective(model, prediction).ask(clean, noise, steps)
    torch.testing.assert_close(question.noisy, theirs.add_noise(clean, noise, steps), atol=2e-6, rtol=1e-5)
    wanted = noise if prediction == "epsilon" else theirs.get_velocity(clean, noise, steps)
    torch.testing.assert_close(question.target, wanted, atol=2e-6, rtol=1e-5)
    assert torch.equal(question.weights, torch.ones(6))


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_weights_are_min_snr(
    model: Any, theirs: DDPMScheduler, numbers: tuple[torch.Tensor, ...], prediction: str
) -> None:
    clean, noise, steps = numbers
    snr = compute_snr(theirs, steps)
    wanted = torch.minimum(snr, torch.full_like(snr, 5.0)) / (snr if prediction == "epsilon" else snr + 1)
    weights = objective(model, prediction, snr_gamma=5.0).ask(clean, noise, steps).weights
    torch.testing.assert_close(weights, wanted, atol=0, rtol=2e-4)


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("last_sigma", [None, math.inf])
def test_a_last_timestep_without_signal_is_asked_and_judged(
    numbers: tuple[torch.Tensor, ...], prediction: str, last_sigma: float | None
) -> None:
    """Zero terminal SNR of the published models' schedule, as ours rounds it and as it is written."""
    clean, noise, steps = numbers
    sigmas = training_schedule(rescale_betas_zero_snr=True).sigmas
    schedule: Any = SimpleNamespace(sigmas=sigmas if last_sigma is None else (*sigmas[:-1], last_sigma))
    published: dict[str, Any] = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    without = DDPMScheduler(**published, rescale_betas_zero_snr=True)
    part = ObjectiveConfig(snr_gamma=5.0)
    question = Objective(part, prediction, schedule, CPU).ask(clean, noise, steps)
    near: dict[str, Any] = {"rtol": 1e-5, "atol": 2e-6 if last_sigma else 1e-3}
    torch.testing.assert_close(question.noisy, without.add_noise(clean, noise, steps), **near)
    wanted = noise if prediction == "epsilon" else without.get_velocity(clean, noise, steps)
    torch.testing.assert_close(question.target, wanted, **near)
    assert float(question.weights[-1]) == pytest.approx(1.0 if prediction == "epsilon" else 0.0, abs=1e-6)


def test_offset_noise_moves_whole_channels_and_is_asked_for_too(
    model: Any, numbers: tuple[torch.Tensor, ...]
) -> None:
    clean, noise, steps = numbers
    offset = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    shifted = noise + 0.1 * offset[:, :, None, None]
    asked = objective(model, offset_noise=0.1).ask(clean, noise, steps, offset)
    plain = objective(model).ask(clean, shifted, steps)
    torch.testing.assert_close(asked.target, plain.target, atol=0, rtol=0)
    torch.testing.assert_close(asked.noisy, plain.noisy, atol=0, rtol=0)
    assert objective(model, offset_noise=0.1).wants_offset
    assert not objective(model).wants_offset


def test_the_loss_is_the_mean_of_each_samples_weighted_error(
    model: Any, numbers: tuple[torch.Tensor, ...]
) -> None:
    judge = objective(model, snr_gamma=5.0)
    question = judge.ask(*numbers)
    answer = torch.zeros_like(question.target)
    wanted = sum(
        float(weight) * float(target.square().mean())
        for weight, target in zip(question.weights, question.target, strict=True)
    )
    assert float(judge.loss(answer, question)) == pytest.approx(wanted / 6, rel=1e-5)


def drawn(positions: list[int], seed: int = 0, dropout: float = 0.1) -> Any:
    return sample_noise(seed, positions, (4, 2, 2), num_timesteps=1000, caption_dropout=dropout, device=CPU)


def test_a_samples_draws_are_its_own_whoever_makes_them() -> None:
    together = drawn([4, 5, 6, 7])
    for row, position in enumerate([4, 5, 6, 7]):
        alone = drawn([position])
        for name in ("noise", "posterior", "offset", "timesteps", "drop_caption"):
            assert torch.equal(getattr(alone, name)[0], getattr(together, name)[row])


def test_seeds_and_positions_draw_differently() -> None:
    kinds = [drawn([0]), drawn([1]), drawn([0], seed=1), drawn([1], seed=1)]
    assert len({tuple(each.noise.flatten().tolist()) for each in kinds}) == 4
    assert not torch.equal(kinds[0].noise, kinds[0].posterior)


def test_draws_have_the_shares_they_should() -> None:
    many = drawn(list(range(4000)), dropout=0.25)
    # Five deviations of the share of 4000 tosses.
    assert float(many.drop_caption.float().mean()) == pytest.approx(0.25, abs=0.035)
    assert float(many.noise.mean()) == pytest.approx(0, abs=0.02)
    assert float(many.noise.std()) == pytest.approx(1, abs=0.02)
    assert float(many.timesteps.float().mean()) == pytest.approx(499.5, abs=23)
    assert 0 <= int(many.timesteps.min()) < 5
    assert 995 <= int(many.timesteps.max()) <= 999
    assert not drawn([0, 1, 2], dropout=0.0).drop_caption.any()
    assert drawn([0, 1, 2], dropout=1.0).drop_caption.all()
