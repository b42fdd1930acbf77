"""Implements KSampler and KSamplerAdvanced: one sampling of a batch of latents, step by step.

The host may do anything between two steps, so each step fetches the engine again.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from time import monotonic

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from calotype.core.errors import Problem, RequestError
from calotype.engine.engine import Engine
from calotype.engine.img2img import takes_mask_channels
from calotype.engine.sampling_run import InpaintMask
from calotype.models.architecture import Architecture
from calotype.sampling import begin, options_of_run, sigmas_of_run
from calotype.workflow.node_api import Context, Step
from calotype.workflow.nodes.impl.cfg import MultiCondDenoiser
from calotype.workflow.nodes.impl.comfy_noise import initial_noise, later_noise
from calotype.workflow.nodes.impl.conditioning_masks import Conditions, Control, Pairs
from calotype.workflow.nodes.impl.controlnet_unet import ControlledNetwork, with_controlnets
from calotype.workflow.nodes.impl.latents import Latent, for_model, repeated_to
from calotype.workflow.nodes.impl.tensor_image import as_jpeg
from calotype.workflow.nodes.inputs import SAMPLER_VARIANTS
from calotype.workflow.nodes.model_provider import NodeModels
from calotype.workflow.nodes.value_types import ModelValue

Sampled = Generator[Step, None, tuple[Latent]]

PREVIEW_EVERY_S = 0.2


@dataclass(frozen=True)
class SamplingParams:
    """The parameters of one sampling."""

    model: ModelValue
    seed: int
    steps: int
    cfg: float
    sampler: str
    schedule: str
    positive: Pairs
    negative: Pairs
    latent: Latent
    denoise: float = 1.0
    first_step: int = 0
    last_step: int | None = None
    add_noise: bool = True
    to_the_end: bool = False
    """Whether the last step removes all noise although the schedule continues."""


def ksampler(
    context: Context,
    model: ModelValue,
    seed: int,
    steps: int,
    cfg: float,
    sampler_name: str,
    scheduler: str,
    positive: Pairs,
    negative: Pairs,
    latent_image: Latent,
    denoise: float = 1.0,
) -> Sampled:
    return sampled(
        context.models,
        SamplingParams(
            model,
            seed,
            steps,
            cfg,
            sampler_name,
            scheduler,
            positive,
            negative,
            latent_image,
            denoise=denoise,
        ),
    )


def ksampler_advanced(
    context: Context,
    model: ModelValue,
    add_noise: str,
    noise_seed: int,
    steps: int,
    cfg: float,
    sampler_name: str,
    scheduler: str,
    positive: Pairs,
    negative: Pairs,
    latent_image: Latent,
    start_at_step: int,
    end_at_step: int,
    return_with_leftover_noise: str,
) -> Sampled:
    return sampled(
        context.models,
        SamplingParams(
            model,
            noise_seed,
            steps,
            cfg,
            sampler_name,
            scheduler,
            positive,
            negative,
            latent_image,
            first_step=start_at_step,
            last_step=end_at_step,
            add_noise=add_noise != "disable",
            to_the_end=return_with_leftover_noise == "disable",
        ),
    )


def sampled(models: NodeModels, params: SamplingParams) -> Sampled:
    """Run a sampling; return its latent with the final samples."""
    engine = models.for_unet(params.model)
    latent = for_model(params.latent, engine.model.architecture)
    sigmas = _sigmas(engine, params)
    if len(sigmas) < 2:
        return (latent,)
    start = _Start(engine, latent, params)
    denoiser = MultiCondDenoiser(
        Conditions(
            engine.model,
            engine.schedule,
            start.clean.shape[-2:],
            params.positive,
            params.negative,
        ),
        params.cfg,
        lambda controls, size: _controlled_network(models, engine, controls, size),
        start.extra_channels,
    )
    noise = later_noise(start.clean.shape, params.seed, engine.model.device)
    sampler, options = SAMPLER_VARIANTS.get(params.sampler, (params.sampler, {}))
    options = {**options, **options_of_run(params.schedule, sampler)}
    sampling = begin(sampler, start.noised(sigmas[0]), sigmas, noise, **options)
    total, previewed = len(sigmas) - 1, -math.inf
    query = next(sampling)
    while True:
        masked_query = query if start.keep is None else start.keep.mask_input(query)
        denoised = denoiser.denoise(models.for_unet(params.model), masked_query)
        if start.keep is not None:
            denoised = start.keep.mask_output(denoised)
        previous_step = query.step
        try:
            query = sampling.send(denoised)
        except StopIteration as finished:
            samples = _from_unet(finished.value, engine.model.architecture)
            yield Step(total, total, _preview(engine, finished.value))
            return ({**latent, "samples": samples.cpu()},)
        if query.step > previous_step:
            preview = None
            if monotonic() - previewed > PREVIEW_EVERY_S:
                preview, previewed = _preview(engine, denoised), monotonic()
            yield Step(query.step, total, preview)


def _sigmas(engine: Engine, params: SamplingParams) -> tuple[float, ...]:
    """The noise levels between the first and the last step."""
    sampler, _ = SAMPLER_VARIANTS.get(params.sampler, (params.sampler, {}))
    try:
        sigmas = sigmas_of_run(
            params.schedule,
            engine.schedule,
            params.steps,
            sampler=sampler,
            denoise=params.denoise,
            family=engine.model.architecture.family,
        )
    except ValueError as error:
        raise RequestError([Problem("steps", str(error), params.steps)]) from None
    if params.last_step is not None and params.last_step < len(sigmas) - 1:
        sigmas = sigmas[: params.last_step + 1]
        if params.to_the_end:
            sigmas = (*sigmas[:-1], 0.0)
    return sigmas[params.first_step :]


class _Start:
    """The start of a sampling, on the model's device and in the UNet's scale."""

    def __init__(self, engine: Engine, latent: Latent, params: SamplingParams) -> None:
        samples, model = latent["samples"], engine.model
        self._sigma_max = engine.schedule.sigma_max
        noise = torch.zeros_like(samples)
        if params.add_noise:
            noise = initial_noise(samples.shape, params.seed, latent.get("batch_index"))
        self._noise = noise.to(model.device)
        self.clean = samples.float().to(model.device)
        # An empty latent is zero in every scale.
        if bool(samples.any()):
            self.clean = _to_unet(self.clean, model.architecture)
        mask = latent.get("noise_mask")
        paint = None if mask is None else _fitted_mask(mask, samples).to(model.device)
        self.keep: InpaintMask | None = None
        if paint is not None:
            self.keep = InpaintMask(self.clean, self._noise_for_keeping(params), paint)
        self.extra_channels: Tensor | None = None
        if takes_mask_channels(model):
            ones = torch.ones_like(self.clean[:, :1])
            self.extra_channels = torch.cat([ones if paint is None else paint.round(), self.clean], dim=1)

    def noised(self, sigma: float) -> Tensor:
        """The latents at the first noise level."""
        # At the maximum noise level the variances add up, as in the model's training.
        most = sigma > self._sigma_max or math.isclose(sigma, self._sigma_max, rel_tol=1e-5)
        return self.clean + self._noise * (math.sqrt(1 + sigma**2) if most else sigma)

    def _noise_for_keeping(self, params: SamplingParams) -> Tensor:
        """The noise of the kept area; ComfyUI's ddim draws separate noise for it."""
        if params.sampler != "ddim":
            return self._noise
        return later_noise(self.clean.shape, params.seed, self.clean.device)()


def _fitted_mask(mask: Tensor, samples: Tensor) -> Tensor:
    mask = mask.reshape(-1, 1, *mask.shape[-2:]).float()
    return repeated_to(interpolate(mask, size=samples.shape[-2:], mode="bilinear"), len(samples))


def _to_unet(samples: Tensor, architecture: Architecture) -> Tensor:
    scale, shift = _scale(architecture)
    return (samples - shift) * scale


def _from_unet(latents: Tensor, architecture: Architecture) -> Tensor:
    scale, shift = _scale(architecture)
    return latents / scale + shift


def _scale(architecture: Architecture) -> tuple[float, float]:
    vae = architecture.vae
    return float(vae.get("scaling_factor", 0.18215)), float(vae.get("shift_factor") or 0.0)


def _controlled_network(
    models: NodeModels, engine: Engine, controls: tuple[Control, ...], size: tuple[int, int]
) -> ControlledNetwork:
    model, last = engine.model, len(engine.schedule.sigmas) - 1
    ready = [
        with_controlnets(control, models.control_net(control.net, engine), model, size, last)
        for control in controls
    ]
    return ControlledNetwork(model, ready)


def _preview(engine: Engine, latents: Tensor) -> bytes:
    return as_jpeg(engine.previews(latents[:1])[0])
