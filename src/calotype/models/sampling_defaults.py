"""Sampler, schedule, steps and guidance that a model runs with where a request does not give them.

A diffusers folder names them in `scheduler_config.json`. The configuration that the authors of a base model
publish with it says nothing about how many steps it needs; for those our own defaults hold.
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
    """The values of a request of the same names."""

    steps: int = 20
    cfg: float = 7.5
    sampler: str = "dpmpp_2m"
    schedule: str = "karras"


FEW_STEPS, NO_GUIDANCE = 4, 1.0
"""What models distilled to few steps (Turbo, Lightning, Hyper, LCM) are run with."""

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
"""Those that space timesteps so where the configuration does not say; the others use `linspace`."""
SIGMAS = {"use_karras_sigmas": "karras", "use_exponential_sigmas": "exponential", "use_beta_sigmas": "beta"}
"""Switches of a configuration that replace its timestep spacing → our schedule."""
SPACINGS = ("linspace", "leading", "trailing")
DISTILLED_WITH = ("EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "DDIMScheduler")
"""Classes that mark a model distilled to few steps when they come with `trailing` spacing."""
BETAS = ("beta_start", "beta_end", "beta_schedule", "num_train_timesteps")


def sampling_defaults(architecture: Architecture) -> SamplingDefaults:
    """What the model's scheduler configuration asks for, or our own where it is that of the base model."""
    config = architecture.scheduler
    sampler = _sampler(config)
    if sampler is None or _stated(config) in _published(architecture.family):
        return SamplingDefaults()
    schedule = _schedule(config)
    if is_few_step(config):
        return SamplingDefaults(FEW_STEPS, NO_GUIDANCE, sampler, schedule)
    return SamplingDefaults(sampler=sampler, schedule=schedule)


def is_few_step(config: Mapping[str, Any]) -> bool:
    """Whether a scheduler configuration is one that models distilled to few steps are published with.

    `trailing` alone is not enough: models trained to start from pure noise need it as well, with v-prediction
    or betas rescaled to zero terminal SNR.
    """
    kind = str(config.get("_class_name"))
    if SAMPLERS.get(kind) == "lcm":
        return True
    from_pure_noise = config.get("rescale_betas_zero_snr") or config.get("prediction_type") == "v_prediction"
    return kind in DISTILLED_WITH and _schedule(config) == "trailing" and not from_pure_noise


def ends_at_least_noise(config: Mapping[str, Any]) -> bool:
    """Whether the scheduler stops at the least noise of training instead of at none."""
    if config.get("_class_name") in ("DDIMScheduler", "PNDMScheduler"):
        return config.get("set_alpha_to_one", config["_class_name"] == "DDIMScheduler") is False
    return config.get("final_sigmas_type") == "sigma_min"


def _sampler(config: Mapping[str, Any]) -> str | None:
    sampler = SAMPLERS.get(str(config.get("_class_name")))
    if sampler == "dpmpp_2m":
        return _of_multistep(config)
    return sampler


def _of_multistep(config: Mapping[str, Any]) -> str:
    """One class of diffusers covers several solvers."""
    order = config.get("solver_order", 2)
    if str(config.get("algorithm_type", "")).startswith("sde"):
        return "dpmpp_3m_sde" if order == 3 else "dpmpp_2m_sde"
    return "euler" if order == 1 else "dpmpp_2m"


def _schedule(config: Mapping[str, Any]) -> str:
    for switch, schedule in SIGMAS.items():
        if config.get(switch):
            return schedule
    usual = "leading" if config.get("_class_name") in LEADING_CLASSES else "linspace"
    spacing = config.get("timestep_spacing")
    return spacing if spacing in SPACINGS else usual


def _stated(config: Mapping[str, Any]) -> tuple[object, ...]:
    """What a configuration says about sampling, however it is written."""
    offset, ends = config.get("steps_offset") or 0, ends_at_least_noise(config)
    return (_sampler(config), _schedule(config), offset, ends, *(config.get(name) for name in BETAS))


@cache
def _published(family: str) -> frozenset[tuple[object, ...]]:
    """What the configurations of the base models of a family say."""
    known = (catalogue.architecture(name) for name in catalogue.names())
    return frozenset(_stated(each.scheduler) for each in known if each.family == family)
