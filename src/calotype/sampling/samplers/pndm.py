"""The `pndm` sampler: deterministic, one evaluation a step and one more in the first."""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from calotype.sampling.ops import derivative, weighted_sum
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator

# Adams-Bashforth on equal steps, newest slope first.
_ADAMS_BASHFORTH = (
    (1.0,),
    (3 / 2, -1 / 2),
    (23 / 12, -16 / 12, 5 / 12),
    (55 / 24, -59 / 24, 37 / 24, -9 / 24),
)


def pndm(x: Tensor, sigmas: Sequence[float], _noise: NoiseSource) -> SamplerGenerator:
    """Pseudo linear multistep, Stable Diffusion's first default (Liu et al. 2022, arXiv:2202.09778).

    The paper's F-PNDM, begun as its S-PNDM: the first step is Heun's, and the level it ends on is evaluated a
    second time, so N steps ask N + 1 times. The weights suppose equal steps, whatever the schedule.
    """
    slopes: deque[Tensor] = deque(maxlen=len(_ADAMS_BASHFORTH))
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        slopes.appendleft(derivative(x, denoised, sigma))
        direction = weighted_sum(_ADAMS_BASHFORTH[len(slopes) - 1], slopes)
        if step == 0 and sigma_next > 0:
            end = x + direction * (sigma_next - sigma)
            end_denoised = yield DenoiseQuery(end, sigma_next, step)
            direction = (direction + derivative(end, end_denoised, sigma_next)) / 2
        x = x + direction * (sigma_next - sigma)
    return x
