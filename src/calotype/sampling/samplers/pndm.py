"""The `pndm` sampler: deterministic, one evaluation a step and one more in the first."""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from calotype.sampling.ops import derivative, weighted_sum
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator

# Adams-Bashforth on equal steps, newest derivative first.
_ADAMS_BASHFORTH = (
    (1.0,),
    (3 / 2, -1 / 2),
    (23 / 12, -16 / 12, 5 / 12),
    (55 / 24, -59 / 24, 37 / 24, -9 / 24),
)


def pndm(x: Tensor, sigmas: Sequence[float], _noise: NoiseSource) -> SamplerGenerator:
    """Pseudo linear multistep, Stable Diffusion's first default (Liu et al. 2022, arXiv:2202.09778).

    It is the paper's F-PNDM, started as its S-PNDM: the first step is Heun's, and its end level is evaluated
    a second time, so N steps take N + 1 evaluations. The weights assume equal steps, whatever the schedule.
    """
    derivatives: deque[Tensor] = deque(maxlen=len(_ADAMS_BASHFORTH))
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        derivatives.appendleft(derivative(x, denoised, sigma))
        direction = weighted_sum(_ADAMS_BASHFORTH[len(derivatives) - 1], derivatives)
        if step == 0 and sigma_next > 0:
            end = x + direction * (sigma_next - sigma)
            end_denoised = yield DenoiseQuery(end, sigma_next, step)
            direction = (direction + derivative(end, end_denoised, sigma_next)) / 2
        x = x + direction * (sigma_next - sigma)
    return x
