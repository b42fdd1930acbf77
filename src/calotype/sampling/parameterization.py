"""Scales the network's inputs and converts its outputs to denoised estimates.

Sigma is a float, or a tensor with one value per row, so that rows at different noise levels share one forward
pass.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

PredictionType = Literal["epsilon", "v_prediction", "sample"]
"""The network's training target: the noise, the velocity (arXiv:2202.00512), or the clean latent."""


def scale_input(x: Tensor, sigma: float | Tensor) -> Tensor:
    """Scale x to the unit variance of the network's training inputs: x / sqrt(sigma² + 1)."""
    sigma = _per_row(sigma, x)
    return x / _hypotenuse(sigma)


def to_denoised(prediction: PredictionType, output: Tensor, x: Tensor, sigma: float | Tensor) -> Tensor:
    """The estimate of the clean latent, in the dtype of x, from the network's output for scale_input(x)."""
    sigma = _per_row(sigma, x)
    output = output.to(x.dtype)
    if prediction == "epsilon":
        return x - output * sigma
    if prediction == "v_prediction":
        return x / (sigma * sigma + 1.0) - output * (sigma / _hypotenuse(sigma))
    if prediction == "sample":
        return output
    raise ValueError(f"prediction type {prediction!r} is unknown; use one of {get_args(PredictionType)}")


def _per_row(sigma: float | Tensor, x: Tensor) -> float | Tensor:
    if isinstance(sigma, Tensor):
        return sigma.to(x.dtype).reshape(-1, *(1,) * (x.ndim - 1))
    return sigma


def _hypotenuse(sigma: float | Tensor) -> float | Tensor:
    """sqrt(sigma² + 1)."""
    if isinstance(sigma, Tensor):
        return torch.sqrt(sigma * sigma + 1.0)
    return math.sqrt(sigma * sigma + 1.0)
