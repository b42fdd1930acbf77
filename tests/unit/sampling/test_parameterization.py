"""From what the network says to the denoised estimate."""

import math
from typing import Any

import pytest
import torch

from calotype.sampling.parameterization import PredictionType, scale_input, to_denoised

SIGMAS = [0.03, 0.5, 1.0, 14.6, 4096.0]


def consistent_outputs(sigma: float) -> tuple[torch.Tensor, torch.Tensor, dict[PredictionType, torch.Tensor]]:
    """A clean latent, its noised version, and what a perfect network of each kind says of it.

    As in the papers, variance-preserving: x_vp = cos·clean + sin·noise, v = cos·noise − sin·clean.
    """
    generator = torch.Generator().manual_seed(1)
    clean, noise = torch.randn(2, 3, 4, 8, 8, generator=generator, dtype=torch.float64)
    angle = math.atan(sigma)
    velocity = math.cos(angle) * noise - math.sin(angle) * clean
    return clean, clean + sigma * noise, {"epsilon": noise, "v_prediction": velocity, "sample": clean}


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_every_kind_of_prediction_gives_the_same_denoised(prediction: PredictionType, sigma: float) -> None:
    clean, x, outputs = consistent_outputs(sigma)
    torch.testing.assert_close(
        to_denoised(prediction, outputs[prediction], x, sigma), clean, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("sigma", SIGMAS)
def test_scaled_input_is_the_variance_preserving_latent(sigma: float) -> None:
    clean, x, outputs = consistent_outputs(sigma)
    angle = math.atan(sigma)
    expected = math.cos(angle) * clean + math.sin(angle) * outputs["epsilon"]
    torch.testing.assert_close(scale_input(x, sigma), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_rows_at_different_levels_share_one_call(prediction: PredictionType) -> None:
    x, output = torch.randn(2, len(SIGMAS), 4, 8, 8, generator=torch.Generator().manual_seed(2))
    levels = torch.tensor(SIGMAS)
    together = to_denoised(prediction, output, x, levels)
    scaled = scale_input(x, levels)
    for row, sigma in enumerate(SIGMAS):
        one = slice(row, row + 1)
        torch.testing.assert_close(together[one], to_denoised(prediction, output[one], x[one], sigma))
        torch.testing.assert_close(scaled[one], scale_input(x[one], sigma))


def test_half_precision_output_is_lifted_to_the_dtype_of_the_latent() -> None:
    x = torch.ones(1, 4, 2, 2)
    denoised = to_denoised("epsilon", torch.ones(1, 4, 2, 2, dtype=torch.float16), x, 14.6)
    assert denoised.dtype == torch.float32
    torch.testing.assert_close(denoised, torch.full_like(x, 1.0 - 14.6))


def test_an_unknown_prediction_is_named_with_the_known_ones() -> None:
    prediction: Any = "flow"
    with pytest.raises(ValueError, match=r"'flow' is unknown; use one of \('epsilon'"):
        to_denoised(prediction, torch.ones(1), torch.ones(1), 1.0)
