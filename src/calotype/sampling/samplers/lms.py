"""The `lms` sampler: deterministic, fourth order with enough history, one evaluation a step."""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from calotype.sampling.multistep_coefficients import lagrange_weights, uniform_moments
from calotype.sampling.ops import derivative, weighted_sum
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator


def lms(x: Tensor, sigmas: Sequence[float], _noise: NoiseSource, *, order: int = 4) -> SamplerGenerator:
    """Linear multistep: Adams-Bashforth on unequal steps in sigma (Hairer, Nørsett and Wanner 1993, III.5).

    `order` is the number of derivatives that a polynomial fits; the first steps have fewer.
    """
    derivatives: deque[Tensor] = deque(maxlen=order)
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        derivatives.appendleft(derivative(x, denoised, sigma))
        length = sigma_next - sigma
        # Measured from this point in units of this step, so that the polynomial's coefficients stay near one.
        nodes = [(sigmas[step - back] - sigma) / length for back in range(len(derivatives))]
        weights = lagrange_weights(nodes, uniform_moments(len(nodes)))
        x = x + weighted_sum((weight * length for weight in weights), derivatives)
    return x
