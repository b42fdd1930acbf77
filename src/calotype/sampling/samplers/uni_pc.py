"""The `uni_pc` sampler: deterministic predictor-corrector, one evaluation a step."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor

from calotype.sampling.multistep_coefficients import exponential_moments, lagrange_weights
from calotype.sampling.ops import step_to, weighted_sum
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator

Solver = Literal["bh1", "bh2"]
Estimate = tuple[float, Tensor]
"""A noise level and the denoised estimate at it."""


def uni_pc(
    x: Tensor, sigmas: Sequence[float], _noise: NoiseSource, *, order: int = 2, solver: Solver = "bh2"
) -> SamplerGenerator:
    """UniPC on the denoised estimate (Zhao et al. 2023, arXiv:2302.04867, algorithms 1 and 2).

    Each estimate is used twice: to correct the step that led to it, then to predict the next one. `order` is
    the number of estimates that a prediction uses, fewer at both ends of the schedule; `solver` is the
    paper's B(h).
    """
    num_steps = len(sigmas) - 1
    start, history = x, list[Estimate]()
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        if history:
            x = _correct(start, history, (sigma, denoised), solver)
        history = [(sigma, denoised), *history][: min(order, num_steps - step)]
        start, x = x, _predict(x, history, sigma_next, solver)
    return x


def _predict(x: Tensor, history: Sequence[Estimate], sigma_next: float, solver: Solver) -> Tensor:
    """Move x from the latest estimate's level to sigma_next."""
    sigma, denoised = history[0]
    if len(history) == 1:
        return step_to(x, denoised, sigma, sigma_next)
    if len(history) == 2:
        # The paper fixes this weight instead of solving for it; B(h) matters only here and in the first
        # correction.
        length = math.log(sigma / sigma_next)
        earlier_sigma, earlier = history[1]
        weight = _step_function(length, solver) / 2 * length / math.log(earlier_sigma / sigma)
        return step_to(x, denoised, sigma, sigma_next) + (denoised - earlier) * weight
    return _integrate(x, history, sigma, sigma_next)


def _correct(x: Tensor, history: Sequence[Estimate], new: Estimate, solver: Solver) -> Tensor:
    """Repeat the step from x to `new` with the estimate at its end."""
    sigma, denoised = history[0]
    new_sigma, new_denoised = new
    if len(history) == 1:
        weight = _step_function(math.log(sigma / new_sigma), solver) / 2
        return step_to(x, denoised, sigma, new_sigma) + (new_denoised - denoised) * weight
    return _integrate(x, [*history, new], sigma, new_sigma)


def _integrate(x: Tensor, estimates: Sequence[Estimate], sigma: float, sigma_next: float) -> Tensor:
    """Step from sigma to sigma_next with the polynomial in log sigma through the estimates.

    The paper solves a linear system for these weights; B(h) cancels, and the result is the same.
    """
    length = math.log(sigma / sigma_next)
    nodes = [math.log(sigma / level) / length for level, _ in estimates]
    weights = lagrange_weights(nodes, exponential_moments(length, len(nodes)))
    return x * (sigma_next / sigma) + weighted_sum(weights, (denoised for _, denoised in estimates))


def _step_function(length: float, solver: Solver) -> float:
    """The paper's B(h), with the sign that adds to the prediction."""
    return length if solver == "bh1" else -math.expm1(-length)
