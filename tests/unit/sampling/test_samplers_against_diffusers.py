"""Samplers against the diffusers scheduler of the same algorithm, evaluation by evaluation.

Both sides get the same network, noise levels and noise. Every latent they ask the network about is compared,
and the last one. Where diffusers keeps its arithmetic in float32 the tolerance is 1e-5 of the latent's size;
elsewhere its constants are lifted to float64, and so is the comparison.
"""

import importlib
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import diffusers
import numpy as np
import pytest
import scipy.integrate
import torch
from torch import Tensor

from calotype.sampling.api import begin
from tests.unit.sampling.network import Trajectory, predict_noise, record

STABLE_DIFFUSION = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
SHAPE = (2, 4, 6, 6)
SINGLE, DOUBLE = 1e-5, 1e-9


def standard_noise(seed: int) -> Iterator[Tensor]:
    """An endless stream of noise that two sides can read alike."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(SHAPE, generator=generator, dtype=torch.float64)


def start(sigma: float) -> Tensor:
    return next(standard_noise(0)) * math.sqrt(sigma**2 + 1.0)


def lift_to_double(scheduler: Any) -> None:
    """Replace a scheduler's float32 constants by the same numbers in float64."""
    for name in (
        "alphas_cumprod",
        "final_alpha_cumprod",
        "sigmas",
        "sigmas_interpol",
        "sigmas_up",
        "sigmas_down",
    ):
        if isinstance(getattr(scheduler, name, None), Tensor):
            setattr(scheduler, name, getattr(scheduler, name).double())


def share_noise(monkeypatch: pytest.MonkeyPatch, scheduler: Any, seed: int = 5) -> Callable[[], Tensor]:
    """Make the scheduler draw from one stream, and return the source of an equal one."""
    theirs, ours = standard_noise(seed), standard_noise(seed)
    monkeypatch.setattr(
        sys.modules[type(scheduler).__module__], "randn_tensor", lambda *_, **__: next(theirs)
    )
    return lambda: next(ours)


def exploding_sigmas(scheduler: Any) -> tuple[float, ...]:
    """The levels of a scheduler that has sigmas; those that evaluate twice list them twice."""
    return tuple(sorted({float(sigma) for sigma in scheduler.sigmas}, reverse=True))


def preserving_sigmas(scheduler: Any, final_signal_variance: float) -> tuple[float, ...]:
    """The levels of a scheduler that has only timesteps."""
    timesteps = sorted({int(timestep) for timestep in scheduler.timesteps}, reverse=True)
    variances = [
        *(float(scheduler.alphas_cumprod[timestep]) for timestep in timesteps),
        final_signal_variance,
    ]
    return tuple(math.sqrt((1.0 - variance) / variance) for variance in variances)


def run_exploding(scheduler: Any, sigmas: list[float], **step_options: Any) -> list[Tensor]:
    """Drive a scheduler whose latents are clean + sigma * noise."""
    sample = start(sigmas[0])
    states = [sample]
    for timestep, sigma in zip(scheduler.timesteps, sigmas[:-1], strict=True):
        output = predict_noise(scheduler.scale_model_input(sample, timestep), sigma)
        sample = scheduler.step(output, timestep, sample, **step_options).prev_sample
        states.append(sample)
    return states


def run_preserving(scheduler: Any, sigmas: list[float], **step_options: Any) -> list[Tensor]:
    """Drive a scheduler whose latents have unit variance, and report them as clean + sigma * noise."""
    sample = start(sigmas[0]) / math.sqrt(sigmas[0] ** 2 + 1.0)
    states = [start(sigmas[0])]
    for timestep, sigma, sigma_next in zip(scheduler.timesteps, sigmas[:-1], sigmas[1:], strict=True):
        sample = scheduler.step(predict_noise(sample, sigma), timestep, sample, **step_options).prev_sample
        states.append(sample * math.sqrt(sigma_next**2 + 1.0))
    return states


def assert_same(ours: Trajectory, theirs: list[Tensor], tolerance: float) -> None:
    assert len(ours.states) == len(theirs)
    for index, (own, other) in enumerate(zip(ours.states, theirs, strict=True)):
        error = float((own - other).abs().max() / own.abs().max())
        assert error < tolerance, (
            f"evaluation {index} at sigma {ours.sigmas[index]}: relative error {error:.1e}"
        )


DETERMINISTIC_IN_SIGMA = [
    ("euler", "EulerDiscreteScheduler", SINGLE),
    ("heun", "HeunDiscreteScheduler", DOUBLE),
    ("dpm_2", "KDPM2DiscreteScheduler", SINGLE),
    ("lms", "LMSDiscreteScheduler", DOUBLE),
]


# numpy 2 warns of torch tensors that the KDPM2 schedulers hand to it; that is theirs to mend.
knows_old_numpy = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")


@knows_old_numpy
@pytest.mark.parametrize("karras", [False, True])
@pytest.mark.parametrize(("sampler", "reference", "tolerance"), DETERMINISTIC_IN_SIGMA)
def test_deterministic_samplers_in_sigma(
    sampler: str, reference: str, tolerance: float, karras: bool
) -> None:
    """References: Euler, Heun, KDPM2 and LMS discrete schedulers.

    Euler casts latents to float32, and KDPM2 prepares its midpoints in float32.
    """
    scheduler = getattr(diffusers, reference)(**STABLE_DIFFUSION, use_karras_sigmas=karras)
    scheduler.set_timesteps(9)
    lift_to_double(scheduler)
    sigmas = exploding_sigmas(scheduler)
    ours = record(sampler, start(sigmas[0]), sigmas)
    assert_same(ours, run_exploding(scheduler, ours.sigmas), tolerance)


@knows_old_numpy
@pytest.mark.parametrize(
    ("sampler", "reference"),
    [
        ("euler_ancestral", "EulerAncestralDiscreteScheduler"),
        ("dpm_2_ancestral", "KDPM2AncestralDiscreteScheduler"),
    ],
)
def test_ancestral_samplers_in_sigma(sampler: str, reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """References: EulerAncestral and KDPM2Ancestral discrete schedulers, with our noise."""
    scheduler = getattr(diffusers, reference)(**STABLE_DIFFUSION)
    scheduler.set_timesteps(9)
    lift_to_double(scheduler)
    sigmas = exploding_sigmas(scheduler)
    noise = share_noise(monkeypatch, scheduler)
    ours = record(sampler, start(sigmas[0]), sigmas, noise)
    assert_same(ours, run_exploding(scheduler, ours.sigmas), SINGLE)


def test_dpmpp_sde(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reference: DPMSolverSDEScheduler, given increments of a Brownian path that is built here.

    torchsde, which makes such paths for it, is not needed for that, and stands here as an empty module.
    """
    monkeypatch.setitem(sys.modules, "torchsde", types.ModuleType("torchsde"))
    module = importlib.import_module("diffusers.schedulers.scheduling_dpmsolver_sde")
    scheduler = module.DPMSolverSDEScheduler(**STABLE_DIFFUSION)
    scheduler.set_timesteps(9)
    lift_to_double(scheduler)
    sigmas = exploding_sigmas(scheduler)
    theirs, ours_noise = standard_noise(5), standard_noise(5)
    position = {sigmas[0]: torch.zeros(SHAPE, dtype=torch.float64)}

    def unit_increment(sigma: Tensor, sigma_to: Tensor) -> Tensor:
        # A path in sigma: each new point is the lowest known one plus an independent increment.
        lowest = min(position)
        position[float(sigma_to)] = position[lowest] + math.sqrt(lowest - float(sigma_to)) * next(theirs)
        nearest = min(position, key=lambda point: abs(point - float(sigma)))
        return (position[float(sigma_to)] - position[nearest]) / math.sqrt(float(sigma) - float(sigma_to))

    scheduler.noise_sampler = unit_increment
    ours = record("dpmpp_sde", start(sigmas[0]), sigmas, lambda: next(ours_noise))
    assert_same(ours, run_exploding(scheduler, ours.sigmas), DOUBLE)


@pytest.mark.parametrize("set_alpha_to_one", [True, False])
@pytest.mark.parametrize("eta", [0.0, 0.6, 1.0])
def test_ddim(eta: float, set_alpha_to_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reference: DDIMScheduler. Without set_alpha_to_one the schedule ends above sigma 0."""
    scheduler = diffusers.DDIMScheduler(
        **STABLE_DIFFUSION, clip_sample=False, set_alpha_to_one=set_alpha_to_one, steps_offset=1
    )
    scheduler.set_timesteps(10)
    lift_to_double(scheduler)
    sigmas = preserving_sigmas(scheduler, float(scheduler.final_alpha_cumprod))
    assert (sigmas[-1] == 0.0) == set_alpha_to_one
    noise = share_noise(monkeypatch, scheduler)
    ours = record("ddim", start(sigmas[0]), sigmas, noise, eta=eta)
    assert_same(ours, run_preserving(scheduler, ours.sigmas, eta=eta), DOUBLE)


def test_ddpm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reference: DDPMScheduler with its small fixed variance."""
    scheduler = diffusers.DDPMScheduler(**STABLE_DIFFUSION, clip_sample=False, variance_type="fixed_small")
    scheduler.set_timesteps(10)
    lift_to_double(scheduler)
    sigmas = preserving_sigmas(scheduler, 1.0)
    noise = share_noise(monkeypatch, scheduler)
    ours = record("ddpm", start(sigmas[0]), sigmas, noise)
    assert_same(ours, run_preserving(scheduler, ours.sigmas), DOUBLE)


@pytest.mark.parametrize("set_alpha_to_one", [True, False])
def test_pndm(set_alpha_to_one: bool) -> None:
    """Reference: PNDMScheduler as Stable Diffusion configures it, which skips the Runge-Kutta steps."""
    scheduler = diffusers.PNDMScheduler(
        **STABLE_DIFFUSION, skip_prk_steps=True, set_alpha_to_one=set_alpha_to_one, steps_offset=1
    )
    scheduler.set_timesteps(10)
    lift_to_double(scheduler)
    sigmas = preserving_sigmas(scheduler, float(scheduler.final_alpha_cumprod))
    ours = record("pndm", start(sigmas[0]), sigmas)
    assert len(ours.states) == 12
    assert_same(ours, run_preserving(scheduler, ours.sigmas), DOUBLE)


def test_lcm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reference: LCMScheduler, with its boundary scaling stretched to nothing, as ours has none."""
    scheduler = diffusers.LCMScheduler(**STABLE_DIFFUSION, timestep_scaling=1e12)
    scheduler.set_timesteps(5)
    lift_to_double(scheduler)
    sigmas = preserving_sigmas(scheduler, 1.0)
    noise = share_noise(monkeypatch, scheduler)
    ours = record("lcm", start(sigmas[0]), sigmas, noise)
    assert_same(ours, run_preserving(scheduler, ours.sigmas), DOUBLE)


@pytest.mark.parametrize("final_sigmas_type", ["zero", "sigma_min"])
@pytest.mark.parametrize(
    ("sampler", "options", "config"),
    [
        ("dpmpp_2m", {}, {"solver_order": 2, "solver_type": "midpoint"}),
        (
            "dpmpp_2m_sde",
            {},
            {"solver_order": 2, "solver_type": "midpoint", "algorithm_type": "sde-dpmsolver++"},
        ),
        ("dpmpp_3m_sde", {"eta": 0.0}, {"solver_order": 3, "solver_type": "heun"}),
    ],
)
def test_multistep_dpm_solvers(
    sampler: str,
    options: dict[str, Any],
    config: dict[str, Any],
    final_sigmas_type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reference: DPMSolverMultistepScheduler; at 16 steps it does not lower the order of the last ones.

    Third order is compared without noise, since its form for the SDE has a sign wrong in diffusers 0.42: the
    second difference's coefficient tends to −1 with small steps, where it should vanish.
    """
    scheduler = diffusers.DPMSolverMultistepScheduler(
        **STABLE_DIFFUSION, **config, final_sigmas_type=final_sigmas_type
    )
    scheduler.set_timesteps(16)
    lift_to_double(scheduler)
    sigmas = exploding_sigmas(scheduler)
    noise = share_noise(monkeypatch, scheduler)
    ours = record(sampler, start(sigmas[0]), sigmas, noise, **options)
    assert_same(ours, run_preserving(scheduler, ours.sigmas), SINGLE)


def test_dpmpp_3m_sde_with_noise_while_it_has_two_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reference: the first two steps of DPMSolverMultistepScheduler, third order, for the SDE."""
    scheduler = diffusers.DPMSolverMultistepScheduler(
        **STABLE_DIFFUSION, solver_order=3, solver_type="heun", algorithm_type="sde-dpmsolver++"
    )
    scheduler.set_timesteps(16)
    lift_to_double(scheduler)
    sigmas = exploding_sigmas(scheduler)
    noise = share_noise(monkeypatch, scheduler)
    ours = record("dpmpp_3m_sde", start(sigmas[0]), sigmas, noise)
    theirs = run_preserving(scheduler, ours.sigmas)
    assert_same(Trajectory(ours.states[:3], ours.sigmas[:3]), theirs[:3], SINGLE)


@pytest.mark.parametrize("eta", [0.5, 1.0])
def test_dpmpp_3m_sde_with_three_estimates(eta: float) -> None:
    """Reference: scipy's integral over the parabola through the estimates, its curvature halved."""
    sigmas, estimates, x = (8.0, 5.0, 2.5, 1.0), (0.3, -0.4, 0.5), 2.0
    run = begin(
        "dpmpp_3m_sde", torch.tensor([x], dtype=torch.float64), sigmas, lambda: torch.zeros(1), eta=eta
    )
    next(run)
    run.send(torch.tensor([estimates[0]], dtype=torch.float64))
    before = run.send(torch.tensor([estimates[1]], dtype=torch.float64)).x
    with pytest.raises(StopIteration) as finished:
        run.send(torch.tensor([estimates[2]], dtype=torch.float64))

    length = math.log(sigmas[2] / sigmas[3])
    curvature, gradient, constant = np.polyfit(
        [math.log(sigmas[2] / s) / length for s in sigmas[:3]], estimates, 2
    )
    rate = (1.0 + eta) * length
    integral, _ = scipy.integrate.quad(
        lambda u: rate * math.exp(-rate * (1 - u)) * (constant + gradient * u + curvature / 2 * u**2), 0, 1
    )
    expected = float(before) * math.exp(-rate) + integral
    assert float(finished.value.value) == pytest.approx(expected, rel=1e-9)


def test_dpmpp_2s_without_noise() -> None:
    """Reference: DPMSolverSinglestepScheduler, second order, on levels evenly spaced in log sigma.

    Every second level is then the middle of a step; diffusers has no ancestral version.
    """
    scheduler = diffusers.DPMSolverSinglestepScheduler(
        **STABLE_DIFFUSION, solver_order=2, use_exponential_sigmas=True, final_sigmas_type="sigma_min"
    )
    scheduler.set_timesteps(20)
    lift_to_double(scheduler)
    scheduler.sigmas = torch.logspace(1.0, -1.0, 21, dtype=torch.float64)
    sigmas = tuple(float(sigma) for sigma in scheduler.sigmas[::2])
    ours = record("dpmpp_2s_ancestral", start(sigmas[0]), sigmas, eta=0.0)
    assert_same(ours, run_preserving(scheduler, ours.sigmas), SINGLE)


@pytest.mark.parametrize("solver", ["bh1", "bh2"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_uni_pc(order: int, solver: str) -> None:
    """Reference: UniPCMultistepScheduler, predicting the clean latent, with its corrector.

    With bh1 it ends above 0, since diffusers multiplies 0 by infinity there.
    """
    scheduler = diffusers.UniPCMultistepScheduler(
        **STABLE_DIFFUSION,
        solver_order=order,
        solver_type=solver,
        final_sigmas_type="sigma_min" if solver == "bh1" else "zero",
    )
    scheduler.set_timesteps(12)
    lift_to_double(scheduler)
    sigmas = exploding_sigmas(scheduler)
    ours = record("uni_pc", start(sigmas[0]), sigmas, order=order, solver=solver)
    assert_same(ours, run_preserving(scheduler, ours.sigmas), DOUBLE)
