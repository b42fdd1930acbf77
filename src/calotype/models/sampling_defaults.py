"""Derives a model's default sampler, schedule, steps and guidance from its scheduler configuration.

A diffusers folder has it in `scheduler_config.json`. The configuration that the authors of a base model
publish does not say how many steps the model needs; base models get Calotype's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from calotype.models import catalogue
from calotype.models.architecture import Architecture


@dataclass(frozen=True)
class SamplingDefaults:
    """Defaults for the request fields of the same names."""

    steps: int = 20
    cfg: float = 7.5
    sampler: str = "dpmpp_2m"
    schedule: str = "karras"


FEW_STEPS, NO_GUIDANCE = 4, 1.0
"""Settings of models distilled to few steps (Turbo, Lightning, Hyper, LCM)."""

SAMPLERS = {
    "DDIMScheduler": "ddim",
    "DDPMScheduler": "ddpm",
    "PNDMScheduler": "pndm",
    "EulerDiscreteScheduler": "euler",
    "EulerAncestralDiscreteScheduler": "euler_ancestral",
    "HeunDiscreteScheduler": "heun",
    "KDPM2DiscreteScheduler": "dpm_2",
    "KDPM2AncestralDiscreteScheduler": "dpm_2_ancestral",
    "LMSDiscreteScheduler": "lms",
    "DPMSolverMultistepScheduler": "dpmpp_2m",
    "DPMSolverSDEScheduler": "dpmpp_sde",
    "UniPCMultistepScheduler": "uni_pc",
    "LCMScheduler": "lcm",
    "TCDScheduler": "lcm",
}
"""Class of a diffusers scheduler → our sampler."""
LEADING_CLASSES = ("DDIMScheduler", "DDPMScheduler", "PNDMScheduler", "LCMScheduler", "TCDScheduler")
"""Classes whose default timestep spacing is `leading`; the others use `linspace`."""
SIGMAS = {"use_karras_sigmas": "karras", "use_exponential_sigmas": "exponential", "use_beta_sigmas": "beta"}
"""Configuration switches that replace the timestep spacing → our schedule."""
SPACINGS = ("linspace", "leading", "trailing")
DISTILLED_WITH = ("EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "DDIMScheduler")
"""Classes that mark a model distilled to few steps when they come with `trailing` spacing."""
BETAS = ("beta_start", "beta_end", "beta_schedule", "num_train_timesteps")


def sampling_defaults(architecture: Architecture) -> SamplingDefaults:
    """The defaults of the model's scheduler configuration, or Calotype's if it equals a base model's."""
    config = architecture.scheduler
    sampler = _sampler(config)
    if sampler is None or _signature(config) in _base_signatures(architecture.family):
        return SamplingDefaults()
    schedule = _schedule(config)
    if is_few_step(config):
        return SamplingDefaults(FEW_STEPS, NO_GUIDANCE, sampler, schedule)
    return SamplingDefaults(sampler=sampler, schedule=schedule)


def is_few_step(config: Mapping[str, Any]) -> bool:
    """Whether a scheduler configuration is typical of models distilled to few steps.

    `trailing` alone is not enough: models trained to start from pure noise use it too, with v-prediction
    or betas rescaled to zero terminal SNR.
    """
    kind = str(config.get("_class_name"))
    if SAMPLERS.get(kind) == "lcm":
        return True
    from_pure_noise = config.get("rescale_betas_zero_snr") or config.get("prediction_type") == "v_prediction"
    return kind in DISTILLED_WITH and _schedule(config) == "trailing" and not from_pure_noise


def ends_at_least_noise(config: Mapping[str, Any]) -> bool:
    """Whether the scheduler ends at the smallest training sigma instead of at zero."""
    if config.get("_class_name") in ("DDIMScheduler", "PNDMScheduler"):
        return config.get("set_alpha_to_one", config["_class_name"] == "DDIMScheduler") is False
    return config.get("final_sigmas_type") == "sigma_min"


def _sampler(config: Mapping[str, Any]) -> str | None:
    sampler = SAMPLERS.get(str(config.get("_class_name")))
    if sampler == "dpmpp_2m":
        return _multistep_sampler(config)
    return sampler


def _multistep_sampler(config: Mapping[str, Any]) -> str:
    """One class of diffusers covers several solvers."""
    order = config.get("solver_order", 2)
    if str(config.get("algorithm_type", "")).startswith("sde"):
        return "dpmpp_3m_sde" if order == 3 else "dpmpp_2m_sde"
    return "euler" if order == 1 else "dpmpp_2m"


def _schedule(config: Mapping[str, Any]) -> str:
    for switch, schedule in SIGMAS.items():
        if config.get(switch):
            return schedule
    default = "leading" if config.get("_class_name") in LEADING_CLASSES else "linspace"
    spacing = config.get("timestep_spacing")
    return spacing if spacing in SPACINGS else default


def _signature(config: Mapping[str, Any]) -> tuple[object, ...]:
    """The sampling settings of a configuration in a comparable form, independent of how it is written."""
    offset, ends = config.get("steps_offset") or 0, ends_at_least_noise(config)
    return (_sampler(config), _schedule(config), offset, ends, *(config.get(name) for name in BETAS))


@cache
def _base_signatures(family: str) -> frozenset[tuple[object, ...]]:
    """The signatures of the base models of a family."""
    base_models = (catalogue.architecture(name) for name in catalogue.names())
    return frozenset(_signature(model.scheduler) for model in base_models if model.family == family)
