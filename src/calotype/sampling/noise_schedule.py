"""Computes the noise levels that a model was trained on, and converts between noise levels and timesteps.

Everything is host-side float64: 1000 numbers computed once per model. Argument names are those of a diffusers
scheduler configuration.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Literal, get_args

BetaSchedule = Literal["linear", "scaled_linear", "squaredcos_cap_v2"]

# Without any signal the last sigma would be infinite. This is the smallest positive half-precision number,
# which other programs use too for models trained with zero terminal SNR.
_MIN_SIGNAL_VARIANCE = 2.0**-24
_MAX_TIMESTEPS = 100_000


@dataclass(frozen=True)
class TrainingSchedule:
    """The sigmas of training timesteps 0, 1, …, strictly ascending."""

    sigmas: tuple[float, ...]
    """Ratio of noise deviation to signal amplitude, per timestep."""
    steps_offset: int = 0
    """Offset of the timesteps in the `leading` spacing of the model's scheduler."""
    final_sigma: float = 0.0
    """End of the scheduler's own spacings: 0, or the smallest training sigma."""

    def __post_init__(self) -> None:
        ascending = all(low < high for low, high in zip(self.sigmas, self.sigmas[1:], strict=False))
        if len(self.sigmas) < 2 or not ascending or not 0.0 < self.sigmas[0] < self.sigmas[-1] < math.inf:
            raise ValueError(
                f"training sigmas must be two or more, positive, finite and strictly ascending, got "
                f"{len(self.sigmas)}: {self.sigmas[:3]} … {self.sigmas[-3:]}; check the betas"
            )

    @property
    def sigma_min(self) -> float:
        """The smallest training sigma."""
        return self.sigmas[0]

    @property
    def sigma_max(self) -> float:
        """The largest training sigma."""
        return self.sigmas[-1]

    @cached_property
    def _log_sigmas(self) -> tuple[float, ...]:
        return tuple(math.log(sigma) for sigma in self.sigmas)

    def sigma_to_timestep(self, sigma: float) -> float:
        """The fractional timestep of a noise level, linear in log sigma, clamped at the ends."""
        if sigma <= self.sigma_min:
            return 0.0
        if sigma >= self.sigma_max:
            return float(len(self.sigmas) - 1)
        low = bisect_right(self.sigmas, sigma) - 1
        below, above = self._log_sigmas[low], self._log_sigmas[low + 1]
        return low + (math.log(sigma) - below) / (above - below)

    def timestep_to_sigma(self, timestep: float) -> float:
        """The noise level of a timestep, which may be fractional, clamped at the ends."""
        timestep = min(max(timestep, 0.0), len(self.sigmas) - 1.0)
        low = math.floor(timestep)
        fraction = timestep - low
        if fraction == 0.0:
            return self.sigmas[low]
        return math.exp((1.0 - fraction) * self._log_sigmas[low] + fraction * self._log_sigmas[low + 1])


def training_schedule(
    beta_schedule: BetaSchedule = "scaled_linear",
    beta_start: float = 0.00085,
    beta_end: float = 0.012,
    num_train_timesteps: int = 1000,
    rescale_betas_zero_snr: bool = False,
    *,
    steps_offset: int = 0,
    ends_at_least_noise: bool = False,
) -> TrainingSchedule:
    """Build a model's schedule from its configuration. Defaults are those of Stable Diffusion 1, 2 and XL."""
    if not 2 <= num_train_timesteps <= _MAX_TIMESTEPS:
        raise ValueError(f"num_train_timesteps is {num_train_timesteps}, not from 2 to {_MAX_TIMESTEPS}")
    betas = _betas(beta_schedule, beta_start, beta_end, num_train_timesteps)
    if not all(0.0 < beta < 1.0 for beta in betas):
        raise ValueError(f"betas lie between 0 and 1, not from {beta_start} to {beta_end}")
    signal_variances = list(accumulate((1.0 - beta for beta in betas), mul))
    if rescale_betas_zero_snr:
        signal_variances = _without_final_signal(signal_variances)
    if not 0 <= steps_offset < num_train_timesteps:
        raise ValueError(f"steps_offset is {steps_offset}, not from 0 to {num_train_timesteps - 1}")
    sigmas = tuple(math.sqrt((1.0 - a) / a) for a in signal_variances)
    return TrainingSchedule(sigmas, steps_offset, sigmas[0] if ends_at_least_noise else 0.0)


def _betas(schedule: BetaSchedule, start: float, end: float, count: int) -> list[float]:
    fractions = [index / (count - 1) for index in range(count)]
    if schedule == "linear":
        return [start + (end - start) * fraction for fraction in fractions]
    if schedule == "scaled_linear":
        root, last_root = math.sqrt(start), math.sqrt(end)
        return [(root + (last_root - root) * fraction) ** 2 for fraction in fractions]
    if schedule == "squaredcos_cap_v2":
        edges = [_cosine_signal_variance(index / count) for index in range(count + 1)]
        return [min(1.0 - edges[i + 1] / edges[i], 0.999) for i in range(count)]
    raise ValueError(f"beta schedule {schedule!r} is unknown; use one of {get_args(BetaSchedule)}")


def _cosine_signal_variance(time: float) -> float:
    """Nichol and Dhariwal 2021, arXiv:2102.09672, equation 17."""
    return math.cos((time + 0.008) / 1.008 * math.pi / 2.0) ** 2


def _without_final_signal(signal_variances: Sequence[float]) -> list[float]:
    """Shift and scale signal amplitudes so that the last is 0 (Lin et al. 2023, arXiv:2305.08891)."""
    amplitudes = [math.sqrt(variance) for variance in signal_variances]
    first, last = amplitudes[0], amplitudes[-1]
    rescaled = [((amplitude - last) * first / (first - last)) ** 2 for amplitude in amplitudes]
    # In a steep schedule the second-to-last value may already be smaller than the minimum.
    least = _MIN_SIGNAL_VARIANCE if rescaled[-2] > _MIN_SIGNAL_VARIANCE else rescaled[-2] / 4
    return [*rescaled[:-1], least]
